"""The registry of agents: built-in agents and those of a workspace."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from remit.app.agents import role_prompts
from remit.domain.agents.agent import (
    READING,
    TOOLS,
    Agent,
    agent_id,
    granted,
    matching,
    may_use,
    not_granted,
)
from remit.domain.records.pick import among, beyond, by_id, in_order
from remit.domain.records.record import replace

__all__ = ["BUILT_IN", "Agent", "AgentRegistry", "role_prompt", "with_edits"]

if TYPE_CHECKING:  # short commands list agents without importing tasks
    from remit.domain.task.task import Task, Tools


EDITORS = ("build", "general")
"""The built-in agents that may change the workspace if the operator allows it."""

BUILT_IN = (
    Agent(
        id="build",
        description="Plans and does a task, and delegates parts of it.",
        mode="primary",
        tools=(*READING, "Task"),
        capabilities=("tasks",),
        prompt=role_prompts.BUILD,
    ),
    Agent(
        id="explore",
        description="Searches and reads the workspace and reports findings with paths and lines.",
        model="light",
        read_only=True,
        prompt=role_prompts.EXPLORE,
    ),
    Agent(
        id="general",
        description="Does any task, from research to multi-step work.",
        prompt=role_prompts.GENERAL,
    ),
    Agent(
        id="plan",
        description="Thinks a task through and writes a plan; changes nothing.",
        read_only=True,
        prompt=role_prompts.PLAN,
    ),
    Agent(
        id="summary",
        description="Summarizes text and results.",
        model="light",
        prompt=role_prompts.SUMMARY,
    ),
)


class AgentRegistry:
    """All known agents by id."""

    def __init__(self, agents: tuple[Agent, ...] = BUILT_IN, functions: Iterable[str] = ()) -> None:
        self._agents = by_id(agents)
        granted_by_files = chain.from_iterable(agent.tools for agent in agents)
        self._tools = tuple(dict.fromkeys((*TOOLS, *functions, *granted_by_files)))

    def ids(self) -> frozenset[str]:
        """Return the ids of all agents."""
        return frozenset(self._agents)

    def all(self) -> list[Agent]:
        """Return all agents, by id."""
        return in_order(self._agents)

    def get(self, agent_id: str | None) -> Agent | None:
        """Return an agent by id, such as the owner of a task; None if it is unknown."""
        return self._agents.get(agent_id or "")

    def find(self, name: str) -> Agent | None:
        """Return the agent with a name; case, spaces, dashes and underscores do not matter.

        None if there is no such agent.
        """
        return self.get(matching(name, self._agents))

    def spawnable(self, agent: Agent) -> dict[str, str]:
        """Return the agents that an agent can delegate to, with their descriptions: its own list,
        or all with the built-in ones first.
        """
        found = {other.id: other.description for other in self.all() if not other.hidden}
        if agent.spawnable is not None:
            return {name: found[name] for name in agent.spawnable if name in found}
        built_in = {other.id: found[other.id] for other in BUILT_IN if other.id in found}
        return built_in | found

    def tier(self, task: "Task") -> str:
        """Return the model of a task: its own, else that of its agent, else the main one."""
        if task.model:
            return task.model
        agent = self.get(task.owner)
        if agent is None:
            return "main"
        return agent.model

    def tool_names(self) -> frozenset[str]:
        """Return the names of all known tools."""
        return frozenset(self._tools)

    def grant(self, agent_id: str | None, tools: "Tools") -> tuple[str, ...]:
        """Return the tools that an agent has under a grant; empty for an unknown agent."""
        agent = self.get(agent_id)
        if agent is None:
            return ()
        return granted(agent, tools.allow, tools.deny)

    def not_granted(
        self, task: "Task", asked: "Tools", lacking: str, own: "Task | None" = None
    ) -> str:
        """Explain which requested tools a task did not get; empty if it got all.

        Without a list, the tools of its agent were requested. `own` is the task whose agent asks:
        it can only pass on its own tools.
        """
        agent = self.get(task.owner)
        if agent is None:
            return ""
        named = beyond(self._asked_tools(agent, asked), asked.deny)
        notice = not_granted(agent, named, self.grant(agent.id, task.tools), lacking)
        unknown = self._list_unknown((*(asked.allow or ()), *asked.deny), own)
        return f"{notice} {unknown}".strip()

    def _asked_tools(self, agent: Agent, asked: "Tools") -> list[str]:
        """Return the known tools of a list, or those of the agent.

        A missing TodoWrite is not mentioned: another tool for the plan replaces it.
        """
        if asked.allow is None:
            return beyond(may_use(agent, agent.tools), ("TodoWrite",))
        return among(asked.allow, self._tools)

    def _list_unknown(self, names: Iterable[str], own: "Task | None") -> str:
        """List names that are not known tools; a worker elsewhere may know such a function."""
        unknown = beyond(dict.fromkeys(names), self._tools)
        if not unknown:
            return ""
        available = self._tools
        if own is not None:
            available = self.grant(own.owner or "", own.tools)
        return f"Unknown tools: {', '.join(unknown)}. Available: {', '.join(available)}."

    def usable(self, agent_id: str, tools: Iterable[str]) -> tuple[str, ...]:
        """Return those tools that a grant could give to an agent; empty for an unknown agent."""
        agent = self._agents.get(agent_id)
        if agent is None:
            return ()
        return may_use(agent, tools)

    def seconds(self, agent_id: str | None) -> float | None:
        """Return the default time limit of an agent; None without one."""
        agent = self.get(agent_id)
        if agent is None:
            return None
        return agent.timeout_seconds

    def id_for_filter(self, name: str) -> str:
        """Return the agent id for a filter, which may also name a removed agent."""
        found = self.find(name)
        if found is None:
            return str(agent_id(name))
        return found.id


def role_prompt(agent: Agent, tools: Collection[str]) -> str:
    """Return the role prompt of an agent with these tools, with the rules for sub-agents."""
    prompt = role_prompts.for_grant(agent.prompt, tools)
    if agent.mode == "primary" or prompt.endswith(role_prompts.SUBAGENT):
        return prompt
    return f"{prompt}\n\n{role_prompts.SUBAGENT}".strip()


def with_edits(agents: Iterable[Agent], tools: Sequence[str]) -> tuple[Agent, ...]:
    """Give `build` and `general` further tools, with which they may change the workspace."""
    return tuple(_add_tools(agent, tools) for agent in agents)


def _add_tools(agent: Agent, tools: Sequence[str]) -> Agent:
    """Return a built-in agent with more tools if it may change the workspace."""
    if agent.id not in EDITORS:
        return agent
    return replace(agent, tools=tuple(dict.fromkeys((*agent.tools, *tools))))
