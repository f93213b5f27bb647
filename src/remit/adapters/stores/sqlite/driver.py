"""Selects the SQLite library, and sets up connections."""

import math
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
"""How long a write waits for writes of other processes."""

SAY_SECONDS = 1.0
"""After how long the wait of a write is announced."""
TURN_SECONDS = 0.001
"""How soon the write lock is tried again.

SQLite itself tries less and less often, so the longest waiter would be the last to get the lock.
"""


def newest() -> Any:
    """Return the `sqlite3` module to use: the linked one if it is safe, else the bundled one if
    there is one.
    """
    if linked.sqlite_version_info >= SAFE:
        return linked
    try:
        bundled = import_module("pysqlite3.dbapi2")
    except ImportError:
        return linked
    if bundled.sqlite_version_info > linked.sqlite_version_info:
        return bundled
    return linked


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
        raise translate(error, path) from error
    return connection


def patiently(
    action: Callable[[], object],
    say: Callable[[float], None],
    began: float | None = None,
    ends_at: Callable[[], float] = lambda: math.inf,
) -> None:
    """Repeat a call that needs a lock until no other process holds it, with a fair chance for all.

    `say` is called again and again with the seconds of a long wait. The wait is counted from
    `began` (monotonic clock), or from now. It ends at `ends_at` at the latest, which may change
    meanwhile.
    """
    if began is None:
        began = time.monotonic()
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - began
            if not is_busy(error) or waited > BUSY_SECONDS or time.monotonic() > ends_at():
                raise
            if waited >= SAY_SECONDS:
                say(waited)
        else:
            return
        time.sleep(TURN_SECONDS)  # SQLite has no event to wait for


def scalar(connection: Any, statement: str, params: Any = ()) -> Any:
    """Return the first column of the first row of a statement; None without a row."""
    row = connection.execute(statement, params).fetchone()
    if row is None:
        return None
    return row[0]


def is_busy(error: Exception) -> bool:
    """Return True if another process holds a lock, so that the same call can succeed later."""
    # SQLITE_PROTOCOL: a read lost too many races against processes that open or close the
    # write-ahead log.
    if _error_name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return True
    return "locked" in str(error)


def _error_name(error: Exception) -> str:
    """Return the name that SQLite gives an error; empty if it has none."""
    return getattr(error, "sqlite_errorname", "") or ""


def translate(error: Exception, path: Path | str) -> RemitError:
    """Return an error of the driver in remit's own terms."""
    text = str(error).rstrip(".")
    if is_busy(error):
        return Busy(
            f"{path} has been locked by another process for {BUSY_SECONDS:.0f} seconds.",
            hint="Try again.",
        )
    if _error_name(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return Corrupt(
            f"{path} is damaged or is not a remit database: {text}.",
            hint="Restore it from a backup or an export.",
        )
    if isinstance(error, sqlite3.IntegrityError):
        return Internal(f"{path} refused a write: {text}.")
    return Unavailable(
        f"{path} cannot be used: {text}.", hint="Check the disk and its permissions."
    )
