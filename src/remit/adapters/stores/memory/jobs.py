"""The job queue of the memory store, as plainly as it can be said."""

import math
import re
import time
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import filterfalse
from typing import Any, NamedTuple

from remit.adapters.stores.memory.records import Records
from remit.domain.projection.follow_up_jobs import SIGNALS, Job
from remit.domain.records.serialize import instant
from remit.ports import Claim, ClaimedJob, ClaimResult, Lease, Unit, WorkerRow


class MemoryJob(NamedTuple):
    """A job, and the worker that has claimed it."""

    id: int
    key: str
    queue: str
    priority: int
    at: str | None
    worker: str | None = None
    beat: float = 0.0
    tries: int = 0
    root: int = 0
    seen: str | None = None

    @property
    def urgency(self) -> tuple[int, int]:
        """The lowest is claimed first."""
        return self.priority, self.id

    def is_due(self, now: str) -> bool:
        """Return True unless the job waits for a later time."""
        return self.at is None or self.at <= now


class MemoryJobs:
    """The queue, and the workers that claim from it."""

    def __init__(self) -> None:
        self.jobs: dict[int, MemoryJob] = {}
        self.rows: dict[str, tuple[WorkerRow, float]] = {}
        self.attendance: dict[int, str] = {}
        """The last heartbeat of a live worker, by the tree that it serves; 0 stands for every
        tree.
        """
        self._last = 0

    def records(self) -> Records:
        """Return all jobs, for queries."""
        return Records(job._asdict() for job in self.jobs.values())

    def claimed_or_due(self, now: str) -> list[MemoryJob]:
        """Return jobs that a worker has, or may claim now."""
        due = [job for job in self._queued() if job.is_due(now)]
        return self._claimed() + due

    def has(self, key: str) -> bool:
        """Return True if there is a job with a key, claimed or not."""
        return key in {job.key for job in self.jobs.values()}

    def due(self, task_id: int, *kinds: str) -> str | None:
        """Return when the next queued job of a task is due: its run, or its own schedule."""
        keys = {f"{kind}{task_id}" for kind in kinds or ("run/", "cron/")}
        times = [job.at for job in self._queued() if job.key in keys]
        return max(filter(None, times), default=None)

    def holds(self, lease: Lease) -> bool:
        """Return True while a job is this worker's."""
        return self.worker(lease.job) == lease.worker

    def worker(self, number: int) -> str | None:
        """Return the worker that has a job."""
        if number not in self.jobs:
            return None
        return self.jobs[number].worker

    def write(self, unit: Unit, needed: set[Any]) -> None:
        """Remove and add the jobs of a commit; `needed` are the tasks that others depend on."""
        if lease := unit.finished:
            del self.jobs[lease.job]
        for key in unit.drops:
            self._drop(key)
        wanted = needed | {None}
        for job in unit.jobs:
            if job.if_needed_by_others in wanted:
                self._put(job)

    def move(self, task_id: int, root: int) -> None:
        """Put the jobs of a task under another root."""
        key_of_task = re.compile(rf"\w+/{task_id}(-.*)?")
        for number, job in self.jobs.items():
            if key_of_task.fullmatch(job.key):
                self.jobs[number] = job._replace(root=root)

    def claim(self, asked: Claim) -> ClaimResult:
        """Claim signals, jobs whose lease has expired, and runs by priority."""
        signals = self._ready([SIGNALS], asked.roots)[: asked.signals]
        expired = self._expired(asked)
        signals += filter(_is_signal, expired)
        runs = list(filterfalse(_is_signal, expired))[: asked.room]
        runs += self._ready_runs(asked, asked.room - len(runs))
        claimed = [self._take(job, asked.worker) for job in signals + runs]
        if claimed:
            return ClaimResult(claimed, None)
        return ClaimResult([], self._next_in(asked))

    def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Renew a worker's leases; return jobs that other workers have taken over."""
        now = time.monotonic()
        at = instant(datetime.now(UTC))
        self.rows[row.worker] = (row, now)
        known = self.jobs.keys() & jobs
        held = {number for number in known if self.worker(number) == row.worker}
        for number in held:
            self.jobs[number] = self.jobs[number]._replace(beat=now, seen=at)
        self.attendance |= dict.fromkeys(row.attended, at)
        return known - held

    def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back."""
        if not self.holds(lease):
            return
        job = self.jobs[lease.job]
        self._drop(job.key)
        at = job.at
        if delay_seconds:
            at = instant(datetime.now(UTC) + timedelta(seconds=delay_seconds))
        self.jobs[job.id] = job._replace(worker=None, at=at)

    def leave(self, worker: str) -> None:
        """Forget a worker; its leases have run out."""
        self.rows.pop(worker, None)
        self.jobs |= {
            job.id: job._replace(beat=-math.inf) for job in self._claimed() if job.worker == worker
        }

    def workers(self) -> list[WorkerRow]:
        """Return all workers with a heartbeat."""
        now = time.monotonic()
        rows = [row._replace(age_seconds=now - beat) for row, beat in self.rows.values()]
        return sorted(rows, key=lambda row: (row.since, row.worker))

    def count(self) -> list[dict[str, Any]]:
        """Return the number of jobs in each queue."""
        queued = Counter(job.queue for job in self._queued())
        claimed = Counter(job.queue for job in self._claimed())
        return [
            {"queue": queue, "queued": queued[queue], "claimed": claimed[queue]}
            for queue in sorted(queued | claimed)
        ]

    def _queued(self) -> list[MemoryJob]:
        return [job for job in self.jobs.values() if job.worker is None]

    def _claimed(self) -> list[MemoryJob]:
        return [job for job in self.jobs.values() if job.worker is not None]

    def _leased(self, queues: Collection[str], roots: Sequence[int] | None) -> list[MemoryJob]:
        """Return claimed jobs of some queues and trees."""
        return [job for job in self._claimed() if _is_wanted(job, queues, roots)]

    def _put(self, job: Job) -> None:
        """Queue a job; it replaces a queued one with the same key."""
        known = self._queued_with(job.key)
        if known is None:
            self._last += 1
            number = self._last
        else:
            number = known.id
        self.jobs[number] = MemoryJob(
            number, job.key, job.queue, job.priority, job.at, root=job.root
        )

    def _drop(self, key: str) -> None:
        """Remove the queued job with a key."""
        if job := self._queued_with(key):
            del self.jobs[job.id]

    def _queued_with(self, key: str) -> MemoryJob | None:
        """Return the queued job with a key; there is at most one."""
        return next((job for job in self._queued() if job.key == key), None)

    def _take(self, job: MemoryJob, worker: str) -> ClaimedJob:
        """Give a job to a worker."""
        tries = job.tries + 1
        self.jobs[job.id] = job._replace(
            worker=worker,
            beat=time.monotonic(),
            tries=tries,
            seen=job.seen or instant(datetime.now(UTC)),
        )
        return ClaimedJob(job.id, job.key, job.queue, tries, job.at, seen=job.seen)

    def _ready(self, queues: Collection[str], roots: Sequence[int] | None) -> list[MemoryJob]:
        """Return queued jobs that are due, the most urgent first."""
        now = instant(datetime.now(UTC))
        due = [job for job in self._waiting(queues, roots) if job.is_due(now)]
        return sorted(due, key=lambda job: job.urgency)

    def _waiting(self, queues: Collection[str], roots: Sequence[int] | None) -> list[MemoryJob]:
        """Return queued jobs, except successors: they wait until the claimed job before them is
        done.
        """
        claimed_keys = {job.key for job in self._claimed()}
        free = [job for job in self._queued() if job.key not in claimed_keys]
        return [job for job in free if _is_wanted(job, queues, roots)]

    def _ready_runs(self, asked: Claim, room: int) -> list[MemoryJob]:
        """Return as many ready runs as the limits allow."""
        runs: list[MemoryJob] = []
        claimed = Counter(job.queue for job in filterfalse(_is_signal, self._claimed()))
        for job in self._ready(asked.queues, asked.roots):
            if len(runs) >= room:
                break
            if not _is_full(asked, job.queue, claimed):
                claimed[job.queue] += 1
                runs.append(job)
        return runs

    def _expired(self, asked: Claim) -> list[MemoryJob]:
        """Return jobs of workers without a heartbeat for the length of a lease."""
        oldest = time.monotonic() - asked.lease_seconds
        queues = (SIGNALS, *asked.queues)
        return [job for job in self._leased(queues, asked.roots) if job.beat < oldest]

    def _next_in(self, asked: Claim) -> float | None:
        """Return the seconds until a job is due or its lease expires; without capacity, only
        signals count.
        """
        queues = [SIGNALS]
        if asked.room:
            queues += asked.queues
        if self._ready(queues, asked.roots):
            return 0.0
        waits = [_seconds_until(job.at) for job in self._waiting(queues, asked.roots) if job.at]
        expiry = asked.lease_seconds - time.monotonic()
        waits += [job.beat + expiry for job in self._leased(queues, asked.roots)]
        if not waits:
            return None
        return max(0.0, min(waits))


def _is_signal(job: MemoryJob) -> bool:
    return job.queue == SIGNALS


def _is_wanted(job: MemoryJob, queues: Collection[str], roots: Sequence[int] | None) -> bool:
    """Return True if a worker of these queues and trees may have a job."""
    if job.queue not in queues:
        return False
    return roots is None or job.root in roots


def _is_full(asked: Claim, queue: str, claimed: Counter[str]) -> bool:
    """Return True if no more runs of a queue may be claimed now."""
    # A limit of 0 stands for none.
    return 0 < asked.queues[queue] <= claimed[queue] or 0 < asked.fleet <= claimed.total()


def _seconds_until(at: str) -> float:
    return (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()
