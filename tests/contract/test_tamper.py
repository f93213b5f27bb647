"""History cannot be changed by accident, and verify finds deliberate changes."""

import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from remit.app.maintenance.verify import Report, verify
from remit.bootstrap import open_store
from remit.domain.projection.tables import TABLES
from remit.ports import EventStore
from tests.contract.hands import Hand, PostgresHand, SqliteHand
from tests.crash.scenario import story
from tests.people import Desk
from tests.postgres import PostgresForTests

EVENT = ("id", "stream", "version", "type", "at", "actor", "data", "hash")


class Place:
    """A store with a history, and a tamperer that can change it directly."""

    def __init__(self, url: str, store: EventStore, hand: Hand) -> None:
        self.url, self.store, self.hand = url, store, hand

    async def report(self) -> Report:
        """What verify says now, as the doctor calls it.

        A store that was open before would refuse to go on.
        """
        async with open_store(self.url, "report") as store:
            return await verify(store)

    async def events(self) -> list[dict[str, Any]]:
        """All events, as raw rows."""
        rows = await self.hand.run(f"SELECT {', '.join(EVENT)} FROM event ORDER BY stream, version")
        return [dict(zip(EVENT, row, strict=True)) for row in rows]

    async def insert(self, table: str, columns: Sequence[str], row: Sequence[Any]) -> None:
        """Put a row into a table."""
        marks = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        await self.hand.run(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", *row)


@pytest.fixture
async def place(durable_url: str) -> AsyncIterator[Place]:
    async with open_store(durable_url) as store:
        await story(Desk(store))
        hand: Hand
        if durable_url.startswith("sqlite"):
            hand = SqliteHand(Path(durable_url.removeprefix("sqlite:///")))
        else:
            hand = PostgresHand(
                await asyncpg.connect(
                    durable_url, server_settings={"search_path": "remit"}, statement_cache_size=0
                )
            )
        try:
            assert (await verify(store)).faults == ()
            yield Place(durable_url, store, hand)
        finally:
            await hand.close()


async def test_the_database_itself_refuses_to_change_or_delete_an_event(place: Place) -> None:
    before = await place.events()
    for statement in (
        "UPDATE event SET actor = 'user:eve' WHERE version = 1",
        "UPDATE event SET data = data",
        "DELETE FROM event",
    ):
        with pytest.raises(place.hand.refusal, match="never"):
            await place.hand.run(statement)
    assert await place.events() == before


async def test_postgres_refuses_to_empty_the_events(postgres: PostgresForTests) -> None:
    url = postgres.new_database()
    async with open_store(url) as store:
        await Desk(store).create()
        hand = PostgresHand(await asyncpg.connect(url, server_settings={"search_path": "remit"}))
        with pytest.raises(hand.refusal, match="never changed or deleted"):
            await hand.run("TRUNCATE event")
        await hand.close()
        await Desk(store).must_hold_together()


@pytest.mark.parametrize("verb", ["REPLACE INTO", "INSERT OR REPLACE INTO"])
async def test_sqlite_refuses_to_replace_an_event(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "remit.db"
    async with open_store(f"sqlite:///{path}") as store:
        await Desk(store).create()
        hand = SqliteHand(path)
        with pytest.raises(hand.refusal, match="never"):
            await hand.run(
                f"{verb} event SELECT pos, id, stream, version, type, at, 'user:eve', data, hash"
                " FROM event"
            )
        await hand.close()
        await Desk(store).must_hold_together()


async def test_sqlite_refuses_to_give_numbers_a_second_time(tmp_path: Path) -> None:
    path = tmp_path / "remit.db"
    async with open_store(f"sqlite:///{path}") as store:
        await store.new_ids(5)
        hand = SqliteHand(path)
        with pytest.raises(hand.refusal, match="never used again"):
            await hand.run("UPDATE counter SET value = 1")
        await hand.close()
        assert await store.new_ids(1) == [6]


def mutations(event: dict[str, Any]) -> list[tuple[str, Any]]:
    """Other values for each field of an event, near the right one and far from it."""
    data = json.loads(event["data"])
    flipped = bytes([event["hash"][0] ^ 1]) + event["hash"][1:]
    return [
        ("id", event["id"][:-1] + ("0" if event["id"][-1] != "0" else "1")),
        ("stream", "424242"),
        ("stream", f"x/{event['stream']}"),
        ("version", event["version"] + 100),
        ("type", "TaskPaused"),
        ("type", "TaskEaten"),
        ("at", event["at"].replace("20", "21", 1)),
        ("at", "yesterday"),
        ("actor", "user:eve"),
        ("actor", event["actor"] + " "),
        ("data", json.dumps(data | {"title": "Eve was here."})),
        ("data", event["data"] + " "),
        ("data", "{}" if data else '{"x":1}'),
        ("data", "[]"),
        ("data", "not even JSON"),
        ("hash", flipped),
        ("hash", b""),
    ]


async def test_every_change_of_any_field_of_any_event_is_found(place: Place) -> None:
    await place.hand.unlock()
    unnoticed: list[str] = []
    events = await place.events()
    step = 1 if isinstance(place.hand, SqliteHand) else 6
    for event in events[::step]:
        for field, value in mutations(event):
            await place.hand.run(f"UPDATE event SET {field} = $1 WHERE id = $2", value, event["id"])
            if not (await place.report()).faults:
                unnoticed.append(f"{field} of {event} as {value!r}")
            await place.hand.run(
                f"UPDATE event SET {field} = $1 WHERE id = $2",
                event[field],
                value if field == "id" else event["id"],
            )
    assert unnoticed == []
    assert (await place.report()).faults == ()


async def test_every_deleted_event_is_missed(place: Place) -> None:
    await place.hand.unlock()
    unnoticed: list[str] = []
    for event in await place.events():
        await place.hand.run("DELETE FROM event WHERE id = $1", event["id"])
        if not (await place.report()).faults:
            unnoticed.append(f"{event['type']} in {event['stream']}")
        await place.insert("event", EVENT, list(event.values()))
    assert unnoticed == []
    assert (await place.report()).faults == ()


async def test_events_that_change_places_are_found(place: Place) -> None:
    await place.hand.unlock()
    events = await place.events()
    pairs = [(one, other) for one, other in pairwise(events) if one["stream"] == other["stream"]]
    assert len(pairs) > 10
    for one, other in pairs:
        for event, version in ((one, 1000), (other, one["version"]), (one, other["version"])):
            await place.hand.run(
                "UPDATE event SET version = $1 WHERE id = $2", version, event["id"]
            )
        assert (await place.report()).faults != (), f"{one} and {other}"
        for event, version in ((one, 1000), (other, other["version"]), (one, one["version"])):
            await place.hand.run(
                "UPDATE event SET version = $1 WHERE id = $2", version, event["id"]
            )
    assert (await place.report()).faults == ()


def other(value: Any) -> Any:
    """A value of the same kind that is not the same."""
    if isinstance(value, bytes):
        return b"\x01" + value[1:] if value[:1] != b"\x01" else b"\x02" + value[1:]
    return value + 4000 if isinstance(value, int) else f"{value}0"


@pytest.mark.parametrize("table", TABLES)
async def test_every_row_that_is_edited_deleted_or_made_up_is_found(
    place: Place, table: str
) -> None:
    key, columns = TABLES[table]
    rows = await place.hand.run(f"SELECT {', '.join(columns)} FROM {table}")
    assert rows, f"the story fills {table}"
    numbers = {"parent_id", "rerun_of", "turn"}
    row = max(rows, key=lambda row: sum(value is not None for value in row))
    here = " AND ".join(f"{column} = ${number}" for number, column in enumerate(columns[:key], 2))
    for column, value in zip(columns[key:], row[key:], strict=True):
        wrong = other(value) if value is not None else (7 if column in numbers else "made up")
        await place.hand.run(f"UPDATE {table} SET {column} = $1 WHERE {here}", wrong, *row[:key])
        faults = (await place.report()).faults
        assert [(fault.place.partition(" ")[0], column in fault.problem) for fault in faults] == [
            (table, True)
        ], f"{column} = {wrong!r}"
        await place.hand.run(f"UPDATE {table} SET {column} = $1 WHERE {here}", value, *row[:key])
    gone = " AND ".join(f"{column} = ${number}" for number, column in enumerate(columns[:key], 1))
    for row in rows:
        await place.hand.run(f"DELETE FROM {table} WHERE {gone}", *row[:key])
        assert (await place.report()).faults != (), f"without {row}"
        await place.insert(table, columns, row)
    unique = {"uid", "interaction_id"}
    for extra in ((*row[: key - 1], other(row[key - 1]), *row[key:]), (other(row[0]), *row[1:])):
        made_up = [
            other(value) if column in unique else value
            for column, value in zip(columns, extra, strict=True)
        ]
        await place.insert(table, columns, made_up)
        assert (await place.report()).faults != (), f"with {made_up}"
        await place.hand.run(f"DELETE FROM {table} WHERE {gone}", *made_up[:key])
    assert (await place.report()).faults == ()
