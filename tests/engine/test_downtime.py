"""Time in which no worker was alive does not count as work."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.clock import SystemClock
from remit.adapters.stores.memory import MemoryEventStore
from remit.adapters.stores.postgres.connections import SILENCE_SECONDS
from remit.app.agents.registry import AgentRegistry
from remit.app.context import AppContext
from remit.bootstrap import open_store
from remit.bootstrap.embedded_worker import RunningWorker, WorkerOptions, working
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task.task import State, Task
from remit.errors import Busy, Unavailable
from remit.ports import Claim, Lease, Store, WorkerRow
from remit.testing import Scripted
from tests.crash.process import until
from tests.engine.fleet import Fleet, fleet
from tests.engine.slow_model import slow_model
from tests.patience import patient
from tests.surfaces.shell import Shell
from tests.surfaces.shell import until as wait_until

AWAY_SECONDS = 600.0
"""Longer than any lease of these tests, which grows with the load of the machine."""
LIMIT_SECONDS = 30.0
SHORT_SECONDS, SESSION_SECONDS = 4.0, 0.5
"""Shorter than any lease of these tests, and than the pause between two heartbeats."""
GENERAL = {"agent/general": 0}


def later(store: Store, seconds: float) -> AppContext:
    """Everything on a store, some time after it was last heard of: what the store wrote down is
    that much older here.
    """
    ahead = timedelta(seconds=seconds)

    def now() -> datetime:
        return store.now() + ahead

    return AppContext(store, SystemClock("UTC", now), AgentRegistry())


@asynccontextmanager
async def times(url: str) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """A fleet, and a fleet on the same store after a time without a worker."""
    async with open_store(url) as store, AsyncExitStack() as stack:
        yield Fleet(later(store, 0), stack), Fleet(later(store, AWAY_SECONDS), stack)


async def test_the_time_after_a_worker_died_does_not_count(any_url: str) -> None:
    async with times(any_url) as (before, after):
        task_id = await before.create(["finish", "done"], limits={"timeout_seconds": LIMIT_SECONDS})
        store = before.core.store
        (job,) = (await store.claim(Claim("dead", GENERAL, 1, 1, 60.0))).jobs
        await before.do("StartRun", "system:engine", task_id=task_id, worker="dead")
        await store.beat((await _row(before))._replace(worker="dead"), [job.id])
        await store.leave("dead")
        await after.hire()
        task = await after.ended(task_id)
        assert task.state is State.DONE
        assert task.duration < LIMIT_SECONDS
        assert "RunLost" in await after.events(task_id)


async def _row(team: Fleet) -> WorkerRow:
    return WorkerRow("w", "host", 1, "0", "general", 8, team.core.now())


async def blocked(team: Fleet, wait: str = "block") -> str:
    """A task that waits for a subtask while its clock runs, and no worker."""
    boss = await team.create(limits={"timeout_seconds": LIMIT_SECONDS})
    child = await team.do("CreateSubtask", task_id=boss, title="Part", owner="plan", wait=wait)
    store = team.core.store
    (job,) = (await store.claim(Claim("w", GENERAL, 1, 0, 60.0))).jobs
    run = (await team.core.service.execute(_start(boss), "system:engine")).task
    assert run is not None
    assert run.run is not None
    if wait == "block":
        await _as_run(team, run.run.id, "AwaitSubtask", task_id=boss, child_id=child, call_id="c1")
        await _as_run(team, run.run.id, "YieldRun", task_id=boss)
    else:
        await team.do("AwaitTask", task_id=boss)
        await _as_run(team, run.run.id, "FinishRun", task_id=boss, final_message="It is under way.")
    await team.core.service.acknowledge(Lease(job.id, "w"))
    await store.beat(await _row(team), [])
    await store.leave("w")
    task = await team.task(boss)
    assert (task.state, task.clock_since is not None, f"limit/{boss}" in await team.jobs()) == (
        State.WAITING,
        True,
        True,
    )
    return boss


def _start(task_id: str) -> cmd.StartRun:
    return cmd.StartRun(task_id=task_id, worker="w")


async def _as_run(team: Fleet, run_id: str, kind: str, **fields: object) -> None:
    await team.core.service.execute(parse(getattr(cmd, kind), fields), "agent:general", run_id)


def worked(task: Task, team: Fleet) -> float:
    """The clock of a task."""
    return (
        task.duration + (team.core.clock.now() - task.clock_since).total_seconds()
        if task.clock_since
        else task.duration
    )


async def test_the_clock_of_a_blocked_task_stops_while_no_worker_is_alive(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before)
        assert worked(await after.task(boss), after) > AWAY_SECONDS
        await after.hire(agents=("explore",))
        task = await after.until(boss, lambda task: worked(task, after) < LIMIT_SECONDS)
        assert (task.state, (await after.events(boss)).count("DowntimeExcluded")) == (
            State.WAITING,
            1,
        )


async def test_several_workers_that_start_at_once_leave_out_the_time_once(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before)
        store = before.core.store
        others = [later(store, AWAY_SECONDS) for _ in range(4)]
        async with AsyncExitStack() as stack:
            options = WorkerOptions(agents=("explore",))
            await asyncio.gather(
                *(stack.enter_async_context(working(core, Scripted(), options)) for core in others)
            )
            task = await after.task(boss)
            assert 0 <= worked(task, after) < LIMIT_SECONDS
            assert task.state is State.WAITING


async def test_a_worker_for_another_tree_does_not_attend_this_one(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before)
        store = before.core.store
        await store.beat((await _row(after))._replace(worker="other", scope="[99]"), [])
        await after.hire(agents=("explore",))
        assert (await after.events(boss)).count("DowntimeExcluded") == 1


async def test_a_scoped_worker_leaves_out_the_time_when_it_adopts_a_tree(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before)
        await after.hire(agents=("explore",), scoped=True)
        assert "DowntimeExcluded" not in await after.events(boss)
        await after.core.adopt([boss])
        task = await after.task(boss)
        assert (
            worked(task, after) < LIMIT_SECONDS,
            (await after.events(boss)).count("DowntimeExcluded"),
        ) == (True, 1)


async def test_time_in_which_a_worker_was_alive_counts(any_url: str) -> None:
    async with times(any_url) as (before, _):
        boss = await blocked(before)
        await before.core.store.beat(await _row(before), [])
        await before.hire(agents=("explore",))
        await before.hire(agents=("explore",))
        assert "DowntimeExcluded" not in await before.events(boss)


@asynccontextmanager
async def soon_after(url: str) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """A fleet, and a fleet on the same store after less than a lease without a worker."""
    async with open_store(url) as store, AsyncExitStack() as stack:
        yield Fleet(later(store, 0), stack), Fleet(later(store, SHORT_SECONDS), stack)


async def session(team: Fleet, seconds: float = 0.0) -> None:
    """A worker that starts, stays for some time, and shuts down cleanly."""
    options = WorkerOptions(agents=("explore",), heartbeat_seconds=patient(5))
    async with working(team.core, Scripted(), options):
        await asyncio.sleep(seconds)


async def test_a_gap_shorter_than_a_lease_does_not_count_after_an_orderly_end(
    any_url: str,
) -> None:
    async with soon_after(any_url) as (before, after):
        boss = await blocked(before)
        await session(before)
        excluded = (await before.events(boss)).count("DowntimeExcluded")
        await after.hire(agents=("explore",))
        task = await after.task(boss)
        assert (await after.events(boss)).count("DowntimeExcluded") == excluded + 1
        assert worked(task, after) < SHORT_SECONDS


async def test_a_command_excludes_a_gap_shorter_than_a_lease(any_url: str) -> None:
    async with soon_after(any_url) as (before, after):
        boss = await blocked(before)
        await session(before)
        await after.do("PauseTask", task_id=boss)
        assert (await after.task(boss)).duration < SHORT_SECONDS


async def test_the_time_of_a_short_session_counts(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before)
        await session(before, SESSION_SECONDS)
        await after.hire(agents=("explore",))
        task = await after.task(boss)
        assert SESSION_SECONDS <= worked(task, after) < LIMIT_SECONDS


async def test_the_last_heartbeat_of_a_dead_worker_counts(any_url: str) -> None:
    async with soon_after(any_url) as (before, after):
        boss = await blocked(before)
        await before.core.store.beat(await _row(before), [])  # and never again
        await after.hire(agents=("explore",))
        assert "DowntimeExcluded" not in await after.events(boss), "it may still be alive"


# A command that ends a wait before any worker is back.


@pytest.mark.parametrize(
    ("wait", "kind", "fields"),
    [
        ("wake", "RunTask", {}),
        ("wake", "SendMessage", {"message": "More."}),
        ("wake", "UpdateTask", {"instructions": "Do something else."}),
        ("wake", "PauseTask", {}),
        ("block", "PauseTask", {}),
        ("block", "UpdateTask", {"owner": "explore"}),
        ("block", "CompleteTask", {}),
        ("block", "FailTask", {"message": "Not needed."}),
        ("block", "CancelTask", {}),
    ],
)
async def test_a_command_that_ends_a_wait_does_not_count_downtime(
    any_url: str, wait: str, kind: str, fields: dict[str, Any]
) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before, wait)
        await after.do(kind, task_id=boss, **fields)
        task = await after.task(boss)
        assert task.clock_since is None
        assert task.duration < LIMIT_SECONDS
        assert (await after.events(boss)).count("DowntimeExcluded") == 1


@pytest.mark.parametrize("kind", ["CompleteTask", "CancelTask"])
async def test_a_command_that_ends_a_lost_run_does_not_count_downtime(
    any_url: str, kind: str
) -> None:
    async with times(any_url) as (before, after):
        task_id = await before.create(limits={"timeout_seconds": LIMIT_SECONDS})
        store = before.core.store
        (job,) = (await store.claim(Claim("dead", GENERAL, 1, 1, 60.0))).jobs
        await before.do("StartRun", "system:engine", task_id=task_id, worker="dead")
        await store.beat((await _row(before))._replace(worker="dead"), [job.id])
        await store.leave("dead")
        await after.do(kind, task_id=task_id)
        task = await after.task(task_id)
        assert (task.state.terminal, task.duration < LIMIT_SECONDS) == (True, True)


async def test_a_paused_and_resumed_task_completes_after_downtime(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before)
        await after.do("PauseTask", task_id=boss)
        await after.do("ResumeTask", task_id=boss)
        child = (await after.task(boss)).children[0].id
        await after.do("CompleteTask", task_id=child)
        await after.hire(agents=("general",))
        task = await after.ended(boss)
        assert (task.state, task.duration < LIMIT_SECONDS) == (State.DONE, True)


async def test_a_command_counts_the_time_in_which_a_worker_was_alive(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before, "wake")
        await before.core.store.beat(await _row(before), [])
        row = (await _row(after))._replace(worker="other")
        await after.core.store.beat(row, [])
        await before.do("SendMessage", task_id=boss, message="More.")
        assert "DowntimeExcluded" not in await before.events(boss)


async def test_a_command_that_leaves_the_clock_running_excludes_nothing(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before)
        await after.do("SendMessage", task_id=boss, message="More.")
        assert "DowntimeExcluded" not in await after.events(boss)
        await after.hire(agents=("explore",))
        assert (await after.events(boss)).count("DowntimeExcluded") == 1


async def test_an_expected_version_holds_although_downtime_is_excluded(any_url: str) -> None:
    async with times(any_url) as (before, after):
        boss = await blocked(before, "wake")
        version = (await after.task(boss)).version
        await after.do(
            "UpdateTask", task_id=boss, instructions="Do something else.", expected_version=version
        )
        assert (await after.task(boss)).duration < LIMIT_SECONDS


class Away(MemoryEventStore):
    """A store that can be told to hear no heartbeats."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Record a heartbeat, if the store answers."""
        if self.away:
            raise Unavailable("away")
        return await super().beat(row, jobs)


