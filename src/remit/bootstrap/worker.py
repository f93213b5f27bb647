"""A worker: the engine, the scheduler and the runner on one store, in this process."""

import asyncio
import gc
import logging
import os
import random
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from remit import __version__
from remit.adapters.engine import Engine, worker_name
from remit.adapters.place import attended, is_dead, place
from remit.app.core import Core
from remit.app.recovery import Recovery
from remit.app.scheduler import Scheduler
from remit.app.worker import Worker
from remit.bootstrap.stop import Stop
from remit.config import Settings
from remit.domain.agent import agent_id
from remit.domain.due import AGENT
from remit.domain.record import record
from remit.domain.wire import instant
from remit.errors import Internal, RemitError, Unavailable, invalid
from remit.ports import Runner, WorkerRow

log = logging.getLogger("remit.worker")

RECONCILE_SECONDS = 60.0
GARBAGE = 10_000
"""After how many new objects Python looks for garbage that counting references has missed; its own 700 cost a tenth of all work."""
PYTHONS = (700, 2000)
"""What Python does unless somebody has told it otherwise; the newer ones say 2000."""


@record
class WorkerOptions:
    """How a worker works."""

    agents: tuple[str, ...] | None = None
    """The agents it works for; without a list, all."""
    concurrency: int = 8
    heartbeat_seconds: float = 10.0
    """How long a worker may be silent before others take over its runs."""
    fleet_limit: int = 0
    agent_limits: Mapping[str, int] = {}
    cron: str = "0 6-21 * * *"


