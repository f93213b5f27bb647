"""The engine: PgQueuer's own QueueManager over the queue of our store, whichever database that is.

PgQueuer claims, dispatches and beats; what it would do to its own tables goes to the store's `JobQueue` port instead, so
that a job is enqueued and acknowledged in the transaction of the events it belongs to. It never deletes a job here: a
handler that fails or is cancelled leaves its job claimed, and the lease runs out.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

from pgqueuer.core.buffers import HeartbeatBuffer, JobStatusLogBuffer
from pgqueuer.core.qm import QueueManager
from pgqueuer.core.tm import TaskManager
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.models import HealthCheckEvent, Job, TableChangedEvent
from pgqueuer.domain.settings import DBSettings
from pgqueuer.domain.types import Channel, HealthCheckId, JobId, QueueEntrypoint
from pgqueuer.ports import RepositoryPort

from remit.domain.due import SIGNALS
from remit.errors import RemitError, RolledBack, Unavailable
from remit.ports import Claim, JobQueue, Lease, Postponed, ServedTrees, Store, Taken, WorkerRow

DEQUEUE_SECONDS = 1.0
"""How long an idle worker sleeps at most, in case a notice got lost."""
SIGNALS_AT_ONCE = 32
RUNS_AT_ONCE = 128
"""How many runs are claimed in one go: each brings its task along."""
CHANNEL = Channel("remit")
SOON_SECONDS = 0.05
"""When a worker that has left nothing asks how long there will be nothing."""
GATHER_SECONDS = 0.001
"""How long a worker without a free slot waits for more of them before it looks for jobs."""
LOST = "its lease is lost"
log = logging.getLogger("remit.engine")

Handler = Callable[[Taken], Awaitable[None]]


class _Manager(QueueManager):
    """PgQueuer's own, but for its heartbeats: a task and a timer for each job, where the engine renews all leases together."""

    async def _dispatch(
        self,
        job: Job,
        jbuff: JobStatusLogBuffer,
        hbuff: HeartbeatBuffer,
        heartbeat_timeout: timedelta,  # noqa: ARG002 - zero goes on in its place: no heartbeat
    ) -> None:
        await super()._dispatch(job, jbuff, hbuff, timedelta(0))


