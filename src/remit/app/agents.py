"""Who can be given work: the agents that come with remit."""

BUILT_IN = frozenset({"general", "explore", "plan", "summary", "build"})


class BuiltInAgents:
    """The registry while there are no agent files."""

    def ids(self) -> frozenset[str]:
        """Every known agent."""
        return BUILT_IN
