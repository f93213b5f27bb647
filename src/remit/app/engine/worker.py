"""What a worker does with a job: activate a task, check a claim, or carry a piece of news from
one task to another.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from datetime import datetime
from functools import partial

from remit.app.engine.scheduler import Scheduler
from remit.app.engine.task_log import TaskLog
from remit.app.runs.run_handle import RunHandle
from remit.app.service import HeldJob, Service
from remit.domain.llm.failures import MAX_READ, storable
from remit.domain.projection.follow_up_jobs import (
    CHECK,
    CRON,
    LIMIT,
    NEXT_TICK,
    RELEASE,
    RUN,
    TELL,
    TICK,
    TIMER,
)
from remit.domain.records.serialize import instant
from remit.domain.task import commands as cmd
from remit.domain.task.task import State, Task
from remit.domain.text.redaction import redacted
from remit.errors import (
    Conflict,
    Corrupt,
    NotFound,
    RemitError,
    StaleRun,
    Unacknowledged,
    Unavailable,
    UnknownEvent,
)
from remit.ports import ClaimedJob, Clock, Lease, Postponed, Runner, Store
from remit.store_queries.run_queries import LIVE_RUNS

SYSTEM = "system:engine"
LOOK_SECONDS = 0.1
"""How often at most live runs are compared with the store while it changes."""
GRACE_SECONDS = 0.05
NEWER_SECONDS = 5.0
"""How long a job that only a newer remit understands is postponed."""
SPOILED_SECONDS = 60.0
"""How long a job of a task whose row cannot be read is postponed."""
RELEASE_SECONDS = 5.0
"""How long the release of a canceled run may take."""
GONE = "its run is over"
"""Why a run was stopped from outside."""
log = logging.getLogger("remit.worker")


class Worker:
    """Carries out claimed jobs; claiming them is the task of the job engine."""

    def __init__(
        self,
        store: Store,
        service: Service,
        clock: Clock,
        runner: Runner,
        name: str,
        scheduler: Scheduler,
        task_log: TaskLog | None = None,
    ) -> None:
        self._store, self._service, self._clock, self._runner, self._scheduler = (
            store,
            service,
            clock,
            runner,
            scheduler,
        )
        self.name, self._task_log = name, task_log
        self.before_time_ends: Callable[[Task], Awaitable[None]] | None = None
        """Called before the time limit of a waiting task is checked, to exclude time without a
        worker.
        """
        self.silent_since: Callable[[], datetime | None] = lambda: None
        """Returns the time of the last heartbeat if it is older than a lease, else None."""
        self.stopping = asyncio.Event()
        self._at_once = False
        self._live: dict[str, tuple[RunHandle, asyncio.Task[object]]] = {}
        """The runs that are live here, each with the asyncio task that carries it out."""
        self._paused: set[str] = set()
        """The runs of paused tasks that have not noticed it yet."""

    def stop(self) -> None:
        """Tell every run to release its task at its next boundary."""
        self.stopping.set()
        for run, _ in self._live.values():
            run.stopping.set()

    def hand_over(self) -> None:
        """Stop every run where it is, even in the middle of a call, and release its task at
        once.
        """
        self.stop()
        self._at_once = True
        for run, running in self._live.values():
            if not run.handed_over and not run.over:  # a run that is over only cleans up
                run.handed_over = True
                running.cancel()

    async def exclude_silence(self) -> None:
        """Exclude the time in which this process stood still from the clocks of its own runs."""
        for run, _ in tuple(self._live.values()):
            await self._exclude_silence(run)

    async def _exclude_silence(self, run: RunHandle) -> None:
        since = self.silent_since()
        if since is None or run.over:
            return
        task = await self._service.load(run.task.id)
        if _is_live(run, task):
            excluded = cmd.ExcludeDowntime(task_id=task.id, since=since, until=self._clock.now())
            await self._service.execute(excluded, SYSTEM)

    async def handle(self, job: ClaimedJob) -> None:
        """Carry out a job until it is off the queue; raise `Postponed` if that must wait."""
        lease, key, at = Lease(job.id, self.name), job.key, job.at
        try:
            held = self._held(job, lease)
            held.last_seen_at = None if job.seen is None else datetime.fromisoformat(job.seen)
            del job  # it holds a task that becomes outdated, and a run may last
            await self._handle(key, at, held)
        except (StaleRun, NotFound):
            await self._give_up(key, lease)
        except asyncio.CancelledError as stopped:
            current = asyncio.current_task()
            if stopped.args != (GONE,) or current is None:
                raise
            current.uncancel()
            await self._give_up(key, lease)
        except UnknownEvent as error:
            raise Postponed(
                f"{key} was written by a newer remit: {error}", NEWER_SECONDS
            ) from error
        except Corrupt as error:
            log.warning("%s is left alone: %s", key, error)
            raise Postponed(f"{key}: {error}", SPOILED_SECONDS) from error
        except (Unavailable, Unacknowledged) as error:
            raise Postponed(f"{key}: {error}", 1.0) from error

    async def _give_up(self, key: str, lease: Lease) -> None:
        """Remove a job whose run was ended by others, and log how."""
        await self._log_others(key)
        await self._service.acknowledge(lease)

    async def _log_others(self, key: str, held: HeldJob | None = None) -> None:
        """Log what others did to the task of a run: canceled it, or answered its question."""
        if self._task_log is None or not key.startswith(RUN):
            return
        task_id = key.removeprefix(RUN)
        with suppress(RemitError):  # a run must not fail because of its log
            known = held.seen.get(task_id) if held is not None else None
            task = known.task if known is not None else await self._service.load(task_id)
            if task.counts.runs:
                await self._task_log.catch_up(task)

    async def _log_missed(self, held: HeldJob) -> None:
        """Log what others did to a task during its run."""
        known = held.seen.get(held.task_id)
        if self._task_log is None or known is None:
            return
        with suppress(RemitError):  # a run must not fail because of its log
            await self._task_log.log_missed(known.task)

    async def _handle(self, key: str, at: str | None, held: HeldJob) -> None:
        if held.task_id:
            await self._log_others(key, held)
            await self._activate(held)
            return await self._log_missed(held)
        if key == TICK:
            return await self._scheduler.tick(held.lease, at, self.stopping)
        if key == NEXT_TICK:
            return await self._scheduler.plan_next(held.lease)
        if key.startswith(CRON):
            return await self._scheduler.tick_one(key.removeprefix(CRON), held.lease)
        if key.startswith(LIMIT):
            return await self._end_time(key.removeprefix(LIMIT), held)
        await self._service.execute(_news(key), SYSTEM, held=held)
        return None

    def _held(self, job: ClaimedJob, lease: Lease) -> HeldJob:
        """Return a claimed job: a run with its task as of the claim, or a signal that is
        acknowledged with its effects.
        """
        if not job.key.startswith(RUN):
            return HeldJob(lease, ack=True)
        task_id = job.key.removeprefix(RUN)
        if not job.document or not job.head:
            return HeldJob(lease, task_id)
        seen = self._service.loaded(task_id, job.head, job.document)
        return HeldJob(lease, task_id, seen=seen)

    async def _end_time(self, task_id: str, held: HeldJob) -> None:
        """End a task whose time is up.

        Clocks differ between machines: if it is too early by this one, queue the job again.
        """
        await self._before_time_ends(task_id)
        task = await self._service.load(task_id)
        coming = self._service.jobs.limit_job(task)
        seconds = self._service.jobs.time_limit(task)
        if coming is None or seconds is None:
            return await self._service.acknowledge(held.lease)
        if coming.at is not None and coming.at > instant(self._clock.now()):
            return await self._service.put(coming, done=held.lease)
        report = bool(getattr(self._runner, "reports", False))
        ending = cmd.EndTime(task_id=task_id, seconds=seconds, report=report)
        await self._service.execute(ending, SYSTEM, held=held)
        return None

    async def _before_time_ends(self, task_id: str) -> None:
        if self.before_time_ends is not None:
            await self.before_time_ends(await self._service.load(task_id))

    async def _activate(self, held: HeldJob) -> None:
        """Start a run of a task and pass it to the runner; whatever happens, the run ends."""
        if self.stopping.is_set():  # claimed just before the worker was told to stop
            return await self._store.give_back(held.lease, 0.0)
        task = await self._start_run(held)
        if task is None:
            return await self._service.acknowledge(held.lease)
        run = RunHandle(self._service, self._store, self._clock, held, task, asyncio.Event())
        run.exclude_silence = partial(self._exclude_silence, run)
        del task  # it becomes outdated, and a run may last
        current = asyncio.current_task()
        assert current is not None
        self._live[run.run_id] = (run, current)
        self._tell(run, paused=False)
        try:
            await self._run(run, held.task_id)
        except (StaleRun, Unavailable, Unacknowledged, Corrupt):
            raise
        except asyncio.CancelledError:
            if not run.handed_over:
                raise
            current.uncancel()
            await self._release(run)
        except UnknownEvent as error:
            log.info("run %s is left to a newer remit: %s", run.run_id, error)
            await run.do(cmd.ReleaseRun(task_id=held.task_id, retry_seconds=NEWER_SECONDS))
        except Exception as error:
            log.exception("run %s failed", run.run_id)
            text = redacted(f"{type(error).__name__}: {error}"[:MAX_READ])
            await run.do(cmd.FailRun(task_id=held.task_id, error=storable(text[:10_000])))
        finally:
            self._live.pop(run.run_id, None)
            self._paused.discard(run.run_id)
        return None

    async def _run(self, run: RunHandle, task_id: str) -> None:
        """Let the runner carry out a run; fail a run that the runner did not end."""
        if self._at_once:
            return await run.release()
        await self._runner.run(run)
        if not run.over:
            error = "The runner returned without ending its run."
            await run.do(cmd.FailRun(task_id=task_id, error=error))
        return None

    async def _release(self, run: RunHandle) -> None:
        """Release the task of a canceled run; if the store is away, its lease expires instead."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await run.release()

    async def _start_run(self, held: HeldJob) -> Task | None:
        """Return the task with a new run of this worker; None if there is nothing to run.

        The run of a dead worker is only counted as lost.
        """
        task_id = held.task_id
        start = cmd.StartRun(task_id=task_id, worker=self.name)
        try:
            return (await self._service.execute(start, SYSTEM, held=held)).task
        except Conflict as refused:
            left = (refused.details or {}).get("run_id")
        if left is None:
            return None
        # One commit counts the lost run, removes this job and adds the next one, so that there
        # are never two for a task.
        lost = cmd.LoseRun(task_id=task_id, run_id=left, last_seen_at=held.last_seen_at)
        await self._service.execute(lost, SYSTEM, held=HeldJob(held.lease, task_id))
        return None

    async def watch(self) -> None:
        """Stop every run at once that is no longer live in the store, because its task was
        canceled, ended or taken over. Tell runs whose task was paused.
        """
        async with self._store.watch() as watch:
            while True:
                await watch.wait()
                await self._compare()
                await asyncio.sleep(LOOK_SECONDS)

    async def _compare(self) -> None:
        """Compare the live runs with the store; tell them about changes, and stop lost ones."""
        if not self._live:
            return
        mine = dict(self._live)
        with suppress(RemitError):
            ids = [int(run.task.id) for run, _ in mine.values()]
            rows = await self._store.select(LIVE_RUNS, {"ids": ids})
            states = {row.run_id: row.state for row in rows}
            for run_id in mine.keys() & states.keys():
                await self._notice(mine[run_id][0], paused=states[run_id] == State.PAUSED)
            versions = {row.run_id: row.version for row in rows}
            runs = [run for run, _ in mine.values()]
            await self._tell_changes(
                [run for run in runs if versions.get(run.run_id, 0) > _known_version(run)]
            )
            await self._stop_lost(mine.keys() - states.keys())

    async def _stop_lost(self, run_ids: Set[str]) -> None:
        """Cancel runs that are no longer live, except those that have just ended themselves."""
        if not run_ids:
            return
        await asyncio.sleep(GRACE_SECONDS)
        for run_id in run_ids & self._live.keys():
            _, running = self._live[run_id]
            running.cancel(GONE)

    async def _tell_changes(self, runs: Sequence[RunHandle]) -> None:
        """Tell runs how others have changed their tasks."""
        if not runs:
            return
        changed = {run.task.id: run for run in runs}
        for task in await self._service.tasks(changed):
            run = changed[task.id]
            if not run.over and _is_live(run, task):
                run.tell(task)

    async def _notice(self, run: RunHandle, *, paused: bool) -> None:
        """Log that a live run was paused or resumed, and tell it."""
        if paused != (run.run_id in self._paused):
            change = self._paused.add if paused else self._paused.discard
            change(run.run_id)
            await self._log_news(run)
        self._tell(run, paused=paused)

    async def _log_news(self, run: RunHandle) -> None:
        """Log what people have just done to the task of a live run."""
        if self._task_log is None:
            return
        with suppress(RemitError):  # a run must not fail because of its log
            await self._task_log.log_news(run.task)

    def _tell(self, run: RunHandle, *, paused: bool) -> None:
        """Tell a run whether it should stop at its next boundary."""
        if paused or self.stopping.is_set():
            run.stopping.set()
        else:
            run.stopping.clear()


def _is_live(run: RunHandle, task: Task) -> bool:
    """Return whether a run is the live run of its task."""
    return task.run is not None and task.run.id == run.run_id


def _known_version(run: RunHandle) -> int:
    """Return the newest version of its task that a run knows."""
    return max(run.task.version, run.told_version)


_NEWS: dict[str, Callable[[str], cmd.Command]] = {
    TELL: lambda ref: cmd.SettleSubtasks(task_id=ref),
    RELEASE: lambda ref: cmd.ReleaseDependents(task_id=ref),
    CHECK: lambda ref: cmd.CheckCriteria(task_id=ref),
    TIMER: lambda ref: cmd.FireTimer(task_id=ref.rpartition("-t")[0], timer_id=ref),
}


def _news(key: str) -> cmd.Command:
    """Return the command of a signal."""
    kind, slash, ref = key.partition("/")
    return _NEWS[kind + slash](ref)