class Engine:
    """One worker process's share of the queue: claims what it may, hands it to a handler, and keeps its leases."""

    def __init__(
        self,
        store: Store,
        row: WorkerRow,
        handler: Handler,
        limits: Mapping[str, int],
        *,
        lease_seconds: float,
        failed: Callable[[Exception], None],
        fleet: int = 0,
        models: Callable[[], str] = str,
        scope: ServedTrees | None = None,
        after_gap: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store, self._row, self._handler, self._lease_seconds, self._models = store, row, handler, lease_seconds, models
        self._failed = failed
        """Told at once of what nobody foresaw: the manager itself says it only when all that is under way has ended."""
        self._scope = scope
        self._queue = _Queue(store, row, limits, lease_seconds, fleet, failed, scope)
        self._after_gap = after_gap
        """Called before the first heartbeat after a silence that was longer than a lease."""
        self._heard_at = -math.inf
        self._adopted = asyncio.Event()
        if scope is not None:
            scope.on_adopt = self._on_adopt
        self._manager = _Manager(cast("RepositoryPort", self._queue), CHANNEL)  # of which it calls what is below
        self._manager.min_dequeue_poll_interval = timedelta(seconds=SOON_SECONDS)
        for queue in (SIGNALS, *limits):
            self._manager.entrypoint(queue, accepts_context=False)(self._dispatch)

    async def run(self) -> None:
        """Work until told to stop; what is under way then is waited for."""
        # Both end with this block; a TaskGroup here would wrap what the manager raises in a group.
        beating = asyncio.create_task(self._beat())
        listening = asyncio.create_task(self._listen())
        try:
            await self._store.beat(self._seen(), [])
            self._heard_at = time.monotonic()
            await self._manager.run(
                dequeue_timeout=timedelta(seconds=DEQUEUE_SECONDS),
                heartbeat_timeout=timedelta(seconds=self._lease_seconds),
                log_aggregation_interval=timedelta(0),
            )
        finally:
            beating.cancel()
            listening.cancel()
            await asyncio.gather(beating, listening, return_exceptions=True)
            try:
                await self._store.leave(self._row.worker)
            except RemitError:
                log.debug("the store is gone; the worker's row goes with time")

    def stop(self) -> None:
        """Claim nothing more."""
        self._manager.shutdown.set()

    @property
    def running(self) -> int:
        """How many runs are under way here."""
        return self._queue.running

    @property
    def is_heard(self) -> bool:
        """True while the store has had a heartbeat within the time of a lease."""
        return self.silent_seconds < self._lease_seconds

    @property
    def silent_seconds(self) -> float:
        """How long ago the last heartbeat was asked for that the store has had."""
        return time.monotonic() - self._heard_at

    async def _dispatch(self, job: Job) -> None:
        current = asyncio.current_task()
        assert current is not None
        key, tries = self._queue.taken[job.id].key, self._queue.taken[job.id].tries
        try:
            await self._handler(self._queue.begin(job.id, current))
        except Postponed as later:
            log.info("%s is put off: %s", key, later)
            raise RetryRequested(timedelta(seconds=later.delay_seconds)) from None
        except asyncio.CancelledError as stopped:
            if stopped.args != (LOST,):
                raise
            log.warning("%s is no longer held here, and was stopped", key)
            current.uncancel()
        except Unavailable as error:
            log.warning("%s could not be ended: %s", key, error)
            raise RetryRequested(timedelta(seconds=DEQUEUE_SECONDS)) from None
        except Exception:
            log.exception("%s failed in a way nobody foresaw", key)
            raise RetryRequested(timedelta(seconds=min(2.0**tries, 60.0))) from None
        finally:
            self._queue.over(job.id)

    async def _beat(self) -> None:
        """Renew every lease well before it ends; stop what is no longer ours, and everything once nobody can be told that we live.

        The last renewal is dated by when it was asked for, so a lease that nobody renews is given up before others may take it.
        """
        pause = self._lease_seconds / 4
        last = time.monotonic()
        away = False
        while True:
            await self._until_due(pause)
            jobs = list(self._queue.working)
            asked = time.monotonic()
            end = last + self._lease_seconds * 0.9
            try:
                async with asyncio.timeout(end - asked if asked < end else pause):  # who was held up for long may still be the holder
                    if self._scope is not None:
                        await self._scope.refresh()
                    if self._after_gap is not None and not self.is_heard:
                        await self._after_gap()
                    lost = await self._store.beat(self._seen(), jobs)
                self._heard_at = asked
                last, away = asked, False
            except Exception as error:  # noqa: BLE001 - leases must be kept whatever happens
                if not isinstance(error, RemitError | TimeoutError | OSError):
                    self._failed(error)
                if time.monotonic() + pause < end:
                    continue
                if jobs or not away:
                    log.warning("Lost contact with the store for %.1f s. %s", time.monotonic() - last, _given_up(self.running))
                last, lost, away = time.monotonic(), set(jobs), True
            for job in lost & self._queue.working.keys():
                self._queue.working[job].cancel(LOST)

    def _on_adopt(self) -> None:
        """Look for jobs of a tree that is served from now on, and tell others that it is."""
        self._queue.driver.ring()
        self._adopted.set()

    async def _until_due(self, pause: float) -> None:
        """Wait until a heartbeat is due: after a pause, or soon after a tree was adopted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._adopted.wait()
        if self._adopted.is_set():
            await asyncio.sleep(min(SOON_SECONDS, pause))  # several may be adopted together
            self._adopted.clear()

    def _seen(self) -> WorkerRow:
        """The worker as others see it now."""
        scope = "" if self._scope is None else self._scope.shown
        return self._row._replace(running=self.running, models=self._models(), scope=scope)

    async def _listen(self) -> None:
        """Ring the manager's bell whenever there may be a job."""
        try:
            async with self._store.watch("jobs") as bell:
                while True:
                    await bell.wait()
                    self._queue.driver.ring()
        except Exception as error:  # noqa: BLE001 - nobody else would ever hear of it
            self._failed(error)


class _Queue:
    """What PgQueuer asks of a repository, answered by the store's queue."""

    def __init__(
        self,
        store: JobQueue,
        row: WorkerRow,
        limits: Mapping[str, int],
        lease_seconds: float,
        fleet: int,
        failed: Callable[[Exception], None],
        scope: ServedTrees | None,
    ) -> None:
        self._store, self._row, self._limits, self._lease_seconds, self._fleet = store, row, limits, lease_seconds, fleet
        self._failed, self._scope = failed, scope
        self.driver = _Driver()
        self.qbe = _Environment()
        self.taken: dict[int, Taken] = {}
        self.working: dict[int, asyncio.Task[object]] = {}
        self.running = 0
        """How many runs were claimed and are not over."""
        self._next: float | None = None
        self._drained = False
        self._refused = False
        """True while the store is refused because it went back in time; that is said once."""

    @property
    def room(self) -> int:
        """How many more runs may be claimed."""
        return max(0, self._row.concurrency - self.running)

    def begin(self, job: int, working: asyncio.Task[object]) -> Taken:
        """A claimed job, to be worked on; what it brought along is kept by nobody else."""
        taken = self.taken[job]
        self.taken[job] = taken._replace(head=None, document=None)
        self.working[job] = working
        return taken

    def over(self, job: int) -> None:
        """Forget a job; where every slot was taken, look for others, together with slots that become free at the same time."""
        full = self.room == 0
        self.working.pop(job, None)
        taken = self.taken.pop(job, None)
        self.running -= taken is not None and taken.queue != SIGNALS
        if full and self.room:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.driver.ring)

    async def dequeue(
        self,
        batch_size: int,  # noqa: ARG002 - how much is claimed at once depends on the room there is
        entrypoints: Mapping[QueueEntrypoint, Any],  # noqa: ARG002 - the queues are our own, with their limits
        queue_manager_id: UUID,
        global_concurrency_limit: int | None,  # noqa: ARG002 - a claim carries the limit of the fleet
        heartbeat_timeout: timedelta,  # noqa: ARG002 - a claim carries the lease
    ) -> list[Job]:
        """Claim what is due and fits."""
        told, self.driver.rung = self.driver.rung, False
        try:
            jobs = await self._claimed(told=told)
        except RolledBack as error:
            if not self._refused:
                log.error("no more work is claimed: %s", error)
            self._refused, self._next = True, DEQUEUE_SECONDS
            return []
        except RemitError as error:
            log.warning("the queue cannot be read: %s", error)
            self._next = DEQUEUE_SECONDS
            return []
        except Exception as error:
            self._failed(error)
            raise
        fresh = [job for job in jobs if job.id not in self.taken]
        self.taken |= {job.id: job for job in fresh}
        self.running += sum(job.queue != SIGNALS for job in fresh)
        now = datetime.now(UTC)
        return [_job(job, queue_manager_id, now) for job in fresh]

    async def _claimed(self, *, told: bool) -> list[Taken]:
        """What there is; who has just left nothing lets its runs begin before it asks again, unless the bell rings."""
        if self._drained and not told:
            self._drained = False
            return []
        roots = None if self._scope is None else self._scope.roots
        if roots == ():
            self._next = None
            return []
        claim = Claim(
            self._row.worker,
            self._limits,
            min(self.room, RUNS_AT_ONCE),
            SIGNALS_AT_ONCE,
            self._lease_seconds,
            self._fleet,
            roots,
        )
        jobs, self._next = await self._store.claim(claim)
        if self._refused:
            log.warning("the store is sound again; work is claimed")
            self._refused = False
        if jobs:
            runs = sum(job.queue != SIGNALS for job in jobs)
            # Who got all that it asked for asks for more, unless it has no slot left: then it is rung for when one becomes free.
            self._drained = len(jobs) - runs < SIGNALS_AT_ONCE and (runs < claim.room or runs == self.room)
            self._next = SOON_SECONDS
        return jobs

    async def eligible_queued_work(self, entrypoints: Sequence[QueueEntrypoint]) -> int:  # noqa: ARG002 - the queues are our own
        """More than nothing while something is due that limits of the fleet keep us from."""
        return int(self._next == 0.0)

    async def queued_work(self, entrypoints: Sequence[QueueEntrypoint]) -> int:  # noqa: ARG002 - the queues are our own
        """Nothing: the last claim has said it all."""
        return 0

    async def next_deferred_eta(self, entrypoints: Sequence[QueueEntrypoint]) -> timedelta | None:  # noqa: ARG002 - the queues are our own
        """How long until something is due."""
        return None if self._next is None else timedelta(seconds=self._next)

    async def retry_job(self, job: Job, delay: timedelta, traceback_record: Any) -> None:  # noqa: ARG002 - the log has it
        """Put a job back; if the store cannot be told, its lease ends by itself."""
        try:
            await self._store.give_back(Lease(int(job.id), self._row.worker), delay.total_seconds())
        except Unavailable as error:
            log.warning("%s could not be put back: %s", job.entrypoint, error)

    async def update_heartbeat(self, job_ids: Sequence[JobId]) -> None:
        """Nothing: the engine renews all leases together, and minds the answer."""

    async def log_jobs(self, job_status: Sequence[Any]) -> None:
        """Nothing: a job is acknowledged in the transaction of what it did, or stays claimed."""

    async def notify_health_check(self, health_check_event_id: HealthCheckId) -> None:
        """Answer at once: the store's own watch reconnects by itself."""
        self.driver.say(HealthCheckEvent(channel=CHANNEL, sent_at=datetime.now(UTC), type="health_check_event", id=health_check_event_id))

    async def has_table(self, table: str) -> bool:  # noqa: ARG002 - none of PgQueuer's own tables is used
        """True: the store has brought its schema up to date before it was opened."""
        return True

    async def table_has_column(self, table: str, column: str) -> bool:  # noqa: ARG002 - as above
        """True, as above."""
        return True

    async def table_has_index(self, table: str, index: str) -> bool:  # noqa: ARG002 - as above
        """True, as above."""
        return True

    async def has_user_defined_enum(self, key: str, enum: str) -> bool:  # noqa: ARG002 - as above
        """True, as above."""
        return True


