"""Units that are committed together."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from remit.adapters.sqlite import sql
from remit.domain.event import Stored
from remit.domain.project import Change
from remit.ports import Debit, LeaseLost, OverBudget, Stale, Unit

Refusal = Stale | LeaseLost | OverBudget


class Batch:
    """Checks unit after unit against the database and against those before it, and writes all that fit at once.

    A statement costs more than the row it writes, so versions and leases are asked for together, and rows go in table by table.
    Nobody else can write in between.
    """

    def __init__(self, connection: Any, units: Sequence[Unit], first_position: int | None = None) -> None:
        self._connection = connection
        self._first_position = first_position
        """Where the next event must stand, if that is not right after the last one."""
        streams = {int(append.stream) for unit in units for append in unit.appends if append.stream.isdigit()}
        self._versions: dict[str, int] = {str(task): version for task, version in self._fetch(sql.VERSIONS, streams)}
        self._holders: dict[int, str] = dict(self._fetch(sql.HOLDERS, {unit.lease.job for unit in units if unit.lease}))
        self._events: list[Stored] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._jobs: list[Unit] = []

    def add(self, unit: Unit) -> Refusal | None:
        """Take a unit, or say why not; nothing of a refused one is written."""
        held = unit.lease is None or self._holders.get(unit.lease.job) == unit.lease.worker
        if not held or not self._fits(unit):
            return None if self._has(unit) else Stale() if held else LeaseLost()
        if unit.debit is not None and not self._debited(unit.debit):
            return OverBudget()
        for append in unit.appends:
            self._events += append.events
            self._versions[append.stream] = append.expected + len(append.events)
        self._put(unit.changes)
        if unit.ack or unit.drops or unit.jobs:
            self._jobs.append(unit)
            if unit.ack and unit.lease:
                del self._holders[unit.lease.job]
        return None

    def write(self) -> None:
        """Write what was taken."""
        self._flush()
        for unit in self._jobs:
            self._write_jobs(unit)

    def _fetch(self, statement: str, ids: set[int]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._connection.execute(statement, (json.dumps(list(ids)),)).fetchall() if ids else []
        return found

    def _fits(self, unit: Unit) -> bool:
        if any(self._version(append.stream) != append.expected for append in unit.appends):
            return False
        if unit.dependents:
            self._flush()
        return all(self._connection.execute(sql.DEPENDENTS, (task,)).fetchone()[0] == count for task, count in unit.dependents)

    def _version(self, stream: str) -> int:
        if stream not in self._versions:
            known = None if stream.isdigit() else self._connection.execute(sql.STREAM_VERSION, (stream,)).fetchone()[0]
            self._versions[stream] = known or 0
        return self._versions[stream]

    def _has(self, unit: Unit) -> bool:
        """True if this very unit was stored before and only its acknowledgement was lost."""
        first = unit.first
        if first is None:
            return False
        self._flush()
        found = self._connection.execute(sql.EVENT_AT, (first.stream, first.version)).fetchone()
        return found is not None and found[0] == first.id

    def _debited(self, debit: Debit) -> bool:
        named = debit._asdict()
        self._connection.execute(sql.OPEN_BUDGET, named)
        return bool(self._connection.execute(sql.DEBIT, named).rowcount)

    def _put(self, changes: Iterable[Change]) -> None:
        for table, key, values in changes:
            if values is not None:
                self._rows.setdefault(table, []).append(values)
                continue
            self._flush_rows(table)
            self._connection.execute(sql.DROP[table], key)

    def _flush(self) -> None:
        if self._events:
            self._connection.executemany(sql.INSERT_EVENT, self._placed(self._events))
            self._events = []
        for table in self._rows:
            self._flush_rows(table)

    def _placed(self, events: list[Stored]) -> list[Stored]:
        """The events whose position follows from the one before; the first one is written here if it does not."""
        if self._first_position is None:
            return events
        self._connection.execute(sql.INSERT_EVENT_AT, (self._first_position, *events[0]))
        self._first_position = None
        return events[1:]

    def _flush_rows(self, table: str) -> None:
        if rows := self._rows.get(table):
            self._connection.executemany(sql.PUT[table], rows)
            self._rows[table] = []

    def _write_jobs(self, unit: Unit) -> None:
        if unit.ack and unit.lease:
            self._connection.execute(sql.ACK, unit.lease)
        for key in unit.drops:
            self._connection.execute(sql.DROP_JOB, (key,))
        for job in unit.jobs:
            if job.if_needed_by_others is None or self._connection.execute(sql.NEEDED, (job.if_needed_by_others,)).fetchone()[0]:
                self._connection.execute(sql.PUT_JOB, {"key": job.key, "queue": job.queue, "priority": job.priority, "at": job.at, "root": job.root})
