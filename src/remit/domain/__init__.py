"""The rules of remit as pure functions over frozen values.

Nothing here reads a clock, a file or a database, and nothing here waits.
"""