class RunningWorker:
    """A worker at work in this process."""

    def __init__(self, core: Core, runner: Runner, options: WorkerOptions) -> None:
        self.name = worker_name(socket.gethostname(), os.getpid())
        self.on_failure: Callable[[Exception], None] = lambda _: None
        """Told at once when the worker fails."""
        self._failure: Exception | None = None
        agents = _agents(core, options)
        self._core = core
        self._scheduler = Scheduler(core.store, core.service, core.clock, options.cron, options.heartbeat_seconds)
        self._recovery = Recovery(core.store, core.service)
        self._worker = Worker(core.store, core.service, core.clock, runner, self.name, self._scheduler)
        self.row = WorkerRow(
            worker=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            agents=",".join(agents),
            concurrency=options.concurrency,
            since=instant(core.clock.now()),
            place=place(),
        )
        limits = {f"{AGENT}{agent}": options.agent_limits.get(agent, 0) for agent in agents}
        self._engine = Engine(
            core.store,
            self.row,
            self._worker.handle,
            limits,
            lease_seconds=options.heartbeat_seconds,
            failed=self._fail,
            fleet=options.fleet_limit,
            models=getattr(runner, "trouble", str),  # only remit's own knows of models
        )

    async def run(self) -> None:
        """Work until stopped; runs under way then give their tasks back at their next boundary. So they do when a part of it fails."""
        await self._guarded(partial(bury, self._core))
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._guarded(part)) for part in (self._worker.watch, self._reconcile)]
            try:
                await self._guarded(self._engine.run)
            finally:
                for helper in helpers:
                    helper.cancel()
        if self._failure is not None:
            raise failed(self._failure) from self._failure

    async def _guarded(self, part: Callable[[], Awaitable[None]]) -> None:
        """A part without which the worker would be one only in name."""
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told at once and raised at the end
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            log.critical("the worker has failed: it claims nothing more and hands over", exc_info=error)
            self.stop()
            self.on_failure(error)

    def stop(self) -> None:
        """Claim nothing more, and hand over at the next boundary."""
        self._worker.stop()
        self._engine.stop()

    @property
    def running(self) -> int:
        """How many runs are under way here."""
        return self._engine.running

    async def _reconcile(self) -> None:
        """See at the start, and now and then, that no runnable task was forgotten."""
        while True:
            for look in (self._scheduler.ensure, self._recovery.repair):
                await self._tried(look)
            await asyncio.sleep(RECONCILE_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - so that workers do not all look at once

    async def _tried(self, look: Callable[[], Awaitable[object]]) -> None:
        """Do one of the things that are done now and then; none of them keeps another from being done."""
        try:
            await look()
        except Unavailable:  # the store is away; the next look will do
            return
        except RemitError as error:
            log.warning("what a worker looks at now and then could not be done: %s", error)


def failed(error: Exception, details: Mapping[str, Any] | None = None) -> RemitError:
    """What is said of a worker that failed."""
    kind = type(error) if isinstance(error, Unavailable) else Internal
    return kind(f"The worker has failed: {type(error).__name__}: {str(error).rstrip('.')}.", hint="The log says more.", details=details)


def _agents(core: Core, options: WorkerOptions) -> tuple[str, ...]:
    """Whom a worker works for."""
    known = core.agents.ids()
    if options.agents == ():
        raise invalid("agents", "is empty", f"some of {', '.join(sorted(known))}, or no list at all for everybody")
    if options.agents is not None and (unknown := sorted(set(options.agents) - known)):
        raise invalid("agents", f"names {', '.join(unknown)}, which is no known agent", f"some of {', '.join(sorted(known))}")
    return tuple(sorted(known if options.agents is None else set(options.agents)))


def options_of(settings: Settings, agents: Sequence[str] | None = None) -> WorkerOptions:
    """How a worker works by the settings in force."""
    return WorkerOptions(
        agents=None if agents is None else tuple(agents),
        concurrency=settings.get("concurrency"),
        heartbeat_seconds=settings.get("heartbeat_seconds"),
        fleet_limit=settings.get("fleet_concurrency"),
        agent_limits={str(agent_id(name)): table["concurrency"] for name, table in settings.get("agents").items() if "concurrency" in table},
        cron=settings.get("scheduler.cron"),
    )


@asynccontextmanager
async def working(
    core: Core, runner: Runner, options: WorkerOptions, on_failure: Callable[[Exception], None] | None = None
) -> AsyncGenerator[RunningWorker, None]:
    """A worker for the time of the block; at its end runs are handed over.

    If it fails, nobody waits for tasks here any longer, unless told what to do instead; the block ends in the error.
    """
    worker = RunningWorker(core, runner, options)
    worker.on_failure = on_failure or (lambda error: core.waits.end(partial(failed, error)))
    with rarely_collected():
        running = asyncio.create_task(worker.run())
        try:
            await core.store.beat(worker.row, [])  # known to others before anybody waits for it
            yield worker
        finally:
            worker.stop()
            await running


@contextmanager
def rarely_collected() -> Generator[None]:
    """Let Python look more rarely for cyclic garbage, of which runs make next to none; whoever has decided that for this process decides."""
    before = gc.get_threshold()
    if before[0] in PYTHONS:
        gc.set_threshold(GARBAGE, *before[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == GARBAGE:
            gc.set_threshold(*before)


async def work(core: Core, runner: Runner, options: WorkerOptions, begin: Callable[[], None] | None = None) -> None:
    """Work until a signal comes; the second one ends the process at once and leaves its tasks to others."""
    worker = RunningWorker(core, runner, options)
    Stop().then(worker.stop)
    if begin is not None:
        begin()
    await worker.run()


@asynccontextmanager
async def embedded_worker(core: Core, settings: Settings, functions: Sequence[Callable[..., Any]] = ()) -> AsyncGenerator[None, None]:
    """A worker in this process for the time of the block, unless one is alive already; one with functions of its own is always needed."""
    if not functions and await worker_alive(core, settings):
        yield
        return
    from remit.bootstrap.runner import open_runner

    async with open_runner(core, settings, functions) as runner, working(core, runner, options_of(settings)):
        yield


async def worker_alive(core: Core, settings: Settings) -> bool:
    """True if somebody works on tasks of this store; the dead of this machine do not count."""
    await bury(core)
    return attended(await core.store.workers(), settings.get("heartbeat_seconds"))


async def bury(core: Core) -> None:
    """Take workers off the list whose process on this machine is dead, so that nobody waits for their leases to run out."""
    with suppress(RemitError):  # the store is away; leases run out by themselves
        for row in await core.store.workers():
            if is_dead(row):
                await core.store.leave(row.worker)
