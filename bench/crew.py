"""Worker processes for the measurements: remit's own, and bare PgQueuer's, on the same kind of event loop."""

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

from remit.app.activation import Activation
from remit.bootstrap.server import run
from remit.bootstrap.store import open_core
from remit.bootstrap.worker import WorkerOptions, working
from remit.domain import command as cmd
from remit.testing import Scripted

SPAWN = multiprocessing.get_context("spawn")
CONCURRENCY = 512
"""As good as no limit, since bare PgQueuer has none. With 32 the rate of one worker is about a quarter lower; a user's default is 8."""
BATCH = 10
"""How much bare PgQueuer claims at once: its default."""
ENTRYPOINT = "noop"
NEVER = "0 0 1 1 *"
"""A calendar whose tick does not come while something is measured."""
PATIENCE_SECONDS = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Begun = dict[str, float]
"""When the bodies of tasks or jobs began, on the clock that all processes share."""
Body = Callable[[str, float, Any, Connection], None]
"""What a process does: on a database, with a heartbeat limit, counting here, told there when to begin and to stop."""


class NoOp:
    """A runner that only ends its run."""

    def __init__(self, tally: Any) -> None:
        self._tally = tally
        self.begun: Begun = {}

    async def run(self, activation: Activation) -> None:
        """End the run; it counts once that is durable."""
        self.begun[activation.task.id] = time.monotonic()
        try:
            await activation.do(cmd.FinishRun(task_id=activation.task.id, final_message="done"))
        finally:  # the worker may stop a run whose end is stored before the answer is here
            count(self._tally)


class Script(Scripted):
    """The scripted runner; remembers only when tasks were woken, so that its own memory does not count."""

    def __init__(self, tally: Any) -> None:
        self._tally = tally
        self.begun: Begun = {}

    async def run(self, activation: Activation) -> None:
        """Do what is left of the script."""
        if activation.task.counts.runs > 1:
            self.begun[activation.task.id] = time.monotonic()
        try:
            await super().run(activation)
        finally:  # as above
            count(self._tally)


def count(tally: Any) -> None:
    """One more, in whichever process."""
    with tally.get_lock():
        tally.value += 1


def no_op(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:
    """A worker of remit's whose runs do nothing."""
    run(_worker(url, NoOp(tally), heartbeat_seconds, line))


def scripted(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:
    """A worker of remit's that follows scripts."""
    run(_worker(url, Script(tally), heartbeat_seconds, line))


def bare(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:
    """A worker of bare PgQueuer's whose jobs do nothing."""
    run(_bare(url, heartbeat_seconds, tally, line))


async def _worker(url: str, runner: NoOp | Script, heartbeat_seconds: float, line: Connection) -> None:
    options = WorkerOptions(concurrency=CONCURRENCY, heartbeat_seconds=heartbeat_seconds, cron=NEVER)
    async with open_core(url) as core:
        await _told(line)
        async with working(core, runner, options):
            await asyncio.to_thread(line.recv)
    line.send(runner.begun)


async def _bare(url: str, heartbeat_seconds: float, tally: Any, line: Connection) -> None:  # noqa: ARG001 - its own default stands
    begun: Begun = {}

    async def body(job: Job) -> None:
        begun[(job.payload or b"").decode()] = time.monotonic()
        count(tally)

    async with asyncpg.create_pool(url) as pool:
        manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))
        manager.entrypoint(ENTRYPOINT)(body)
        await _told(line)
        running = asyncio.create_task(manager.run(batch_size=BATCH))  # waited for below, once it is told to stop
        await asyncio.to_thread(line.recv)
        manager.shutdown.set()
        await running
    line.send(begun)


async def _told(line: Connection) -> None:
    """Say that all is ready, and wait for the word."""
    line.send("ready")
    await asyncio.to_thread(line.recv)


class Crew:
    """Some processes of one kind on one database, which claim nothing before they are told to."""

    def __init__(self, body: Body, url: str, size: int = 1, heartbeat_seconds: float = 10.0) -> None:
        self._tally = SPAWN.Value("q")
        self._lines: list[Connection] = []
        self._processes: list[Any] = []
        for _ in range(size):
            mine, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=body, args=(url, heartbeat_seconds, self._tally, theirs), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(mine)
            self._processes.append(process)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    @property
    def done(self) -> int:
        """How many bodies have ended, in all processes."""
        return int(self._tally.value)

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [process.pid for process in self._processes]

    async def ready(self) -> None:
        """Return once every process could begin."""
        for line in self._lines:
            await asyncio.to_thread(line.recv)

    def go(self) -> float:
        """Let them begin; when that was."""
        at = time.monotonic()
        for line in self._lines:
            line.send("go")
        return at

    async def until(self, number: int) -> float:
        """Return once so many bodies have ended; when that was, to a few thousandths of a second."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.done < number:
            assert time.monotonic() < deadline, f"{self.done} of {number} after {PATIENCE_SECONDS:.0f} s"
            await asyncio.sleep(0.002)
        return time.monotonic()

    async def stop(self) -> Begun:
        """Let them end as they do when they are asked to; when every body began."""
        begun: Begun = {}
        for line in self._lines:
            line.send("stop")
        for line, process in zip(self._lines, self._processes, strict=True):
            begun |= await asyncio.to_thread(line.recv)
            await asyncio.to_thread(process.join)
        return begun

    def kill(self) -> float:
        """End them as a crash does; when that was."""
        for process in self._processes:
            process.kill()
        return time.monotonic()


def memory_bytes(pid: int) -> int:
    """What a process holds in memory (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


async def busy(pids: Sequence[int], seconds: float) -> list[float]:
    """The share of a core that each process uses, over some time (Linux)."""
    before, began = [_cpu_seconds(pid) for pid in pids], time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    return [(_cpu_seconds(pid) - start) / took for pid, start in zip(pids, before, strict=True)]


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS
