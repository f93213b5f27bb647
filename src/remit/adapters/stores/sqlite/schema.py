"""The schema of the SQLite store: one SQL file for each migration, never edited once released."""

from pathlib import Path
from typing import Any

from remit.adapters.stores.sqlite.driver import scalar, sqlite3, translate
from remit.errors import NewerSchema

_NAMES = (
    "0001_tables",
    "0002_job_queue",
    "0003_task_results",
    "0004_worker_places",
    "0005_store_identity",
    "0006_worker_scopes",
    "0007_other_answers",
    "0008_event_names",
    "0009_commit_count",
)
MIGRATIONS = tuple(Path(__file__).parent / "migrations" / f"{name}.sql" for name in _NAMES)


def must_be_current(connection: Any, path: Path | str) -> None:
    """Refuse a database that another version of remit wrote."""
    try:
        found = read_version(connection)
    except sqlite3.Error as error:
        raise translate(error, path) from error
    if found > len(MIGRATIONS):
        raise newer_schema(path, found, len(MIGRATIONS))


def read_version(connection: Any) -> int:
    """Return the number of migrations that a database has."""
    return int(scalar(connection, "PRAGMA user_version"))


def newer_schema(path: Path | str, found: int, known: int) -> NewerSchema:
    """Return the error for a database of a newer version."""
    return NewerSchema(
        f"{path} has schema {found}; this version of remit supports schemas up to {known}.",
        hint="Upgrade remit, or use another database.",
    )
