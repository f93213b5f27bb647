"""Answers the lookups of plans from the store, the agents and the clock."""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from remit.app.writing.task_cache import Seen, TaskCache
from remit.codec import decode_event
from remit.domain.decisions.creation import NewIds
from remit.domain.decisions.evolve import evolve
from remit.domain.outputs.required_outputs import FileQuery, Files
from remit.domain.planning import lookups as ask
from remit.domain.planning.downtime import unattended_since
from remit.domain.planning.recurrence import recurs, series_of
from remit.domain.projection.stored_usage import (
    StoredUsage,
    as_counts,
    model_usage,
    tool_uses,
)
from remit.domain.task import events as ev
from remit.domain.task.task import Task, Usage
from remit.ports import Agents, Clock, EventStore
from remit.store_queries.event_queries import EVENTS, PlacedEvent
from remit.store_queries.query import task_ids
from remit.store_queries.queue_queries import SERIES
from remit.store_queries.record_queries import GUIDE, INTERACTION
from remit.store_queries.run_queries import CALLS, MESSAGES, MessageRow
from remit.store_queries.task_queries import TASKS
from remit.store_queries.tree_queries import ATTENDED, DEPENDENTS, ENDED_CHILDREN

LEASE_SECONDS = 10.0
"""The default time without a heartbeat after which a worker counts as dead."""
BATCH = 100
"""How many rows are read at a time."""
EVERYTHING = 0
"""The root id under which workers that serve every tree are recorded."""

LookFor = Callable[[Sequence[FileQuery]], Awaitable[Files]]
"""Looks up files of the workspace."""
ServedRoots = Callable[[Collection[int]], Awaitable[Collection[int]]]
"""Returns those of some roots whose trees live workers serve."""


async def _all_served(roots: Collection[int]) -> Collection[int]:
    """Return all roots: without knowledge of workers, no time is excluded."""
    return roots


async def _without_workspace(_files: Sequence[FileQuery]) -> Files:
    """Return no files: this process does not know the workspace."""
    return {}


def _latest(*times: datetime | None) -> datetime | None:
    """Return the latest of some times; None if all of them are unknown."""
    return max(filter(None, times), default=None)


