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
from remit.adapters.job_engine import Engine, worker_name
from remit.adapters.process_identity import is_dead, process_identity
from remit.app.context import AppContext
from remit.app.engine.downtime_exclusion import Downtime
from remit.app.engine.recovery import Recovery
from remit.app.engine.scheduler import Scheduler
from remit.app.engine.task_log import TaskLog
from remit.app.engine.worker import Worker
from remit.app.runs.worker_scope import AllTrees, Scope
from remit.bootstrap.closing import CLOSE_SECONDS
from remit.bootstrap.signals import Stop
from remit.config import Settings
from remit.domain.agents.agent import agent_id
from remit.domain.projection.follow_up_jobs import AGENT
from remit.domain.records.record import record, replace
from remit.domain.records.serialize import instant
from remit.domain.task.task import Task
from remit.errors import Internal, RemitError, Unavailable, invalid, unknown
from remit.ports import Runner, WorkerRow

log = logging.getLogger("remit.worker")

RECONCILE_SECONDS = 60.0
BOUNDARY_SECONDS = 4.0
"""How long a run may take to its next boundary after its worker stops.

Then it is handed over in the middle of its call, because a model can take minutes to answer. This
must be well below `STOP_SECONDS`, at which the process is ended.
"""
GARBAGE = 10_000
"""The threshold of Python's garbage collection. The default of 700 costs a tenth of all work."""
PYTHONS = (700, 2000)
"""Python's default thresholds; newer versions have 2000."""


@record
class WorkerOptions:
    """The options of a worker."""

    agents: tuple[str, ...] | None = None
    """The agents it works for; None for all."""
    concurrency: int = 8
    heartbeat_seconds: float = 10.0
    """How long a worker may miss heartbeats before others take over its runs."""
    fleet_limit: int = 0
    agent_limits: Mapping[str, int] = {}
    cron: str = "0 6-21 * * *"
    scoped: bool = False
    """True for a worker that serves only the trees that its process created or waits for."""
    adopts_via: str | None = None
    """A scoped worker also serves live trees that were created through this surface: all at its
    start, later those of dead processes.
    """
    at_once: bool = False
    """True to hand over in the middle of calls, False to hand over at the next boundary."""
    log_tasks: bool = False
    """Log what happens to the tasks that it works on."""


