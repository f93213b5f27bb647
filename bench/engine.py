"""Task rate, start latency, takeover of dead workers, and the cost of waiting tasks and idle
workers.

Rates and latencies are compared with plain PgQueuer, on which the engine is built, running empty
jobs on the same PostgreSQL server with the same number of processes. A PgQueuer job counts when its
body has run; its acknowledgement follows up to 0.1 seconds later. A task counts when its end and
all its events are durable. This favors PgQueuer.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.adapters.persistence.queries import Queries

from bench.crew import ENTRYPOINT, Crew, bare, busy, memory_bytes, no_op, scripted
from bench.line import Line
from remit.app.context import AppContext
from remit.bootstrap.store_opening import open_core
from remit.domain.task import commands as cmd
from remit.store_queries.queue_queries import JOBS

SIZES = (1, 4)
TASKS = 2000
SINGLE = 60
"""The number of single tasks for the start latency."""
CALLERS = 64
HEARTBEAT_SECONDS = 2.0
LATE_SECONDS = 2.0
KILLS = 3
WAITING = 10_000
WARM = 500
WAKES = 50
WAITING_BYTES = 2048
WAKE_SECONDS = 0.005
IDLE_SECONDS = 10.0
IDLE_SHARE = 0.01
BENCH = "user:bench"

New = Callable[[], str]
"""The URL of a new, empty database."""


class Trial(NamedTuple):
    """The result of one crew: bodies per second, and the median seconds from creation to start."""

    rate: float
    latency: float


async def engine_lines(new: dict[str, New], rounds: int) -> list[Line]:
    """Measure everything; `new` creates databases of each kind."""
    lines, single = await rate_lines(new, rounds)
    lines += await takeover_lines(new)
    return lines + await cost_lines(new, single)


# Rates and latencies.


async def rate_lines(new: dict[str, New], rounds: int) -> tuple[list[Line], float]:
    """Rates and latencies as ratios to plain PgQueuer's, and its own latency."""
    trials: dict[tuple[str, int], list[Trial]] = {}
    for _ in range(rounds):
        for size in SIZES:
            trials.setdefault(("bare", size), []).append(
                await _bare_trial(new["PostgreSQL"](), size)
            )
            for name, make in new.items():
                trials.setdefault((name, size), []).append(await _trial(make(), size))
    lines = [
        line
        for name in new
        for size in SIZES
        for line in _compared(name, size, trials[name, size], trials["bare", size])
    ]
    return lines, statistics.median(trial.latency for trial in trials["bare", 1])


def _compared(name: str, size: int, ours: list[Trial], others: list[Trial]) -> list[Line]:
    rate, latency = (statistics.median(column) for column in zip(*ours, strict=True))
    other_rate, other_latency = (statistics.median(column) for column in zip(*others, strict=True))
    faster = statistics.median(
        our.rate / other.rate for our, other in zip(ours, others, strict=True)
    )
    longer = statistics.median(
        our.latency / other.latency for our, other in zip(ours, others, strict=True)
    )
    judged = name == "PostgreSQL"
    workers, beside = (
        f"{size} worker{'s' if size > 1 else ''}",
        "other: plain PgQueuer on PostgreSQL",
    )
    return [
        Line(
            f"{name}: no-op tasks, {workers}, per second ({beside})",
            f"{rate:,.0f}",
            f"{other_rate:,.0f}",
            faster,
            "at least 0.35" if judged else "",
            faster >= 0.35 or not judged,
        ),
        Line(
            f"{name}: create to start, {workers}, ms ({beside})",
            f"{latency * 1000:.1f}",
            f"{other_latency * 1000:.1f}",
            longer,
            "at most 3.00" if judged else "",
            longer <= 3.0 or not judged,
        ),
    ]


async def _trial(url: str, size: int) -> Trial:
    """Measure a backlog of tasks, then single tasks while the workers are idle."""
    async with open_core(url) as core:

        async def make(_: str) -> str:
            return await _create(core, title="Do nothing")

        with Crew(no_op, url, size) as crew:
            await _together([_create(core, title="Do nothing") for _ in range(TASKS)])
            return await _measured(crew, make)


