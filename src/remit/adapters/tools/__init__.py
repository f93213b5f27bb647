"""The tools of a sub-agent, on a folder of this machine."""
