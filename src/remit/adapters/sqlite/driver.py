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

BUSY_SECONDS = 30.0
"""How long a write waits for other processes that write."""

SAY_SECONDS = 1.0
"""After how long the wait of a write is announced."""
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


def connect(path: Path | str, *, readonly: bool = False, busy_seconds: float = BUSY_SECONDS) -> Any:
    """Open an existing file in autocommit mode; waits for the locks of others for a while."""
    try:
        mode = "ro" if readonly else "rw"  # neither creates a file
        connection = sqlite3.connect(
            f"{Path(path).absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA foreign_keys=OFF")
    except sqlite3.Error as error:
        raise translated(error, path) from error
    return connection


def patiently(action: Callable[[], object], say: Callable[[], None], began: float | None = None) -> None:
    """Repeat what needs a lock until no other process has it, with a fair chance for all; a long wait is announced by `say`.

    The wait is counted from `began` on, by the monotonic clock, or from now.
    """
    if began is None:
        began = time.monotonic()
    said = False
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - began
            if not is_busy(error) or waited > BUSY_SECONDS:
                raise
            if waited >= SAY_SECONDS and not said:
                said = True
                say()
        else:
            return
        time.sleep(TURN_SECONDS)  # SQLite has nothing that one could wait for


def is_busy(error: Exception) -> bool:
    """True if another process holds a lock, so that the same call can succeed later."""
    name = getattr(error, "sqlite_errorname", "") or ""
    # SQLITE_PROTOCOL: a read lost too many races against processes that open or close the write-ahead log.
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")) or "locked" in str(error)


def translated(error: Exception, path: Path | str) -> RemitError:
    """An error of the driver in remit's own terms."""
    text, name = str(error).rstrip("."), getattr(error, "sqlite_errorname", "") or ""
    if is_busy(error):
        return Busy(f"{path} has been locked by another process for {BUSY_SECONDS:.0f} seconds.", hint="Try again.")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return Corrupt(f"{path} is damaged or is no remit database: {text}.", hint="Restore it from a backup or an export.")
    if isinstance(error, sqlite3.IntegrityError):
        return Internal(f"{path} refused a write: {text}.")
    return Unavailable(f"{path} cannot be used: {text}.", hint="Check the disk and its permissions.")
