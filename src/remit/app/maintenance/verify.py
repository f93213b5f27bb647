"""Verifies a store: hash chains, versions, and every row against a replay."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from remit.codec import GENESIS, chain_hash, decode_event
from remit.domain.decisions.evolve import evolve
from remit.domain.planning.new_tasks import CALL, key_stream
from remit.domain.projection.rows import Change, Rows, guide_row
from remit.domain.projection.tables import TABLES
from remit.domain.records.pick import beyond
from remit.domain.task import events as ev
from remit.domain.task.stored_event import Stored
from remit.domain.task.task import Task
from remit.errors import UnknownEvent
from remit.ports import EventStore
from remit.store_queries.event_queries import EVENTS_OF, HEADS, STREAMS
from remit.store_queries.table_queries import TABLE_COUNTS, TABLE_ROWS

CHUNK = 200
UNREPLAYABLE = (UnknownEvent, AssertionError, ValueError, TypeError, KeyError, IndexError)
"""Errors from the replay of changed events, or of events that a newer remit wrote."""


class Fault(NamedTuple):
    """An inconsistency: where and what."""

    place: str
    problem: str


class Report(NamedTuple):
    """What was checked, and the faults that were found."""

    streams: int
    events: int
    rows: int
    faults: tuple[Fault, ...]


async def verify(store: EventStore) -> Report:
    """Check a whole store; no other process may write to it at the same time."""
    faults: list[Fault] = []
    streams = events = 0
    seen = dict.fromkeys(TABLES, 0)
    after = ""
    while page := await store.select(STREAMS, {"after_id": after, "limit": CHUNK}):
        names = [row.stream for row in page]
        stored = await store.select(EVENTS_OF, {"streams": names})
        replayed = _replay(stored)
        faults += replayed.faults
        faults += await _missing_keys(store, replayed.keys)
        found = await _found(store, names)
        faults += _differences(replayed.rows, found)
        for table, _ in found:
            seen[table] += 1
        streams, events, after = streams + len(names), events + len(stored), names[-1]
    faults += await _surplus_rows(store, seen)
    return Report(streams, events, sum(seen.values()), tuple(faults))


class _Replayed(NamedTuple):
    """The rows that events produce, the key streams that they need, and their faults."""

    rows: dict[tuple[str, Any], Change]
    keys: list[str]
    faults: list[Fault]

    def add(self, rows: Iterable[Change]) -> None:
        """Add the rows of one stream."""
        for row in rows:
            self.rows[row.table, row.key] = row


def _replay(stored: Iterable[Stored]) -> _Replayed:
    """Check the chains of some streams, and replay each that can be replayed."""
    replayed = _Replayed({}, [], [])
    for name, group in groupby(stored, key=lambda event: event.stream):
        chain = list(group)
        replayed.faults.extend(chain_faults(name, chain))
        try:
            replayed.add(stream_rows(chain))
            replayed.keys.extend(_key_streams(chain))
        except UNREPLAYABLE as error:
            replayed.faults.append(Fault(f"stream {name}", f"cannot be replayed: {error}"))
    return replayed


async def _missing_keys(store: EventStore, keys: list[str]) -> list[Fault]:
    """Return a fault for each stream of an idempotency key that should exist."""
    claimed = {row.stream for row in await HEADS.among(store.select, streams=keys)}
    return [
        Fault(f"stream {key}", "is missing, but a task was created with that key")
        for key in beyond(keys, claimed)
    ]


async def _surplus_rows(store: EventStore, seen: Mapping[str, int]) -> list[Fault]:
    """Return a fault for each table with rows that belong to no stream."""
    faults: list[Fault] = []
    for table in TABLES:
        (stored_rows,) = await store.select(TABLE_COUNTS[table], {})
        count = stored_rows.rows
        if count != seen[table]:
            problem = f"has {count} rows, {count - seen[table]} of them without an event"
            faults.append(Fault(table, problem))
    return faults


def chain_faults(name: str, events: Iterable[Stored]) -> Iterator[Fault]:
    """Yield gaps in the versions of a stream, and events whose hash does not match."""
    head = GENESIS
    for version, event in enumerate(events, 1):
        if event.version != version:
            yield Fault(f"stream {name}", f"has version {event.version} where {version} should be")
        if event.hash != chain_hash(head, *event[:-1]):
            yield Fault(
                f"stream {name}, version {event.version}", "was changed: its hash does not match"
            )
        head = event.hash


def stream_rows(events: Iterable[Stored]) -> list[Change]:
    """Return the rows that the events of a stream produce."""
    task: Task | None = None
    rows = Rows(None)
    guides: list[Change] = []
    head = GENESIS
    for stored in events:
        entry, head = decode_event(stored), stored.hash
        if entry.stream.isdigit():
            task = evolve(task, entry)
            rows.add(entry, task)
        elif isinstance(entry.event, ev.GuideCreated):
            guides.append(guide_row(entry))
    return guides + [change for change in rows.changes(head) if change.values is not None]


def _key_streams(events: list[Stored]) -> list[str]:
    """Return the stream that must hold the idempotency key of a task, if it has one."""
    created = decode_event(events[0])
    if not isinstance(created.event, ev.TaskCreated):
        return []
    key = created.event.idempotency_key
    if not key or key.startswith(CALL):
        return []
    return [key_stream(created.actor, key)]


async def _found(store: EventStore, streams: list[str]) -> dict[tuple[str, Any], tuple[Any, ...]]:
    """Return the stored rows of some streams, by table and key."""
    found: dict[tuple[str, Any], tuple[Any, ...]] = {}
    for name, table in TABLES.items():
        params = _guides_among(streams) if name == "guide" else _tasks_among(streams)
        for row in await store.select(TABLE_ROWS[name], params):
            found[name, row[: table.key]] = row
    return found


def _tasks_among(streams: Iterable[str]) -> dict[str, list[int]]:
    """Return the ids of the tasks among some streams, as parameters of a query."""
    return {"ids": list(map(int, filter(str.isdigit, streams)))}


def _guides_among(streams: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the guides among some streams, as parameters of a query."""
    return {"names": [name.partition("/")[2] for name in streams if name.startswith("guide/")]}


def _differences(
    expected: dict[tuple[str, Any], Change], found: dict[tuple[str, Any], tuple[Any, ...]]
) -> Iterator[Fault]:
    """Yield each row that is missing, surplus, or differs from the replay."""
    for place in expected.keys() | found.keys():
        table, key = place
        name = " ".join(map(str, (table, *key)))
        if place not in found:
            yield Fault(name, "has events but no row")
        elif place not in expected:
            yield Fault(name, "has a row but no events")
        elif expected[place].values != found[place]:
            wrong = _different_columns(table, expected[place].values or (), found[place])
            yield Fault(name, f"differs from its events in {', '.join(wrong)}")


def _different_columns(table: str, expected: tuple[Any, ...], found: tuple[Any, ...]) -> list[str]:
    """Return the columns in which a row differs from the replay."""
    columns = zip(TABLES[table].columns, expected, found, strict=True)
    return [column for column, right, actual in columns if right != actual]
