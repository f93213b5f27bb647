"""A full event dump and its load: ids, versions, times and hashes are kept, rows are made anew."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from remit.app.verify import chain_faults, stream_rows
from remit.domain import event as ev
from remit.domain.project import Change
from remit.domain.shape import describe
from remit.domain.table import BESIDE
from remit.domain.wire import dumps
from remit.errors import Corrupt, InvalidParam, Unavailable, invalid
from remit.ports import EventStore, Recorded

FORMAT = {"remit": "events", "format": 1}
END, ROWS, BESIDE_ROW = "end", "rows", "beside"
PAGE = 1000
PATIENCE_SECONDS = 5.0
"""How long events are waited for that are stored but not yet in their final order."""


async def dump(store: EventStore) -> AsyncIterator[str]:
    """All events as lines of JSON, in the order every reader sees, between a line that says what this is and one that counts them."""
    yield dumps(FORMAT)
    ((wanted,),) = await store.select("count_event", {})
    count, after = 0, ""
    streams: set[int] = set()
    while count < wanted:
        page = await store.feed(after, min(PAGE, wanted - count)) or await _patiently(store, after)
        for recorded in page:
            yield dumps(recorded.event._asdict() | {"data": json.loads(recorded.event.data), "hash": recorded.event.hash.hex()})
        count, after = count + len(page), page[-1].position
        streams |= {int(recorded.event.stream) for recorded in page if recorded.event.stream.isdigit()}
    kept = 0
    for task_id in sorted(streams):
        for table, row in await _beside(store, task_id):
            kept += 1
            yield dumps({BESIDE_ROW: table, "values": row})
    yield dumps({END: count, **({ROWS: kept} if kept else {})})


async def _beside(store: EventStore, task_id: int) -> list[tuple[str, list[Any]]]:
    """What is kept beside the events of a task: its conversation, its tool calls and, of a root, the budget of its tree."""
    calls = await store.select("calls", {"id": task_id})
    messages = await store.select("messages", {"id": task_id, "after": 0, "limit": 1_000_000})
    budget = await store.select("budget", {"id": task_id})
    rows = [*(("call", row) for row in calls), *(("message", row) for row in messages), *(("budget", (task_id, *row)) for row in budget)]
    return [(table, list(row)) for table, row in rows]


async def _patiently(store: EventStore, after: str) -> list[Recorded]:
    """The next event, if it comes soon."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), store.watch() as watch:
            while not (page := await store.feed(after, 1)):
                await watch.wait()
    except TimeoutError as error:
        hint = "Another program may have a transaction open on the same server; try again when it has ended."
        raise Unavailable("Some events are stored but their order is not final yet.", hint=hint) from error
    return page


async def load(store: EventStore, lines: Iterable[str]) -> int:
    """Fill an empty store from a dump, all of it or nothing; how many events it was."""
    events, changes = _read(list(lines))
    for name, group in groupby(sorted(events, key=lambda event: (event.stream, event.version)), key=lambda event: event.stream):
        chain = list(group)
        if fault := next(chain_faults(name, chain), None):
            raise Corrupt(f"The dump is damaged: {fault.place} {fault.problem}.", hint="Make a new dump.")
        changes += stream_rows(chain)
    await store.import_events(events, changes)
    return len(events)


def _read(lines: Sequence[str]) -> tuple[list[ev.Stored], list[Change]]:
    """The events between the first line and the last, and what is kept beside them; a dump that was cut or lost a line is refused."""
    found: list[Any] = [_json(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found or found[0] != FORMAT:
        raise invalid("line 1", f"is {describe(found[0]) if found else 'missing'}", f"the first line of a dump, {dumps(FORMAT)}")
    numbered = list(enumerate(found[1:-1], 2))
    rows = [_kept(item, number) for number, item in numbered if _is_row(item)]
    events = [_stored(item, number) for number, item in numbered if not _is_row(item)]
    if found[-1] != {END: len(events), **({ROWS: len(rows)} if rows else {})}:
        raise Corrupt(f"The dump is damaged: its last line does not say that it has {len(events)} events.", hint="Make a new dump.")
    return events, rows


def _list(value: Any) -> list[Any]:
    return cast("Any", value) if isinstance(value, list) else []


def _is_row(item: Any) -> bool:
    return isinstance(item, dict) and BESIDE_ROW in item


def _kept(item: dict[str, Any], number: int) -> Change:
    """A row that was kept beside the events."""
    table, values = BESIDE.get(str(item[BESIDE_ROW])), _list(item.get("values"))
    if table is None or len(values) != len(table.columns):
        raise invalid(f"line {number}", "is no row of a dump", f"a row of {' or '.join(BESIDE)}")
    return Change(item[BESIDE_ROW], tuple(values[: table.key]), tuple(values))


def _json(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise invalid(f"line {number}", f"is no JSON ({error})", "a line of a dump") from error


def _stored(found: Any, number: int) -> ev.Stored:
    """An event from its line; the chain of hashes is checked later, so only its shape matters here."""
    try:
        fields: dict[str, Any] = {**found, "data": dumps(found["data"]), "hash": bytes.fromhex(found["hash"])}
        stored = ev.Stored(**fields)
    except (TypeError, ValueError, KeyError) as error:
        raise _no_event(number) from error
    if not all(isinstance(value, str) for name, value in fields.items() if name not in ("version", "hash")) or type(stored.version) is not int:
        raise _no_event(number)
    return stored


def _no_event(number: int) -> InvalidParam:
    return invalid(f"line {number}", "is no event of a dump", f"an object with {', '.join(ev.Stored._fields)}")
