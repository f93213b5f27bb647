"""The schema of the PostgreSQL store: one SQL file for each migration, never edited once released.

Rows travel as JSON, one text for each table: for the driver that is one value instead of thousands.
A table without rows in a batch is null and costs no statement.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from remit.adapters.stores.opening import OpeningWait
from remit.adapters.stores.postgres.completeness import can_upgrade, incomplete
from remit.errors import NewerSchema, Unavailable

SCHEMA = "remit"
CHANNELS = {"events": "remit_event", "jobs": "remit_job"}
MIGRATION_LOCK = 7_236_001
LOCK_MILLISECONDS = 1000
"""The time that a migration waits for a table in use before it releases all locks and retries."""

_NAMES = (
    "0001_tables",
    "0002_job_queue",
    "0003_task_results",
    "0004_worker_places",
    "0005_store_identity",
    "0006_worker_scopes",
    "0007_other_answers",
    "0008_budget_from_answers",
    "0009_event_names",
    "0010_commit_count",
)
MIGRATIONS = tuple(Path(__file__).parent / "migrations" / f"{name}.sql" for name in _NAMES)


async def migrate(
    connection: Any, migrations: tuple[Path, ...] = MIGRATIONS, wait: OpeningWait | None = None
) -> None:
    """Upgrade the database to the newest schema; several processes may start at the same time.

    Raise RolledBack if the database is being restored.
    """
    wait = wait or OpeningWait("of this connection")
    found = await wait.answer(_version(connection))
    if found < len(migrations):
        # Another process cannot set an event here.
        upgrade = partial(_upgrade, connection, migrations, wait.store)
        while (upgraded := await upgrade()) is None:  # noqa: ASYNC110
            await asyncio.sleep(wait.again())
        found = upgraded
    if found > len(migrations):
        raise NewerSchema(
            f"The database has schema {found}; this version of remit supports schemas up"
            f" to {len(migrations)}.",
            hint="Upgrade remit, or use another database.",
        )


async def _upgrade(connection: Any, migrations: tuple[Path, ...], place: str) -> int | None:
    """Run the missing migrations in one transaction; return the version found, or None if another
    process has the lock.
    """
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS:d}")
            if not await connection.fetchval(
                "SELECT pg_try_advisory_xact_lock($1)", MIGRATION_LOCK
            ):
                return None
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version (version int NOT NULL)"
            )
            found = await _version(connection)
            if found < len(migrations) and not await can_upgrade(connection, found):
                raise incomplete(place, "only a part of its tables is there")
            for script in migrations[found:]:
                await connection.execute(script.read_text())
            if found < len(migrations):
                await connection.execute("DELETE FROM schema_version")
                await connection.execute("INSERT INTO schema_version VALUES ($1)", len(migrations))
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
        return None
    return found


async def must_follow_own_clock(connection: Any) -> None:
    """Refuse events whose transaction numbers are ahead of this server: followers would never see
    them.
    """
    ahead = await connection.fetchval(
        "SELECT EXISTS (SELECT 1 FROM event WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))",
    )
    if ahead:
        raise Unavailable(
            "These events were copied from another PostgreSQL server, whose transaction numbers are"
            " ahead of this one's.",
            hint="Move a store with a full export of its events and an import, not with pg_dump.",
        )


async def _version(connection: Any) -> int:
    """Return the schema version of a database; 0 for an empty one."""
    if not await connection.fetchval(
        "SELECT to_regclass($1) IS NOT NULL", f"{SCHEMA}.schema_version"
    ):
        return 0
    return int(await connection.fetchval("SELECT COALESCE(MAX(version), 0) FROM schema_version"))
