"""Dumps all events and loads them again.

Ids, versions, times and hashes are kept; rows are rebuilt.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from remit.app.maintenance.verify import chain_faults, stream_rows
from remit.domain.projection.rows import Change
from remit.domain.projection.tables import BESIDE
from remit.domain.records.pick import omit
from remit.domain.records.serialize import dumps
from remit.domain.records.validate import describe
from remit.domain.task.stored_event import Stored
from remit.errors import Corrupt, InvalidParam, Problem, Unavailable, invalid
from remit.ports import EventStore, Recorded
from remit.store_queries.run_queries import CALLS, MESSAGES
from remit.store_queries.table_queries import TABLE_COUNTS
from remit.store_queries.tree_queries import BUDGET

FORMAT = {"remit": "events", "format": 2}
END, ROWS, BESIDE_ROW = "end", "rows", "beside"
PAGE = 1000
WAIT_SECONDS = 5.0
"""How long to wait for events that are stored but not yet in their final order."""


async def dump(store: EventStore) -> AsyncIterator[str]:
    """Yield all events as lines of JSON in their final order, after a header, before a count."""
    yield dumps(FORMAT)
    (stored,) = await store.select(TABLE_COUNTS["event"], {})
    wanted = stored.rows
    count, after = 0, ""
    task_ids: set[int] = set()
    while count < wanted:
        page = await store.feed(after, min(PAGE, wanted - count))
        if not page:
            page = await _wait_for_event(store, after)
        for recorded in page:
            yield _event_line(recorded.event)
            if recorded.event.stream.isdigit():
                task_ids.add(int(recorded.event.stream))
        count, after = count + len(page), page[-1].position
    kept = 0
    for task_id in sorted(task_ids):
        for table, row in await _other_rows(store, task_id):
            kept += 1
            yield dumps({BESIDE_ROW: table, "values": row})
    yield dumps(_end_of(count, kept))


def _event_line(event: Stored) -> str:
    """Return an event as a line of a dump."""
    readable = {"data": json.loads(event.data), "hash": event.hash.hex()}
    return dumps(event._asdict() | readable)


def _end_of(events: int, rows: int) -> dict[str, int]:
    """Return the last line of a dump: how many events and other rows it holds."""
    if rows:
        return {END: events, ROWS: rows}
    return {END: events}


async def _other_rows(store: EventStore, task_id: int) -> list[tuple[str, list[Any]]]:
    """Return the rows of a task that no event holds.

    These are its conversation, its tool calls and, for a root, the budget of its tree.
    """
    calls = await store.select(CALLS, {"id": task_id})
    messages = await store.select(MESSAGES, {"id": task_id, "after": 0, "limit": 1_000_000})
    budget = await store.select(BUDGET, {"id": task_id})
    rows: dict[str, list[tuple[Any, ...]]] = {
        "call": [*calls],
        "message": [*messages],
        "budget": [(task_id, *row) for row in budget],
    }
    return [(table, list(row)) for table, found in rows.items() for row in found]


async def _wait_for_event(store: EventStore, after: str) -> list[Recorded]:
    """Return the next event; raise `Unavailable` if it does not arrive in time."""
    try:
        async with asyncio.timeout(WAIT_SECONDS), store.watch() as watch:
            while not (page := await store.feed(after, 1)):
                await watch.wait()
    except TimeoutError as error:
        hint = (
            "Another program may have a transaction open on the same server; try again when it has"
            " ended."
        )
        raise Unavailable(
            "Some events are stored but their order is not final yet.", hint=hint
        ) from error
    return page


async def load(store: EventStore, lines: Iterable[str]) -> int:
    """Fill an empty store from a dump in one commit; return the number of events."""
    events, changes = _read(list(lines))
    for name, group in groupby(
        sorted(events, key=lambda event: (event.stream, event.version)),
        key=lambda event: event.stream,
    ):
        chain = list(group)
        if fault := next(chain_faults(name, chain), None):
            raise Corrupt(
                f"The dump is damaged: {fault.place} {fault.problem}.", hint="Make a new dump."
            )
        changes += stream_rows(chain)
    await store.import_events(events, changes)
    return len(events)


def _read(lines: Sequence[str]) -> tuple[list[Stored], list[Change]]:
    """Return the events and the other rows of a dump.

    A truncated dump, or one that lost a line, is refused.
    """
    found: list[Any] = [_json(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    _check_header(found)
    numbered = list(enumerate(found[1:-1], 2))
    rows = [_row(item, number) for number, item in numbered if _is_row(item)]
    events = [_stored(item, number) for number, item in numbered if not _is_row(item)]
    if found[-1] != _end_of(len(events), len(rows)):
        raise Corrupt(
            f"The dump is damaged: its last line does not match its {len(events)} events.",
            hint="Make a new dump.",
        )
    return events, rows


def _check_header(found: list[Any]) -> None:
    """Raise `InvalidParam` unless the first line says that this is a dump."""
    if found[:1] == [FORMAT]:
        return
    if found and _is_other_format(found[0]):
        raise InvalidParam(
            [
                Problem(
                    "line 1",
                    f"begins a dump of format {found[0]['format']}",
                    f"format {FORMAT['format']}",
                )
            ],
            hint="Export it again with this version, or import it with the version that made it.",
        )
    problem = f"is {describe(found[0])}" if found else "is missing"
    raise invalid("line 1", problem, f"the first line of a dump, {dumps(FORMAT)}")


def _is_other_format(line: Any) -> bool:
    """True for the first line of a dump that another version of remit made."""
    return isinstance(line, dict) and line == {**FORMAT, "format": cast("Any", line).get("format")}


def _list(value: Any) -> list[Any]:
    """Return a list; empty for any other value."""
    return cast("Any", value) if isinstance(value, list) else []


def _is_row(item: Any) -> bool:
    """True for a line with a row that no event holds."""
    return isinstance(item, dict) and BESIDE_ROW in item


def _row(item: dict[str, Any], number: int) -> Change:
    """Return a row that no event holds."""
    table, values = BESIDE.get(str(item[BESIDE_ROW])), _list(item.get("values"))
    if table is None or len(values) != len(table.columns):
        raise invalid(f"line {number}", "is not a row of a dump", f"a row of {' or '.join(BESIDE)}")
    return Change(item[BESIDE_ROW], tuple(values[: table.key]), tuple(values))


def _json(number: int, line: str) -> Any:
    """Parse a line; errors name its number."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise invalid(f"line {number}", f"is not JSON ({error})", "a line of a dump") from error


def _stored(found: Any, number: int) -> Stored:
    """Return the event of a line.

    Only its shape is checked here; the chain of hashes is checked later.
    """
    try:
        fields: dict[str, Any] = {
            **found,
            "data": dumps(found["data"]),
            "hash": bytes.fromhex(found["hash"]),
        }
        stored = Stored(**fields)
    except (TypeError, ValueError, KeyError) as error:
        raise _not_an_event(number) from error
    texts = omit(fields, ("version", "hash")).values()
    has_texts = all(isinstance(value, str) for value in texts)
    if not has_texts or type(stored.version) is not int:
        raise _not_an_event(number)
    return stored


def _not_an_event(number: int) -> InvalidParam:
    """Return the error for a line that is not an event."""
    return invalid(
        f"line {number}", "is not an event of a dump", f"an object with {', '.join(Stored._fields)}"
    )
