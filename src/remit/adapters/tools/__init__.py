"""The tools of a sub-agent, on a folder of this machine."""

from remit.adapters.tools.host import WorkspaceTools

__all__ = ["WorkspaceTools"]
