"""Who can be given work: the agents that come with remit, and all that are known in a workspace."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from remit.app import roles
from remit.domain.agent import READING, TOOLS, Agent, agent_id, granted, matching, may_use, not_granted
from remit.domain.record import replace

__all__ = ["BUILT_IN", "Agent", "AgentRegistry", "role_prompt", "with_edits"]

if TYPE_CHECKING:  # short commands list agents without loading what a task is made of
    from remit.domain.value import Task, Tools


EDITORS = ("build", "general")
"""The built-in agents that change the workspace where the operator allows it."""

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

    def __init__(self, agents: tuple[Agent, ...] = BUILT_IN, functions: Iterable[str] = ()) -> None:
        self._agents = {agent.id: agent for agent in agents}
        granted_by_files = (tool for agent in agents for tool in agent.tools)
        self._tools = tuple(dict.fromkeys((*TOOLS, *functions, *granted_by_files)))

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

    def not_granted(self, task: "Task", asked: "Tools", lacking: str) -> str:
        """What a task was to have and does not, and why; empty if it has all.

        Without a list, the tools of its agent were asked for; of these, reading ones are not worth a word.
        """
        agent = self._agents.get(task.owner or "")
        if agent is None:
            return ""
        own = [tool for tool in agent.tools if tool not in READING]
        wanted = [tool for tool in (asked.allow or ()) if tool in self._tools]
        named = [tool for tool in (own if asked.allow is None else wanted) if tool not in asked.deny]
        told = not_granted(agent, named, self.grant(agent.id, task.tools), lacking)
        return " ".join(part for part in (told, self._unknown(asked.allow or ())) if part)

    def _unknown(self, names: Iterable[str]) -> str:
        """Which names no tool here has; a worker elsewhere may know a function that has one."""
        unknown = [name for name in dict.fromkeys(names) if name not in self._tools]
        if not unknown:
            return ""
        return f"Not known here: {', '.join(unknown)}. Known are {', '.join(self._tools)}."

    def usable(self, agent_id: str, tools: Iterable[str]) -> tuple[str, ...]:
        """Those of some tools that an agent could be given by a grant; nothing for one that is gone."""
        agent = self._agents.get(agent_id)
        return () if agent is None else may_use(agent, tools)

    def seconds(self, agent_id: str) -> float | None:
        """How long an agent may work on a task that does not say so itself; any time, if its file does not."""
        agent = self._agents.get(agent_id)
        return None if agent is None else agent.timeout_seconds

    def meant(self, name: str) -> str:
        """The id that a filter means: that of a known agent, or of one that may have been there before."""
        found = self.find(name)
        return str(agent_id(name)) if found is None else found.id


def role_prompt(agent: Agent, tools: Collection[str]) -> str:
    """What an agent that has these tools is told about itself; one that works for others is also told what that means."""
    prompt = roles.for_grant(agent.prompt, tools)
    if agent.mode == "primary" or prompt.endswith(roles.SUBAGENT):
        return prompt
    return f"{prompt}\n\n{roles.SUBAGENT}".strip()


def with_edits(agents: Iterable[Agent], tools: Sequence[str]) -> tuple[Agent, ...]:
    """Agents of which `build` and `general` have further tools: the operator lets them change the workspace."""
    return tuple(replace(agent, tools=tuple(dict.fromkeys((*agent.tools, *tools)))) if agent.id in EDITORS else agent for agent in agents)
