"""Who can be given work: the agents that come with remit, and all that are known in a workspace."""

from typing import TYPE_CHECKING

from remit.app import roles
from remit.domain.agent import READING, Agent, agent_id, granted, matching

__all__ = ["BUILT_IN", "Agent", "AgentRegistry", "role_prompt"]

if TYPE_CHECKING:  # short commands list agents without loading what a task is made of
    from remit.domain.value import Tools


BUILT_IN = (
    Agent(
        id="build",
        description="Plans a piece of work, does it, and hands parts of it to others.",
        mode="primary",
        tools=(*READING, "Task"),
        capabilities=("tasks",),
        prompt=roles.BUILD,
    ),
    Agent(
        id="explore",
        description="Searches and reads the workspace and reports what it found, with places.",
        model="light",
        read_only=True,
        prompt=roles.EXPLORE,
    ),
    Agent(id="general", description="Works on whatever it is given, from research to several steps of doing.", prompt=roles.GENERAL),
    Agent(id="plan", description="Thinks a task through and writes a plan; changes nothing.", read_only=True, prompt=roles.PLAN),
    Agent(id="summary", description="Condenses text and results into what matters.", model="light", prompt=roles.SUMMARY),
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

    def find(self, name: str) -> Agent | None:
        """The agent that is meant by a name; case, spaces, dashes and underscores do not count. Never another one in its place."""
        found = matching(name, self._agents)
        return None if found is None else self._agents[found]

    def grant(self, agent_id: str, tools: "Tools") -> tuple[str, ...]:
        """The tools that an agent has under a grant; nothing for one that is gone."""
        agent = self._agents.get(agent_id)
        return () if agent is None else granted(agent, tools.allow, tools.deny)

    def seconds(self, agent_id: str) -> float | None:
        """How long an agent may work on a task that does not say so itself; any time, if its file does not."""
        agent = self._agents.get(agent_id)
        return None if agent is None else agent.timeout_seconds

    def meant(self, name: str) -> str:
        """The id that a filter means: that of a known agent, or of one that may have been there before."""
        found = self.find(name)
        return str(agent_id(name)) if found is None else found.id


def role_prompt(agent: Agent) -> str:
    """What an agent is told about itself; whoever works for others is also told what that means, if its file does not."""
    if agent.mode == "primary" or agent.prompt.endswith(roles.SUBAGENT):
        return agent.prompt
    return f"{agent.prompt}\n\n{roles.SUBAGENT}".strip()
