"""What is committed together, as the database function takes it."""

from collections.abc import Sequence
from json.encoder import encode_basestring as quote
from typing import Any

from remit.domain.due import Job
from remit.domain.event import Stored
from remit.domain.project import Key
from remit.domain.table import BESIDE, TABLES
from remit.domain.wire import dumps
from remit.ports import Debit, Unit

_COLUMNS = {name: table.columns for name, table in (TABLES | BESIDE).items()}


def packed(units: Sequence[Unit]) -> list[Any]:
    """The rows of each kind as JSON, each marked with its unit; nothing where there are none."""
    guards, dependents, events, leases, drops, jobs, debits = [list[str]() for _ in range(7)]
    rows: dict[str, dict[Key, str]] = {}
    for number, unit in enumerate(units):
        for stream, expected, appended in unit.appends:
            task = stream if stream.isdigit() else "null"
            guards.append(f'{{"unit":{number},"task":{task},"stream":{quote(stream)},"expected":{expected}}}')
            events += [_event(number, event) for event in appended]
        for table, key, values in unit.changes:
            # A row that is written twice in a unit lands once, as it is in the end.
            kind = table if values is not None else f"not {table}"
            rows.setdefault(kind, {})[key] = _row(number, table, key if values is None else values)
        dependents += [f'{{"unit":{number},"task":{task},"count":{count}}}' for task, count in unit.dependents]
        drops += [f'{{"unit":{number},"key":{quote(key)}}}' for key in unit.drops]
        jobs += [dumps(dict(zip(Job._fields, job, strict=True), unit=number)) for job in unit.jobs]
        if unit.lease:
            leases.append(f'{{"unit":{number},"job":{unit.lease.job},"worker":{quote(unit.lease.worker)},"ack":{str(unit.ack).lower()}}}')
        if unit.debit:
            debits.append(dumps(dict(zip(Debit._fields, unit.debit, strict=True), unit=number)))
    contents = [_all(list(found.values())) for found in rows.values()]
    firsts = _all([_first(unit.first) for unit in units])
    return [_all(guards) or "[]", _all(dependents), firsts, _all(events), list(rows), contents, *map(_all, (leases, drops, jobs, debits))]


def _all(rows: Sequence[str]) -> str | None:
    return f"[{','.join(rows)}]" if rows else None


def _event(number: int, event: Stored) -> str:
    """An event; its data is JSON already, and stays the very text that it is."""
    event_id, stream, version, kind, at, actor, data, digest = event
    named = f'"id":{quote(event_id)},"stream":{quote(stream)},"version":{version},"type":{quote(kind)},"at":{quote(at)},"actor":{quote(actor)}'
    return f'{{"unit":{number},{named},"data":{data},"hash":"\\\\x{digest.hex()}"}}'


def _row(number: int, table: str, values: Sequence[Any]) -> str:
    """A row; a task's document is JSON already."""
    if table != "task":
        return dumps(dict(zip(_COLUMNS[table], values, strict=False), unit=number))
    *values, digest, document = values
    rest = dumps(dict(zip(_COLUMNS[table], values, strict=False), unit=number))
    return f'{rest[:-1]},"hash":"\\\\x{digest.hex()}","doc":{document}}}'


def _first(event: Stored | None) -> str:
    """What a unit is recognised by if it is there already; every unit is answered, in this order."""
    return f'{{"stream":{quote(event.stream)},"version":{event.version},"id":{quote(event.id)}}}' if event else "{}"
