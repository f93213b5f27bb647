"""The HTTP surface: request guard, REST, OpenAPI and server-sent events.

MCP over HTTP is in `surfaces.mcp`.
"""
