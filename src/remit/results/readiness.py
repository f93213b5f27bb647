"""Status of the workers and queues of a workspace or a server."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from remit.results.base import ResultObject


class WorkerInfo(ResultObject):
    """A worker with a heartbeat in the last hour."""

    worker: str
    host: str
    pid: int
    version: str
    agents: tuple[str, ...]
    concurrency: int
    since: datetime
    running: int
    heartbeat_seconds_ago: float
    alive: bool
    scope: tuple[str, ...] | None
    models: tuple[Any, ...]


class QueueInfo(ResultObject):
    """The number of jobs in a queue."""

    queue: str
    queued: int
    claimed: int


class Readiness(ResultObject):
    """The store responds: its workers and its queues."""

    status: Literal["ok"]
    workers: tuple[WorkerInfo, ...]
    queues: tuple[QueueInfo, ...]
