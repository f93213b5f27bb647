"""Results that answer again: an identical read-only task that was done before, found by what it was made of."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import NamedTuple

from remit.app.agents import AgentRegistry, role_prompt
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.create import NewIds, created, within_reach
from remit.domain.evolve import evolve
from remit.domain.identity import changing, identity
from remit.domain.record import replace
from remit.domain.value import Task
from remit.errors import RemitError, invalid
from remit.ports import Equipment, EventStore, Models, ToolHost

TOO_MANY = "the workspace has more files than can be looked at"
NOT_HERE = "nothing is known here of the workspace and the models"


def key_of(task: Task, agents: AgentRegistry, models: Models, host: ToolHost, files: str) -> str:
    """What a task is known by as it is now, by what this process knows of its agent, its model and its tools."""
    agent = agents.get(task.owner or "")
    assert agent is not None, "looked up by whoever asks"
    granted = agents.grant(agent.id, task.tools)
    if others := changing(agent, granted, host.specs()):
        raise invalid("cache", f"is asked for, but the task could change something with {', '.join(others)}", "a grant of tools that only read")
    chosen = models.resolve(task.model or agent.model)
    effort = f", effort {chosen.effort}" if chosen.effort else ""
    model = f"{chosen.model} ({chosen.shown}){effort}"
    return identity(task, agent, role_prompt(agent, granted), model, granted, files)


class Lookup(NamedTuple):
    """What came of looking for a result: the task that has it, or the key that a new one will be known by, or why there is none."""

    key: str | None = None
    task_id: str | None = None
    why_not: str = ""

    @property
    def unused(self) -> str:
        """What is said to whoever asked for a result from before where none could be looked for."""
        return f"The cache was not used: {self.why_not}." if self.why_not else ""


class ResultCache:
    """Looks for results; the workspace is looked at once, for all that one call asks for."""

    def __init__(
        self,
        store: EventStore,
        agents: AgentRegistry,
        now: Callable[[], datetime],
        equipment: Callable[[], AbstractAsyncContextManager[Equipment]] | None,
    ) -> None:
        self._store, self._agents, self._now, self._equipment = store, agents, now, equipment
        self._files: str | None = None

    async def look(self, command: cmd.CreateTask | cmd.CreateSubtask, actor: str, parent: Task | None = None) -> Lookup:
        """Find a result for what a command asks, below a parent if it has one; refused where it asks for more than reading."""
        _must_be_cacheable(command)
        agent = self._agents.find(command.owner or "")
        if agent is None or self._equipment is None:
            return Lookup(why_not=NOT_HERE)
        task = self._made(replace(command, owner=agent.id), agent.id, actor, parent)
        async with self._equipment() as (models, tools):
            host = tools()
            try:
                self._files = self._files or await host.fingerprint()
                if self._files is None:
                    return Lookup(why_not=TOO_MANY)
                key = key_of(task, self._agents, models, host, self._files)
            finally:
                await host.close()
        return Lookup(key, await self.find(key))

    async def find(self, key: str) -> str | None:
        """The newest task that was done and is known by a key."""
        rows = await self._store.select("result", {"key": key})
        return str(rows[0][0]) if rows else None

    def _made(self, command: cmd.CreateTask | cmd.CreateSubtask, owner: str, actor: str, parent: Task | None) -> Task:
        """The task that a command would make."""
        if isinstance(command, cmd.CreateSubtask) and parent is not None:
            mine, theirs = self._agents.grant(owner, command.tools), self._agents.grant(parent.owner or "", parent.tools)
            command, parent = within_reach(command, mine, parent, theirs)
        event = created(command, NewIds(id="0", uid="", thread_id=""), actor, parent)
        return evolve(None, ev.Entry(id="", stream="0", version=1, at=self._now(), actor=actor, event=event))


def _must_be_cacheable(command: cmd.CreateTask | cmd.CreateSubtask) -> None:
    for field in ("idempotency_key", "depends_on"):
        if getattr(command, field):
            raise invalid("cache", f"is asked for together with {field}", "one of them: what was done before waits for nothing and has its own task")


async def vouched(task: Task, agents: AgentRegistry, models: Models, host: ToolHost) -> bool:
    """Whether the result of a task that is about to end is that of what it was made of: nothing of it has changed meanwhile."""
    if task.cache_key is None or (files := await host.fingerprint()) is None:
        return False
    try:
        return key_of(task, agents, models, host, files) == task.cache_key
    except RemitError:
        return False
