"""Commit rates of the stores, compared with plain driver code.

Both use the same schema, batches and durability.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from bench.units import units
from remit.adapters.stores.sqlite import statements
from remit.adapters.stores.sqlite.driver import connect
from remit.adapters.stores.sqlite.store import SqliteEventStore
from remit.bootstrap import open_store
from remit.domain.projection.tables import TABLES
from remit.domain.task.stored_event import Stored
from remit.ports import EventStore, Unit

Rate = float


async def store_rate(store: EventStore, work: list[Unit], concurrent: int) -> Rate:
    """Units per second through `EventStore.commit`, with concurrent callers."""
    left = iter(work)

    async def caller() -> None:
        for unit in left:
            await store.commit(unit)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as callers:
        for _ in range(concurrent):
            callers.create_task(caller())
    return len(work) / (time.perf_counter() - started)


def bare_sqlite_rate(path: Path, work: list[Unit], batch: int) -> Rate:
    """Units per second with plain sqlite3: insert, upsert, commit, without checks."""
    connection = connect(path)
    connection.execute("PRAGMA synchronous=FULL")
    started = time.perf_counter()
    for first in range(0, len(work), batch):
        connection.execute("BEGIN IMMEDIATE")
        for unit in work[first : first + batch]:
            for append in unit.appends:
                connection.executemany(statements.EVENTS["insert_event"], append.events)
            for change in unit.changes:
                connection.execute(statements.PUT[change.table], change.values)
        connection.execute("COMMIT")
    rate = len(work) / (time.perf_counter() - started)
    connection.close()
    return rate


async def bare_postgres_rate(url: str, work: list[Unit], batch: int) -> Rate:
    """Units per second with plain asyncpg: insert, upsert, notify, commit, without checks."""
    connection: Any = await asyncpg.connect(
        url, server_settings={"search_path": "remit", "plan_cache_mode": "force_generic_plan"}
    )
    task = TABLES["task"].columns
    insert_event = (
        f"INSERT INTO event ({', '.join(Stored._fields)}) VALUES ({_numbers(len(Stored._fields))})"
    )
    put_task = (
        f"INSERT INTO task ({', '.join(task)}) VALUES ({_numbers(len(task))}) ON CONFLICT (id) DO"
        f" UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in task[1:])}"
    )
    started = time.perf_counter()
    for first in range(0, len(work), batch):
        part = work[first : first + batch]
        async with connection.transaction():
            await connection.executemany(
                insert_event,
                [event for unit in part for append in unit.appends for event in append.events],
            )
            await connection.executemany(
                put_task, [change.values for unit in part for change in unit.changes]
            )
            await connection.execute("NOTIFY remit_event")
    rate = len(work) / (time.perf_counter() - started)
    await connection.close()
    return rate


def _numbers(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


async def sqlite_round(concurrent: int, count: int) -> tuple[Rate, Rate]:
    """The rates of the store and of plain code, on two new files, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        return await _sqlite_round(Path(folder), concurrent, count)


async def _sqlite_round(folder: Path, concurrent: int, count: int) -> tuple[Rate, Rate]:
    for name in ("store", "bare"):
        await SqliteEventStore(folder / f"{name}.db").close()
    bare = bare_sqlite_rate(folder / "bare.db", units(1, count), concurrent)
    store = SqliteEventStore(folder / "store.db")
    ours = await store_rate(store, units(1, count), concurrent)
    await store.close()
    return ours, bare


async def postgres_round(
    new_database: Callable[[], str], concurrent: int, count: int
) -> tuple[Rate, Rate]:
    """The rates of the store and of plain code, on two new databases, one after the other."""
    ours_url, bare_url = new_database(), new_database()
    async with open_store(bare_url):
        pass
    bare = await bare_postgres_rate(bare_url, units(1, count), concurrent)
    async with open_store(ours_url) as store:
        await store_rate(store, units(count + 1, 20), 1)
        ours = await store_rate(store, units(1, count), concurrent)
    return ours, bare


Round = Callable[[int, int], Awaitable[tuple[Rate, Rate]]]
