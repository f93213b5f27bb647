"""What is committed together, as the database function takes it."""

from collections.abc import Mapping, Sequence
from typing import Any

from remit.adapters.postgres import sql
from remit.domain.due import Job
from remit.domain.table import BESIDE, TABLES
from remit.domain.wire import dumps
from remit.ports import Debit, Unit

_COLUMNS = {name: table.columns for name, table in (TABLES | BESIDE).items()}
_Row = dict[str, Any]


def packed(units: Sequence[Unit]) -> list[Any]:
    """The rows of each kind as JSON, each marked with its unit; nothing where there are none."""
    guards, dependents, events, leases, drops, jobs, debits = [list[_Row]() for _ in range(7)]
    rows: dict[str, dict[tuple[Any, ...], _Row]] = {}
    for number, unit in enumerate(units):
        for stream, expected, appended in unit.appends:
            guards.append({"unit": number, "task": int(stream) if stream.isdigit() else None, "stream": stream, "expected": expected})
            events += [_hashed(dict(zip(sql.EVENT_COLUMNS, event, strict=True), unit=number)) for event in appended]
        for table, key, values in unit.changes:
            # A row that is written twice in a unit lands once, as it is in the end.
            if values is None:
                rows.setdefault(f"not {table}", {})[key] = dict(zip(_COLUMNS[table], key, strict=False), unit=number)
            else:
                row = dict(zip(_COLUMNS[table], values, strict=True), unit=number)
                rows.setdefault(table, {})[key] = _hashed(row) if table == "task" else row
        dependents += [{"unit": number, "task": task, "count": count} for task, count in unit.dependents]
        drops += [{"unit": number, "key": key} for key in unit.drops]
        jobs += [dict(zip(Job._fields, job, strict=True), unit=number) for job in unit.jobs]
        if unit.lease:
            leases.append({"unit": number, "job": unit.lease.job, "worker": unit.lease.worker, "ack": unit.ack})
        if unit.debit:
            debits.append(dict(zip(Debit._fields, unit.debit, strict=True), unit=number))
    contents = [dumps(list(found.values())) for found in rows.values()]
    return [
        dumps(guards),
        _some(dependents),
        dumps([_first(unit) for unit in units]),
        _some(events),
        list(rows),
        contents,
        *map(_some, (leases, drops, jobs, debits)),
    ]


def _some(rows: Sequence[_Row]) -> str | None:
    return dumps(rows) if rows else None


def _hashed(row: _Row) -> _Row:
    row["hash"] = f"\\x{row['hash'].hex()}"
    return row


def _first(unit: Unit) -> Mapping[str, Any]:
    """What the unit is recognised by if it is there already; every unit is answered, in this order."""
    event = unit.first
    return {"stream": event.stream, "version": event.version, "id": event.id} if event else {}
