"""Commands that change several tasks: plans, new tasks, dependencies, recurrence, authority.

Decisions yield lookups; `app.service` answers them from the store.
"""