class PlanLookups:
    """Answers each lookup; tasks that it reads are added to what the attempt has seen."""

    def __init__(
        self,
        store: EventStore,
        clock: Clock,
        agents: Agents,
        cache: TaskCache,
        files: LookFor | None,
    ) -> None:
        self._store, self._clock, self._agents = store, clock, agents
        self._cache = cache
        self._look_for = files or _without_workspace
        self.lease_seconds = LEASE_SECONDS
        """The time without a heartbeat after which a worker counts as dead."""
        self.served_roots: ServedRoots = _all_served
        """Returns the trees that live workers serve."""

    async def answer(self, need: ask.Lookup, seen: Seen) -> Any:
        """Return the answer that a plan is sent for its lookup."""
        return await self.ANSWERS[type(need)](self, need, seen)

    async def _load(self, need: ask.Load, seen: Seen) -> dict[str, Task | None]:
        """Return tasks by their references."""
        return await self._cache.load(need.refs, seen)

    async def _seen_files(self, need: ask.SeenFiles, _seen: Seen) -> Files:
        """Return what is found of some files of the workspace."""
        return await self._look_for(need.files)

    async def _known_agents(self, _need: ask.KnownAgents, _seen: Seen) -> frozenset[str]:
        """Return the ids of all known agents."""
        return self._agents.ids()

    async def _granted(self, need: ask.Granted, _seen: Seen) -> tuple[str, ...]:
        """Return the tools that an agent has under a grant."""
        return self._agents.grant(need.agent_id, need.tools)

    async def _known_tools(self, _need: ask.KnownTools, _seen: Seen) -> frozenset[str]:
        """Return the names of all known tools."""
        return self._agents.tool_names()

    async def _next_slot(self, need: ask.NextSlot, _seen: Seen) -> datetime:
        """Return the next slot of a schedule."""
        return self._clock.next_slot(need.cron, need.after)

    async def _new_task_ids(self, _need: ask.NewTaskIds, _seen: Seen) -> NewIds:
        """Reserve the ids of one new task."""
        return (await self._new_ids(1))[0]

    async def _many_task_ids(self, need: ask.ManyTaskIds, _seen: Seen) -> list[NewIds]:
        """Reserve the ids of several new tasks."""
        return await self._new_ids(need.count)

    async def _usage_in_store(self, need: ask.UsageInStore, _seen: Seen) -> dict[str, StoredUsage]:
        """Return the stored usage of tasks that end, by task."""
        return {task_id: await self._stored_usage(task_id) for task_id in need.task_ids}

    async def _stored_usage(self, task_id: str) -> StoredUsage:
        """Return the usage of all stored messages and calls of a task that ends."""
        usage = Usage()
        after = 0
        while rows := await self._messages_after(task_id, after):
            usage = usage.plus(model_usage(json.loads(row.doc) for row in rows))
            after = rows[-1].number
        if after == 0:
            return StoredUsage(usage=usage, tools=())
        calls = await self._store.select(CALLS, {"id": int(task_id)})
        return StoredUsage(usage=usage, tools=as_counts(tool_uses(calls, is_ended=True)))

    async def _messages_after(self, task_id: str, number: int) -> Sequence[MessageRow]:
        """Return the next messages of a task."""
        params = {"id": int(task_id), "after": number, "limit": BATCH}
        return await self._store.select(MESSAGES, params)

    async def _dependents(self, need: ask.Dependents, seen: Seen) -> tuple[Task, ...]:
        """Return the tasks that depend on a task."""
        rows = await self._store.select(DEPENDENTS, {"id": int(need.task_id)})
        found = await self._cache.load(task_ids(rows), seen)
        return tuple(filter(None, found.values()))

    async def _ended_children(self, need: ask.EndedChildren, _seen: Seen) -> frozenset[str]:
        """Return the ids of the subtasks that have ended."""
        rows = await self._store.select(ENDED_CHILDREN, {"id": int(need.task_id)})
        return frozenset(task_ids(rows))

    async def _ends(self, need: ask.TaskEnds, _seen: Seen) -> dict[str, ask.End]:
        """Return how tasks ended, without keeping the tasks."""
        found: dict[str, ask.End] = {}
        for start in range(0, len(need.ids), BATCH):
            wanted = list(map(int, need.ids[start : start + BATCH]))
            for row in await self._store.select(TASKS, {"ids": wanted}):
                task = self._cache.parse(str(row.id), row.hash, row.doc).task
                found[task.id] = ask.End.of(task)
        return found

    async def _known_guides(self, need: ask.KnownGuides, _seen: Seen) -> frozenset[str]:
        """Return those of some guides that exist."""
        rows = await self._store.select(GUIDE, {"names": list(need.ids)})
        return frozenset(row.id for row in rows)

    async def _claimed_key(self, need: ask.ClaimedKey, _seen: Seen) -> Any:
        """Return the event that claimed an idempotency key; None for an unused key."""
        rows = await self._store.select(EVENTS, {"stream": need.stream, "after": 0, "limit": 1})
        if not rows:
            return None
        return decode_event(rows[0].stored).event

    async def _interaction(self, need: ask.Answer, _seen: Seen) -> dict[str, Any] | None:
        """Return the status and the answer of a question; None if there is no such question."""
        rows = await self._store.select(INTERACTION, {"interaction": need.interaction_id})
        if not rows:
            return None
        found = rows[0]
        return {
            "status": found.status,
            "answer": found.answer,
            "answered_by": found.answered_by,
            "answered_at": found.answered_at,
        }

    async def _task_at_start(self, need: ask.TaskAtStart, _seen: Seen) -> Task | None:
        """Return a task as it was just before its first start; None if it has not started."""
        task: Task | None = None
        after = 0
        while rows := await self._events_after(need.task_id, after):
            for row in rows:
                entry = decode_event(row.stored)
                if isinstance(entry.event, ev.TaskStarted):
                    return task
                task, after = evolve(task, entry), entry.version
        return None

    async def _events_after(self, stream: str, version: int) -> Sequence[PlacedEvent]:
        """Return the next events of a stream."""
        params = {"stream": stream, "after": version, "limit": BATCH}
        return await self._store.select(EVENTS, params)

    async def _unattended_since(self, need: ask.UnattendedSince, seen: Seen) -> dict[str, datetime]:
        """Return since when no worker has served each task; served tasks are left out."""
        tasks = [seen[task_id].task for task_id in need.task_ids]
        roots = {int(task.root_id) for task in tasks}
        attended = await self._attended_at(roots)
        served = await self.served_roots(roots)
        now, lease = self._clock.now(), timedelta(seconds=self.lease_seconds)
        found: dict[str, datetime] = {}
        for task in tasks:
            root = int(task.root_id)
            attended_at = _latest(attended.get(EVERYTHING), attended.get(root))
            since = unattended_since(task, attended_at, now, lease, is_served=root in served)
            if since is not None:
                found[task.id] = since
        return found

    async def _attended_at(self, roots: Iterable[int]) -> dict[int, datetime]:
        """Return when a worker last served each tree, and every tree (`EVERYTHING`)."""
        rows = await self._store.select(ATTENDED, {"ids": [EVERYTHING, *sorted(roots)]})
        return {row.root_id: datetime.fromisoformat(row.at) for row in rows}

    async def _live_of_series(self, need: ask.LiveOfSeries, seen: Seen) -> Task | None:
        """Return the task of a series that has not ended; None without one."""
        series_id = need.series_id
        pattern = f'%"series_id":"{series_id}"%'
        rows = await self._store.select(SERIES, {"id": int(series_id), "pattern": pattern})
        found = await self._cache.load(task_ids(rows), seen)
        tasks = filter(None, found.values())
        # User text can match the pattern too.
        live = (task for task in tasks if recurs(task) and series_of(task) == series_id)
        return next(live, None)

    async def _new_ids(self, count: int) -> list[NewIds]:
        """Reserve ids for new tasks."""
        numbers = await self._store.new_ids(count)
        return [
            NewIds(id=str(number), uid=self._clock.uid(), thread_id=self._clock.uid())
            for number in numbers
        ]

    ANSWERS: ClassVar[Mapping[type[ask.Lookup], Callable[[Any, Any, Seen], Awaitable[Any]]]] = {
        ask.Load: _load,
        ask.SeenFiles: _seen_files,
        ask.Dependents: _dependents,
        ask.EndedChildren: _ended_children,
        ask.TaskEnds: _ends,
        ask.KnownGuides: _known_guides,
        ask.KnownAgents: _known_agents,
        ask.Granted: _granted,
        ask.KnownTools: _known_tools,
        ask.ClaimedKey: _claimed_key,
        ask.Answer: _interaction,
        ask.NextSlot: _next_slot,
        ask.TaskAtStart: _task_at_start,
        ask.UnattendedSince: _unattended_since,
        ask.UsageInStore: _usage_in_store,
        ask.LiveOfSeries: _live_of_series,
        ask.NewTaskIds: _new_task_ids,
        ask.ManyTaskIds: _many_task_ids,
    }
    """The method that answers each lookup."""
