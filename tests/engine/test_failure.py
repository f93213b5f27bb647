"""A worker that fails unexpectedly reports it immediately, hands over its runs, and no longer
counts as alive.
"""

import asyncio
import logging
from typing import Any

import pytest

from remit.adapters.job_engine import Engine
from remit.app.engine.live_runs import LiveRuns
from remit.app.engine.recovery import Recovery
from remit.bootstrap.embedded_worker import WorkerOptions, working
from remit.catalog import Caller, call
from remit.domain.task.task import State
from remit.errors import Internal, RemitError
from remit.testing import Scripted
from tests.engine.fleet import ANN, Fleet, fleet
from tests.patience import patient

ME = Caller(actor=ANN)


class Untiring(Scripted):
    """Works until it is told to stop, and gives its task back then."""

    async def run(self, handle: Any) -> None:
        """One run."""
        await handle.stopping.wait()
        await handle.release()


async def broken(*_: Any, **__: Any) -> Any:
    """An unexpected error."""
    raise RuntimeError("boom")


async def fail(team: Fleet, part: str, patch: pytest.MonkeyPatch) -> None:
    """Make a part of the workers fail from now on."""
    match part:
        case "claim" | "beat":
            patch.setattr(team.core.store, part, broken)
        case _:
            patch.setattr(LiveRuns, "_compare", broken)
    await team.create()  # rings


async def ordeal(team: Fleet, part: str, patch: pytest.MonkeyPatch) -> None:
    """A worker fails while it has a run that a caller waits for."""
    async with working(team.core, Untiring(), WorkerOptions(heartbeat_seconds=patient(2))):
        task_id = await team.create()
        await team.until(task_id, lambda task: task.run is not None)
        waiting = asyncio.create_task(
            call(team.core, "task_output", {"task_id": task_id, "wait_seconds": 600}, ME)
        )
        with patch.context() as broken_now:
            await fail(team, part, broken_now)
            with pytest.raises(Internal, match="boom") as told:
                await waiting
        assert told.value.details == {"task_id": task_id}
        assert (await team.until(task_id, lambda task: task.run is None)).state is State.PENDING


@pytest.mark.parametrize("part", ["claim", "beat", "compare"])
async def test_it_reports_the_failure_and_releases_its_runs(
    durable_url: str, part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(patient(60)), fleet(durable_url) as team:
        with pytest.raises(Internal, match="boom") as raised:
            await ordeal(team, part, monkeypatch)
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert [
            record.exc_info is not None
            for record in caplog.records
            if record.levelno == logging.CRITICAL
        ] == [True]
        of_the_run = [event for event in await team.events("1") if event != "TaskAwaited"]
        assert of_the_run[-1] == "RunReleased"
        assert await team.core.store.workers() == []


@pytest.mark.parametrize(
    ("where", "name"),
    [(Engine, "run"), (Recovery, "repair")],
    ids=["from the start", "beside the work"],
)
async def test_one_that_never_worked_ends_its_block_in_the_error(
    where: type[Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, broken)
    async with asyncio.timeout(patient(60)), fleet("memory:") as team:
        with pytest.raises(RemitError, match="RuntimeError: boom"):
            async with working(team.core, Scripted(), WorkerOptions()):
                await call(
                    team.core,
                    "task_output",
                    {"task_id": await team.create(["sleep", 600]), "wait_seconds": 600},
                    ME,
                )
