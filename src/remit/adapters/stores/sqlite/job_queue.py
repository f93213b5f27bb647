"""The queue of the embedded store: claims, leases and releases of jobs.

Leases use the machine's monotonic clock, which all its processes share, so changes of the wall
clock have no effect. That clock restarts at a reboot, so a heartbeat from its future belongs to a
dead process. Due times use the time of the store (`clock`).
"""

import json
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any

from remit.adapters.stores.sqlite import statements
from remit.adapters.stores.sqlite.driver import scalar
from remit.domain.projection.follow_up_jobs import MAX_DELAY_SECONDS, RUN, SIGNALS
from remit.domain.records.serialize import instant
from remit.ports import Claim, ClaimedJob, ClaimResult, Lease, WorkerRow

FORGET_SECONDS = 3600.0


def claim(connection: Any, asked: Claim, at: datetime) -> ClaimResult:
    """Claim jobs for a worker in one transaction: no other worker can claim in between, so the
    limits are exact.
    """
    now = time.monotonic()
    connection.execute(statements.JOBS["promote"], {"now": instant(at)})
    ask = _Asking(asked)
    taken = ask.signals(connection)
    room = asked.room
    for job in ask.expired(connection, now):
        if job.queue == SIGNALS:
            taken.append(job)
        elif room > 0:
            taken.append(job)
            room -= 1
    if room > 0 and asked.queues:
        taken += _runs(connection, ask, room)
    if not taken:
        return ClaimResult([], next_in(connection, asked, at))
    claimed = {"worker": asked.worker, "now": now, "at": instant(at)}
    connection.executemany(statements.JOBS["take"], [{**claimed, "job": job.id} for job in taken])
    return ClaimResult([_add_task(connection, job) for job in taken])


def _add_task(connection: Any, job: ClaimedJob) -> ClaimedJob:
    """Return a claimed job with the document of its task, if it is a run."""
    claimed = job._replace(tries=job.tries + 1)
    if not job.key.startswith(RUN):
        return claimed
    task_id = int(job.key.removeprefix(RUN))
    found = connection.execute(statements.JOBS["document"], (task_id,)).fetchone()
    if found is None:
        return claimed
    head, document = found
    return claimed._replace(head=head, document=document)


class _Asking:
    """The statements of a claim: for all jobs, or for those of some trees."""

    def __init__(self, asked: Claim) -> None:
        self.asked = asked
        self._scoped = asked.roots is not None
        self._roots: dict[str, str] = {}
        self._form = ""
        if self._scoped:
            self._roots["roots"] = json.dumps(asked.roots)
            self._form = "_of"

    def _statement(self, name: str) -> str:
        """Return a statement in the form for all jobs or for those of some trees."""
        return statements.JOBS[f"{name}{self._form}"]

    def signals(self, connection: Any) -> list[ClaimedJob]:
        """Return signals that are not claimed."""
        statement = self._statement("signalled")
        named = {"queue": SIGNALS, "limit": self.asked.signals, **self._roots}
        return list(starmap(ClaimedJob, connection.execute(statement, named)))

    def expired(self, connection: Any, now: float) -> list[ClaimedJob]:
        """Return jobs whose worker sent no heartbeat for the length of a lease."""
        statement = self._statement("expired")
        queues = json.dumps([SIGNALS, *self.asked.queues])
        named = {"now": now, "lease": self.asked.lease_seconds, "queues": queues, **self._roots}
        return list(starmap(ClaimedJob, connection.execute(statement, named).fetchall()))

    def runs(self, connection: Any, queues: Sequence[str], room: int) -> Iterable[Any]:
        """Return runs that are not claimed, the most urgent first."""
        if self._scoped:
            # A limit may pass over any number of them.
            most = -1 if any(self.asked.queues.values()) else room
            yield from connection.execute(
                statements.JOBS["queued_of"],
                {"queues": json.dumps(queues), "room": most, **self._roots},
            )
        else:
            yield from connection.execute(statements.JOBS["queued"], {"queues": json.dumps(queues)})

    def next_in(self, connection: Any, now: datetime) -> float | None:
        """Return the seconds until a job is ready, due, or left by a dead worker.

        Without capacity, only signals count.
        """
        queues = [SIGNALS]
        if self.asked.room:
            queues += self.asked.queues
        wanted = {"queues": json.dumps(queues), **self._roots}
        if scalar(connection, self._statement("ready"), wanted):
            return 0.0
        waits: list[float] = []
        due_at = scalar(connection, self._statement("next_at"), wanted)
        if due_at:
            waits.append((datetime.fromisoformat(due_at) - now).total_seconds())
        oldest_beat = scalar(connection, self._statement("next_beat"), wanted)
        if oldest_beat is not None:
            waits.append(oldest_beat + self.asked.lease_seconds - time.monotonic())
        if not waits:
            return None
        return max(0.0, min(waits))


