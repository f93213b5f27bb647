"""What the parts of an agent's run work with."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple

from remit.app.agent_loop.budget import RootLimits
from remit.app.agents.registry import Agent, AgentRegistry
from remit.app.conversations.conversation import Conversation
from remit.app.runs.run_handle import RunHandle
from remit.domain.prompts.environment import Environment
from remit.domain.records.serialize import instant
from remit.domain.task.task import Task
from remit.ports import (
    AgentEquipment,
    Clock,
    EventStore,
    Models,
    OperationTools,
    ResolvedModel,
    ToolHost,
    WorkspaceFacts,
)


class RunServices(NamedTuple):
    """What all runs of a runner share."""

    store: EventStore
    agents: AgentRegistry
    models: Models
    tools: Callable[[], ToolHost]
    """Opens the tools of the workspace."""
    operations: OperationTools
    clock: Clock
    workspace_facts: WorkspaceFacts | None
    roots: RootLimits

    def now(self) -> str:
        """Return the current time in the stored format."""
        return instant(self.clock.now())

    def equipment(self) -> AbstractAsyncContextManager[AgentEquipment]:
        """Return the models and tools that agents use in this process."""
        return nullcontext(AgentEquipment(self.models, self.tools))

    async def environment(self) -> Environment:
        """Describe the workspace in which agents work."""
        if self.workspace_facts is None:
            return Environment()
        return await self.workspace_facts.look()


class CurrentRun(NamedTuple):
    """A run of an agent: its task, its model and its conversation."""

    services: RunServices
    handle: RunHandle
    agent: Agent
    chosen: ResolvedModel
    conversation: Conversation

    @property
    def task(self) -> Task:
        """The task as of the last read or write of the run."""
        return self.handle.task
