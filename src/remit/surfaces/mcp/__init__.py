"""The MCP surface: the server, stdio, progress and instructions.

Its tools come from the catalog.
"""
