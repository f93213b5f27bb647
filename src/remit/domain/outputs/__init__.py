"""Required outputs of a task, its acceptance criteria, and JSON Schema checks.

`domain.decisions.completion` decides when a task is done.
"""
