"""Reads: query handlers, the views that callers get, following events and waiting for tasks.

Writes go through `app.service`.
"""
