"""The schema of a database: made once however many processes come at once, brought up to date
all or nothing, refused if newer.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from remit.adapters.stores.postgres import schema as postgres_schema
from remit.adapters.stores.sqlite import schema as sqlite_schema
from remit.adapters.stores.sqlite.driver import connect
from remit.adapters.stores.sqlite.migration import migrate
from remit.adapters.stores.sqlite.reader import SqliteReader
from remit.app.maintenance.verify import verify
from remit.bootstrap import open_store
from remit.errors import Corrupt, NewerSchema, RemitError
from tests.crash.process import children
from tests.people import desk
from tests.postgres import PostgresForTests

ROUNDS, PROCESSES = 12, 8
NEWER_SCHEMA = r"has schema 3; this version of remit supports schemas up to 1\. Upgrade remit"
SCRIPTS = (
    "CREATE TABLE first (n int);\nINSERT INTO first VALUES (1);\n",
    "ALTER TABLE first ADD COLUMN m int;\nUPDATE first\n    SET n = n + 1;\n",
    "-- The third; with a comment.\nCREATE TABLE third (n int);\nUPDATE first SET n = n * 10;\n",
)
BAD_SCRIPT = (
    "CREATE TABLE left_behind (n int);\nUPDATE first SET n = 0;\nINSERT INTO nowhere VALUES (1);\n"
)


@pytest.fixture
def steps(tmp_path: Path) -> tuple[Path, ...]:
    """Three migrations."""
    paths = tuple(tmp_path / f"{number}.sql" for number in range(1, len(SCRIPTS) + 1))
    for path, script in zip(paths, SCRIPTS, strict=True):
        path.write_text(script)
    return paths


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A migration whose last statement fails."""
    path = tmp_path / "bad.sql"
    path.write_text(BAD_SCRIPT)
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def new_urls(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The URLs of several databases that do not exist yet, or are empty."""
    if request.param == "sqlite":
        return [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(ROUNDS)]
    server: PostgresForTests = request.getfixturevalue("postgres")
    return [server.new_database() for _ in range(ROUNDS)]


async def test_eight_processes_that_open_a_new_database_at_once_make_one_schema(
    new_urls: list[str], tmp_path: Path
) -> None:
    with children(tmp_path, "open_each", [{"urls": new_urls}] * PROCESSES) as openers:
        for turn in range(1, ROUNDS + 1):
            for opener in openers:
                opener.go()
            for opener in openers:
                opener.wait_until_said("opened", turn)
        said = [
            [line["opened"] for line in opener.finish() if "opened" in line] for opener in openers
        ]
    for turn, url in enumerate(new_urls):
        assert sorted(lines[turn][0] for lines in said) == list(range(1, PROCESSES + 1)), (
            "each got a number of its own"
        )
        async with desk(url) as at:
            await at.create()
            assert (await verify(at.store)).faults == ()


# A file.


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "remit.db"
    path.touch()
    opened = connect(path)
    yield opened
    opened.close()


def state(connection: Any) -> tuple[int, list[str], list[int]]:
    """The version of a file, its tables, and the numbers in the first of them."""
    tables = [
        row[0]
        for row in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        )
    ]
    numbers = (
        [row[0] for row in connection.execute("SELECT n FROM first")] if "first" in tables else []
    )
    return connection.execute("PRAGMA user_version").fetchone()[0], tables, numbers


def test_missing_migrations_run_in_order_and_only_once(
    connection: Any, steps: tuple[Path, ...]
) -> None:
    migrate(connection, "remit.db", steps[:1])
    assert state(connection) == (1, ["first"], [1])
    migrate(connection, "remit.db", steps)
    assert state(connection) == (3, ["first", "third"], [20])
    migrate(connection, "remit.db", steps)
    assert state(connection) == (3, ["first", "third"], [20])


def test_a_file_whose_migration_fails_is_as_it_was(
    connection: Any, steps: tuple[Path, ...], bad: Path
) -> None:
    migrate(connection, "remit.db", steps[:1])
    with pytest.raises(RemitError, match="nowhere"):
        migrate(connection, "remit.db", (*steps, bad))
    assert state(connection) == (1, ["first"], [1])
    assert not connection.in_transaction
    migrate(connection, "remit.db", steps)
    assert state(connection) == (3, ["first", "third"], [20])


def test_a_file_of_a_newer_remit_is_refused_and_left_alone(
    connection: Any, steps: tuple[Path, ...]
) -> None:
    migrate(connection, "remit.db", steps)
    with pytest.raises(NewerSchema, match=NEWER_SCHEMA):
        migrate(connection, "remit.db", steps[:1])
    assert state(connection) == (3, ["first", "third"], [20])


async def test_neither_store_nor_reader_opens_a_file_of_a_newer_remit(
    tmp_path: Path, connection: Any
) -> None:
    connection.execute("PRAGMA user_version=99")
    with pytest.raises(NewerSchema, match="has schema 99"):
        async with open_store(f"sqlite:///{tmp_path / 'remit.db'}"):
            pass
    with pytest.raises(NewerSchema, match="has schema 99"):
        SqliteReader(tmp_path / "remit.db")


async def test_neither_store_nor_reader_opens_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Buy milk. " * 1000)
    with pytest.raises(Corrupt, match=r"notes\.txt is damaged or is not a remit database"):
        async with open_store(f"sqlite:///{path}"):
            pass
    with pytest.raises(Corrupt, match=r"notes\.txt is damaged or is not a remit database"):
        SqliteReader(path)
    assert path.read_text() == "Buy milk. " * 1000


async def test_only_its_owner_can_read_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "remit.db"
    before = os.umask(0)
    try:
        async with desk(f"sqlite:///{path}") as at, at.store.watch():
            await at.create()
            modes = {
                entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()
            }
    finally:
        os.umask(before)
    assert modes == {
        "remit.db": 0o600,
        "remit.db-wal": 0o600,
        "remit.db-shm": 0o600,
        "remit.db-wake": 0o700,
    }


# A server.


@asynccontextmanager
async def server(url: str) -> AsyncIterator[Any]:
    """A connection as the store sets it up."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "remit"})
    try:
        yield connection
    finally:
        await connection.close()


async def server_state(connection: Any) -> tuple[int, list[str], list[int]]:
    """The version of a database, its tables, and the numbers in the first of them."""
    rows = await connection.fetch(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'remit' AND tablename <>"
        " 'schema_version' ORDER BY 1"
    )
    tables = [row[0] for row in rows]
    numbers = (
        [row[0] for row in await connection.fetch("SELECT n FROM first")]
        if "first" in tables
        else []
    )
    return await connection.fetchval("SELECT version FROM schema_version"), tables, numbers


async def test_a_server_gets_what_it_lacks_in_order_and_nothing_twice(
    postgres: PostgresForTests, steps: tuple[Path, ...]
) -> None:
    async with server(postgres.new_database()) as connection:
        await postgres_schema.migrate(connection, steps[:1])
        assert await server_state(connection) == (1, ["first"], [1])
        await postgres_schema.migrate(connection, steps)
        assert await server_state(connection) == (3, ["first", "third"], [20])
        await postgres_schema.migrate(connection, steps)
        assert await server_state(connection) == (3, ["first", "third"], [20])


async def test_a_server_whose_migration_fails_is_as_it_was(
    postgres: PostgresForTests, steps: tuple[Path, ...], bad: Path
) -> None:
    async with server(postgres.new_database()) as connection:
        await postgres_schema.migrate(connection, steps[:1])
        with pytest.raises(asyncpg.UndefinedTableError):
            await postgres_schema.migrate(connection, (*steps, bad))
        assert await server_state(connection) == (1, ["first"], [1])
        await postgres_schema.migrate(connection, steps)
        assert await server_state(connection) == (3, ["first", "third"], [20])


async def test_a_database_of_a_newer_remit_is_refused_and_left_alone(
    postgres: PostgresForTests, steps: tuple[Path, ...]
) -> None:
    url = postgres.new_database()
    async with server(url) as connection:
        await postgres_schema.migrate(connection, steps)
        with pytest.raises(NewerSchema, match=NEWER_SCHEMA):
            await postgres_schema.migrate(connection, steps[:1])
        assert await server_state(connection) == (3, ["first", "third"], [20])
        await connection.execute("UPDATE schema_version SET version = 99")
        with pytest.raises(NewerSchema, match="has schema 99"):
            async with open_store(url):
                pass
        assert await server_state(connection) == (99, ["first", "third"], [20])


# Jobs learn the root of their tree.

SCOPES = [path.stem for path in sqlite_schema.MIGRATIONS].index("0006_worker_scopes")
TASK = """INSERT INTO task
    (id, uid, title, state, root_id, priority, updated_at, version, hash, doc)
    VALUES ({id}, 'u{id}', 'T', 'waiting', {root}, 2, '2026', 1, '', '{{}}')"""
JOB = "INSERT INTO job (key, queue, priority, later) VALUES ('{key}', 'signals', 0, 0)"
BEFORE = [TASK.format(id=1, root=1), TASK.format(id=12, root=1), TASK.format(id=2, root=2)] + [
    JOB.format(key=key) for key in ("run/1", "timer/12-t3", "limit/12", "tell/2", "tick", "run/99")
]
ROOTS = [
    ("limit/12", 1),
    ("run/1", 1),
    ("run/99", 0),
    ("tell/2", 2),
    ("tick", 0),
    ("timer/12-t3", 1),
]
MOVED = [
    ("limit/12", 2),
    ("run/1", 1),
    ("run/99", 0),
    ("tell/2", 2),
    ("tick", 0),
    ("timer/12-t3", 2),
]


def test_jobs_in_a_file_get_the_root_of_their_task_and_move_with_it(connection: Any) -> None:
    migrate(connection, "remit.db", sqlite_schema.MIGRATIONS[:SCOPES])
    for statement in BEFORE:
        connection.execute(statement.replace(", '', '{}')", ", x'', '{}')"))
    migrate(connection, "remit.db", sqlite_schema.MIGRATIONS[: SCOPES + 1])
    assert connection.execute("SELECT key, root FROM job ORDER BY key").fetchall() == ROOTS
    connection.execute("UPDATE task SET root_id = 2 WHERE id = 12")
    assert connection.execute("SELECT key, root FROM job ORDER BY key").fetchall() == MOVED


async def test_jobs_on_a_server_get_the_root_of_their_task_and_move_with_it(
    postgres: PostgresForTests,
) -> None:
    connection = await asyncpg.connect(
        postgres.new_database(), server_settings={"search_path": postgres_schema.SCHEMA}
    )
    try:
        await postgres_schema.migrate(connection, postgres_schema.MIGRATIONS[:SCOPES])
        for statement in BEFORE:
            await connection.execute(statement)
        await postgres_schema.migrate(connection, postgres_schema.MIGRATIONS[: SCOPES + 1])
        assert [
            tuple(row) for row in await connection.fetch("SELECT key, root FROM job ORDER BY key")
        ] == ROOTS
        await connection.execute("UPDATE task SET root_id = 2 WHERE id = 12")
        assert [
            tuple(row) for row in await connection.fetch("SELECT key, root FROM job ORDER BY key")
        ] == MOVED
    finally:
        await connection.close()
