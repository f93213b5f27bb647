"""When what waits for the scheduler gets its turn: one tick for the whole fleet, and tasks with a calendar of their own."""

import asyncio
from datetime import datetime

from remit.app.service import Held, Service
from remit.domain import command as cmd
from remit.domain.due import TICK, Job
from remit.domain.value import State, Task
from remit.domain.wire import instant
from remit.errors import Conflict, NotFound, StaleRun, UnknownEvent
from remit.ports import Clock, Lease, Store

SYSTEM = "system:scheduler"
PAGE = 100
PATIENCE_SECONDS = 30.0
"""How long a tick waits for a task that nobody picks up before it goes on to the next."""


class Scheduler:
    """Keeps the one tick job going; the job itself is what makes a tick happen once."""

    def __init__(self, store: Store, service: Service, clock: Clock, cron: str) -> None:
        self._store, self._service, self._clock, self._cron = store, service, clock, cron

    async def ensure(self) -> None:
        """See that there is a tick to come, and none later than the calendar now says; one that was missed is left as it is."""
        there = await self._store.select("queued", {"names": [TICK]})
        coming = self._tick_after(self._clock.now())  # after the look: a slot that passed meanwhile may have fired
        if not there or all(at is not None and at > (coming.at or "") and worker is None for _, at, worker in there):
            await self._service.put(coming)

    async def tick(self, lease: Lease, slot: str | None, stopping: asyncio.Event) -> None:
        """Give every task that waits for the scheduler its turn, one after the other; then there is the next tick.

        A tick that its worker left half done is done again by another: who began to wait after the slot has had its turn.
        """
        began = self._clock.now()
        due = datetime.fromisoformat(slot) if slot else began
        after = 0
        while rows := await self._store.select("ticking", {"after": after, "limit": PAGE}):
            for (number,) in rows:
                after = number
                if stopping.is_set():
                    return await self._store.give_back(lease, 0.0)
                await self._turn(str(number), due, lease, stopping)
        await self._service.put(self._tick_after(_later(began, slot)), done=lease)
        return None

    async def tick_one(self, task_id: str, lease: Lease) -> None:
        """The turn of a task with a calendar of its own."""
        await self._service.execute(cmd.Tick(task_id=task_id), SYSTEM, held=Held(lease, ack=True))

    def _tick_after(self, when: datetime) -> Job:
        return Job(key=TICK, at=instant(self._clock.next_slot(self._cron, when)))

    async def _turn(self, task_id: str, due: datetime, lease: Lease, stopping: asyncio.Event) -> None:
        try:
            task = await self._service.load(task_id)
            if _has_own_calendar(task) or task.wait is None or task.wait.since > due:
                return
            await self._service.execute(cmd.Tick(task_id=task_id), SYSTEM, held=Held(lease))
            await self._until_settled(task_id, stopping)
        except StaleRun:
            raise
        except (Conflict, NotFound, UnknownEvent):  # what a newer remit wrote must not keep the others from their turns
            return

    async def _until_settled(self, task_id: str, stopping: asyncio.Event) -> None:
        """Return once the run that a turn led to is over; a task that nobody picks up holds the others for a while only.

        A worker that is about to stop picks up nothing itself, and leaves the rest of the tick to others.
        """
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        async with self._store.watch() as bell:
            while not stopping.is_set():
                task = await self._service.load(task_id)
                queued = task.state is State.PENDING and asyncio.get_running_loop().time() < deadline
                if not queued and task.run is None:
                    return
                await bell.wait()


def _later(now: datetime, slot: str | None) -> datetime:
    """The later of both: clocks differ between machines, and a slot must not fire twice for it."""
    return max(now, datetime.fromisoformat(slot)) if slot else now


def _has_own_calendar(task: Task) -> bool:
    return task.schedule is not None and task.schedule.cron is not None
