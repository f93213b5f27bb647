"""A database with the event names of before 0.1.0 is rewritten once, and its old heads are kept."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import asyncpg
import pytest

from remit.adapters.stores.postgres import schema as postgres_schema
from remit.adapters.stores.sqlite import schema as sqlite_schema
from remit.adapters.stores.sqlite.driver import connect
from remit.app.maintenance.verify import verify
from remit.codec import GENESIS, chain_hash
from remit.domain.records.serialize import dumps
from tests.people import Desk, desk
from tests.postgres import PostgresForTests

LATER = "2040-01-01T00:00:00Z"
NAMES = [
    "TaskCreated",
    "TaskStarted",
    "RunStarted",
    "UserInteractionRequested",
    "TimerSet",
    "BudgetSettled",
    "RunYielded",
    "MessageSent",
    "TaskWoken",
]


class Row(NamedTuple):
    """A row of the table `event`, without its position."""

    id: str
    stream: str
    version: int
    type: str
    at: str
    actor: str
    data: str
    hash: bytes


class Database(Protocol):
    """A database at the level of its tables."""

    async def select(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        ...

    async def change(self, statement: str, *values: Any) -> None:
        """Execute a statement with values."""
        ...

    async def set_version(self, version: int) -> None:
        """Set the version of the schema."""
        ...


class SqliteDatabase:
    """A file."""

    migrations = sqlite_schema.MIGRATIONS
    protection = (
        "DROP TRIGGER event_is_never_changed",
        "CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event"
        " BEGIN SELECT RAISE(ABORT, 'events are never changed'); END",
    )
    later = ("ALTER TABLE store DROP COLUMN commits",)
    """Removes what later migrations add."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    async def select(self, query: str) -> list[tuple[Any, ...]]:
        connection = connect(self._path)
        try:
            return [tuple(row) for row in connection.execute(query)]
        finally:
            connection.close()

    async def change(self, statement: str, *values: Any) -> None:
        connection = connect(self._path)
        try:
            connection.execute(statement.replace("$", "?"), values)
        finally:
            connection.close()

    async def set_version(self, version: int) -> None:
        await self.change(f"PRAGMA user_version={version}")


class PostgresDatabase:
    """A database on a server."""

    migrations = postgres_schema.MIGRATIONS
    protection = (
        "ALTER TABLE event DISABLE TRIGGER event_is_never_changed",
        "ALTER TABLE event ENABLE TRIGGER event_is_never_changed",
    )
    later = (
        "DROP TABLE commit_count",
        "DROP FUNCTION count_commit",
        "DROP FUNCTION commit_units_at(bigint, text, bigint, text, bigint, json, json, json, json,"
        " text[], json[], json, json, json, json)",
    )

    def __init__(self, url: str) -> None:
        self.url = url

    async def _connect(self) -> Any:
        return await asyncpg.connect(self.url, server_settings={"search_path": "remit"})

    async def select(self, query: str) -> list[tuple[Any, ...]]:
        connection = await self._connect()
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    async def change(self, statement: str, *values: Any) -> None:
        connection = await self._connect()
        try:
            await connection.execute(statement, *values)
        finally:
            await connection.close()

    async def set_version(self, version: int) -> None:
        await self.change("UPDATE schema_version SET version = $1", version)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return SqliteDatabase(tmp_path / "remit.db")
    server: PostgresForTests = request.getfixturevalue("postgres")
    return PostgresDatabase(server.new_database())