async def _bare_trial(url: str, size: int) -> Trial:
    """The same with PgQueuer jobs."""
    async with asyncpg.create_pool(url) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()

        async def make(name: str) -> str:
            await queries.enqueue(ENTRYPOINT, name.encode())
            return name

        with Crew(bare, url, size) as crew:
            await queries.enqueue(
                [ENTRYPOINT] * TASKS, [str(number).encode() for number in range(TASKS)], [0] * TASKS
            )
            return await _measured(crew, make)


async def _measured(crew: Crew, make: Callable[[str], Awaitable[str]]) -> Trial:
    await crew.ready()
    began = crew.go()
    rate = TASKS / (await crew.until(TASKS) - began)
    made: dict[str, float] = {}
    for number in range(SINGLE):
        at = time.monotonic()
        made[await make(f"single-{number}")] = at
        await crew.until(TASKS + number + 1)
    begun = await crew.stop()
    return Trial(rate, statistics.median(begun[name] - at for name, at in made.items()))


# Takeover of dead workers.


class Takeover(NamedTuple):
    """The longest takeover of a killed worker's run in seconds, and the lost runs per kill."""

    seconds: float
    lost: float


async def takeover_lines(new: dict[str, New]) -> list[Line]:
    """The time from `kill -9` until another worker has restarted the run.

    All databases are measured at the same time, because this is mostly waiting.
    """
    found = await asyncio.gather(*(_takeover(make()) for make in new.values()))
    return [
        line
        for name, takeover in zip(new, found, strict=True)
        for line in _takeover_lines(name, takeover)
    ]


def _takeover_lines(name: str, takeover: Takeover) -> list[Line]:
    return [
        Line(
            f"{name}: kill -9 to the next RunStarted, s (other: the heartbeat limit)",
            f"{takeover.seconds:.2f}",
            f"{HEARTBEAT_SECONDS:.2f}",
            takeover.seconds / HEARTBEAT_SECONDS,
            f"{LATE_SECONDS:.0f} s past it at most",
            takeover.seconds - HEARTBEAT_SECONDS <= LATE_SECONDS,
        ),
        Line(
            f"{name}: runs lost for each kill (other: the killed one)",
            f"{takeover.lost:.2f}",
            "1.00",
            takeover.lost,
            "exactly 1.00",
            takeover.lost == 1.0,
        ),
    ]


async def _takeover(url: str) -> Takeover:
    """Kill workers one after the other, each during the same run."""
    async with open_core(url) as core, _scripted(url, heartbeat_seconds=HEARTBEAT_SECONDS) as first:
        task_id = await _create(
            core, title="Work", metadata={"script": [["sleep", 600]]}, limits={"max_attempts": 100}
        )
        worker, taken, doomed = await _next_worker(core, task_id, None), list[float](), first
        for _ in range(KILLS):
            heir = Crew(scripted, url, heartbeat_seconds=HEARTBEAT_SECONDS)
            await heir.ready()
            known = await _workers(core)
            heir.go()
            await _joined(core, known)
            at = doomed.kill()
            worker = await _next_worker(core, task_id, worker)
            taken.append(time.monotonic() - at)
            doomed = heir
        await asyncio.sleep(HEARTBEAT_SECONDS)  # the new worker must keep the run
        lost = (await core.service.load(task_id)).attempts
        await core.service.do(cmd.CancelTask, {"task_id": task_id}, BENCH)
        await doomed.stop()
    return Takeover(max(taken), lost / KILLS)


async def _workers(core: AppContext) -> set[str]:
    return {row.worker for row in await core.store.workers()}


async def _joined(core: AppContext, known: set[str]) -> None:
    """Return once an unknown worker has sent a heartbeat. This polls: heartbeats do not notify."""
    for _ in range(1000):
        if await _workers(core) - known:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("a worker did not say that it is there")


async def _next_worker(core: AppContext, task_id: str, before: str | None) -> str:
    """The worker that holds the run of a task, once it is a different one."""
    async with asyncio.timeout(60), core.store.watch() as bell:
        while True:
            task = await core.service.load(task_id)
            if task.run is not None and task.run.worker != before:
                return task.run.worker
            await bell.wait()


# Cost of waiting tasks and idle workers.


class Cost(NamedTuple):
    """The cost of many waiting tasks, and the latency from an answer to the run."""

    jobs: int
    bytes_each: float
    idle: float
    idle_without: float
    wake: float


