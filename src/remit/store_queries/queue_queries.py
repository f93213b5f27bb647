"""Queries about the job queue and the schedule."""

from typing import NamedTuple

from remit.store_queries.query import BATCH, Query, TaskNumber


class HeldTask(NamedTuple):
    """A task, and the worker that holds a job."""

    hash: bytes
    doc: str
    worker: str | None


class QueuedJob(NamedTuple):
    """A job of the queue by its key."""

    key: str
    at: str | None
    worker: str | None


class JobRow(NamedTuple):
    """A job of the queue."""

    id: int
    key: str
    queue: str
    priority: int
    at: str | None
    worker: str | None
    tries: int


class JobCount(NamedTuple):
    """How many jobs of a queue wait, and how many are claimed."""

    queue: str
    queued: int
    claimed: int


HELD = Query("held", ("id", "job"), HeldTask)
QUEUED = Query("queued", ("names",), QueuedJob)
JOBS = Query("jobs", ("limit",), JobRow)
JOB_COUNT = Query("job_count", (), JobCount)
SCHEDULED = Query("scheduled", BATCH, TaskNumber)
RECURRING = Query("recurring", BATCH, TaskNumber)
SERIES = Query("series", ("id", "pattern"), TaskNumber)
TICKING = Query("ticking", BATCH, TaskNumber)
TURNING = Query("turning", BATCH, TaskNumber)
