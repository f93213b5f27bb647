"""The job queue of the memory store, as plainly as it can be said."""

import re
from collections import Counter
from typing import Any, NamedTuple

from remit.adapters.stores.memory.records import Records
from remit.domain.projection.follow_up_jobs import Job
from remit.ports import Lease, Unit


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
    """The jobs, queued or claimed."""

    def __init__(self) -> None:
        self.jobs: dict[int, MemoryJob] = {}
        self._last = 0

    def records(self) -> Records:
        """Return all jobs, for queries."""
        return Records(job._asdict() for job in self.jobs.values())

    def claimed_or_due(self, now: str) -> list[MemoryJob]:
        """Return jobs that a worker has, or may claim now."""
        due = [job for job in self.queued() if job.is_due(now)]
        return self.claimed() + due

    def has(self, key: str) -> bool:
        """Return True if there is a job with a key, claimed or not."""
        return key in {job.key for job in self.jobs.values()}

    def due(self, task_id: int, *kinds: str) -> str | None:
        """Return when the next queued job of a task is due: its run, or its own schedule."""
        keys = {f"{kind}{task_id}" for kind in kinds or ("run/", "cron/")}
        times = [job.at for job in self.queued() if job.key in keys]
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
            self.drop(key)
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

    def count(self) -> list[dict[str, Any]]:
        """Return the number of jobs in each queue."""
        queued = Counter(job.queue for job in self.queued())
        claimed = Counter(job.queue for job in self.claimed())
        return [
            {"queue": queue, "queued": queued[queue], "claimed": claimed[queue]}
            for queue in sorted(queued | claimed)
        ]

    def queued(self) -> list[MemoryJob]:
        """Return the jobs that no worker has."""
        return [job for job in self.jobs.values() if job.worker is None]

    def claimed(self) -> list[MemoryJob]:
        """Return the jobs that a worker has."""
        return [job for job in self.jobs.values() if job.worker is not None]

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

    def drop(self, key: str) -> None:
        """Remove the queued job with a key."""
        if job := self._queued_with(key):
            del self.jobs[job.id]

    def _queued_with(self, key: str) -> MemoryJob | None:
        """Return the queued job with a key; there is at most one."""
        return next((job for job in self.queued() if job.key == key), None)