async def test_old_event_names_are_rewritten_and_chained_again(database: Any) -> None:
    async with desk(database.url) as at:
        await work(at)
        await at.create("Not started")
    now = await streams(database)
    old = await age(database)
    assert old["1"] != now["1"], "the database is as an older version wrote it"
    assert old["2"] == now["2"]
    async with desk(database.url) as at:
        assert await at.events("1") == NAMES
        await at.must_hold_together()
        await at.do("SendMessage", task_id="1", message="Go on.")
        await at.must_hold_together()
    assert (await streams(database))["1"][: len(NAMES)] == now["1"]
    assert await database.select("SELECT call_id FROM interaction") == [("call-1",)]
    head = old["1"][-1]
    kept = await database.select("SELECT stream, version, hash FROM old_head")
    assert kept == [("1", head.version, head.hash)], "only the changed stream has an old head"
    with pytest.raises(Exception, match="events are never changed"):
        await database.change("UPDATE event SET actor = 'user:eve'")


async def test_a_stream_that_was_changed_before_is_not_chained_again(database: Any) -> None:
    async with desk(database.url) as at:
        await work(at)
        await work(at)
    await age(database)
    unprotect, protect = database.protection
    await database.change(unprotect)
    changed = "replace(actor, 'user:ann', 'user:eve') WHERE stream = '1' AND version = 1"
    await database.change(f"UPDATE event SET actor = {changed}")
    await database.change(protect)
    async with desk(database.url) as at:
        report = await verify(at.store)
    places = {fault.place for fault in report.faults if "was changed" in fault.problem}
    assert any(place.startswith("stream 1, version 1") for place in places), report.faults
    assert not [fault for fault in report.faults if "stream 2" in fault.place]
    assert await database.select("SELECT stream FROM old_head") == [("2",)]


async def work(at: Desk) -> None:
    """A task that asks, settles its usage, waits for a timer, and is woken by a message."""
    task_id = await at.create(owner="general")
    run_id = await at.start(task_id)
    await at.do(
        "AskUser",
        "agent:general",
        run_id,
        task_id=task_id,
        question="Which?",
        call_id="call-1",
        blocking=False,
    )
    await at.do("SetTimer", "agent:general", run_id, task_id=task_id, due_at=LATER)
    usage = {"requests": 1, "input_tokens": 7}
    await at.do("YieldRun", "agent:general", run_id, task_id=task_id, usage=usage)
    await at.do("SendMessage", task_id=task_id, message='With "quotes",\nÜmläuts and "run_id":1.')


async def streams(database: Database) -> dict[str, list[Row]]:
    """The events of each stream."""
    found: dict[str, list[Row]] = {}
    query = f"SELECT {', '.join(Row._fields)} FROM event ORDER BY stream, version"
    for row in await database.select(query):
        found.setdefault(row[1], []).append(Row(*row))
    return found


async def age(database: Any) -> dict[str, list[Row]]:
    """Make the database as an older version wrote it, and return its events."""
    unprotect, protect = database.protection
    await database.change(unprotect)
    for stream, rows in (await streams(database)).items():
        for row in chained([in_old_form(row) for row in rows]):
            await database.change(
                "UPDATE event SET type = $1, data = $2, hash = $3"
                f" WHERE stream = '{stream}' AND version = {row.version}",
                row.type,
                row.data,
                row.hash,
            )
            await database.change(f"UPDATE task SET hash = $1 WHERE id = {stream}", row.hash)
    await database.change(protect)
    await database.change("DROP TABLE old_head")
    await database.change("ALTER TABLE interaction DROP COLUMN call_id")
    for statement in database.later:
        await database.change(statement)
    names = [path.stem.partition("_")[2] for path in database.migrations]
    await database.set_version(names.index("event_names"))
    return await streams(database)


def in_old_form(row: Row) -> Row:
    """An event as it was stored before it was renamed or lost a field."""
    if row.type == "TaskWoken":
        return row._replace(type="TimerFired")
    if row.type == "BudgetSettled":
        data = json.loads(row.data)
        return row._replace(data=dumps({"reservation_id": data["run_id"], **data}))
    return row


def chained(rows: Sequence[Row]) -> list[Row]:
    """The events with the hashes of their chain."""
    found: list[Row] = []
    head = GENESIS
    for row in rows:
        head = chain_hash(head, *row[:-1])
        found.append(row._replace(hash=head))
    return found
