"""The tools that an agent can call, and those that its model is shown."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from remit.app.agent_loop.current_run import RunServices
from remit.app.agents.registry import Agent
from remit.domain.agents.tools import ToolSpec
from remit.domain.llm.failures import CALLS_NO_MORE, LACKS_TOOL, NO_TOOL_CALLS, NOT_A_TOOL_HERE
from remit.domain.llm.messages import Tool
from remit.domain.prompts import agent_prompts, offered_tools
from remit.domain.records.pick import pick
from remit.domain.task.commands import PlanTool
from remit.domain.task.task import Task
from remit.errors import Forbidden


class Toolset(NamedTuple):
    """The tools of one agent."""

    files: Mapping[str, ToolSpec]
    """Tools of the host that the agent can call, by name."""
    operations: Mapping[str, ToolSpec]
    """Operations of remit that the agent can call, by name."""
    tools: tuple[Tool, ...]
    """The tools that the model is shown."""
    known: tuple[str, ...]
    """Every tool name that a grant can hold here."""


class Toolsets:
    """The toolsets of all agents.

    Each is built once: gateways recognize the same objects and do not encode them again.
    """

    def __init__(self, services: RunServices) -> None:
        self._services = services
        self._known: dict[tuple[str, frozenset[str], bool, bool], Toolset] = {}

    async def get(self, agent: Agent, offered: frozenset[str], task: Task) -> Toolset:
        """Return the tools of an agent whose task offers these, and what the task needs besides.

        Raise `Forbidden` if this machine cannot provide them.
        """
        has_guides, has_reports = bool(task.guides), offered_tools.reads_reports(task)
        key = agent.id, offered, has_guides, has_reports
        found = self._known.get(key)
        if found is None:
            found = await self._build(
                agent, offered, has_guides=has_guides, has_reports=has_reports
            )
            self._known[key] = found
        return found

    async def _build(
        self, agent: Agent, offered: frozenset[str], *, has_guides: bool, has_reports: bool
    ) -> Toolset:
        """Return the tools of a run: those of the workspace and those of remit."""
        host = self._services.tools()
        try:
            specs, refusal = host.specs(), await host.refusal(offered)
        finally:
            await host.close()
        if refusal:
            raise Forbidden(refusal)  # not cached: the machine may be fixed later
        of_host = _by_name(specs)
        files = pick(of_host, offered)
        operations = _by_name(self._services.operations.usable(agent, offered))
        has_tasks = "tasks" in agent.capabilities
        shown = offered_tools.offered(
            tuple(files),
            operations,
            agents=len(self._services.agents.spawnable(agent)),
            has_tasks=has_tasks,
            has_guides=has_guides,
            has_reports=has_reports,
        )
        callable_tools = files | operations
        tools = tuple(_tool(callable_tools[name]) for name in shown)
        known = (*of_host, "TodoWrite", "Task")
        return Toolset(files, operations, tools, known)


def _by_name(specs: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    return {spec.name: spec for spec in specs}


def _tool(spec: ToolSpec) -> Tool:
    return Tool(spec.name, spec.description, spec.parameters)


class RunTools:
    """The tools of a run."""

    def __init__(
        self, toolsets: Toolsets, agent: Agent, offered: frozenset[str], toolset: Toolset
    ) -> None:
        self._toolsets, self._agent = toolsets, agent
        self.offered = offered
        """The tools that the task of the run offers."""
        self.files, self.operations, self.shown, self._known = toolset
        self.plan_tool: PlanTool = agent_prompts.plan_tool(self.shown_names)
        """The tool with which the agent changes its plan."""

    async def show_for(self, task: Task) -> None:
        """Update the tools shown to the model: the task may have received a guide or a subtask."""
        toolset = await self._toolsets.get(self._agent, self.offered, task)
        self.shown = toolset.tools

    @property
    def shown_names(self) -> list[str]:
        """The names of the tools that the model is shown."""
        return [tool.name for tool in self.shown]

    @property
    def all_names(self) -> list[str]:
        """The names of the tools that are shown, and of all that a grant can hold."""
        return [*self.shown_names, *self._known]

    @property
    def callable_names(self) -> set[str]:
        """The names of all tools that the agent can call, shown to its model or not."""
        return {*self.files, *self.operations}

    def is_callable(self, name: str) -> bool:
        """True for a tool that the agent can call."""
        return name in self.operations or name in self.files

    def is_repeatable(self, name: str) -> bool:
        """True for a tool that a run may repeat, and for a name that is not a tool."""
        spec = self.files.get(name)
        if spec is None:
            return name not in self.operations
        return spec.repeatable

    def why_no_call(self, name: str, *, has_called: bool) -> str:
        """Explain the failure of a model that only writes calls of a tool as text.

        `has_called` is True if it has called a tool before.
        """
        if self.is_callable(name):
            explanation = CALLS_NO_MORE if has_called else NO_TOOL_CALLS
            return explanation.format(tool=name)
        explanation = NOT_A_TOOL_HERE.format(tool=name, tools=", ".join(self.shown_names))
        if name not in self._known:
            return explanation
        return explanation + LACKS_TOOL.format(tool=name)
