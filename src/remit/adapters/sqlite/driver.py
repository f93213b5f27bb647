"""Which SQLite we run on, and how a connection is set up."""

import sqlite3 as linked
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from remit.errors import Busy, Corrupt, Internal, RemitError, Unavailable

SAFE = (3, 51, 3)
"""Older ones can corrupt a WAL file when several processes write (the WAL-reset bug)."""

BUSY_SECONDS = 10.0

TURN_SECONDS = 0.001
"""How soon to look again for the lock of writers; SQLite looks ever more rarely itself, so the longest to wait are the last to get it."""


def newest() -> Any:
    """The `sqlite3` module to use: the linked one if it is safe, else the bundled one if there is one."""
    if linked.sqlite_version_info >= SAFE:
        return linked
    try:
        bundled = import_module("pysqlite3.dbapi2")
    except ImportError:
        return linked
    return bundled if bundled.sqlite_version_info > linked.sqlite_version_info else linked


sqlite3 = newest()


def connect(path: Path | str, *, readonly: bool = False) -> Any:
    """A connection in autocommit mode that waits for others instead of failing at once."""
    try:
        if readonly:
            uri = f"{Path(path).absolute().as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        else:
            connection = sqlite3.connect(str(path), timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys=OFF")
    except sqlite3.Error as error:
        raise translated(error, path) from error
    return connection


def patiently(action: Callable[[], object]) -> None:
    """Do what needs a lock once nobody else has it, with a fair chance against others who want it; for a while."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(TURN_SECONDS)  # SQLite has nothing that one could wait for


def translated(error: Exception, path: Path | str) -> RemitError:
    """An error of the driver in remit's own terms."""
    text, name = str(error), getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "locked" in text:
        return Busy(f"{path} has been locked by another process for {BUSY_SECONDS:.0f} seconds.", hint="Try again.")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return Corrupt(f"{path} is damaged or is no remit database: {text}.", hint="Restore it from a backup or an export.")
    if isinstance(error, sqlite3.IntegrityError):
        return Internal(f"{path} refused a write: {text}.")
    return Unavailable(f"{path} cannot be used: {text}.", hint="Check the disk and its permissions.")
