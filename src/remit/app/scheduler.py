"""When what waits for the scheduler gets its turn: one tick for the whole fleet, and tasks with a calendar of their own."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from remit.app.attendance import is_attended, never_dead
from remit.app.service import Held, Service
from remit.domain import command as cmd
from remit.domain.due import NEXT_TICK, TICK, Job, can_run
from remit.domain.series import cron_of
from remit.domain.wire import instant
from remit.errors import Conflict, Corrupt, NotFound, StaleRun, UnknownEvent
from remit.ports import Clock, Lease, Store

SYSTEM = "system:scheduler"
PAGE = 100
LOOK_SECONDS = 0.05
"""How often at most a tick looks whether a turn is over while the store changes."""


class Scheduler:
    """Keeps the one tick job going; the job itself is what makes a tick happen once."""

    def __init__(self, store: Store, service: Service, clock: Clock, cron: str, lease_seconds: float) -> None:
        self._store, self._service, self._clock, self._cron, self._lease_seconds = store, service, clock, cron, lease_seconds

    async def ensure(self) -> None:
        """Request that the next tick is planned if none is queued, or only one later than the calendar says.

        Workers look at the same time, and what they saw may be outdated when they write. So they only put a job, which one
        worker of the fleet does at a time: a slot that has fired is not put again.
        """
        if await self._missing_tick() is not None:
            await self._service.put(Job(key=NEXT_TICK))

    async def plan_next(self, lease: Lease) -> None:
        """Put the next tick into the queue if it is still missing; a tick that was missed is left as it is."""
        missing = await self._missing_tick()
        if missing is None:
            await self._service.acknowledge(lease)
        else:
            await self._service.put(missing, done=lease)

    async def _missing_tick(self) -> Job | None:
        """The tick that should be queued and is not; None if a tick is queued in time, or under way."""
        there = await self._store.select("queued", {"names": [TICK]})
        coming = self._tick_after(self._clock.now())  # after the look: a slot that passed meanwhile may have fired
        is_queued = any(at is None or at <= (coming.at or "") or worker is not None for _, at, worker in there)
        return None if is_queued else coming

    async def tick(self, lease: Lease, slot: str | None, stopping: asyncio.Event) -> None:
        """Give every task that waits for the scheduler its turn, one after the other; then there is the next tick.

        A tick that its worker left half done is done again by another: whose turn was under way is waited for, and who began
        to wait after the slot has had its turn.
        """
        began = self._clock.now()
        due = datetime.fromisoformat(slot) if slot else began
        async for task_id in self._each("turning"):
            await self._until_over(task_id, stopping)
        async for task_id in self._each("ticking"):
            if stopping.is_set():
                return await self._store.give_back(lease, 0.0)
            if await self._turned(task_id, due, lease):
                await self._until_over(task_id, stopping)
        await self._service.put(self._tick_after(_later(began, slot)), done=lease)
        return None

    async def tick_one(self, task_id: str, lease: Lease) -> None:
        """The turn of a task with a calendar of its own."""
        await self._service.execute(cmd.Tick(task_id=task_id), SYSTEM, held=Held(lease, ack=True))

    def _tick_after(self, when: datetime) -> Job:
        return Job(key=TICK, at=instant(self._clock.next_slot(self._cron, when)))

    async def _each(self, query: str) -> AsyncIterator[str]:
        after = 0
        while rows := await self._store.select(query, {"after": after, "limit": PAGE}):
            for (after,) in rows:
                yield str(after)

    async def _turned(self, task_id: str, due: datetime, lease: Lease) -> bool:
        """Whether a task was given its turn; what cannot be given one must not keep the others from theirs."""
        try:
            task = await self._service.load(task_id)
            if cron_of(task) is not None or task.wait is None or task.wait.since > due:
                return False
            await self._service.execute(cmd.Tick(task_id=task_id), SYSTEM, held=Held(lease))
        except StaleRun:
            raise
        except (Conflict, Corrupt, NotFound, UnknownEvent):
            return False
        return True

    async def _until_over(self, task_id: str, stopping: asyncio.Event) -> None:
        """Return once nothing comes of a turn any more, however long that takes.

        A worker that is about to stop picks up nothing itself, and leaves the rest of the tick to others.
        """
        async with self._store.watch() as bell:
            while not stopping.is_set() and await self._under_way(task_id):
                await bell.wait()
                await asyncio.sleep(LOOK_SECONDS)

    async def _under_way(self, task_id: str) -> bool:
        """Whether a task is being run, or will be: it may run, and a worker that is alive serves its owner."""
        try:
            task = await self._service.load(task_id)
        except (Corrupt, NotFound, UnknownEvent):
            return False
        if cron_of(task) is not None or (task.run is None and not can_run(task)):
            return False
        rows = [row for row in await self._store.workers() if task.owner in row.agents.split(",")]
        return is_attended(rows, self._lease_seconds, never_dead, int(task.root_id))


def _later(now: datetime, slot: str | None) -> datetime:
    """The later of both: clocks differ between machines, and a slot must not fire twice for it."""
    return max(now, datetime.fromisoformat(slot)) if slot else now
