"""A judge of raw tables that knows nothing of remit's own code: what was acknowledged is there,
once, whole and in order.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from remit.adapters.stores.sqlite.driver import newest

COLUMNS = "id, stream, version, type, at, actor, data, hash"
Place = tuple[str, str, int]


class Event(NamedTuple):
    """A row of the event table."""

    id: str
    stream: str
    version: int
    type: str
    at: str
    actor: str
    data: str
    hash: bytes


class Raw(NamedTuple):
    """The events of the database by position, and the numbers of its task rows."""

    events: list[Event]
    tasks: list[int]


class Log(NamedTuple):
    """The answers to callers."""

    given: list[int]
    sent: list[list[Place]]
    acked: list[list[Place]]

    @property
    def created(self) -> list[int]:
        """Tasks whose first event was acknowledged, in the order of the acknowledgements."""
        return [
            int(stream)
            for unit in self.acked
            for _, stream, version in unit
            if version == 1 and stream.isdigit()
        ]


def log_of(lines: Iterable[dict[str, Any]]) -> Log:
    """The log that the lines of some witnesses add up to."""
    log = Log([], [], [])
    for line in lines:
        log.given.extend(line.get("given", ()))
        for name, units in (("sent", log.sent), ("acked", log.acked)):
            if name in line:
                units.append(
                    [(event_id, stream, version) for event_id, stream, version in line[name]]
                )
    return log


async def read(url: str) -> Raw:
    """The raw tables of a database."""
    if url.startswith("sqlite:///"):
        return read_sqlite(Path(url.removeprefix("sqlite:///")))
    connection = await asyncpg.connect(url)
    try:
        events = await connection.fetch(f"SELECT {COLUMNS} FROM remit.event ORDER BY tx, pos")
        tasks = await connection.fetch("SELECT id FROM remit.task ORDER BY id")
    finally:
        await connection.close()
    return Raw([Event(*row) for row in events], [row[0] for row in tasks])


def read_sqlite(path: Path) -> Raw:
    """The raw tables of a file."""
    connection = newest().connect(str(path))
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'event'").fetchone():
            return Raw([], [])
        events = connection.execute(f"SELECT {COLUMNS} FROM event ORDER BY pos").fetchall()
        tasks = connection.execute("SELECT id FROM task ORDER BY id").fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        connection.close()
    return Raw([Event(*row) for row in events], [row[0] for row in tasks])


def must_be_one_history(raw: Raw) -> None:
    """Ids are unique, versions dense from 1, hashes chained, and each task is created once and
    has its row.
    """
    doubled = [
        event_id
        for event_id, count in Counter(event.id for event in raw.events).items()
        if count > 1
    ]
    assert not doubled, f"events that are there more than once: {doubled}"
    heads: dict[str, tuple[int, bytes]] = {}
    for event in raw.events:
        version, head = heads.get(event.stream, (0, bytes(32)))
        assert event.version == version + 1, (
            f"stream {event.stream} goes from version {version} to {event.version}"
        )
        text = "\n".join(map(str, event[:7]))
        assert event.hash == hashlib.sha256(head + text.encode()).digest(), (
            f"the hash of {event} is wrong"
        )
        heads[event.stream] = (event.version, event.hash)
    created = Counter(int(event.stream) for event in raw.events if event.type == "TaskCreated")
    assert all(count == 1 for count in created.values()), created
    assert (
        sorted(created) == raw.tasks == sorted(int(stream) for stream in heads if stream.isdigit())
    )


def must_keep_promises(raw: Raw, log: Log) -> None:
    """Every acknowledged change is stored.

    What was only sent is there as a whole or not at all; no number was given twice.
    """
    there = {(event.id, event.stream, event.version) for event in raw.events}
    lost = [place for unit in log.acked for place in unit if place not in there]
    assert not lost, f"acknowledged and lost: {lost}"
    torn = [unit for unit in log.sent if 0 < len(there.intersection(unit)) < len(unit)]
    assert not torn, f"half written: {torn}"
    assert len(set(log.given)) == len(log.given), "an id was given twice"


def ascending(numbers: Sequence[int]) -> bool:
    """Whether each number is above the one before."""
    return all(one < other for one, other in pairwise(numbers))
