"""Access to the catalog: HTTP, MCP, the command line and running agents.

No product rules live here.
"""