async def test_time_in_which_the_store_was_away_does_not_count() -> None:
    async with AsyncExitStack() as stack:
        store = Away()
        team = Fleet(later(store, 0), stack)
        boss = await blocked(team)
        worker = await team.hire(agents=("explore",), heartbeat_seconds=0.4)
        store.away = True
        await until(lambda: not worker.is_connected)
        store.away = False
        async with asyncio.timeout(patient(20)), store.watch() as bell:
            while "DowntimeExcluded" not in await team.events(boss):
                await bell.wait()


async def test_downtime_is_excluded_before_the_first_heartbeat_if_the_store_was_locked(
    any_url: str,
) -> None:
    async with asyncio.timeout(patient(60)), times(any_url) as (before, after):
        boss = await blocked(before)
        refused, select = list[Any](), after.core.store.select

        async def refuse_first(*given: Any) -> Any:
            if not refused:
                refused.append(given)
                raise Busy("The store is locked.")
            return await select(*given)

        after.core.store.select = refuse_first  # type: ignore[assignment,method-assign]
        options = WorkerOptions(agents=("explore",), heartbeat_seconds=patient(0.4))
        worker = RunningWorker(after.core, Scripted(), options)
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(refused))
        await after.until(boss, lambda task: worked(task, after) < LIMIT_SECONDS)
        worker.stop()
        await running


