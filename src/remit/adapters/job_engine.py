"""The job engine: PgQueuer's QueueManager on the job queue of our store, for any database.

PgQueuer claims and dispatches jobs. Instead of its own tables it uses the store's `JobQueue` port,
so a job is enqueued and acknowledged in the transaction of its events. PgQueuer never deletes a job
here: if a handler fails or is cancelled, its job stays claimed until the lease expires.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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

from remit.domain.projection.follow_up_jobs import SIGNALS
from remit.errors import RemitError, RolledBack, Unavailable
from remit.ports import Claim, ClaimedJob, JobQueue, Lease, Postponed, ServedTrees, Store, WorkerRow

DEQUEUE_SECONDS = 1.0
"""The longest sleep of an idle worker, in case a notification is lost."""
SIGNALS_AT_ONCE = 32
RUNS_AT_ONCE = 128
"""The maximum number of runs per claim; each includes its task."""
CHANNEL = Channel("remit")
SOON_SECONDS = 0.05
"""The delay before a worker that emptied the queue asks when the next job is due."""
GATHER_SECONDS = 0.001
"""The time that a worker without a free slot waits for one before it looks for jobs."""
LOST = "its lease is lost"
log = logging.getLogger("remit.engine")

Handler = Callable[[ClaimedJob], Awaitable[None]]


class _Manager(QueueManager):
    """PgQueuer's manager without its heartbeat task and timer per job: the engine renews all leases
    together.
    """

    async def _dispatch(
        self,
        job: Job,
        jbuff: JobStatusLogBuffer,
        hbuff: HeartbeatBuffer,
        heartbeat_timeout: timedelta,  # noqa: ARG002 - zero is passed instead: no heartbeat
    ) -> None:
        await super()._dispatch(job, jbuff, hbuff, timedelta(0))


class Engine:
    """The share of one worker process: claims jobs, passes them to a handler, and renews their
    leases.
    """

    def __init__(
        self,
        store: Store,
        row: WorkerRow,
        handler: Handler,
        limits: Mapping[str, int],
        *,
        lease_seconds: float,
        failed: Callable[[Exception], None],
        fleet: int,
        models: Callable[[], str],
        scope: ServedTrees,
        after_gap: Callable[[], Awaitable[None]],
    ) -> None:
        self._store, self._row, self._handler, self._lease_seconds, self._models = (
            store,
            row,
            handler,
            lease_seconds,
            models,
        )
        self._failed = failed
        """Called immediately with an unexpected error: the manager reports it only after all
        running jobs have ended.
        """
        self._scope = scope
        self._queue = _Queue(store, row, limits, lease_seconds, fleet, failed, scope)
        self._after_gap = after_gap
        """Called before the first heartbeat after a gap longer than a lease."""
        self._heard_at = -math.inf
        self._adopted = asyncio.Event()
        scope.on_adopt = self._on_adopt
        # The manager calls only the methods below.
        self._manager = _Manager(cast("RepositoryPort", self._queue), CHANNEL)
        self._manager.min_dequeue_poll_interval = timedelta(seconds=SOON_SECONDS)
        for queue in (SIGNALS, *limits):
            self._manager.entrypoint(queue, accepts_context=False)(self._dispatch)

    async def run(self) -> None:
        """Work until `stop` is called, then wait for the running jobs."""
        # Other workers take over the jobs of a worker that never sent a heartbeat.
        await self._announce_patiently()
        # Both end with this block; a TaskGroup would wrap the manager's exceptions in a group.
        beating = asyncio.create_task(self._renew_leases())
        listening = asyncio.create_task(self._listen())
        try:
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
                await self._leave()
            except RemitError:
                log.debug("The store is not available; the worker's row will expire.")

    async def announce(self) -> None:
        """Send a heartbeat that renews no lease; Unavailable if the store cannot be reached."""
        asked = time.monotonic()
        await self._end_gap()
        await self._store.beat(self._worker_row(), [])
        self._heard_at = asked

    async def _announce_patiently(self) -> None:
        """Send the first heartbeat: try again until the store receives it or `stop` is called."""
        stopping = self._manager.shutdown
        while not self.is_connected and not stopping.is_set():
            try:
                await self.announce()
            except Unavailable as error:
                log.warning("Waiting for the store before claiming jobs: %s", error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._lease_seconds / 4):
                        await stopping.wait()

    async def _leave(self) -> None:
        """Record that the trees were served until now, and remove the worker from the list."""
        await self.announce()
        await self._store.leave(self._row.worker)

    def stop(self) -> None:
        """Stop claiming jobs."""
        self._manager.shutdown.set()

    @property
    def running(self) -> int:
        """Return how many runs are in progress here."""
        return self._queue.running

    @property
    def is_connected(self) -> bool:
        """Return True if the store received a heartbeat within the time of a lease."""
        return self.silent_seconds < self._lease_seconds

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the last heartbeat that the store received was sent."""
        return time.monotonic() - self._heard_at

    async def _dispatch(self, job: Job) -> None:
        current = asyncio.current_task()
        assert current is not None
        key, tries = self._queue.taken[job.id].key, self._queue.taken[job.id].tries
        try:
            await self._handler(self._queue.begin(job.id, current))
        except Postponed as later:
            log.info("%s is postponed: %s", key, later)
            raise RetryRequested(timedelta(seconds=later.delay_seconds)) from None
        except asyncio.CancelledError as stopped:
            if stopped.args != (LOST,):
                raise
            log.warning("Gave up %s, because its lease was lost", key)
            current.uncancel()
        except Unavailable as error:
            log.warning("%s could not be finished: %s", key, error)
            raise RetryRequested(timedelta(seconds=DEQUEUE_SECONDS)) from None
        except Exception:
            log.exception("%s failed unexpectedly", key)
            raise RetryRequested(timedelta(seconds=min(2.0**tries, 60.0))) from None
        finally:
            self._queue.remove(job.id)

    async def _renew_leases(self) -> None:
        """Renew every lease well before it ends.

        Stop jobs whose lease was lost, and all jobs if the store cannot be reached. A renewal
        or a claim counts from the time it was sent, so a lease is given up before another worker
        can take it.
        """
        pause = self._lease_seconds / 4
        last = time.monotonic()
        away = stood_still = False
        while True:
            if not stood_still:
                await self._wait_until_due(pause)
            jobs = list(self._queue.working)
            asked = time.monotonic()
            end = self._queue.earliest_end(jobs, last)
            try:
                # After a long pause the lease may still be held.
                async with asyncio.timeout(end - asked if asked < end else pause):
                    lost = await self._beat(jobs)
                self._heard_at = asked
                self._queue.renew(jobs, asked)
                last, away, stood_still = asked, False, False
            except Exception as error:  # noqa: BLE001 - leases must be renewed whatever happens
                if not isinstance(error, RemitError | TimeoutError | OSError):
                    self._failed(error)
                if time.monotonic() + pause < end:
                    continue
                # The timeout was due at `end`. If it came much later, this process stood still.
                stood_still = asked < end and time.monotonic() > end + pause
                if stood_still:
                    continue
                lost = self._queue.expiring(jobs, time.monotonic() + pause)
                if lost or not away:
                    log.warning(
                        "Lost contact with the store for %.1f s. %s",
                        time.monotonic() - last,
                        _lost_store_message(self._queue.count_runs(lost), error),
                    )
                last, away = time.monotonic(), True
            for job in lost & self._queue.working.keys():
                self._queue.working[job].cancel(LOST)

    async def _beat(self, jobs: Sequence[int]) -> set[int]:
        """Send a heartbeat; return jobs that other workers have taken over."""
        await self._scope.refresh()
        await self._end_gap()
        return await self._store.beat(self._worker_row(), jobs)

    async def _end_gap(self) -> None:
        """Report a gap longer than a lease before the first heartbeat after it."""
        if not self.is_connected:
            await self._after_gap()

    def _on_adopt(self) -> None:
        """Look for jobs of an adopted tree, and publish that this worker serves it."""
        self._queue.driver.notify()
        self._adopted.set()

    async def _wait_until_due(self, pause: float) -> None:
        """Wait until a heartbeat is due: after the interval, or soon after a tree was adopted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._adopted.wait()
        if self._adopted.is_set():
            await asyncio.sleep(min(SOON_SECONDS, pause))  # several trees may be adopted together
            self._adopted.clear()

    def _worker_row(self) -> WorkerRow:
        """Return this worker's row for the store."""
        return self._row._replace(
            running=self.running, models=self._models(), scope=self._scope.shown
        )

    async def _listen(self) -> None:
        """Wake the manager whenever there may be a job."""
        try:
            async with self._store.watch("jobs") as bell:
                while True:
                    await bell.wait()
                    self._queue.driver.notify()
        except Exception as error:  # noqa: BLE001 - otherwise the error would be lost
            self._failed(error)


