"""The task as a value, its commands, its events, and the policies that several rules share.

`domain.decisions` decides what commands do.
"""
