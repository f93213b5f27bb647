"""The parts of a write: the task cache, the lookups of plans, jobs that follow, and the unit.

`app.service` puts them together; nothing else commits.
"""