class RunningWorker:
    """A worker that runs in this process."""

    def __init__(self, core: AppContext, runner: Runner, options: WorkerOptions) -> None:
        self.name = worker_name(socket.gethostname(), os.getpid())
        self.on_failure: Callable[[Exception], None] = lambda _: None
        """Called at once when the worker fails."""
        self._failure: Exception | None = None
        agents = _agents(core, options)
        self._core = core
        self._scope: Scope | None = None
        if options.scoped:
            self._scope = Scope(
                core.store,
                core.clock,
                options.heartbeat_seconds,
                core.is_dead,
                options.adopts_via,
            )
        self._trees = self._scope or AllTrees()
        self._scheduler = Scheduler(
            core.store,
            core.service,
            core.clock,
            options.cron,
            options.heartbeat_seconds,
            core.is_dead,
        )
        self._recovery = Recovery(core.store, core.service, self._scope)
        self._downtime = Downtime(core.store, core.service, core.clock, options.heartbeat_seconds)
        task_log = TaskLog(core.store, core.clock, self.name) if options.log_tasks else None
        if task_log is not None:
            core.service.observer = task_log.write
        self._worker = Worker(
            core.store, core.service, core.clock, runner, self.name, self._scheduler, task_log
        )
        self._worker.before_time_ends = self._before_time_ends
        self._worker.runs.silent_since = self._silent_since
        self.prepared = asyncio.Event()
        """Set after the first attempt to send a heartbeat."""
        self.unreached: Unavailable | None = None
        """The error of that attempt if the store could not be reached."""
        self.row = WorkerRow(
            worker=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            agents=",".join(agents),
            concurrency=options.concurrency,
            since=instant(core.clock.now()),
            place=process_identity(),
            scope=self._trees.shown,
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
            models=getattr(runner, "trouble", str),  # only remit's own runner has models
            scope=self._trees,
            after_gap=self._exclude_downtime,
        )
        self._trees.prepare = self._downtime.exclude

    async def _prepare(self) -> None:
        """Send the first heartbeat; if that fails, the engine tries again before it claims."""
        await remove_dead_workers(self._core)
        try:
            await self._engine.announce()
        except Unavailable as error:
            self.unreached = error

    async def _exclude_downtime(self) -> None:
        """Exclude the time without a worker from every time limit."""
        await self._worker.runs.exclude_silence()
        await self._downtime.exclude(self._trees.roots)

    def _silent_since(self) -> datetime | None:
        """Return the time of the last heartbeat if it is older than a lease: the process may have
        been suspended.
        """
        if self.is_connected:
            return None
        return self._core.clock.now() - timedelta(seconds=self._engine.silent_seconds)

    async def _before_time_ends(self, task: Task) -> None:
        """Exclude time without a worker, which a disconnected worker cannot know of."""
        if not self.is_connected:
            await self._downtime.exclude([int(task.root_id)])

    @contextmanager
    def serving(self) -> Generator[None]:
        """Announce in this process, for the time of the block, which tasks are served here."""
        core = self._core
        before = core.scope, core.serves_everything, core.worker
        core.scope, core.serves_everything, core.worker = (
            self._scope,
            self._scope is None,
            self.name,
        )
        try:
            yield
        finally:
            core.scope, core.serves_everything, core.worker = before

    async def run(self) -> None:
        """Work until stopped or failed; then runs release their tasks at their next boundary."""
        await self._run_part(self._prepare)
        self.prepared.set()
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(self._run_part(part))
                for part in (self._worker.runs.watch, self._reconcile)
            ]
            try:
                await self._run_part(self._engine.run)
            finally:
                for helper in helpers:
                    helper.cancel()
        if self._failure is not None:
            raise failed(self._failure) from self._failure

    async def adopt_at_start(self) -> None:
        """Serve the trees that this process already wanted, and those that clients of this surface
        left, if the options say so.
        """
        await self._trees.adopt(self._core.wanted)
        await self._trees.adopt_created()

    async def _run_part(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part of the worker; its failure stops the worker."""
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - reported at once, raised at the end
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Log the first failure, hand over, and call `on_failure`."""
        if self._failure is not None:
            return
        self._failure = error
        is_expected = isinstance(error, RemitError) and not isinstance(error, Internal)
        log.critical(
            "The worker failed: %s It stops claiming tasks and hands over its runs.",
            error,
            exc_info=None if is_expected else error,
        )
        self.stop()
        self.on_failure(error)

    def stop(self) -> None:
        """Claim nothing more, and hand over at the next boundary.

        After `BOUNDARY_SECONDS`, hand over in the middle of a call.
        """
        self._worker.runs.stop()
        self._engine.stop()
        asyncio.get_running_loop().call_later(BOUNDARY_SECONDS, self.hand_over)

    def hand_over(self) -> None:
        """Claim nothing more, and release every task at once, even in the middle of a call."""
        self._engine.stop()
        self._worker.runs.hand_over()

    @property
    def is_connected(self) -> bool:
        """True if the last heartbeat of this worker is not older than a lease."""
        return self._engine.is_connected

    @property
    def running(self) -> int:
        """The number of live runs in this process."""
        return self._engine.running

    @property
    def handed_over(self) -> frozenset[str]:
        """The tasks that this worker has given back to the queue because it stops."""
        return frozenset(self._worker.runs.handed_over)

    async def _reconcile(self) -> None:
        """Check for forgotten runnable tasks: at the start, periodically, and when another tree is
        adopted.
        """
        while True:
            if self._scope is None:  # ticks are for workers that serve everything
                await self._try_check(self._scheduler.ensure)
            await self._try_check(self._recovery.repair)
            # So that workers do not all check at once.
            pause = RECONCILE_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311
            await self._trees.wait_for_adoption(pause)

    async def _try_check(self, look: Callable[[], Awaitable[object]]) -> None:
        """Run a periodic check; its failure does not stop the others."""
        try:
            await look()
        except Unavailable:  # the store is unavailable; retried at the next check
            return
        except RemitError as error:
            log.warning("A periodic check of the worker failed: %s", error)


def failed(error: Exception, details: Mapping[str, Any] | None = None) -> RemitError:
    """Return the error for a failed worker."""
    if isinstance(error, Unavailable):
        return type(error)(
            f"The worker has failed: {error.message}", hint=error.hint, details=details
        )
    return Internal(
        f"The worker has failed: {type(error).__name__}: {str(error).rstrip('.')}.",
        hint="See the log.",
        details=details,
    )


def _agents(core: AppContext, options: WorkerOptions) -> tuple[str, ...]:
    """Return the agents of a worker."""
    known = core.agents.ids()
    if options.agents == ():
        raise invalid(
            "agents",
            "is empty",
            f"some of {', '.join(sorted(known))}, or no list for all",
        )
    wanted = known if options.agents is None else frozenset(options.agents)
    if strange := sorted(wanted - known):
        raise unknown("agents", "agent", strange[0], known)
    return tuple(sorted(wanted))


def options_of(
    settings: Settings, agents: Sequence[str] | None = None, *, log_tasks: bool = False
) -> WorkerOptions:
    """Return the options of a worker from the settings in force."""
    return WorkerOptions(
        agents=None if agents is None else tuple(agents),
        concurrency=settings.get("concurrency"),
        heartbeat_seconds=settings.get("heartbeat_seconds"),
        fleet_limit=settings.get("fleet_concurrency"),
        agent_limits={
            str(agent_id(name)): table["concurrency"]
            for name, table in settings.get("agents").items()
            if "concurrency" in table
        },
        cron=settings.get("scheduler.cron"),
        log_tasks=log_tasks,
    )


@asynccontextmanager
async def working(
    core: AppContext,
    runner: Runner,
    options: WorkerOptions,
    on_failure: Callable[[Exception], None] | None = None,
) -> AsyncGenerator[RunningWorker, None]:
    """Run a worker for the time of the block; hand over its runs at the end.

    If it fails, waits for tasks in this process end, or `on_failure` is called; the block raises
    the error.
    """
    worker = RunningWorker(core, runner, options)
    worker.on_failure = on_failure or (lambda error: core.waits.end(partial(failed, error)))
    with collect_rarely(), worker.serving():
        running = asyncio.create_task(worker.run())
        try:
            await _announce(core, worker)
            yield worker
        finally:
            if options.at_once:
                worker.hand_over()
            else:
                worker.stop()
            await running


async def _announce(core: AppContext, worker: RunningWorker) -> None:
    """Announce a worker before a caller waits for it; if that is canceled, the process ends."""
    try:
        await worker.prepared.wait()
        if worker.unreached is not None:
            raise worker.unreached
        await worker.adopt_at_start()
    except asyncio.CancelledError:
        core.store.end_within(CLOSE_SECONDS)
        raise


@contextmanager
def collect_rarely() -> Generator[None]:
    """Collect cyclic garbage less often, because runs create almost none.

    A threshold that the process has set itself stays.
    """
    before = gc.get_threshold()
    if before[0] in PYTHONS:
        gc.set_threshold(GARBAGE, *before[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == GARBAGE:
            gc.set_threshold(*before)


async def work(
    core: AppContext,
    runner: Runner,
    options: WorkerOptions,
    begin: Callable[[], None],
    stop: Stop,
) -> frozenset[str]:
    """Work until a signal arrives; return the tasks that were handed over.

    The second signal ends the process at once and leaves its tasks to the next worker.
    """
    worker = RunningWorker(core, runner, options)
    stop.deadline.running = lambda: worker.running
    stop.then(worker.stop)
    # A store that does not respond must not keep a failed worker alive.
    worker.on_failure = lambda _: stop.begin()
    stop.announce(begin)
    with worker.serving():
        await worker.run()
    return worker.handed_over


@asynccontextmanager
async def embedded_worker(
    core: AppContext,
    settings: Settings,
    functions: Sequence[Callable[..., Any]] = (),
    *,
    everything: bool = False,
    adopts_via: str | None = None,
) -> AsyncGenerator[RunningWorker | None, None]:
    """Run a worker in this process for the time of the block.

    It stands by while a worker for all tasks is alive elsewhere, unless this process has its own
    functions. It serves the trees that this process creates or waits for, or all tasks with
    `everything`. At the end of the block its runs are handed over at once.
    """
    options = replace(
        options_of(settings), scoped=not everything, adopts_via=adopts_via, at_once=True
    )

    @asynccontextmanager
    async def opened() -> AsyncGenerator[RunningWorker, None]:
        from remit.bootstrap.runner_selection import open_runner

        async with (
            open_runner(core, settings, functions) as runner,
            working(core, runner, options) as worker,
        ):
            yield worker

    await remove_dead_workers(core)
    if not functions and await core.is_attended():
        async with Standby(core, opened, options.heartbeat_seconds / 2):
            yield None
    else:
        async with opened() as worker:
            yield worker


class Standby:
    """Starts a worker in this process, for the rest of the block, once no other worker is alive."""

    def __init__(
        self,
        core: AppContext,
        open_worker: "Callable[[], AbstractAsyncContextManager[RunningWorker]]",
        pause: float,
    ) -> None:
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
            await remove_dead_workers(self._core)
            if self._worker is not None or self._ending.is_set() or await self._core.is_attended():
                return
            started = asyncio.get_running_loop().create_future()
            self._worker = asyncio.create_task(self._work(started))
            try:
                await started
            except Exception:
                self._worker = None  # so that the next check starts another one
                raise

    async def _keep_watch(self) -> None:
        while self._worker is None and not self._ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._ending.wait()
            try:
                await self.start_if_alone()
            except Unavailable:
                continue  # the store is unavailable; retried at the next check
            except Exception:
                log.exception("Could not start a worker in this process; retrying.")

    async def _work(self, started: "asyncio.Future[None]") -> None:
        try:
            async with self._open_worker():
                started.set_result(None)
                await self._ending.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)  # otherwise start_if_alone would wait forever


async def remove_dead_workers(core: AppContext) -> None:
    """Remove workers of this machine whose process is dead, so that their leases need not
    expire.
    """
    with suppress(RemitError):  # the store is unavailable; leases expire by themselves
        for row in await core.store.workers():
            if is_dead(row):
                await core.store.leave(row.worker)