async def cost_lines(new: dict[str, New], single: float) -> list[Line]:
    """Measure one database after the other."""
    return [
        line
        for name, make in new.items()
        for line in _cost_lines(name, await _cost(make(), make()), single)
    ]


def _cost_lines(name: str, cost: Cost, single: float) -> list[Line]:
    waiting = f"{name}: {WAITING:,} tasks wait for a person"
    return [
        Line(
            f"{waiting}: jobs in the queue (other: the tick alone)",
            str(cost.jobs),
            "1",
            cost.jobs,
            "at most 1.00",
            cost.jobs <= 1,
        ),
        _under(
            f"{waiting}: growth of the worker, bytes for each",
            f"{cost.bytes_each:,.0f}",
            f"{WAITING_BYTES:,}",
            cost.bytes_each / WAITING_BYTES,
        ),
        _under(
            f"{waiting}: idle worker, % of a core",
            f"{cost.idle:.2%}",
            f"{IDLE_SHARE:.2%}",
            cost.idle / IDLE_SHARE,
        ),
        _under(
            f"{waiting}: answer to start, ms",
            f"{cost.wake * 1000:.1f}",
            f"{WAKE_SECONDS * 1000:.1f}",
            cost.wake / WAKE_SECONDS,
        ),
        Line(
            f"{waiting}: answer to start, ms (other: plain PgQueuer, enqueue to start)",
            f"{cost.wake * 1000:.1f}",
            f"{single * 1000:.1f}",
            cost.wake / single,
            "",
            True,
        ),
        _under(
            f"{name}: idle worker, % of a core",
            f"{cost.idle_without:.2%}",
            f"{IDLE_SHARE:.2%}",
            cost.idle_without / IDLE_SHARE,
        ),
    ]


def _under(what: str, ours: str, limit: str, ratio: float) -> Line:
    return Line(f"{what} (other: the limit)", ours, limit, ratio, "under 1.00", ratio < 1.0)


async def _cost(url: str, empty_url: str) -> Cost:
    """Measure both idle workers in the same period, in CPU time."""
    async with open_core(url) as core, _scripted(url) as crew, _scripted(empty_url) as idler:
        asked = {"title": "Ask", "metadata": {"script": [["ask", "Which one?"]]}}
        tasks = await _together([_create(core, **asked) for _ in range(WARM)])
        await crew.until(WARM)
        before = memory_bytes(crew.pids[0])
        tasks += await _together([_create(core, **asked) for _ in range(WAITING - WARM)])
        await crew.until(WAITING)
        bytes_each = (memory_bytes(crew.pids[0]) - before) / (WAITING - WARM)
        jobs = len(await core.store.select(JOBS, {"limit": WAITING}))
        idle, idle_without = await busy([*crew.pids, *idler.pids], IDLE_SECONDS)
        answered: dict[str, float] = {}
        for number, task_id in enumerate(tasks[:: len(tasks) // WAKES]):
            await core.service.do(
                cmd.Respond, {"interaction_id": f"{task_id}-q1", "answer": "This one."}, BENCH
            )
            answered[task_id] = time.monotonic()
            await crew.until(WAITING + number + 1)
        begun = await crew.stop()
        await idler.stop()
    return Cost(
        jobs,
        bytes_each,
        idle,
        idle_without,
        statistics.median(begun[task_id] - at for task_id, at in answered.items()),
    )


@asynccontextmanager
async def _scripted(url: str, heartbeat_seconds: float = 10.0) -> AsyncIterator[Crew]:
    """Start one worker that follows scripts."""
    with Crew(scripted, url, heartbeat_seconds=heartbeat_seconds) as crew:
        await crew.ready()
        crew.go()
        yield crew


async def _create(core: AppContext, **fields: object) -> str:
    return (await core.service.do(cmd.CreateTask, {"owner": "general", **fields}, BENCH)).task_id


async def _together(makings: list[Awaitable[str]]) -> list[str]:
    """Create many tasks with limited concurrency."""
    left, made = iter(makings), list[str]()

    async def caller() -> None:
        for making in left:
            made.append(await making)

    async with asyncio.TaskGroup() as callers:
        for _ in range(CALLERS):
            callers.create_task(caller())
    return made


def sqlite_urls(folder: Path) -> New:
    """Create new SQLite files in a folder."""
    numbers = iter(range(1_000_000))
    return lambda: f"sqlite:///{folder}/engine-{next(numbers)}.db"
