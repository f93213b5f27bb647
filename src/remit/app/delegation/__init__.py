"""Delegations from outside a run: waiting, progress and outside sessions.

Delegations by a running agent are in `app.subagents`.
"""
