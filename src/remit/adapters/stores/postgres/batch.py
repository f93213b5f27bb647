"""Encodes the units of a commit as arguments of the database function."""

from collections.abc import Sequence
from json.encoder import encode_basestring as quote
from typing import Any

from remit.domain.projection.follow_up_jobs import Job
from remit.domain.projection.rows import Key
from remit.domain.projection.tables import BESIDE, TABLES
from remit.domain.records.serialize import dumps
from remit.domain.task.stored_event import Stored
from remit.ports import Append, Debit, Lease, Unit

_COLUMNS = {name: table.columns for name, table in (TABLES | BESIDE).items()}


def pack_units(units: Sequence[Unit]) -> list[Any]:
    """Return the rows of each kind as JSON, each marked with its unit; nothing where there are
    none.
    """
    guards: list[str] = []
    events: list[str] = []
    dependents: list[str] = []
    leases: list[str] = []
    drops: list[str] = []
    jobs: list[str] = []
    debits: list[str] = []
    rows: dict[str, dict[Key, str]] = {}
    for number, unit in enumerate(units):
        for append in unit.appends:
            guards.append(_guard(number, append))
            events += [_event(number, event) for event in append.events]
        for table, key, values in unit.changes:
            # A row that a unit writes twice is written once, in its final form.
            if values is None:
                rows.setdefault(f"not {table}", {})[key] = _row(number, table, key)
            else:
                rows.setdefault(table, {})[key] = _row(number, table, values)
        dependents += [
            f'{{"unit":{number},"task":{task},"count":{count}}}' for task, count in unit.dependents
        ]
        drops += [f'{{"unit":{number},"key":{quote(key)}}}' for key in unit.drops]
        jobs += [_name_values(number, Job._fields, job) for job in unit.jobs]
        if unit.lease:
            leases.append(_lease(number, unit.lease, ack=unit.ack))
        if unit.debit:
            debits.append(_name_values(number, Debit._fields, unit.debit))
    return [
        _all(guards) or "[]",
        _all(dependents),
        _all([_identify(unit.first) for unit in units]),
        _all(events),
        list(rows),
        [_all(list(found.values())) for found in rows.values()],
        _all(leases),
        _all(drops),
        _all(jobs),
        _all(debits),
    ]


def _all(rows: Sequence[str]) -> str | None:
    """Return a JSON list of rows; None if there are none."""
    if not rows:
        return None
    return f"[{','.join(rows)}]"


def _guard(number: int, append: Append) -> str:
    """Return the version that a stream must have."""
    stream, expected = append.stream, append.expected
    task = stream if stream.isdigit() else "null"
    return f'{{"unit":{number},"task":{task},"stream":{quote(stream)},"expected":{expected}}}'


def _lease(number: int, lease: Lease, *, ack: bool) -> str:
    """Return the job that a worker must still have, and whether it is done."""
    held = f'"job":{lease.job},"worker":{quote(lease.worker)}'
    return f'{{"unit":{number},{held},"ack":{str(ack).lower()}}}'


def _name_values(number: int, names: Sequence[str], values: Sequence[Any]) -> str:
    """Return a unit's values under their names, as JSON."""
    return dumps(dict(zip(names, values, strict=False), unit=number))


def _event(number: int, event: Stored) -> str:
    """Return an event; its data is JSON already, and stays the very text that it is."""
    event_id, stream, version, kind, at, actor, data, digest = event
    named = (
        f'"id":{quote(event_id)},"stream":{quote(stream)},"version":{version},'
        f'"type":{quote(kind)},"at":{quote(at)},"actor":{quote(actor)}'
    )
    return f'{{"unit":{number},{named},"data":{data},"hash":"\\\\x{digest.hex()}"}}'


def _row(number: int, table: str, values: Sequence[Any]) -> str:
    """Return a row; a task's document is JSON already."""
    if table != "task":
        return _name_values(number, _COLUMNS[table], values)
    *values, digest, document = values
    rest = _name_values(number, _COLUMNS[table], values)
    return f'{rest[:-1]},"hash":"\\\\x{digest.hex()}","doc":{document}}}'


def _identify(event: Stored | None) -> str:
    """Return what identifies a unit that is stored already.

    Every unit is answered, in this order.
    """
    if event is None:
        return "{}"
    return f'{{"stream":{quote(event.stream)},"version":{event.version},"id":{quote(event.id)}}}'
