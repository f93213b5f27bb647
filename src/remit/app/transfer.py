"""A full event dump and its load: ids, versions, times and hashes are kept, rows are made anew."""

import json
from collections.abc import AsyncIterator, Iterable
from itertools import groupby
from typing import Any

from remit.app.verify import chain_faults, stream_rows
from remit.domain import event as ev
from remit.domain.project import Change
from remit.domain.shape import describe
from remit.domain.wire import dumps
from remit.errors import Corrupt, invalid
from remit.ports import EventStore

FORMAT = {"remit": "events", "format": 1}
PAGE = 1000


async def dump(store: EventStore) -> AsyncIterator[str]:
    """All events as lines of JSON, in the order every reader sees, after a line that says what this is."""
    yield dumps(FORMAT)
    after, end = "", await store.tail()
    while after != end and (page := await store.feed(after, PAGE)):
        for recorded in page:
            yield dumps(recorded.event._asdict() | {"data": json.loads(recorded.event.data), "hash": recorded.event.hash.hex()})
            after = recorded.position
            if after == end:
                return


async def load(store: EventStore, lines: Iterable[str]) -> int:
    """Fill an empty store from a dump, all of it or nothing; how many events it was."""
    events = list(_read(lines))
    changes: list[Change] = []
    for name, group in groupby(sorted(events, key=lambda event: (event.stream, event.version)), key=lambda event: event.stream):
        chain = list(group)
        if fault := next(chain_faults(name, chain), None):
            raise Corrupt(f"The dump is damaged: {fault.place} {fault.problem}.", hint="Make a new dump.")
        changes += stream_rows(chain)
    await store.import_events(events, changes)
    return len(events)


def _read(lines: Iterable[str]) -> Iterable[ev.Stored]:
    for number, line in enumerate(lines, 1):
        try:
            found: Any = json.loads(line)
        except ValueError as error:
            raise invalid(f"line {number}", f"is no JSON ({error})", "a line of a dump") from error
        if number == 1:
            if found != FORMAT:
                raise invalid("line 1", f"is {describe(found)}", f"the first line of a dump, {dumps(FORMAT)}")
        elif line.strip():
            yield _stored(found, number)


def _stored(found: Any, number: int) -> ev.Stored:
    """An event from its line; the chain of hashes is checked later, so only its shape matters here."""
    try:
        fields: dict[str, Any] = {**found, "version": int(found["version"]), "data": dumps(found["data"]), "hash": bytes.fromhex(found["hash"])}
        return ev.Stored(**fields)
    except (TypeError, ValueError, KeyError) as error:
        raise invalid(f"line {number}", "is no event of a dump", f"an object with {', '.join(ev.Stored._fields)}") from error
