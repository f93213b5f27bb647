"""The tools of a sub-agent for a folder on this machine."""

from remit.adapters.tools.tool_host import WorkspaceTools

__all__ = ["WorkspaceTools"]
