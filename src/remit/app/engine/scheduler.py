"""Wakes tasks that wait for the scheduler: one tick for all workers, and tasks with their own
schedule.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from remit.app.runs.live_workers import IsDead, agent_needed, is_attended, never_dead
from remit.app.service import HeldJob, Service
from remit.domain.planning.recurrence import cron_of
from remit.domain.projection.follow_up_jobs import NEXT_TICK, TICK, Job, can_run
from remit.domain.records.serialize import instant
from remit.domain.task import commands as cmd
from remit.errors import Conflict, Corrupt, NotFound, StaleRun, UnknownEvent
from remit.ports import Clock, Lease, Store
from remit.store_queries.query import Query, TaskNumber
from remit.store_queries.queue_queries import QUEUED, TICKING, TURNING

SYSTEM = "system:scheduler"
PAGE = 100
LOOK_SECONDS = 0.05
"""The minimum time between two checks of a tick whether a run is over, while the store changes."""


class Scheduler:
    """Keeps one tick job in the queue; the job ensures that a tick happens once."""

    def __init__(
        self,
        store: Store,
        service: Service,
        clock: Clock,
        cron: str,
        lease_seconds: float,
        is_dead: IsDead = never_dead,
    ) -> None:
        self._is_dead = is_dead
        self._store, self._service, self._clock, self._cron, self._lease_seconds = (
            store,
            service,
            clock,
            cron,
            lease_seconds,
        )

    async def ensure(self) -> None:
        """Request that the next tick is planned if none is queued, or only one after the scheduled
        time.

        Workers check at the same time, and their data may be outdated when they write. So they only
        add a job, which one worker handles at a time: a slot that has fired is not added again.
        """
        if await self._missing_tick() is not None:
            await self._service.put(Job(key=NEXT_TICK))

    async def plan_next(self, lease: Lease) -> None:
        """Put the next tick into the queue if it is still missing.

        A tick that was missed is left as it is.
        """
        missing = await self._missing_tick()
        if missing is None:
            await self._service.acknowledge(lease)
        else:
            await self._service.put(missing, done=lease)

    async def _missing_tick(self) -> Job | None:
        """Return the tick that should be queued but is not; None if one is queued or running."""
        queued = await self._store.select(QUEUED, {"names": [TICK]})
        # After the check: a slot that passed in between may have fired.
        coming = self._tick_after(self._clock.now())
        latest = coming.at or ""
        for job in queued:
            if job.worker is not None or job.at is None or job.at <= latest:
                return None
        return coming

    async def tick(self, lease: Lease, slot: str | None, stopping: asyncio.Event) -> None:
        """Wake every task that waits for the scheduler, one after the other; then plan the next
        tick.

        If a worker dies mid-tick, another repeats it: it waits for tasks still running and skips
        tasks that started waiting after this slot.
        """
        began = self._clock.now()
        due = datetime.fromisoformat(slot) if slot else began
        async for task_id in self._each(TURNING):
            await self._until_over(task_id, stopping)
        async for task_id in self._each(TICKING):
            if stopping.is_set():
                return await self._store.give_back(lease, 0.0)
            if await self._wake_for_tick(task_id, due, lease):
                await self._until_over(task_id, stopping)
        await self._service.put(self._tick_after(_later(began, slot)), done=lease)
        return None

    async def tick_one(self, task_id: str, lease: Lease) -> None:
        """Wake a task with its own schedule."""
        await self._service.execute(
            cmd.Tick(task_id=task_id), SYSTEM, held=HeldJob(lease, ack=True)
        )

    def _tick_after(self, when: datetime) -> Job:
        """Return the job for the first tick after a time."""
        return Job(key=TICK, at=instant(self._clock.next_slot(self._cron, when)))

    async def _each(self, query: Query[TaskNumber]) -> AsyncIterator[str]:
        """Yield the ids of the tasks of a query, page by page."""
        after = 0
        while rows := await self._store.select(query, {"after": after, "limit": PAGE}):
            for row in rows:
                yield str(row.id)
            after = rows[-1].id

    async def _wake_for_tick(self, task_id: str, due: datetime, lease: Lease) -> bool:
        """Wake a task; return False if that is impossible.

        A task that cannot be woken must not hold up the others.
        """
        try:
            task = await self._service.load(task_id)
            if cron_of(task) is not None or task.wait is None or task.wait.since > due:
                return False
            await self._service.execute(cmd.Tick(task_id=task_id), SYSTEM, held=HeldJob(lease))
        except StaleRun:
            raise
        except (Conflict, Corrupt, NotFound, UnknownEvent):
            return False
        return True

    async def _until_over(self, task_id: str, stopping: asyncio.Event) -> None:
        """Return when the run of a tick is over, however long that takes.

        A worker that is about to stop starts no runs, and leaves the rest of the tick to others.
        """
        async with self._store.watch() as watch:
            while not stopping.is_set() and await self._runs_or_will_run(task_id):
                await watch.wait()
                await asyncio.sleep(LOOK_SECONDS)

    async def _runs_or_will_run(self, task_id: str) -> bool:
        """Return True if a task runs or will run: it may run, and a live worker serves its
        owner.
        """
        try:
            task = await self._service.load(task_id)
        except (Corrupt, NotFound, UnknownEvent):
            return False
        if cron_of(task) is not None or (task.run is None and not can_run(task)):
            return False
        rows = await self._store.workers()
        agent = agent_needed(task.state.value, task.owner)
        return is_attended(rows, self._lease_seconds, self._is_dead, int(task.root_id), agent)


def _later(now: datetime, slot: str | None) -> datetime:
    """Return the later of both times: clocks differ between machines, and a slot must not fire
    twice because of that.
    """
    if not slot:
        return now
    return max(now, datetime.fromisoformat(slot))
