"""Upgrades the schema of a SQLite database. Commands that only read do not import this."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit.adapters.stores.sqlite.driver import sqlite3, translate
from remit.adapters.stores.sqlite.schema import MIGRATIONS, newer_schema, read_version
from remit.codec import chain_hash


def migrate(connection: Any, path: Path | str, migrations: tuple[Path, ...] = MIGRATIONS) -> None:
    """Upgrade the database to the newest schema; several processes may start at the same time."""
    try:
        if read_version(connection) != len(migrations):
            _upgrade(connection, path, migrations)
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _upgrade(connection: Any, path: Path | str, migrations: tuple[Path, ...]) -> None:
    """Run the missing migrations in one transaction."""
    connection.create_function("chain_hash", 8, chain_hash, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = read_version(connection)
        if found > len(migrations):
            raise newer_schema(path, found, len(migrations))
        for script in migrations[found:]:
            for statement in _statements(script.read_text()):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={len(migrations):d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """Split a script; `executescript` would commit the transaction around the migration."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip(), "the last statement of a migration ends with a semicolon"
