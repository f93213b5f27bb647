"""Who can be given work: the agents that come with remit."""

from remit.domain.record import record


@record
class Agent:
    """A stateless definition of somebody who can be given work."""

    id: str
    description: str
    mode: str = "subagent"
    model: str = "main"
    tools: tuple[str, ...] = ("LS", "Glob", "Grep", "Read", "TodoWrite")
    source: str = "built in"


BUILT_IN = (
    Agent(
        id="build",
        description="Plans a piece of work, does it, and hands parts of it to others.",
        mode="primary",
        tools=("LS", "Glob", "Grep", "Read", "TodoWrite", "Task"),
    ),
    Agent(id="explore", description="Searches and reads the workspace and reports what it found, with places.", model="light"),
    Agent(id="general", description="Works on whatever it is given, from research to several steps of doing."),
    Agent(id="plan", description="Thinks a task through and writes a plan; changes nothing."),
    Agent(id="summary", description="Condenses text and results into what matters.", model="light"),
)


class AgentRegistry:
    """Every known agent by id."""

    def __init__(self, agents: tuple[Agent, ...] = BUILT_IN) -> None:
        self._agents = {agent.id: agent for agent in agents}

    def ids(self) -> frozenset[str]:
        """The ids of all agents."""
        return frozenset(self._agents)

    def all(self) -> list[Agent]:
        """All agents, by id."""
        return [self._agents[agent_id] for agent_id in sorted(self._agents)]

    def get(self, agent_id: str) -> Agent | None:
        """One agent, if there is such a one."""
        return self._agents.get(agent_id)