# A worker that stood still, and goes on.


async def test_a_process_that_stalls_during_a_heartbeat_keeps_its_run(any_url: str) -> None:
    async with fleet(any_url) as team:
        store, lease = team.core.store, patient(0.8)
        heartbeat, still = store.beat, list[float]()

        async def stand_still(row: WorkerRow, jobs: Sequence[int]) -> set[int]:
            if jobs and not still:
                still.append(3 * lease)
                time.sleep(3 * lease)  # noqa: ASYNC251 - the whole process stands still
            return await heartbeat(row, jobs)

        store.beat = stand_still  # type: ignore[method-assign]
        task_id = await team.create(["sleep", lease])
        await team.hire(heartbeat_seconds=lease)
        task = await team.ended(task_id)
        assert (task.state, task.counts.runs) == (State.DONE, 1)
        assert still
        assert task.duration < still[0]
        assert "DowntimeExcluded" in await team.events(task_id)


async def test_a_run_that_was_claimed_after_the_last_heartbeat_keeps_its_lease(
    any_url: str,
) -> None:
    """The store answers claims, but no heartbeat for most of a lease."""
    async with fleet(any_url) as team:
        store, lease = team.core.store, patient(1.5)
        heartbeat, renewals, made = store.beat, list[int](), asyncio.Queue[str]()

        async def fail_thrice(row: WorkerRow, jobs: Sequence[int]) -> set[int]:
            renewals.append(len(jobs))
            if len(renewals) == 2:
                made.put_nowait(await team.create(["sleep", lease]))
            if len(renewals) <= 3:
                raise Unavailable("No heartbeat is answered.")
            return await heartbeat(row, jobs)

        worker = await team.hire(heartbeat_seconds=lease)
        await until(lambda: worker.is_connected)
        store.beat = fail_thrice  # type: ignore[method-assign]
        task = await team.ended(await made.get())
        assert (task.state, task.counts.runs, renewals[2]) == (State.DONE, 1, 1)


