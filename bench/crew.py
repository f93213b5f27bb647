"""Worker processes for the measurements: remit workers and plain PgQueuer workers.

Both use the same kind of event loop.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncpg
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.models import Job

from remit.app.runs.run_handle import RunHandle
from remit.bootstrap.embedded_worker import WorkerOptions, working
from remit.bootstrap.server import run
from remit.bootstrap.store_opening import open_core
from remit.domain.task import commands as cmd
from remit.testing import Scripted

SPAWN = multiprocessing.get_context("spawn")
CONCURRENCY = 512
"""Practically no limit, because plain PgQueuer has none.

With 32, the rate of one worker is about a quarter lower. The default for users is 8.
"""
BATCH = 10
"""The number of jobs that plain PgQueuer claims at once: its default."""
ENTRYPOINT = "noop"
NEVER = "0 0 1 1 *"
"""A schedule without a tick during the measurements."""
PATIENCE_SECONDS = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Begun = dict[str, float]
"""Start times of task or job bodies, on the monotonic clock that all processes share."""
Body = Callable[[str, float, Any, Connection], None]
"""The main function of a process: database URL, heartbeat limit, shared counter, and the connection
that tells it when to start and stop.
"""


class NoOp:
    """A runner that only finishes its run."""

    def __init__(self, tally: Any) -> None:
        self._tally = tally
        self.begun: Begun = {}

    async def run(self, handle: RunHandle) -> None:
        """Finish the run. It counts once this is durable."""
        self.begun[handle.task.id] = time.monotonic()
        try:
            await handle.do(cmd.FinishRun(task_id=handle.task.id, final_message="done"))
        finally:  # the worker may cancel a run whose end is already stored
            count(self._tally)


class Script(Scripted):
    """The scripted runner. It stores only wake times, so that its memory use stays small."""

    def __init__(self, tally: Any) -> None:
        self._tally = tally
        self.begun: Begun = {}

    async def run(self, handle: RunHandle) -> None:
        """Carry out the rest of the script."""
        if handle.task.counts.runs > 1:
            self.begun[handle.task.id] = time.monotonic()
        try:
            await super().run(handle)
        finally:  # as above
            count(self._tally)


def count(tally: Any) -> None:
    """Increase the shared counter."""
    with tally.get_lock():
        tally.value += 1


def no_op(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:
    """A remit worker whose runs do nothing."""
    run(_worker(url, NoOp(tally), heartbeat_seconds, line))


def scripted(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:
    """A remit worker that follows scripts."""
    run(_worker(url, Script(tally), heartbeat_seconds, line))


def bare(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:
    """A plain PgQueuer worker whose jobs do nothing."""
    run(_bare(url, heartbeat_seconds, tally, line))


async def _worker(
    url: str, runner: NoOp | Script, heartbeat_seconds: float, line: Connection
) -> None:
    options = WorkerOptions(
        concurrency=CONCURRENCY, heartbeat_seconds=heartbeat_seconds, cron=NEVER
    )
    async with open_core(url) as core:
        await _told(line)
        async with working(core, runner, options):
            await asyncio.to_thread(line.recv)
    line.send(runner.begun)


# Plain PgQueuer uses its own heartbeat default.
async def _bare(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:  # noqa: ARG001
    begun: Begun = {}

    async def body(job: Job) -> None:
        begun[(job.payload or b"").decode()] = time.monotonic()
        count(tally)

    async with asyncpg.create_pool(url) as pool:
        manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))
        manager.entrypoint(ENTRYPOINT)(body)
        await _told(line)
        # Awaited below, after the stop signal.
        running = asyncio.create_task(manager.run(batch_size=BATCH))
        await asyncio.to_thread(line.recv)
        manager.shutdown.set()
        await running
    line.send(begun)


async def _told(line: Connection) -> None:
    """Report readiness, and wait for the start signal."""
    line.send("ready")
    await asyncio.to_thread(line.recv)


class Crew:
    """Processes of one kind on one database. They claim nothing before the start signal."""

    def __init__(
        self, body: Body, url: str, size: int = 1, heartbeat_seconds: float = 10.0
    ) -> None:
        self._tally = SPAWN.Value("q")
        self._lines: list[Connection] = []
        self._processes: list[Any] = []
        for _ in range(size):
            mine, theirs = SPAWN.Pipe()
            process = SPAWN.Process(
                target=body, args=(url, heartbeat_seconds, self._tally, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._lines.append(mine)
            self._processes.append(process)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    @property
    def done(self) -> int:
        """The number of ended bodies in all processes."""
        return int(self._tally.value)

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [process.pid for process in self._processes]

    async def ready(self) -> None:
        """Return once every process is ready."""
        for line in self._lines:
            await asyncio.to_thread(line.recv)

    def go(self) -> float:
        """Start all processes; return the time of the start."""
        at = time.monotonic()
        for line in self._lines:
            line.send("go")
        return at

    async def until(self, number: int) -> float:
        """Return once this many bodies have ended.

        Returns the time, accurate to a few milliseconds.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.done < number:
            assert time.monotonic() < deadline, (
                f"{self.done} of {number} after {PATIENCE_SECONDS:.0f} s"
            )
            await asyncio.sleep(0.002)
        return time.monotonic()

    async def stop(self) -> Begun:
        """Stop all processes gracefully; return the start times of all bodies."""
        begun: Begun = {}
        for line in self._lines:
            line.send("stop")
        for line, process in zip(self._lines, self._processes, strict=True):
            begun |= await asyncio.to_thread(line.recv)
            await asyncio.to_thread(process.join)
        return begun

    def kill(self) -> float:
        """Kill all processes; return the time of the kill."""
        for process in self._processes:
            process.kill()
        return time.monotonic()


def memory_bytes(pid: int) -> int:
    """The resident memory of a process, in bytes (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


async def busy(pids: Sequence[int], seconds: float) -> list[float]:
    """The share of a core that each process uses over a period (Linux)."""
    before, began = [_cpu_seconds(pid) for pid in pids], time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    return [(_cpu_seconds(pid) - start) / took for pid, start in zip(pids, before, strict=True)]


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS
