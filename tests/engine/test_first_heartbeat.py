"""A worker that cannot reach the store when it starts."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from remit.bootstrap.embedded_worker import RunningWorker, WorkerOptions
from remit.domain.task.task import State
from remit.errors import Busy
from remit.ports import WorkerRow
from remit.testing import Scripted
from tests.crash.process import until
from tests.engine.fleet import fleet
from tests.patience import patient


class Lock:
    """Refuses the heartbeats of a store while it is locked."""

    def __init__(self, store: Any) -> None:
        self.is_held, self.refused, self._beat = True, 0, store.beat
        store.beat = self.beat

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Record a heartbeat, unless the store is locked."""
        if self.is_held:
            self.refused += 1
            raise Busy("The store is locked.")
        heard: set[int] = await self._beat(row, jobs)
        return heard


async def test_a_worker_claims_nothing_before_its_first_heartbeat(
    any_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(patient(60)), fleet(any_url) as team:
        lock = Lock(team.core.store)
        task_id = await team.create(["sleep", 0.1])
        options = WorkerOptions(heartbeat_seconds=patient(0.4))
        worker = RunningWorker(team.core, Scripted(), options)
        running = asyncio.create_task(worker.run())
        await until(lambda: lock.refused > 3 or running.done())
        assert (await team.task(task_id)).state is State.PENDING
        waits = "Waiting for the store before claiming jobs: The store is locked."
        assert waits in caplog.messages
        lock.is_held = False
        task = await team.ended(task_id)
        assert (task.state, task.counts.runs) == (State.DONE, 1)
        worker.stop()
        await running
        assert "RunLost" not in await team.events(task_id)


async def test_a_worker_that_never_reached_the_store_stops_when_it_is_told_to(any_url: str) -> None:
    async with asyncio.timeout(patient(60)), fleet(any_url) as team:
        lock = Lock(team.core.store)
        worker = RunningWorker(team.core, Scripted(), WorkerOptions())
        running = asyncio.create_task(worker.run())
        await until(lambda: lock.refused > 0)
        worker.stop()
        await running
