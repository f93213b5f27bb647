"""The Python API: operations as methods, streams, blocking calls and output types.

The catalog defines what the methods do.
"""