def _runs(connection: Any, ask: _Asking, room: int) -> list[ClaimedJob]:
    """Return the most urgent runs that no limit stands against."""
    asked = ask.asked
    left: dict[str, int] = {}
    if asked.fleet or any(asked.queues.values()):
        claimed: dict[str, int] = dict(connection.execute(statements.JOBS["claimed"]).fetchall())
        left = {
            queue: limit - claimed.get(queue, 0) for queue, limit in asked.queues.items() if limit
        }
        if asked.fleet:
            runs = sum(claimed.values()) - claimed.get(SIGNALS, 0)
            room = min(room, asked.fleet - runs)
    taken: list[ClaimedJob] = []
    free = [queue for queue in asked.queues if left.get(queue, 1) > 0]
    for row in ask.runs(connection, free, max(room, 0)):
        if len(taken) >= room:
            break
        job = ClaimedJob(*row)
        if job.queue in left:
            if left[job.queue] <= 0:
                continue
            left[job.queue] -= 1
        taken.append(job)
    return taken


def beat(connection: Any, row: WorkerRow, jobs: Sequence[int], at: datetime) -> set[int]:
    """Renew a worker's leases; return jobs that other workers have taken over."""
    now = time.monotonic()
    connection.execute(statements.JOBS["hello"], {**row._asdict(), "beat": now})
    connection.execute(statements.JOBS["forget"], {"now": now, "age": FORGET_SECONDS})
    connection.execute(
        statements.JOBS["attend"], {"at": instant(at), "roots": json.dumps(row.attended)}
    )
    connection.execute(statements.JOBS["unattend"])
    named = {"now": now, "at": instant(at), "worker": row.worker, "jobs": json.dumps(list(jobs))}
    connection.execute(statements.JOBS["beat"], named)
    return {lost[0] for lost in connection.execute(statements.JOBS["lost"], named).fetchall()}


def give_back(connection: Any, lease: Lease, delay_seconds: float, now: datetime) -> None:
    """Put a claimed job back; a newer one with its key gives way to it."""
    at: str | None = None
    if delay_seconds:
        at = instant(now + timedelta(seconds=delay_seconds))
    connection.execute(
        statements.JOBS["give_back"], {"at": at, "job": lease.job, "worker": lease.worker}
    )


def leave(connection: Any, worker: str) -> None:
    """Forget a worker; its leases have run out."""
    connection.execute(statements.JOBS["expire"], (worker,))
    connection.execute(statements.JOBS["leave"], (worker,))


def busy(connection: Any, now: datetime) -> bool:
    """Return True while a job is claimed, or due after a delay.

    Jobs that are due at a time of day do not count.
    """
    soon = instant(now + timedelta(seconds=MAX_DELAY_SECONDS))
    return bool(scalar(connection, statements.JOBS["busy"], {"soon": soon}))


def next_in(connection: Any, asked: Claim, now: datetime) -> float | None:
    """Return the seconds until a job is ready, due, or left by a dead worker; without capacity,
    only signals count.
    """
    return _Asking(asked).next_in(connection, now)


def workers(connection: Any) -> list[WorkerRow]:
    """Return workers with a recent heartbeat."""
    rows = connection.execute(statements.JOBS["workers"], {"now": time.monotonic()})
    return list(starmap(WorkerRow, rows))