class _Environment:
    settings = DBSettings()


class _Driver:
    """The manager's ear: tells it of jobs, once until it has looked."""

    def __init__(self) -> None:
        self.shutdown = asyncio.Event()
        self.tm = TaskManager()
        self.rung = False
        self._ear: Callable[[str], None] | None = None

    def ring(self) -> None:
        """Say that there may be a job."""
        if not self.rung:
            self.rung = True
            self.say(TableChangedEvent(channel=CHANNEL, sent_at=datetime.now(UTC), type="table_changed_event", operation="insert", table="job"))

    def say(self, event: Any) -> None:
        """Hand an event to the manager."""
        if self._ear is not None:
            self._ear(event.model_dump_json())

    async def add_listener(self, channel: str, callback: Callable[[Any], None]) -> None:  # noqa: ARG002 - there is one channel
        """Remember whom to tell."""
        self._ear = callback

    async def __aenter__(self) -> "_Driver":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ear = None


def _job(taken: Taken, worker: UUID, now: datetime) -> Job:
    """A job as PgQueuer has it; what matters to us is its number and its queue."""
    return Job.model_construct(
        id=JobId(taken.id),
        priority=0,
        created=now,
        updated=now,
        heartbeat=now,
        execute_after=now,
        status="picked",
        entrypoint=QueueEntrypoint(taken.queue),
        payload=None,
        attempts=taken.tries,
        queue_manager_id=worker,
        slot=None,
        headers=None,
    )


def _given_up(runs: int) -> str:
    """What became of the runs of a worker that lost its store."""
    if runs == 0:
        return "No run was under way here."
    stopped, it = ("1 run", "it") if runs == 1 else (f"{runs} runs", "them")
    return f"Stopped {stopped} here; a worker that reaches the store continues {it}."


def worker_name(host: str, pid: int) -> str:
    """A name that no other worker has or had."""
    return f"{host}-{pid}-{uuid4().hex[:8]}"