class _Queue:
    """The repository that PgQueuer expects, implemented with the store's queue."""

    def __init__(
        self,
        store: JobQueue,
        row: WorkerRow,
        limits: Mapping[str, int],
        lease_seconds: float,
        fleet: int,
        failed: Callable[[Exception], None],
        scope: ServedTrees,
    ) -> None:
        self._store, self._row, self._limits, self._lease_seconds, self._fleet = (
            store,
            row,
            limits,
            lease_seconds,
            fleet,
        )
        self._patience = 0.9 * lease_seconds
        """How long a lease is held without an answer of the store."""
        self._failed, self._scope = failed, scope
        self.driver = _Driver()
        self.qbe = _Environment()
        self.taken: dict[int, ClaimedJob] = {}
        self.working: dict[int, asyncio.Task[object]] = {}
        self._held_since: dict[int, float] = {}
        """When the claim or the last renewal of each lease was sent."""
        self.running = 0
        """The number of claimed runs that have not ended."""
        self._next: float | None = None
        self._drained = False
        self._refused = False
        """True while the store is refused because it was rolled back; logged once."""

    @property
    def room(self) -> int:
        """Return how many more runs may be claimed."""
        return max(0, self._row.concurrency - self.running)

    def renew(self, jobs: Sequence[int], asked: float) -> None:
        """Record that the store renewed the leases of these jobs."""
        self._held_since |= dict.fromkeys(self.taken.keys() & jobs, asked)

    def earliest_end(self, jobs: Sequence[int], default: float) -> float:
        """Return when the first of these leases must be given up; without jobs, count from the
        default.
        """
        held_since = min((self._held_since[job] for job in jobs), default=default)
        return held_since + self._patience

    def expiring(self, jobs: Sequence[int], at: float) -> set[int]:
        """Return the jobs whose lease must be given up by then."""
        return {job for job in jobs if self._held_since.get(job, at) + self._patience <= at}

    def count_runs(self, jobs: Iterable[int]) -> int:
        """Return how many of these jobs are runs."""
        return sum(self.taken[job].queue != SIGNALS for job in jobs if job in self.taken)

    def begin(self, job: int, working: asyncio.Task[object]) -> ClaimedJob:
        """Take a claimed job to work on; its payload is removed here."""
        taken = self.taken[job]
        self.taken[job] = taken._replace(head=None, document=None)
        self.working[job] = working
        return taken

    def remove(self, job: int) -> None:
        """Remove a job. If all slots were taken, look for more jobs, together with other slots that
        become free.
        """
        full = self.room == 0
        self.working.pop(job, None)
        self._held_since.pop(job, None)
        taken = self.taken.pop(job, None)
        self.running -= taken is not None and taken.queue != SIGNALS
        if full and self.room:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.driver.notify)

    async def dequeue(
        self,
        batch_size: int,  # noqa: ARG002 - the number of free slots limits a claim
        # The queues and their limits are our own.
        entrypoints: Mapping[QueueEntrypoint, Any],  # noqa: ARG002
        queue_manager_id: UUID,
        # A claim carries the limit of the fleet.
        global_concurrency_limit: int | None,  # noqa: ARG002
        heartbeat_timeout: timedelta,  # noqa: ARG002 - a claim carries the lease
    ) -> list[Job]:
        """Claim the due jobs that fit."""
        notified, self.driver.notified = self.driver.notified, False
        asked = time.monotonic()
        try:
            jobs = await self._claim_due(notified=notified)
        except RolledBack as error:
            if not self._refused:
                log.error("Stopped claiming jobs: %s", error)
            self._refused, self._next = True, DEQUEUE_SECONDS
            return []
        except RemitError as error:
            log.warning("Cannot read the queue: %s", error)
            self._next = DEQUEUE_SECONDS
            return []
        except Exception as error:
            self._failed(error)
            raise
        fresh = [job for job in jobs if job.id not in self.taken]
        self.taken |= {job.id: job for job in fresh}
        self.renew([job.id for job in fresh], asked)
        self.running += _count_runs(fresh)
        now = datetime.now(UTC)
        return [_job(job, queue_manager_id, now) for job in fresh]

    async def _claim_due(self, *, notified: bool) -> list[ClaimedJob]:
        """Claim due jobs.

        After emptying the queue, let the runs start before asking again, unless notified.
        """
        if self._drained and not notified:
            self._drained = False
            return []
        roots = self._scope.roots
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
            log.warning("The store has recovered; claiming jobs again.")
            self._refused = False
        if jobs:
            runs = _count_runs(jobs)
            # A full claim may leave more jobs, so ask again, unless no slot is left: a free slot
            # wakes the manager.
            self._drained = len(jobs) - runs < SIGNALS_AT_ONCE and (
                runs < claim.room or runs == self.room
            )
            self._next = SOON_SECONDS
        return jobs

    async def eligible_queued_work(
        self,
        entrypoints: Sequence[QueueEntrypoint],  # noqa: ARG002 - the queues are our own
    ) -> int:
        """Return a positive number while limits of the fleet hold back a due job."""
        return int(self._next == 0.0)

    # The queues are our own.
    async def queued_work(self, entrypoints: Sequence[QueueEntrypoint]) -> int:  # noqa: ARG002
        """Return 0: the last claim has already answered this."""
        return 0

    async def next_deferred_eta(
        self,
        entrypoints: Sequence[QueueEntrypoint],  # noqa: ARG002 - the queues are our own
    ) -> timedelta | None:
        """Return the time until a job is due."""
        return None if self._next is None else timedelta(seconds=self._next)

    async def retry_job(
        self,
        job: Job,
        delay: timedelta,
        traceback_record: Any,  # noqa: ARG002 - it is in the log
    ) -> None:
        """Put a job back; if the store cannot be reached, its lease expires."""
        try:
            await self._store.give_back(Lease(int(job.id), self._row.worker), delay.total_seconds())
        except Unavailable as error:
            log.warning("%s could not be put back: %s", job.entrypoint, error)

    async def update_heartbeat(self, job_ids: Sequence[JobId]) -> None:
        """Do nothing: the engine renews all leases together and handles the answers."""

    async def log_jobs(self, job_status: Sequence[Any]) -> None:
        """Do nothing: a job is acknowledged in the transaction of its events or stays claimed."""

    async def notify_health_check(self, health_check_event_id: HealthCheckId) -> None:
        """Return immediately: the store's listener reconnects by itself."""
        self.driver.deliver(
            HealthCheckEvent(
                channel=CHANNEL,
                sent_at=datetime.now(UTC),
                type="health_check_event",
                id=health_check_event_id,
            )
        )

    # PgQueuer's own tables are not used.
    async def has_table(self, table: str) -> bool:  # noqa: ARG002
        """Return True: the store migrated its schema when it was opened."""
        return True

    async def table_has_column(self, table: str, column: str) -> bool:  # noqa: ARG002 - as above
        """Return True, as above."""
        return True

    async def table_has_index(self, table: str, index: str) -> bool:  # noqa: ARG002 - as above
        """Return True, as above."""
        return True

    async def has_user_defined_enum(self, key: str, enum: str) -> bool:  # noqa: ARG002 - as above
        """Return True, as above."""
        return True


