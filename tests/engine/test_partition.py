"""A connection to PostgreSQL that goes silent without breaking: its worker stops, and returns when
the connection works again.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.stores.postgres import connections, watches
from remit.adapters.stores.postgres.driver_errors import PATIENCE_SECONDS
from remit.bootstrap import open_store
from remit.domain.task.task import State
from remit.errors import Unavailable
from remit.store_queries.event_queries import EVENTS
from tests.crash.process import until
from tests.engine.fleet import Fleet, fleet
from tests.patience import patient
from tests.postgres import PostgresForTests
from tests.surfaces.http import house
from tests.torture.ordeal import LEFT_IN_ORDER, Worker
from tests.wire import wire


@asynccontextmanager
async def hired(url: str, folder: Path, name: str, lease_seconds: float) -> AsyncIterator[Worker]:
    """A worker process, which leaves in order at the end."""
    worker = Worker(url, folder, name, {"heartbeat_seconds": lease_seconds, "concurrency": 4})
    try:
        yield worker
        assert await asyncio.to_thread(worker.end, signal.SIGTERM) in LEFT_IN_ORDER, (
            worker.errors.read_text()
        )
    finally:
        if worker.alive:
            worker.end()


def marks(path: Path) -> dict[str, list[float]]:
    """When each run left its marks."""
    found: dict[str, list[float]] = {}
    for run, at in map(str.split, path.read_text().splitlines() if path.exists() else ()):
        found.setdefault(run, []).append(float(at))
    return found


async def starts(team: Fleet, task_id: str) -> list[tuple[int, float]]:
    """The process that began each run of a task, and when."""
    rows = await team.core.store.select(EVENTS, {"stream": task_id, "after": 0, "limit": 10_000})
    begun = [(json.loads(row.data)["worker"], row.at) for row in rows if row.type == "RunStarted"]
    return [
        (int(worker.split("-")[-2]), datetime.fromisoformat(at).timestamp()) for worker, at in begun
    ]


def let_go(worker: Worker) -> list[float]:
    """The time at which a worker reported that it had lost a run."""
    lines = [
        line for line in worker.errors.read_text().splitlines() if "its lease was lost" in line
    ]
    return [
        datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
        for line in lines
    ]


async def test_a_worker_behind_a_silent_wire_stops_before_another_takes_over(
    postgres: PostgresForTests, tmp_path: Path
) -> None:
    """One of its runs does one small thing after the other, one is in the middle of something long.

    Both go on elsewhere.
    """
    url = postgres.new_database()
    # A lease ends before the store gives up a request, so that its end is what stops a run. Both
    # workers have the same one, because a claimer judges leases by its own setting.
    lease_seconds = min(patient(10), 0.8 * PATIENCE_SECONDS)
    seen, gate, effects = tmp_path / "marks", tmp_path / "gate", tmp_path / "effects"
    go = tmp_path / "go"
    steps: list[Any] = [["gate", str(go)], *[["time", str(seen)], ["sleep", 0.1]] * 20]
    ending = [["gate", str(gate)], ["write", str(effects), "end"], ["finish", "done"]]
    async with (
        fleet(url) as team,
        wire(url) as line,
        hired(line.url, tmp_path, "cut-off", lease_seconds) as cut_off,
    ):
        await team.staff(1)
        busy = await team.create(*steps, *ending)
        long = await team.create(*ending)
        for task_id in (busy, long):
            await team.until(task_id, lambda task: task.run is not None)
        async with hired(url, tmp_path, "heir", lease_seconds) as heir:
            await team.staff(2)
            go.touch()
            await until(lambda: len(marks(seen).get(f"{busy}-r000001", [])) > 3)
            line.cut()
            before = marks(seen)[f"{busy}-r000001"]
            for task_id in (busy, long):
                await team.until(task_id, lambda task: task.counts.runs == 2)
                _, (pid, at) = await starts(team, task_id)
                assert pid == heir.process.pid
                await until(lambda: len(let_go(cut_off)) == 2)
                assert max(let_go(cut_off)) < at, "it stopped by itself, and in time"
            gate.touch()
            for task_id in (busy, long):
                assert (await team.ended(task_id)).state is State.DONE
                assert (await team.events(task_id)).count("RunLost") == 1
            assert len(marks(seen)[f"{busy}-r000001"]) <= len(before) + 1, (
                "what was begun when the wire went silent, and no more"
            )
            assert max(marks(seen)[f"{busy}-r000001"]) < min(marks(seen)[f"{busy}-r000002"])
            assert [line.split()[0] for line in effects.read_text().splitlines()] == ["end"] * 2

            line.heal()
            gate.unlink()
            # More than one of them has hands for.
            both = [await team.create(*ending) for _ in range(8)]
            for task_id in both:
                await team.until(task_id, lambda task: task.run is not None)
            gate.touch()
            for task_id in both:
                task = await team.ended(task_id)
                assert (task.state, task.counts.runs) == (State.DONE, 1)
            assert {(await starts(team, task_id))[0][0] for task_id in both} == {
                cut_off.process.pid,
                heir.process.pid,
            }
            await team.idle()
            assert len(effects.read_text().splitlines()) == 10


async def test_requests_behind_a_silent_wire_end_in_an_error(
    postgres: PostgresForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    new = {"title": "Later", "idempotency_key": "once"}
    async with wire(url) as line, house(line.url) as at, at.store.watch():
        assert (await at.ask("GET", "/api/tasks")).status == 200
        line.cut()
        with monkeypatch.context() as shortened:
            shortened.setattr(connections, "PATIENCE_SECONDS", 0.5)
            shortened.setattr(connections, "SILENCE_SECONDS", 0.5)
            async with asyncio.timeout(patient(20)):
                answers = [
                    await at.ask("GET", "/api/tasks"),
                    await at.ask("POST", "/api/tasks", new),
                ]
        assert [(answer.status, answer.code) for answer in answers] == [(503, "UNAVAILABLE")] * 2
        line.heal()
        assert (await at.ask("POST", "/api/tasks", new)).status == 200
        assert len((await at.ask("GET", "/api/tasks")).json["tasks"]) == 1, (
            "whatever became of the first request"
        )


async def test_a_process_that_only_listens_notices_a_dead_connection(
    postgres: PostgresForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(watches, "SAFETY_SECONDS", 3600.0)  # so that it is told, or waits for ever
    url = postgres.new_database()
    async with (
        fleet(url) as team,
        wire(url) as line,
        open_store(line.url) as listening,
        listening.watch() as bell,
        asyncio.timeout(patient(20)),
    ):
        await bell.wait()  # it listens
        line.forget()
        await bell.wait()  # it had to begin anew
        told = asyncio.create_task(bell.wait())
        while not told.done():  # what is committed before it listens again is told by that
            await team.create()
            await asyncio.sleep(0.05)


async def test_a_health_check_waits_less_than_other_calls(
    postgres: PostgresForTests,
) -> None:
    async with (
        wire(postgres.new_database()) as line,
        house(line.url) as at,
        asyncio.timeout(patient(60)),
    ):
        assert (await at.ask("GET", "/readyz")).status == 200
        line.cut()
        answer = await at.ask("GET", "/readyz")
        assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        assert "does not respond within 2 seconds." in answer.json["error"]["message"], (
            "its own limit, and not the store's"
        )
        line.heal()
        assert (await at.ask("GET", "/readyz")).status == 200


async def test_an_outage_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet("memory:") as team:
        beat = team.core.store.beat
        asked: list[bool] = []

        async def away(*_: Any) -> set[int]:
            asked.append(False)
            raise Unavailable("The store is gone.")

        async def back(*given: Any) -> set[int]:
            asked.append(True)
            return await beat(*given)

        monkeypatch.setattr(team.core.store, "beat", back)
        await team.hire(heartbeat_seconds=patient(0.2))
        await until(lambda: len(asked) > 2)  # it has begun, and renews
        for outage in (1, 2):
            for state, times in ((away, 20), (back, 1)):
                asked.clear()
                monkeypatch.setattr(team.core.store, "beat", state)
                await until(lambda times=times: len(asked) >= times)  # type: ignore[misc]
            told = [
                record.getMessage()
                for record in caplog.records
                if "Lost contact" in record.getMessage()
            ]
            assert len(told) == outage
            assert told[-1].endswith(" s. No run was given up here.")
