"""A worker: the engine, the scheduler and the runner on one store, in this process."""

import asyncio
import gc
import logging
import os
import random
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self

from remit import __version__
from remit.adapters.engine import Engine, worker_name
from remit.adapters.place import is_dead, place
from remit.app.core import Core
from remit.app.downtime import Downtime
from remit.app.recovery import Recovery
from remit.app.scheduler import Scheduler
from remit.app.scope import Scope
from remit.app.task_log import TaskLog
from remit.app.worker import Worker
from remit.bootstrap.stop import Deadline, Stop
from remit.config import Settings
from remit.domain.agent import agent_id
from remit.domain.due import AGENT
from remit.domain.record import record, replace
from remit.domain.value import Task
from remit.domain.wire import instant
from remit.errors import Internal, RemitError, Unavailable, invalid, unknown
from remit.ports import Runner, WorkerRow

log = logging.getLogger("remit.worker")

RECONCILE_SECONDS = 60.0
BOUNDARY_SECONDS = 5.0
"""How long a run may take to its next boundary once its worker stops; then it is handed over in the middle of its call.

It must end well before a process that stops is ended (`STOP_SECONDS`): a model can take minutes to answer.
"""
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
    scoped: bool = False
    """True for a worker that serves only the trees that its process created or waits for."""
    adopts_via: str | None = None
    """A scoped worker also serves live trees that were created through this surface: all at its start, later those of the dead."""
    at_once: bool = False
    """True for a worker that hands over in the middle of calls; else at the next boundary."""
    log_tasks: bool = False
    """Log what happens to the tasks that it works on."""


