"""Units that are committed together."""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from remit.adapters.stores.sqlite import statements
from remit.adapters.stores.sqlite.driver import scalar
from remit.domain.projection.follow_up_jobs import Job
from remit.domain.projection.rows import Change
from remit.domain.task.stored_event import Stored
from remit.ports import Debit, LeaseLost, OverBudget, Stale, Unit

Refusal = Stale | LeaseLost | OverBudget


class Batch:
    """Checks units against the database and against earlier units, and writes all that fit
    together.

    A statement costs more than the row it writes, so versions and leases are read together, and
    rows are written table by table. No other process can write in between.
    """

    def __init__(
        self, connection: Any, units: Sequence[Unit], first_position: int | None = None
    ) -> None:
        self._connection = connection
        self._first_position = first_position
        """The position of the next event, if it does not directly follow the last one."""
        self._versions = self._read_versions(units)
        self._holders = self._read_holders(units)
        self._events: list[Stored] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._accepted: list[Unit] = []
        self._has_rows_without_events = False

    def add(self, unit: Unit) -> Refusal | None:
        """Take a unit, or say why not; nothing of a refused one is written."""
        refusal = self._find_refusal(unit)
        if refusal is not None:
            if self._has(unit):
                return None
            return refusal
        if unit.debit is not None and not self._try_to_debit(unit.debit):
            return OverBudget()
        for append in unit.appends:
            self._events += append.events
            self._versions[append.stream] = append.expected + len(append.events)
        self._put(unit.changes)
        if unit.first is None and (unit.changes or unit.debit):
            self._has_rows_without_events = True
        self._accepted.append(unit)
        if lease := unit.finished:
            del self._holders[lease.job]
        return None

    def write(self) -> None:
        """Write the accepted units."""
        self._flush()
        for unit in self._accepted:
            self._write_jobs(unit)
        if self._has_rows_without_events:
            # No event shows later that the store had these rows.
            self._connection.execute(statements.STATE["count_commit"])

    def _read_versions(self, units: Sequence[Unit]) -> dict[str, int]:
        """Return the versions of the streams of tasks."""
        appends = chain.from_iterable(unit.appends for unit in units)
        tasks = {int(append.stream) for append in appends if append.stream.isdigit()}
        found = self._fetch(statements.EVENTS["versions"], tasks)
        return {str(task): version for task, version in found}

    def _read_holders(self, units: Sequence[Unit]) -> dict[int, str]:
        """Return the workers that hold the jobs of the units."""
        jobs = {unit.lease.job for unit in units if unit.lease}
        return dict(self._fetch(statements.EVENTS["holders"], jobs))

    def _fetch(self, statement: str, ids: set[int]) -> list[Any]:
        """Return the rows of a statement about ids; without ids nothing is asked."""
        if not ids:
            return []
        found: list[Any] = self._connection.execute(statement, (json.dumps(list(ids)),)).fetchall()
        return found

    def _find_refusal(self, unit: Unit) -> Refusal | None:
        """Return why a unit conflicts with the stored data."""
        lease = unit.lease
        if lease is not None and self._holders.get(lease.job) != lease.worker:
            return LeaseLost()
        for append in unit.appends:
            if self._version(append.stream) != append.expected:
                return Stale()
        if unit.dependents:
            self._flush()
        for task, count in unit.dependents:
            if scalar(self._connection, statements.EVENTS["dependents"], (task,)) != count:
                return Stale()
        return None

    def _version(self, stream: str) -> int:
        """Return the version of a stream; 0 for a new one."""
        if stream not in self._versions:
            self._versions[stream] = 0
            if not stream.isdigit():
                statement = statements.EVENTS["stream_version"]
                self._versions[stream] = scalar(self._connection, statement, (stream,)) or 0
        return self._versions[stream]

    def _has(self, unit: Unit) -> bool:
        """Return True if this very unit was stored before and only its acknowledgement was lost."""
        first = unit.first
        if first is None:
            return False
        self._flush()
        found = scalar(
            self._connection, statements.EVENTS["event_at"], (first.stream, first.version)
        )
        return bool(found == first.id)

    def _try_to_debit(self, debit: Debit) -> bool:
        """Book tokens and cost; return False if they exceed the budget."""
        named = debit._asdict()
        if not scalar(self._connection, statements.EVENTS["has_budget"], named):
            if not debit.opens:
                return True
            self._flush()  # the results of earlier units count too
            self._connection.execute(statements.EVENTS["open_budget"], named)
        return bool(self._connection.execute(statements.EVENTS["debit"], named).rowcount)

    def _put(self, changes: Iterable[Change]) -> None:
        """Collect rows to write; delete a removed row immediately."""
        for table, key, values in changes:
            if values is not None:
                self._rows.setdefault(table, []).append(values)
                continue
            self._flush_rows(table)
            self._connection.execute(statements.DROP[table], key)

    def _flush(self) -> None:
        """Write the events and rows that were collected."""
        if self._events:
            self._connection.executemany(
                statements.EVENTS["insert_event"], self._place_first(self._events)
            )
            self._events = []
        for table in self._rows:
            self._flush_rows(table)

    def _place_first(self, events: list[Stored]) -> list[Stored]:
        """Return the events whose positions follow from the ones before.

        If the first one's does not, it is written here.
        """
        if self._first_position is None:
            return events
        self._connection.execute(
            statements.EVENTS["insert_event_at"], (self._first_position, *events[0])
        )
        self._first_position = None
        return events[1:]

    def _flush_rows(self, table: str) -> None:
        if rows := self._rows.get(table):
            self._connection.executemany(statements.PUT[table], rows)
            self._rows[table] = []

    def _write_jobs(self, unit: Unit) -> None:
        """Write the changes of a unit to the queue."""
        if lease := unit.finished:
            self._connection.execute(statements.JOBS["ack"], lease)
        for key in unit.drops:
            self._connection.execute(statements.JOBS["drop_job"], (key,))
        for job in unit.jobs:
            if self._is_needed(job):
                self._put_job(job)

    def _is_needed(self, job: Job) -> bool:
        """Return whether a job is to be queued."""
        if job.if_needed_by_others is None:
            return True
        needed = statements.JOBS["needed"]
        return bool(scalar(self._connection, needed, (job.if_needed_by_others,)))

    def _put_job(self, job: Job) -> None:
        self._connection.execute(
            statements.JOBS["put_job"],
            {
                "key": job.key,
                "queue": job.queue,
                "priority": job.priority,
                "at": job.at,
                "root": job.root,
            },
        )
