"""Proof that a store holds together: every chain of hashes, every version, every row against a replay."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from remit.codec import GENESIS, chained, opened
from remit.domain import event as ev
from remit.domain.evolve import evolve
from remit.domain.grow import CALL, key_stream
from remit.domain.project import Change, Rows, guide_row
from remit.domain.table import TABLES
from remit.domain.value import Task
from remit.errors import UnknownEvent
from remit.ports import EventStore

CHUNK = 200
UNREPLAYABLE = (UnknownEvent, AssertionError, ValueError, TypeError, KeyError, IndexError)
"""What the replay of events ends in that were changed, or that a newer remit wrote."""


class Fault(NamedTuple):
    """Something that does not hold together: where, and what."""

    place: str
    problem: str


class Report(NamedTuple):
    """How much was looked at, and what was wrong with it."""

    streams: int
    events: int
    rows: int
    faults: tuple[Fault, ...]


async def verify(store: EventStore) -> Report:
    """Check all of a store; nothing may be writing meanwhile."""
    faults: list[Fault] = []
    streams = events = 0
    seen = dict.fromkeys(TABLES, 0)
    after = ""
    while names := [row[0] for row in await store.select("streams", {"after_id": after, "limit": CHUNK})]:
        stored = [ev.Stored(*row) for row in await store.select("events_of", {"streams": names})]
        expected: dict[tuple[str, Any], Change] = {}
        keys: list[str] = []
        for name, group in groupby(stored, key=lambda event: event.stream):
            chain = list(group)
            faults += chain_faults(name, chain)
            try:
                expected |= {(change.table, change.key): change for change in stream_rows(chain)}
                keys += _key_streams(chain)
            except UNREPLAYABLE as error:
                faults.append(Fault(f"stream {name}", f"cannot be replayed: {error}"))
        claimed = {row[0] for row in await store.select("heads", {"streams": keys})} if keys else set[str]()
        faults += [Fault(f"stream {key}", "is gone, though a task was made with that key") for key in keys if key not in claimed]
        found = await _found(store, names)
        faults += _differences(expected, found)
        for table, _ in found:
            seen[table] += 1
        streams, events, after = streams + len(names), events + len(stored), names[-1]
    for table in TABLES:
        ((count,),) = await store.select(f"count_{table}", {})
        if count != seen[table]:
            faults.append(Fault(table, f"has {count} rows, of which {count - seen[table]} belong to no event"))
    return Report(streams, events, sum(seen.values()), tuple(faults))


def chain_faults(name: str, events: Iterable[ev.Stored]) -> Iterator[Fault]:
    """Gaps in the versions of a stream, and events that are not what was once sealed."""
    head = GENESIS
    for version, event in enumerate(events, 1):
        if event.version != version:
            yield Fault(f"stream {name}", f"has version {event.version} where {version} should be")
        if event.hash != chained(head, *event[:-1]):
            yield Fault(f"stream {name}, version {event.version}", "was changed: its hash does not match")
        head = event.hash


def stream_rows(events: Iterable[ev.Stored]) -> list[Change]:
    """The rows that a whole stream adds up to."""
    task: Task | None = None
    rows = Rows(None)
    guides: list[Change] = []
    head = GENESIS
    for stored in events:
        entry, head = opened(stored), stored.hash
        if entry.stream.isdigit():
            task = evolve(task, entry)
            rows.add(entry, task)
        elif isinstance(entry.event, ev.GuideCreated):
            guides.append(guide_row(entry))
    return guides + [change for change in rows.changes(head) if change.values is not None]


def _key_streams(events: list[ev.Stored]) -> list[str]:
    """Where the idempotency key of a task must be claimed, if it was made with one."""
    created = opened(events[0])
    key = created.event.idempotency_key if isinstance(created.event, ev.TaskCreated) else None
    return [key_stream(created.actor, key)] if key and not key.startswith(CALL) else []


async def _found(store: EventStore, streams: list[str]) -> dict[tuple[str, Any], tuple[Any, ...]]:
    ids = [int(name) for name in streams if name.isdigit()]
    guides = [name.partition("/")[2] for name in streams if name.startswith("guide/")]
    found: dict[tuple[str, Any], tuple[Any, ...]] = {}
    for name, table in TABLES.items():
        params = {"names": guides} if name == "guide" else {"ids": ids}
        found |= {(name, row[: table.key]): row for row in await store.select(f"rows_{name}", params)}
    return found


def _differences(expected: dict[tuple[str, Any], Change], found: dict[tuple[str, Any], tuple[Any, ...]]) -> Iterator[Fault]:
    for place in expected.keys() | found.keys():
        table, key = place
        if place not in found:
            yield Fault(f"{table} {key}", "has no row, though events say that it exists")
        elif place not in expected:
            yield Fault(f"{table} {key}", "has a row that no event accounts for")
        elif expected[place].values != found[place]:
            pairs = zip(TABLES[table].columns, expected[place].values or (), found[place], strict=True)
            wrong = [column for column, right, actual in pairs if right != actual]
            yield Fault(f"{table} {key}", f"differs from a replay in {', '.join(wrong)}")
