"""The result cache: finds the result of an identical read-only task by its cache key."""

from collections.abc import Callable, Container
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Literal, NamedTuple

from remit.app.agents.registry import AgentRegistry, role_prompt
from remit.domain.decisions.creation import NewIds, creation_event, list_tools
from remit.domain.decisions.evolve import evolve
from remit.domain.delegation.cache_key import result_cache_key, tools_with_effects
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Task
from remit.errors import RemitError, invalid
from remit.ports import AgentEquipment, EventStore, Models, ToolHost
from remit.store_queries.tree_queries import RESULT

TOO_MANY = "the workspace has too many files"
NOT_HERE = "this process does not know the workspace and the models"


def cache_key_of(
    task: Task, agents: AgentRegistry, models: Models, host: ToolHost, files: str
) -> str:
    """Return the cache key of a task with the agents, models and tools of this process.

    Raise `InvalidParam` if the task has tools that change something.
    """
    agent = agents.get(task.owner)
    assert agent is not None, "the caller has looked it up"
    granted = agents.grant(agent.id, task.tools)
    if others := tools_with_effects(agent, granted, host.specs()):
        raise invalid(
            "cache",
            f"requires a read-only task, but this one can use {', '.join(others)}",
            "a grant of read-only tools",
        )
    chosen = models.resolve(task.model or agent.model)
    effort = f", effort {chosen.effort}" if chosen.effort else ""
    model = f"{chosen.model} ({chosen.shown}){effort}"
    return result_cache_key(task, agent, role_prompt(agent, granted), model, granted, files)


class Resolution(NamedTuple):
    """How an item of work gets its result."""

    kind: Literal["found", "shared", "uncached", "new"]
    task_id: str = ""
    """Found: the task whose result is reused."""
    key: str | None = None
    """Shared: the cache key of the item that does the same work.

    New: the cache key of the new task; None if the cache was not requested.
    """
    notice: str = ""
    """Uncached: why the cache was not used."""


class ResultCache:
    """Looks up results; the workspace is read once for all items of a call."""

    def __init__(
        self,
        store: EventStore,
        agents: AgentRegistry,
        now: Callable[[], datetime],
        equipment: Callable[[], AbstractAsyncContextManager[AgentEquipment]] | None,
    ) -> None:
        self._store, self._agents, self._now, self._equipment = store, agents, now, equipment
        self._files: str | None = None

    async def resolve(
        self,
        command: cmd.CreateTask | cmd.CreateSubtask,
        actor: str,
        parent: Task | None = None,
        *,
        cache: bool,
        under_way: Container[str] = (),
    ) -> Resolution:
        """Find the result of a command, an identical item under way, or the key of a new task.

        `cache` is true if the caller asked for the cache. Raise `InvalidParam` if the task can then
        do more than read.
        """
        if not cache:
            return Resolution("new")
        _must_be_cacheable(command)
        key, reason = await self._key(command, actor, parent)
        if key is None:
            return Resolution("uncached", notice=f"The cache was not used: {reason}.")
        if (task_id := await self.find(key)) is not None:
            return Resolution("found", task_id)
        return Resolution("shared" if key in under_way else "new", key=key)

    async def _key(
        self, command: cmd.CreateTask | cmd.CreateSubtask, actor: str, parent: Task | None
    ) -> tuple[str | None, str]:
        """Return the cache key of a command, or None and the reason why it has none."""
        agent = self._agents.find(command.owner or "")
        if agent is None or self._equipment is None:
            return None, NOT_HERE
        task = self._planned_task(replace(command, owner=agent.id), agent.id, actor, parent)
        async with self._equipment() as (models, tools):
            host = tools()
            try:
                self._files = self._files or await host.fingerprint()
                if self._files is None:
                    return None, TOO_MANY
                return cache_key_of(task, self._agents, models, host, self._files), ""
            finally:
                await host.close()

    async def find(self, key: str) -> str | None:
        """Return the newest completed task with a key; None if there is none."""
        rows = await self._store.select(RESULT, {"key": key})
        return str(rows[0].id) if rows else None

    def _planned_task(
        self,
        command: cmd.CreateTask | cmd.CreateSubtask,
        owner: str,
        actor: str,
        parent: Task | None,
    ) -> Task:
        """Return the task that a command would create."""
        if isinstance(command, cmd.CreateSubtask) and parent is not None:
            mine, theirs = (
                self._agents.grant(owner, command.tools),
                self._agents.grant(parent.owner, parent.tools),
            )
            command, parent = list_tools(command, mine, parent, theirs)
        event = creation_event(command, NewIds(id="0", uid="", thread_id=""), actor, parent)
        return evolve(
            None, ev.Entry(id="", stream="0", version=1, at=self._now(), actor=actor, event=event)
        )


def _must_be_cacheable(command: cmd.CreateTask | cmd.CreateSubtask) -> None:
    """Refuse a command with fields that the cache cannot honor."""
    for field in ("idempotency_key", "depends_on"):
        if getattr(command, field):
            raise invalid(
                "cache",
                f"cannot be combined with {field}",
                "only one of them",
            )


async def is_still_valid(task: Task, agents: AgentRegistry, models: Models, host: ToolHost) -> bool:
    """True if nothing that the cache key of a task depends on has changed since it started."""
    files = await host.fingerprint()
    if files is None:
        return False
    try:
        return cache_key_of(task, agents, models, host, files) == task.cache_key
    except RemitError:
        return False
