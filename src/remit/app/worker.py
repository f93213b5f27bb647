"""What a worker does with a job: activate a task, check a claim, or carry a piece of news from one task to another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

from remit.app.activation import Activation
from remit.app.scheduler import Scheduler
from remit.app.service import Held, Service
from remit.app.task_log import TaskLog
from remit.domain import command as cmd
from remit.domain.due import CHECK, CRON, LIMIT, NEXT_TICK, RELEASE, RUN, TELL, TICK, TIMER
from remit.domain.model import storable
from remit.domain.value import State, Task
from remit.domain.wire import instant
from remit.errors import Conflict, Corrupt, NotFound, RemitError, StaleRun, Unacknowledged, Unavailable, UnknownEvent
from remit.ports import Clock, Lease, Postponed, Runner, Store, Taken

SYSTEM = "system:engine"
LOOK_SECONDS = 0.1
"""How often at most live runs are compared with the store while it changes."""
GRACE_SECONDS = 0.05
NEWER_SECONDS = 5.0
"""How long work that only a newer remit understands is left to others before it is looked at again."""
SPOILED_SECONDS = 60.0
"""How long work on a task whose row cannot be read is left until somebody may have put that right."""
RELEASE_SECONDS = 5.0
"""How long a store may take to be told of runs that are handed over."""
GONE = "its run is over"
"""Why a run was stopped from outside."""
log = logging.getLogger("remit.worker")


class Worker:
    """Carries out jobs, one at a time each; knows nothing of how they are claimed."""

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
        self._store, self._service, self._clock, self._runner, self._scheduler = store, service, clock, runner, scheduler
        self.name, self._task_log = name, task_log
        self.before_time_ends: Callable[[Task], Awaitable[None]] | None = None
        """Called before the time of a task that waits is called up: time without a worker must not count."""
        self.silent_since: Callable[[], datetime | None] = lambda: None
        """Since when the store has not heard of this worker, if that is longer than a lease; None while all is well."""
        self.stopping = asyncio.Event()
        self._at_once = False
        self._live: dict[str, tuple[Activation, asyncio.Task[object]]] = {}
        """The runs that are live here, and what carries them out."""

    def stop(self) -> None:
        """Tell every run to give its task back at its next boundary."""
        self.stopping.set()
        for run, _ in self._live.values():
            run.stopping.set()

    def hand_over(self) -> None:
        """Stop every run where it is, also in the middle of a call, and give its task back at once."""
        self.stop()
        self._at_once = True
        for run, running in self._live.values():
            if not run.handed_over and not run.over:  # one that is over only tidies up
                run.handed_over = True
                running.cancel()

    async def exclude_silence(self) -> None:
        """Leave the time in which this process stood still out of the clocks of its own runs."""
        for run, _ in tuple(self._live.values()):
            await self._exclude_silence(run)

    async def _exclude_silence(self, run: Activation) -> None:
        since = self.silent_since()
        if since is None or run.over:
            return
        task = await self._service.load(run.task.id)
        if task.run is not None and task.run.id == run.run_id:
            await self._service.execute(cmd.ExcludeDowntime(task_id=task.id, since=since, until=self._clock.now()), SYSTEM)

    async def handle(self, job: Taken) -> None:
        """Carry out a job to the point where it is off the queue; Postponed if that must wait."""
        lease, key, at = Lease(job.id, self.name), job.key, job.at
        try:
            held = self._held(job, lease)
            held.last_seen_at = None if job.seen is None else datetime.fromisoformat(job.seen)
            del job  # the task that it brought along will not stay what it is, and a run may last
            await self._handle(key, at, held)
        except (StaleRun, NotFound):
            await self._log_others(key)
            await self._service.acknowledge(lease)
        except asyncio.CancelledError as stopped:
            current = asyncio.current_task()
            if stopped.args != (GONE,) or current is None:
                raise
            current.uncancel()
            await self._log_others(key)
            await self._service.acknowledge(lease)
        except UnknownEvent as error:
            raise Postponed(f"{key} was written by a newer remit: {error}", NEWER_SECONDS) from error
        except Corrupt as error:
            log.warning("%s is left alone: %s", key, error)
            raise Postponed(f"{key}: {error}", SPOILED_SECONDS) from error
        except (Unavailable, Unacknowledged) as error:
            raise Postponed(f"{key}: {error}", 1.0) from error

    async def _log_others(self, key: str, held: Held | None = None) -> None:
        """Log what others did to the task of a run: canceled it, or answered its question."""
        if self._task_log is None or not key.startswith(RUN):
            return
        task_id = key.removeprefix(RUN)
        with suppress(RemitError):  # a line is not worth a run
            known = held.seen.get(task_id) if held is not None else None
            task = known.task if known is not None else await self._service.load(task_id)
            if task.counts.runs:
                await self._task_log.catch_up(task)

    async def _log_missed(self, held: Held) -> None:
        """Log what others did to a task while its run was under way."""
        known = held.seen.get(held.task_id)
        if self._task_log is not None and known is not None:
            with suppress(RemitError):  # a line is not worth a run
                await self._task_log.log_missed(known.task)

    async def _handle(self, key: str, at: str | None, held: Held) -> None:
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

    def _held(self, job: Taken, lease: Lease) -> Held:
        """A job: a run's with the task as it was when the job was claimed, a signal's to be done with whatever it leads to."""
        if not job.key.startswith(RUN):
            return Held(lease, ack=True)
        task_id = job.key.removeprefix(RUN)
        return Held(lease, task_id, seen=self._service.loaded(task_id, job.head, job.document) if job.document and job.head else None)

    async def _end_time(self, task_id: str, held: Held) -> None:
        """End a task whose time is up; clocks differ between machines, and by ours it may not be yet."""
        await self._before_time_ends(task_id)
        task = await self._service.load(task_id)
        coming, seconds = self._service.limit_job(task), self._service.seconds(task)
        if coming is None or seconds is None:
            return await self._service.acknowledge(held.lease)
        if coming.at is not None and coming.at > instant(self._clock.now()):
            return await self._service.put(coming, done=held.lease)
        report = bool(getattr(self._runner, "reports", False))
        await self._service.execute(cmd.EndTime(task_id=task_id, seconds=seconds, report=report), SYSTEM, held=held)
        return None

    async def _before_time_ends(self, task_id: str) -> None:
        if self.before_time_ends is not None:
            await self.before_time_ends(await self._service.load(task_id))

    async def _activate(self, held: Held) -> None:
        """Start a run of a task and let the runner have it; whatever happens, the run ends."""
        if self.stopping.is_set():  # claimed just before the worker was told to stop
            return await self._store.give_back(held.lease, 0.0)
        task_id = held.task_id
        task = await self._started(held)
        if task is None:
            return await self._service.acknowledge(held.lease)
        run = Activation(self._service, self._store, self._clock, held, task, asyncio.Event())
        run.exclude_silence = partial(self._exclude_silence, run)
        del task  # a run may last, and its task will not stay what it is
        current = asyncio.current_task()
        assert current is not None
        self._live[run.run_id] = (run, current)
        self._tell(run, paused=False)
        try:
            if self._at_once:
                return await run.release()
            await self._runner.run(run)
            if not run.over:
                await run.do(cmd.FailRun(task_id=task_id, error="The runner returned without ending its run."))
        except (StaleRun, Unavailable, Unacknowledged, Corrupt):
            raise
        except asyncio.CancelledError:
            if not run.handed_over:
                raise
            current.uncancel()
            await self._release(run)
        except UnknownEvent as error:
            log.info("run %s is left to a newer remit: %s", run.run_id, error)
            await run.do(cmd.ReleaseRun(task_id=task_id, retry_seconds=NEWER_SECONDS))
        except Exception as error:
            log.exception("run %s failed", run.run_id)
            await run.do(cmd.FailRun(task_id=task_id, error=storable(f"{type(error).__name__}: {error}"[:10_000])))
        finally:
            self._live.pop(run.run_id, None)
        return None

    async def _release(self, run: Activation) -> None:
        """Give back the task of a run that was cancelled; where the store is away, its lease runs out instead."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await run.release()

    async def _started(self, held: Held) -> Task | None:
        """The task with a new run of ours, or nothing if there is nothing to run; what the dead have left is only counted."""
        task_id = held.task_id
        start = cmd.StartRun(task_id=task_id, worker=self.name)
        try:
            return (await self._service.execute(start, SYSTEM, held=held)).task
        except Conflict as refused:
            left = (refused.details or {}).get("run_id")
        if left is None:
            return None
        # One commit counts the lost run, takes this job off and puts the next one, so that there are never two for a task.
        lost = cmd.LoseRun(task_id=task_id, run_id=left, last_seen_at=held.last_seen_at)
        await self._service.execute(lost, SYSTEM, held=Held(held.lease, task_id))
        return None

    async def watch(self) -> None:
        """Stop, at once, every run that the store does not call live any more: its task was canceled, ended or taken over. Tell the paused."""
        async with self._store.watch() as bell:
            while True:
                await bell.wait()
                await self._compare()
                await asyncio.sleep(LOOK_SECONDS)

    async def _compare(self) -> None:
        if not self._live:
            return
        mine = dict(self._live)
        with suppress(RemitError):
            rows = await self._store.select("live_runs", {"ids": [int(run.task.id) for run, _ in mine.values()]})
            states = {run_id: state for _, run_id, state in rows}
            for run_id in mine.keys() & states.keys():
                self._tell(mine[run_id][0], paused=states[run_id] == State.PAUSED)
            if mine.keys() <= states.keys():
                return
            await asyncio.sleep(GRACE_SECONDS)  # one that has just ended itself is about to return
            for run_id, (_, running) in mine.items():
                if run_id not in states and run_id in self._live:
                    running.cancel(GONE)

    def _tell(self, run: Activation, *, paused: bool) -> None:
        """Let a run, and what it has under way, know whether it should stop at its next boundary."""
        if paused or self.stopping.is_set():
            run.stopping.set()
        else:
            run.stopping.clear()


_NEWS: dict[str, Callable[[str], cmd.Command]] = {
    TELL: lambda ref: cmd.SettleSubtasks(task_id=ref),
    RELEASE: lambda ref: cmd.ReleaseDependents(task_id=ref),
    CHECK: lambda ref: cmd.CheckCriteria(task_id=ref),
    TIMER: lambda ref: cmd.FireTimer(task_id=ref.rpartition("-t")[0], timer_id=ref),
}


def _news(key: str) -> cmd.Command:
    """The command that a signal stands for."""
    kind, slash, ref = key.partition("/")
    return _NEWS[kind + slash](ref)