class RunningWorker:
    """A worker at work in this process."""

    def __init__(self, core: Core, runner: Runner, options: WorkerOptions) -> None:
        self.name = worker_name(socket.gethostname(), os.getpid())
        self.on_failure: Callable[[Exception], None] = lambda _: None
        """Told at once when the worker fails."""
        self._failure: Exception | None = None
        agents = _agents(core, options)
        self._core = core
        self._scope: Scope | None = None
        if options.scoped:
            self._scope = Scope(core.store, options.heartbeat_seconds, core.is_dead, options.adopts_via)
        self._scheduler = Scheduler(core.store, core.service, core.clock, options.cron, options.heartbeat_seconds)
        self._recovery = Recovery(core.store, core.service, self._scope)
        self._downtime = Downtime(core.store, core.service, core.clock, options.heartbeat_seconds)
        task_log = TaskLog(core.store, self.name) if options.log_tasks else None
        if task_log is not None:
            core.service.observer = task_log.write
        self._worker = Worker(core.store, core.service, core.clock, runner, self.name, self._scheduler, task_log)
        self._worker.before_time_ends = self._before_time_ends
        self._worker.silent_since = self._silent_since
        self.prepared = asyncio.Event()
        """Set once the worker may be heard of: time without one was left out before."""
        self.row = WorkerRow(
            worker=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            agents=",".join(agents),
            concurrency=options.concurrency,
            since=instant(core.clock.now()),
            place=place(),
            scope="" if self._scope is None else self._scope.shown,
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
            scope=self._scope,
            after_gap=self._exclude_downtime,
        )
        if self._scope is not None:
            self._scope.prepare = self._downtime.exclude

    async def _prepare(self) -> None:
        """What comes before the first heartbeat and the first claim."""
        await bury(self._core)
        with suppress(Unavailable):  # then it is done before the first heartbeat that arrives
            await self._exclude_downtime()

    async def _exclude_downtime(self) -> None:
        await self._worker.exclude_silence()
        await self._downtime.exclude(None if self._scope is None else self._scope.roots)

    def _silent_since(self) -> datetime | None:
        """When the store last heard of this worker, if that is longer ago than a lease: its process may have stood still."""
        return None if self.is_heard else self._core.clock.now() - timedelta(seconds=self._engine.silent_seconds)

    async def _before_time_ends(self, task: Task) -> None:
        """A worker that was out of touch cannot know whether anybody was there meanwhile."""
        if not self.is_heard:
            await self._downtime.exclude([int(task.root_id)])

    @contextmanager
    def serving(self) -> Generator[None]:
        """Let the process know, for the time of the block, what is worked on here."""
        core = self._core
        before = core.scope, core.serves_everything
        core.scope, core.serves_everything = self._scope, self._scope is None
        try:
            yield
        finally:
            core.scope, core.serves_everything = before

    async def run(self) -> None:
        """Work until stopped; runs under way then give their tasks back at their next boundary. So they do when a part of it fails."""
        await self._guarded(self._prepare)
        self.prepared.set()
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._guarded(part)) for part in (self._worker.watch, self._reconcile)]
            try:
                await self._guarded(self._engine.run)
            finally:
                for helper in helpers:
                    helper.cancel()
        if self._failure is not None:
            raise failed(self._failure) from self._failure

    async def adopt_at_start(self) -> None:
        """Serve the trees that this process wanted before, and those that clients of this surface left, if the worker is told to."""
        if self._scope is not None:
            await self._scope.adopt(self._core.wanted)
            await self._scope.adopt_created()

    async def _guarded(self, part: Callable[[], Awaitable[None]]) -> None:
        """A part without which the worker would be one only in name."""
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told at once and raised at the end
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            expected = isinstance(error, RemitError) and not isinstance(error, Internal)
            log.critical("The worker has failed: %s It claims nothing more and hands over.", error, exc_info=None if expected else error)
            self.stop()
            self.on_failure(error)

    def stop(self) -> None:
        """Claim nothing more, and hand over at the next boundary; where none comes soon, in the middle of a call."""
        self._worker.stop()
        self._engine.stop()
        asyncio.get_running_loop().call_later(BOUNDARY_SECONDS, self.hand_over)

    def hand_over(self) -> None:
        """Claim nothing more, and give back every task at once, also in the middle of a call."""
        self._engine.stop()
        self._worker.hand_over()

    @property
    def is_heard(self) -> bool:
        """True while the store has had a heartbeat of this worker within the time of a lease."""
        return self._engine.is_heard

    @property
    def running(self) -> int:
        """How many runs are under way here."""
        return self._engine.running

    async def _reconcile(self) -> None:
        """See at the start, now and then, and when a tree of others is adopted, that no runnable task was forgotten."""
        while True:
            if self._scope is None:  # ticks are for workers that serve everything
                await self._tried(self._scheduler.ensure)
            await self._tried(self._recovery.repair)
            pause = RECONCILE_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - so that workers do not all look at once
            await (asyncio.sleep(pause) if self._scope is None else self._scope.wait_for_adoption(pause))

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
    if isinstance(error, Unavailable):
        return type(error)(f"The worker has failed: {error.message}", hint=error.hint, details=details)
    return Internal(f"The worker has failed: {type(error).__name__}: {str(error).rstrip('.')}.", hint="The log says more.", details=details)


def _agents(core: Core, options: WorkerOptions) -> tuple[str, ...]:
    """Whom a worker works for."""
    known = core.agents.ids()
    if options.agents == ():
        raise invalid("agents", "is empty", f"some of {', '.join(sorted(known))}, or no list at all for everybody")
    if strange := sorted(set(options.agents or ()) - known):
        raise unknown("agents", "agent", strange[0], known)
    return tuple(sorted(known if options.agents is None else set(options.agents)))


