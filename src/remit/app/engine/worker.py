"""What a worker does with a job: activate a task, check a claim, or carry a piece of news from
one task to another.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

from remit.app.engine.live_runs import GONE, LiveRuns
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
from remit.domain.task.task import Task
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

SYSTEM = "system:engine"

NEWER_SECONDS = 5.0
"""How long a job that only a newer remit understands is postponed."""
SPOILED_SECONDS = 60.0
"""How long a job of a task whose row cannot be read is postponed."""
RELEASE_SECONDS = 5.0
"""How long the release of a canceled run may take."""

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
        self._store, self._service, self._clock = store, service, clock
        self._runner, self._scheduler = runner, scheduler
        self.name, self._task_log = name, task_log
        self.before_time_ends: Callable[[Task], Awaitable[None]] | None = None
        """Called before the time limit of a waiting task is checked, to exclude time without a
        worker.
        """
        self.runs = LiveRuns(store, service, clock, task_log)
        """The runs that are live here."""

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
                f"{key} was written by a newer version of remit: {error}", NEWER_SECONDS
            ) from error
        except Corrupt as error:
            log.warning("Skipped %s: %s", key, error)
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
            task = await self._known_task(task_id, held)
            if task.counts.runs:
                await self._task_log.catch_up(task)

    async def _known_task(self, task_id: str, held: HeldJob | None) -> Task:
        """Return a task as of the claim of its job, else as it is stored."""
        if held is not None and task_id in held.seen:
            return held.seen[task_id].task
        return await self._service.load(task_id)

    async def _log_missed(self, held: HeldJob) -> None:
        """Log what others did to a task during its run."""
        known = held.seen.get(held.task_id)
        if self._task_log is None or known is None:
            return
        with suppress(RemitError):  # a run must not fail because of its log
            await self._task_log.log_missed(known.task)

    async def _handle(self, key: str, at: str | None, held: HeldJob) -> None:
        """Carry out a job by its kind: a run, a tick, a time limit or a signal."""
        if held.task_id:
            await self._log_others(key, held)
            await self._activate(held)
            return await self._log_missed(held)
        if key == TICK:
            return await self._scheduler.tick(held.lease, at, self.runs.stopping)
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
        """Exclude the time without a worker from the clock of a task."""
        if self.before_time_ends is not None:
            await self.before_time_ends(await self._service.load(task_id))

    async def _activate(self, held: HeldJob) -> None:
        """Start a run of a task and pass it to the runner; whatever happens, the run ends."""
        if self.runs.stopping.is_set():  # claimed just before the worker was told to stop
            self.runs.handed_over.add(held.task_id)
            return await self._store.give_back(held.lease, 0.0)
        task = await self._start_run(held)
        if task is None:
            return await self._service.acknowledge(held.lease)
        run = RunHandle(self._service, self._store, self._clock, held, task, asyncio.Event())
        del task  # it becomes outdated, and a run may last
        current = asyncio.current_task()
        assert current is not None
        with self.runs.added(run, current):
            await self._carry_out(run, held.task_id, current)
        return None

    async def _carry_out(self, run: RunHandle, task_id: str, current: asyncio.Task[object]) -> None:
        """Let the runner carry out a run, and end the run if that fails or is interrupted."""
        try:
            await self._run(run, task_id)
        except (StaleRun, Unavailable, Unacknowledged, Corrupt):
            raise
        except asyncio.CancelledError:
            if not run.handed_over:
                raise
            current.uncancel()
            await self._release(run)
        except UnknownEvent as error:
            log.info("run %s needs a newer version of remit: %s", run.run_id, error)
            await run.do(cmd.ReleaseRun(task_id=task_id, retry_seconds=NEWER_SECONDS))
        except Exception as error:
            log.exception("run %s failed", run.run_id)
            text = redacted(f"{type(error).__name__}: {error}"[:MAX_READ])
            await run.do(cmd.FailRun(task_id=task_id, error=storable(text[:10_000])))

    async def _run(self, run: RunHandle, task_id: str) -> None:
        """Let the runner carry out a run; fail a run that the runner did not end."""
        if self.runs.at_once:
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
