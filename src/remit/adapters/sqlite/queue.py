"""The queue of the embedded store: jobs that are claimed, kept and given back.

Leases are measured on the machine's monotonic clock, which all processes on it share: a wall clock that is set changes
nothing. After a reboot that clock begins again, so a heartbeat from its future is one of the dead. What is due goes by
the time of the store (`clock`).
"""

import json
import time
from collections.abc import Iterable, Sequence
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
    ask = _Asking(asked)
    taken = ask.signals(connection)
    expired = ask.expired(connection, now)
    room = asked.room
    for job in expired:
        if job.queue == SIGNALS or room > 0:
            taken.append(job)
            room -= job.queue != SIGNALS
    if room > 0 and asked.queues:
        taken += _runs(connection, ask, room)
    claimed = {"worker": asked.worker, "now": now, "at": instant(at)}
    connection.executemany(sql.TAKE, [{**claimed, "job": job.id} for job in taken])
    return Claimed([_with_task(connection, job) for job in taken], None if taken else next_in(connection, asked, at))


def _with_task(connection: Any, job: Taken) -> Taken:
    found = connection.execute(sql.DOCUMENT, (int(job.key.removeprefix(RUN)),)).fetchone() if job.key.startswith(RUN) else None
    head, document = found or (None, None)
    return job._replace(tries=job.tries + 1, head=head, document=document)


class _Asking:
    """The statements of a claim: for all jobs, or for those of some trees."""

    def __init__(self, asked: Claim) -> None:
        self.asked = asked
        self._scoped = asked.roots is not None
        self._roots = {"roots": json.dumps(asked.roots)} if self._scoped else {}

    def signals(self, connection: Any) -> list[Taken]:
        """Signals that nobody holds."""
        statement = sql.SIGNALLED_OF if self._scoped else sql.SIGNALLED
        named = {"queue": SIGNALS, "limit": self.asked.signals, **self._roots}
        return [Taken(*row) for row in connection.execute(statement, named)]

    def expired(self, connection: Any, now: float) -> list[Taken]:
        """Jobs whose holder has not been heard of for the time of a lease."""
        statement = sql.EXPIRED_OF if self._scoped else sql.EXPIRED
        queues = json.dumps([SIGNALS, *self.asked.queues])
        named = {"now": now, "lease": self.asked.lease_seconds, "queues": queues, **self._roots}
        return [Taken(*row) for row in connection.execute(statement, named).fetchall()]

    def runs(self, connection: Any, queues: Sequence[str], room: int) -> Iterable[Any]:
        """Rows of runs that nobody holds, the most urgent first."""
        if self._scoped:
            most = -1 if any(self.asked.queues.values()) else room  # a limit may pass over any number of them
            yield from connection.execute(sql.QUEUED_OF, {"queues": json.dumps(queues), "room": most, **self._roots})
        else:
            yield from connection.execute(sql.QUEUED, {"queues": json.dumps(queues)})

    def next_in(self, connection: Any, now: datetime) -> float | None:
        """Seconds until a job is ready, due, or left by the dead; without room only signals count."""
        ready, next_at, next_beat = _LOOKS_OF if self._scoped else _LOOKS
        wanted = {"queues": json.dumps([SIGNALS, *(self.asked.queues if self.asked.room else ())]), **self._roots}
        if connection.execute(ready, wanted).fetchone()[0]:
            return 0.0
        waits: list[float] = []
        if at := connection.execute(next_at, wanted).fetchone()[0]:
            waits.append((datetime.fromisoformat(at) - now).total_seconds())
        if (oldest := connection.execute(next_beat, wanted).fetchone()[0]) is not None:
            waits.append(oldest + self.asked.lease_seconds - time.monotonic())
        return max(0.0, min(waits)) if waits else None


_LOOKS = (sql.READY, sql.NEXT_AT, sql.NEXT_BEAT)
_LOOKS_OF = (sql.READY_OF, sql.NEXT_AT_OF, sql.NEXT_BEAT_OF)


def _runs(connection: Any, ask: _Asking, room: int) -> list[Taken]:
    """The most urgent runs that no limit stands against."""
    asked = ask.asked
    left: dict[str, int] = {}
    if asked.fleet or any(asked.queues.values()):
        claimed: dict[str, int] = dict(connection.execute(sql.CLAIMED).fetchall())
        left = {queue: limit - claimed.get(queue, 0) for queue, limit in asked.queues.items() if limit}
        if asked.fleet:
            room = min(room, asked.fleet - sum(count for queue, count in claimed.items() if queue != SIGNALS))
    taken: list[Taken] = []
    free = [queue for queue in asked.queues if left.get(queue, 1) > 0]
    for row in ask.runs(connection, free, max(room, 0)):
        if len(taken) >= room:
            break
        job = Taken(*row)
        if job.queue in left:
            if left[job.queue] <= 0:
                continue
            left[job.queue] -= 1
        taken.append(job)
    return taken


def beat(connection: Any, row: WorkerRow, jobs: Sequence[int], at: datetime) -> set[int]:
    """Renew a worker's leases; those that another has by now."""
    now = time.monotonic()
    connection.execute(sql.HELLO, (*row[:8], now, row.place, row.models, row.scope))
    connection.execute(sql.FORGET, {"now": now, "age": FORGET_SECONDS})
    attended = (0,) if row.roots is None else row.roots
    connection.execute(sql.ATTEND, {"at": instant(at), "roots": json.dumps(attended)})
    connection.execute(sql.UNATTEND)
    named = {"now": now, "at": instant(at), "worker": row.worker, "jobs": json.dumps(list(jobs))}
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
    return _Asking(asked).next_in(connection, now)


def workers(connection: Any) -> list[WorkerRow]:
    """Everybody who was heard of lately."""
    return [WorkerRow(*row) for row in connection.execute(sql.WORKERS, {"now": time.monotonic()})]
