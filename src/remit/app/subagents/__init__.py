"""Delegation by a running agent and by callers from outside: requests, answers and the cache.

Waiting from outside a run is in `app.delegation`.
"""