def options_of(settings: Settings, agents: Sequence[str] | None = None, *, log_tasks: bool = False) -> WorkerOptions:
    """How a worker works by the settings in force."""
    return WorkerOptions(
        agents=None if agents is None else tuple(agents),
        concurrency=settings.get("concurrency"),
        heartbeat_seconds=settings.get("heartbeat_seconds"),
        fleet_limit=settings.get("fleet_concurrency"),
        agent_limits={str(agent_id(name)): table["concurrency"] for name, table in settings.get("agents").items() if "concurrency" in table},
        cron=settings.get("scheduler.cron"),
        log_tasks=log_tasks,
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
    with rarely_collected(), worker.serving():
        running = asyncio.create_task(worker.run())
        try:
            await worker.prepared.wait()
            await core.store.beat(worker.row, [])  # known to others before anybody waits for it
            await worker.adopt_at_start()
            yield worker
        finally:
            if options.at_once:
                worker.hand_over()
            else:
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


async def work(core: Core, runner: Runner, options: WorkerOptions, begin: Callable[[], None] | None = None, deadline: Deadline | None = None) -> None:
    """Work until a signal comes; the second one ends the process at once and leaves its tasks to others."""
    worker = RunningWorker(core, runner, options)
    if deadline is not None:
        deadline.running = lambda: worker.running
    stop = Stop(deadline)
    stop.then(worker.stop)
    worker.on_failure = lambda _: stop.begin()  # a store that does not answer must not keep a worker that has failed
    if begin is not None:
        begin()
    with worker.serving():
        await worker.run()


@asynccontextmanager
async def embedded_worker(
    core: Core,
    settings: Settings,
    functions: Sequence[Callable[..., Any]] = (),
    *,
    everything: bool = False,
    adopts_via: str | None = None,
) -> AsyncGenerator[RunningWorker | None, None]:
    """A worker in this process for the time of the block; it stands by while one that serves everything is alive elsewhere.

    It serves the trees that this process creates or waits for, or everything if told so. A process with functions of its own
    never stands by. At the end of the block its runs are handed over at once.
    """
    options = replace(options_of(settings), scoped=not everything, adopts_via=adopts_via, at_once=True)

    @asynccontextmanager
    async def opened() -> AsyncGenerator[RunningWorker, None]:
        from remit.bootstrap.runner import open_runner

        async with open_runner(core, settings, functions) as runner, working(core, runner, options) as worker:
            yield worker

    await bury(core)
    if not functions and await core.is_attended():
        async with Standby(core, opened, options.heartbeat_seconds / 2):
            yield None
    else:
        async with opened() as worker:
            yield worker


class Standby:
    """Starts a worker in this process, for the rest of the block, as soon as no other one is alive."""

    def __init__(self, core: Core, open_worker: "Callable[[], AbstractAsyncContextManager[RunningWorker]]", pause: float) -> None:
        self._core, self._open_worker, self._pause = core, open_worker, pause
        self._lock, self._ending = asyncio.Lock(), asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._core.start_worker = self.start_if_alone
        self._watch = asyncio.create_task(self._keep_watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._core.start_worker = None
        self._ending.set()
        await self._watch
        if self._worker is not None:
            await self._worker

    async def start_if_alone(self) -> None:
        """Start the worker, unless it has started or another one is alive."""
        async with self._lock:
            await bury(self._core)
            if self._worker is not None or self._ending.is_set() or await self._core.is_attended():
                return
            started = asyncio.get_running_loop().create_future()
            self._worker = asyncio.create_task(self._work(started))
            await started

    async def _keep_watch(self) -> None:
        while self._worker is None and not self._ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._ending.wait()
            with suppress(Unavailable):  # the store is away; the next look will do
                await self.start_if_alone()

    async def _work(self, started: "asyncio.Future[None]") -> None:
        try:
            async with self._open_worker():
                started.set_result(None)
                await self._ending.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)  # else the caller of start_if_alone would wait forever


async def bury(core: Core) -> None:
    """Take workers off the list whose process on this machine is dead, so that nobody waits for their leases to run out."""
    with suppress(RemitError):  # the store is away; leases run out by themselves
        for row in await core.store.workers():
            if is_dead(row):
                await core.store.leave(row.worker)
