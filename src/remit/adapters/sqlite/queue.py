"""The queue of the embedded store: jobs that are claimed, kept and given back.

Leases are measured on the machine's monotonic clock, which all processes on it share: a wall clock that is set changes
nothing. After a reboot that clock begins again, so a heartbeat from its future is one of the dead. What is due goes by
the time of the store (`clock`).
"""

import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from remit.adapters.sqlite import sql
from remit.domain.due import MAX_DELAY_SECONDS, RUN, SIGNALS
from remit.domain.wire import instant
from remit.ports import Claim, Claimed, Lease, Taken, WorkerRow

FORGET_SECONDS = 3600.0


def claim(connection: Any, asked: Claim, at: datetime) -> Claimed:
    """Jobs for a worker, in one transaction: nobody else can claim in between, so the limits are exact."""
    now = time.monotonic()
    connection.execute(sql.PROMOTE, {"now": instant(at)})
    queues = json.dumps([SIGNALS, *asked.queues])
    taken = [Taken(*row) for row in connection.execute(sql.SIGNALLED, {"queue": SIGNALS, "limit": asked.signals})]
    expired = (Taken(*row) for row in connection.execute(sql.EXPIRED, {"now": now, "lease": asked.lease_seconds, "queues": queues}).fetchall())
    room = asked.room
    for job in expired:
        if job.queue == SIGNALS or room > 0:
            taken.append(job)
            room -= job.queue != SIGNALS
    if room > 0 and asked.queues:
        taken += _runs(connection, asked, room)
    connection.executemany(sql.TAKE, [(asked.worker, now, job.id) for job in taken])
    return Claimed([_with_task(connection, job) for job in taken], None if taken else next_in(connection, asked, at))


def _with_task(connection: Any, job: Taken) -> Taken:
    found = connection.execute(sql.DOCUMENT, (int(job.key.removeprefix(RUN)),)).fetchone() if job.key.startswith(RUN) else None
    head, document = found or (None, None)
    return job._replace(tries=job.tries + 1, head=head, document=document)


def _runs(connection: Any, asked: Claim, room: int) -> list[Taken]:
    """The most urgent runs that no limit stands against."""
    left: dict[str, int] = {}
    if asked.fleet or any(asked.queues.values()):
        claimed: dict[str, int] = dict(connection.execute(sql.CLAIMED).fetchall())
        left = {queue: limit - claimed.get(queue, 0) for queue, limit in asked.queues.items() if limit}
        if asked.fleet:
            room = min(room, asked.fleet - sum(count for queue, count in claimed.items() if queue != SIGNALS))
    taken: list[Taken] = []
    free = [queue for queue in asked.queues if left.get(queue, 1) > 0]
    for row in connection.execute(sql.QUEUED, {"queues": json.dumps(free)}):
        if len(taken) >= room:
            break
        job = Taken(*row)
        if job.queue in left:
            if left[job.queue] <= 0:
                continue
            left[job.queue] -= 1
        taken.append(job)
    return taken


def beat(connection: Any, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
    """Renew a worker's leases; those that another has by now."""
    now = time.monotonic()
    connection.execute(sql.HELLO, (*row[:8], now, row.place, row.models))
    connection.execute(sql.FORGET, {"now": now, "age": FORGET_SECONDS})
    named = {"now": now, "worker": row.worker, "jobs": json.dumps(list(jobs))}
    connection.execute(sql.BEAT, named)
    return {lost[0] for lost in connection.execute(sql.LOST, named).fetchall()}


def give_back(connection: Any, lease: Lease, delay_seconds: float, now: datetime) -> None:
    """Put a claimed job back; a newer one with its key gives way to it."""
    at = instant(now + timedelta(seconds=delay_seconds)) if delay_seconds else None
    connection.execute(sql.GIVE_BACK, {"at": at, "job": lease.job, "worker": lease.worker})


def leave(connection: Any, worker: str) -> None:
    """Forget a worker; its leases have run out."""
    connection.execute(sql.EXPIRE, (worker,))
    connection.execute(sql.LEAVE, (worker,))


def busy(connection: Any, now: datetime) -> bool:
    """True while anything is under way, or due after a while; what is due at a time of day does not count."""
    soon = instant(now + timedelta(seconds=MAX_DELAY_SECONDS))
    return bool(connection.execute(sql.BUSY, {"soon": soon}).fetchone()[0])


def next_in(connection: Any, asked: Claim, now: datetime) -> float | None:
    """Seconds until a job is ready, due, or left by the dead; without room only signals count."""
    wanted = {"queues": json.dumps([SIGNALS, *(asked.queues if asked.room else ())])}
    if connection.execute(sql.READY, wanted).fetchone()[0]:
        return 0.0
    waits: list[float] = []
    if at := connection.execute(sql.NEXT_AT, wanted).fetchone()[0]:
        waits.append((datetime.fromisoformat(at) - now).total_seconds())
    if (oldest := connection.execute(sql.NEXT_BEAT, wanted).fetchone()[0]) is not None:
        waits.append(oldest + asked.lease_seconds - time.monotonic())
    return max(0.0, min(waits)) if waits else None


def workers(connection: Any) -> list[WorkerRow]:
    """Everybody who was heard of lately."""
    return [WorkerRow(*row) for row in connection.execute(sql.WORKERS, {"now": time.monotonic()})]
