"""Transactions of the connection that writes: alone in the database, checked, and marked."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remit.adapters.stores.high_water_mark import Mark, newer_generation, next_generation
from remit.adapters.stores.sqlite.database_file import DatabaseFile
from remit.adapters.stores.sqlite.driver import is_busy, patiently, scalar, sqlite3, translate
from remit.adapters.stores.sqlite.rollback_check import State, checked_state, read_state
from remit.adapters.stores.wait_notice import WaitNotice
from remit.errors import Unavailable

RAISE_GENERATION_EVERY = 8
"""In every how many transactions of a connection the generation of the file is raised at least.

It is also raised after every checkpoint, so that no two checkpoints write the same generation; this
number matters only where a file system has coarse timestamps. It costs one more page in the log.
"""


class Transactions:
    """Runs actions in transactions, and knows the newest durable state of the store."""

    def __init__(self, connection: Any, path: Path, file: DatabaseFile) -> None:
        self._connection, self._path, self._file = connection, path, file
        self.known = Mark("", 0)
        """The newest state that was seen and is durable."""
        self.state = State(self.known, 0)
        """The state at the start of the current transaction."""
        self._notice, self._waits = WaitNotice(str(path)), False
        self.ends_at = math.inf
        """When the wait for a lock ends at the latest, by the monotonic clock."""
        self.asked_at: float | None = None
        """The time at which the first request of the current batch was made."""
        self._transactions = 0
        self._changed_at: int | None = None
        """When the file was last written, as seen in the last transaction."""

    def guard(self, action: Callable[[], None]) -> None:
        """Run an action; errors of the driver are raised in remit's terms."""
        try:
            action()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def run(self, action: Callable[[], None]) -> None:
        """Run an action alone in the database, all of it or nothing."""
        self.guard(lambda: self._run(action))

    def run_unsynced(self, action: Callable[[], None]) -> None:
        """Run a transaction without waiting for the disk: a power failure may undo it, but only
        with all later ones.
        """
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            self.run(action)
        finally:
            self._connection.execute("PRAGMA synchronous=FULL")

    def _run(self, action: Callable[[], None]) -> None:
        self._file.check()
        self._begin()
        try:
            self.state = checked_state(self._connection, self._path, self._file, self.known)
            action()
            changed_at = self._file.changed_at
            if self._is_generation_due(changed_at):
                self.raise_generation()
            after = read_state(self._connection).mark
            self._connection.execute("COMMIT")
        except BaseException:
            # On a full disk, SQLite rolls back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        # A commit into a file that is gone must not be acknowledged.
        self._file.check()
        self.known = after
        self._changed_at = changed_at
        self._transactions += 1

    def _begin(self) -> None:
        """Begin a transaction; wait while another process writes."""
        try:
            patiently(
                lambda: self._connection.execute("BEGIN IMMEDIATE"),
                self._announce_wait,
                self.asked_at,
                lambda: self.ends_at,
            )
        except sqlite3.OperationalError as error:
            if is_busy(error) and time.monotonic() > self.ends_at:
                raise self._closing_error() from error
            raise
        finally:
            self._waits = False

    def _announce_wait(self, waited: float) -> None:
        """Announce that a write waits."""
        self._waits = True
        cause = "another process is writing to it"
        self._notice.announce(cause, waited, lambda: self._waits)

    def _closing_error(self) -> Unavailable:
        """Return the error of a write that the end of the process cut short."""
        return Unavailable(f"The store {self._path} is locked by another process and is closing.")

    def _is_generation_due(self, changed_at: int | None) -> bool:
        """True if a checkpoint may have written the current generation into the file."""
        if changed_at is None or changed_at != self._changed_at:
            return True
        return self._transactions % RAISE_GENERATION_EVERY == 0

    def raise_generation(self, at_least: int = 0) -> None:
        """Raise the generation; the next checkpoint writes it into the file."""
        highest = newer_generation(self.read_generation(), at_least)
        self._connection.execute(
            f"PRAGMA application_id={next_generation(highest, self._file.identity):d}"
        )

    def read_generation(self) -> int:
        """Return the generation of the store."""
        generation: int = scalar(self._connection, "PRAGMA application_id")
        return generation
