"""Decisions about one task: how a command becomes events, and how events change the task.

Commands that change several tasks are in `domain.planning`.
"""