class _Environment:
    settings = DBSettings()


class _Driver:
    """Notifies the manager of jobs, once until it has looked."""

    def __init__(self) -> None:
        self.shutdown = asyncio.Event()
        self.tm = TaskManager()
        self.notified = False
        self._listener: Callable[[str], None] | None = None

    def notify(self) -> None:
        """Report that there may be a job."""
        if not self.notified:
            self.notified = True
            self.deliver(
                TableChangedEvent(
                    channel=CHANNEL,
                    sent_at=datetime.now(UTC),
                    type="table_changed_event",
                    operation="insert",
                    table="job",
                )
            )

    def deliver(self, event: Any) -> None:
        """Pass an event to the manager."""
        if self._listener is not None:
            self._listener(event.model_dump_json())

    async def add_listener(
        self,
        channel: str,  # noqa: ARG002 - there is only one channel
        callback: Callable[[Any], None],
    ) -> None:
        """Register the manager's listener."""
        self._listener = callback

    async def __aenter__(self) -> "_Driver":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ear = None


def _job(taken: ClaimedJob, worker: UUID, now: datetime) -> Job:
    """Convert a job to PgQueuer's type; only its id and its queue matter here."""
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


def _count_runs(jobs: Sequence[ClaimedJob]) -> int:
    return sum(job.queue != SIGNALS for job in jobs)


def _lost_store_message(runs: int, error: Exception) -> str:
    """Describe the runs of a worker that lost its store."""
    if runs == 0:
        return "No run was given up here."
    given_up, it = f"{runs} runs", "them"
    task, counts = "their tasks are", "each counts as an attempt"
    if runs == 1:
        given_up, it = "1 run", "it"
        task, counts = "its task is", "this counts as an attempt"
    if isinstance(error, RolledBack):
        return (
            f"Gave up {given_up} here. A worker continues {it} only if {task} in the store that is"
            " used from now on."
        )
    return (
        f"Gave up {given_up} here. If the last change is stored after all, it is valid. Otherwise"
        f" {counts}, and a worker that reaches the store continues {it} while attempts are left."
    )


def worker_name(host: str, pid: int) -> str:
    """Return a unique worker name."""
    return f"{host}-{pid}-{uuid4().hex[:8]}"
