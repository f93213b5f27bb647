"""Reads the embedded store without asyncio, for commands that only read."""

import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remit.adapters.stores.high_water_mark import Mark
from remit.adapters.stores.sqlite import statements
from remit.adapters.stores.sqlite.database_file import DatabaseFile
from remit.adapters.stores.sqlite.driver import BUSY_SECONDS, connect, scalar, sqlite3, translate
from remit.adapters.stores.sqlite.hard_link import must_have_one_log
from remit.adapters.stores.sqlite.rollback_check import (
    checked_state,
    find_rollback,
    foreign_log,
    marks_of,
)
from remit.adapters.stores.sqlite.schema import must_be_current
from remit.errors import NotFound, RemitError, RolledBack, Unavailable
from remit.store_queries.query import Query, R

if TYPE_CHECKING:  # not used by commands that only read
    from remit.store_queries.event_queries import PlacedEvent

T = TypeVar("T")


class SqliteReader:
    """Answers the named queries on a separate connection; a writer never blocks it.

    Opening does not wait: it raises Busy if another process is creating the file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        """Held by every read and by closing: the driver crashes when a connection is closed
        during a read.
        """
        if not self.path.exists():
            raise NotFound(f"There is no database {self.path}.", hint="Create a task first.")
        self._prepare()
        self._connection = connect(self.path, readonly=True, busy_seconds=0)
        must_be_current(self._connection, self.path)
        self._examine()
        self._connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000:.0f}")

    def _prepare(self) -> None:
        """Check the file before it is opened."""
        _must_fit_its_log(self.path)

    def _examine(self) -> None:
        """Check the file once it is open."""
        self._must_not_have_gone_back()

    def select(self, query: Query[R], params: Mapping[str, Any]) -> list[R]:
        """Return the rows of a named query."""
        flat = {name: _flatten(value) for name, value in params.items()}
        return query.rows(self._fetch(statements.SELECT[query.name], flat))

    def feed(self, after: int, limit: int) -> list["PlacedEvent"]:
        """Return the events after a position, each with its own."""
        from remit.store_queries.event_queries import PlacedEvent

        rows = self._fetch(statements.EVENTS["feed"], {"after": after, "limit": limit})
        return list(map(PlacedEvent._make, rows))

    def tail(self) -> int:
        """Return the last position."""
        tail: int = self.look(lambda connection: scalar(connection, statements.EVENTS["tail"]))
        return tail

    def look(self, question: Callable[[Any], T]) -> T:
        """Return the answer to a question that needs more than one statement."""
        return self._read(question)

    def close(self) -> None:
        """Let go of the file, after a read in progress."""
        with self._lock:
            self._connection.close()

    def _must_not_have_gone_back(self) -> None:
        """Raise RolledBack if the file lacks a state that was seen of it."""
        marks = marks_of(self.path)
        try:
            state, error = find_rollback(self._connection, marks)
        except sqlite3.Error as broken:  # also the schema of an older version
            raise self._translate(broken) from broken
        if error is not None:
            raise error
        if not marks.is_last(state.store_id):
            raise Unavailable(f"Another store was put into {self.path}.", hint="Open it to write.")

    def _fetch(self, statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._read(
            lambda connection: connection.execute(statement, params).fetchall()
        )
        return rows

    def _read(self, question: Callable[[Any], T]) -> T:
        try:
            with self._lock:
                return question(self._connection)
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> RemitError:
        """Return an error of the driver."""
        return translate(error, self.path)


class StoreReader(SqliteReader):
    """The reader of an open store: every read must find what the store has seen."""

    def __init__(
        self,
        path: Path | str,
        file: DatabaseFile,
        known: Callable[[], Mark],
        lost: Callable[[], object],
    ) -> None:
        self._file, self._known, self._lost = file, known, lost
        self._is_replaced = False
        """True after the file was closed because another one took its place."""
        super().__init__(path)

    def _prepare(self) -> None:
        """Do nothing: the store has checked its file."""

    def _examine(self) -> None:
        """Do nothing: every read compares the file with what is known."""

    def let_go(self) -> None:
        """Close a file that was replaced."""
        self._is_replaced = True
        self.close()

    def _check(self) -> None:
        """Refuse to read from a file that was replaced."""
        try:
            self._file.check()
            if self._is_replaced:
                raise self._reopening()
        except RolledBack:
            self._lost()
            raise

    def _reopening(self) -> RolledBack:
        """Return the error for reads between the return of the file and its opening."""
        message = (
            f"The database file {self.path} was replaced while it was in use and is being opened"
            " again."
        )
        return RolledBack(message, hint="Try again in a second.")

    def _translate(self, error: Exception) -> RemitError:
        """Return an error of the driver.

        Another thread may have closed the file during a read.
        """
        if self._is_replaced:
            return self._reopening()
        return super()._translate(error)

    def _read(self, question: Callable[[Any], T]) -> T:
        """Answer a question, unless the store lacks what this process has seen."""
        self._check()
        known = self._known()
        try:
            return super()._read(partial(self._answer_checked, question, known))
        except RolledBack:
            self._lost()
            raise

    def _answer_checked(self, question: Callable[[Any], T], known: Mark, connection: Any) -> T:
        """Answer a question from a snapshot that has what is known."""
        connection.execute("BEGIN")
        try:
            checked_state(connection, self.path, self._file, known)
            return question(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _flatten(value: Any) -> Any:
    """Return a list as JSON, which SQLite can read."""
    if isinstance(value, list | tuple):
        return json.dumps(value)
    return value


def _must_fit_its_log(path: Path) -> None:
    """Raise RolledBack if the log was written for another content of the file."""
    file = DatabaseFile(path)
    try:
        must_have_one_log(file)
        found = foreign_log(path, file, marks_of(path))
    finally:
        file.close()
    if found is not None:
        raise found[1]
