"""The runner of remit's built-in agents."""

import asyncio
from collections.abc import Callable

from remit.app.agent_loop.agent_run import AgentRun
from remit.app.agent_loop.budget import RootLimits
from remit.app.agent_loop.current_run import CurrentRun, RunServices
from remit.app.agent_loop.toolset import RunTools, Toolsets
from remit.app.agents.registry import Agent, AgentRegistry
from remit.app.conversations.conversation import Conversation
from remit.app.runs.run_handle import RunHandle
from remit.domain.llm.selection import HOW_TO_SET_A_MODEL
from remit.domain.records.serialize import dumps
from remit.domain.task import commands as cmd
from remit.domain.task.policy import must_have_usable_tool, write_requirements
from remit.domain.task.task import FailCause, Task
from remit.errors import RemitError
from remit.ports import (
    Clock,
    EventStore,
    Models,
    OperationTools,
    ToolHost,
    WorkspaceFacts,
)

OFFLINE = "offline"


class AgentRunner:
    """Runs remit's built-in agents."""

    reports = True
    """A task that reaches its time limit gets one more run to report its progress."""

    def __init__(
        self,
        store: EventStore,
        agents: AgentRegistry,
        models: Models,
        tools: Callable[[], ToolHost],
        operations: OperationTools,
        clock: Clock,
        workspace_facts: WorkspaceFacts | None = None,
    ) -> None:
        self._services = RunServices(
            store, agents, models, tools, operations, clock, workspace_facts, RootLimits(store)
        )
        self._toolsets = Toolsets(self._services)

    async def run(self, handle: RunHandle) -> None:
        """Work on a task until its run has ended."""
        task = handle.task
        agent = self._services.agents.get(task.owner)
        if agent is None:
            return await _fail_run(handle, f"Unknown agent {task.owner!r}.")
        try:
            chosen = self._services.models.resolve(task.model or agent.model)
        except RemitError as refused:
            return await _fail_run(handle, str(refused), cause=refused.details.get("cause"))
        conversation = await self._conversation(task)
        granted = frozenset(self._services.agents.grant(agent.id, task.tools))
        try:
            tools = await self._tools(agent, task, granted)
        except RemitError as refused:
            return await _reject(handle, str(refused))
        needs = write_requirements(task, granted) if chosen.offline else ""
        if needs:
            return await _fail_run(handle, _without_model(task, needs), cause="model_unconfigured")
        run = CurrentRun(self._services, handle, agent, chosen, conversation)
        return await _carry_out(AgentRun(run, tools), handle)

    async def _conversation(self, task: Task) -> Conversation:
        """Return the stored conversation; the first run of a task has none."""
        if task.counts.runs <= 1:
            return Conversation(task.id, [], {})
        return await Conversation.load(self._services.store, task.id)

    async def _tools(self, agent: Agent, task: Task, granted: frozenset[str]) -> RunTools:
        """Return the tools of a run; raise an error if the task needs one that it cannot get."""
        offered = granted if task.tools.offer is None else granted & frozenset(task.tools.offer)
        toolset = await self._toolsets.get(agent, offered, task)
        usable = self._services.agents.usable(agent.id, toolset.known)
        must_have_usable_tool(task, offered, toolset.known, usable)
        return RunTools(self._toolsets, agent, offered, toolset)

    def trouble(self) -> str:
        """Return the models whose circuit is open as JSON; empty if there are none."""
        found = self._services.models.trouble()
        return dumps(found) if found else ""


async def _carry_out(agent_run: AgentRun, handle: RunHandle) -> None:
    """Carry out a run, release its task if the worker hands over, and close its tools."""
    try:
        await agent_run.run_within_time_limit()
    except asyncio.CancelledError:
        if not handle.handed_over:
            raise
        await agent_run.release()
    finally:
        await agent_run.close()


async def _fail_run(handle: RunHandle, error: str, *, cause: FailCause | None = None) -> None:
    """Fail a task for good: another run would fail too."""
    await handle.do(cmd.FailRun(task_id=handle.task.id, error=error, permanent=True, cause=cause))


async def _reject(handle: RunHandle, why: str) -> None:
    """End a task that cannot be carried out as requested: a retry would not help."""
    await handle.do(cmd.AbortTask(task_id=handle.task.id, reason="rejected", message=why))


def _without_model(task: Task, needs: str) -> str:
    """Explain why the offline model cannot work on a task, and what to do."""
    why = (
        "This task asks for the offline model, and it needs"
        if task.model == OFFLINE
        else "No model is configured, and this task needs"
    )
    return f"{why} {needs}. The offline model only searches and reads. {HOW_TO_SET_A_MODEL}"
