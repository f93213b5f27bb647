"""The workers of the memory store, and the jobs that they claim."""

import math
import time
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import filterfalse

from remit.adapters.stores.memory.jobs import MemoryJob, MemoryJobs
from remit.domain.projection.follow_up_jobs import SIGNALS
from remit.domain.records.serialize import instant
from remit.ports import Claim, ClaimedJob, ClaimResult, Lease, WorkerRow


class MemoryWorkers:
    """The workers with a heartbeat: they claim jobs, renew their leases and give jobs back."""

    def __init__(self, jobs: MemoryJobs) -> None:
        self._jobs = jobs
        self._rows: dict[str, tuple[WorkerRow, float]] = {}
        self.attendance: dict[int, str] = {}
        """The last heartbeat of a live worker, by the tree that it serves; 0 stands for every
        tree.
        """

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
        self._rows[row.worker] = (row, now)
        known = self._jobs.jobs.keys() & jobs
        held = {number for number in known if self._jobs.worker(number) == row.worker}
        for number in held:
            self._jobs.jobs[number] = self._jobs.jobs[number]._replace(beat=now, seen=at)
        self.attendance |= dict.fromkeys(row.attended, at)
        return known - held

    def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back."""
        if not self._jobs.holds(lease):
            return
        job = self._jobs.jobs[lease.job]
        self._jobs.drop(job.key)
        at = job.at
        if delay_seconds:
            at = instant(datetime.now(UTC) + timedelta(seconds=delay_seconds))
        self._jobs.jobs[job.id] = job._replace(worker=None, at=at)

    def leave(self, worker: str) -> None:
        """Forget a worker; its leases have run out."""
        self._rows.pop(worker, None)
        self._jobs.jobs |= {
            job.id: job._replace(beat=-math.inf)
            for job in self._jobs.claimed()
            if job.worker == worker
        }

    def all(self) -> list[WorkerRow]:
        """Return all workers with a heartbeat."""
        now = time.monotonic()
        rows = [row._replace(age_seconds=now - beat) for row, beat in self._rows.values()]
        return sorted(rows, key=lambda row: (row.since, row.worker))

    def _leased(self, queues: Collection[str], roots: Sequence[int] | None) -> list[MemoryJob]:
        """Return claimed jobs of some queues and trees."""
        return [job for job in self._jobs.claimed() if _is_wanted(job, queues, roots)]

    def _take(self, job: MemoryJob, worker: str) -> ClaimedJob:
        """Give a job to a worker."""
        tries = job.tries + 1
        self._jobs.jobs[job.id] = job._replace(
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
        claimed_keys = {job.key for job in self._jobs.claimed()}
        free = [job for job in self._jobs.queued() if job.key not in claimed_keys]
        return [job for job in free if _is_wanted(job, queues, roots)]

    def _ready_runs(self, asked: Claim, room: int) -> list[MemoryJob]:
        """Return as many ready runs as the limits allow."""
        runs: list[MemoryJob] = []
        claimed = Counter(job.queue for job in filterfalse(_is_signal, self._jobs.claimed()))
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
