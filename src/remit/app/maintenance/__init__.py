"""Maintenance of a store: verification, event dumps, import and export of tasks.

Backups of one database file are not here.
"""