@pytest.mark.parametrize("url_kind", ["sqlite", "postgres"])
def test_the_time_in_which_the_only_worker_stood_still_does_not_count(
    url_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    lease, limit = patient(2), patient(12)
    url = (
        f"sqlite:///{tmp_path / 'remit.db'}"
        if url_kind == "sqlite"
        else request.getfixturevalue("postgres").new_database()
    )
    with slow_model(tmp_path, seconds=limit / 3) as model:
        shell = Shell(tmp_path, REMIT_DATABASE_URL=url, REMIT_HEARTBEAT_SECONDS=str(lease), **model)
        assert shell.remit("init").code == 0
        worker = shell.started("worker")
        try:
            made = shell.remit(
                "task",
                "create",
                "Think",
                "--owner",
                "explore",
                "--limits",
                f"timeout_seconds={limit}",
                "--json",
            )
            task_id = made.json["task_id"]
            wait_until(
                lambda: shell.remit("task", "show", task_id, "--json").json["state"] == "running"
            )
            worker.send_signal(signal.SIGSTOP)
            time.sleep(limit + lease)
            worker.send_signal(signal.SIGCONT)
            ended = shell.remit(
                "task", "result", task_id, "--wait", str(round(patient(60))), "--json"
            )
            assert ended.json["data"]["status"] == "completed", ended
            assert shell.remit("task", "show", task_id, "--json").json["duration"] < limit
        finally:
            worker.kill()
            _, log = worker.communicate()
        found = re.search(r"Run ended .* seconds=([0-9.]+)", log)
        assert found, log
        assert float(found[1]) < limit


class StandingRunner:
    """A runner whose process stands still in each run, and then ends the run before anything
    else.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, run: Any) -> None:
        time.sleep(self._seconds)  # noqa: ASYNC251 - nothing else in this process goes on either
        await run.do(cmd.FinishRun(task_id=run.task.id, final_message="Done."))


async def test_a_run_that_ends_right_after_its_process_stood_still_leaves_that_time_out(
    durable_url: str,
) -> None:
    # The test reads in the same process, which must not stand still for longer.
    lease = min(patient(1), SILENCE_SECONDS / 5)
    async with fleet(durable_url) as team:
        await team.hire(StandingRunner(seconds=3 * lease), heartbeat_seconds=lease)
        task = await team.ended(await team.create())
        assert task.state is State.DONE
        assert "DowntimeExcluded" in await team.events(task.id)
        assert task.duration < 2 * lease
