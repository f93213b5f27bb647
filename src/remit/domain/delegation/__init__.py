"""Delegation from one agent to another: requests, the result envelope and the cache key.

Waiting for results is in `app.delegation`.
"""
