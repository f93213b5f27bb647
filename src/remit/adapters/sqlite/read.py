"""Reading the embedded store, without asyncio: what commands that only read start from."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from remit.adapters.sqlite import sql
from remit.adapters.sqlite.driver import BUSY_SECONDS, connect, sqlite3, translated
from remit.adapters.sqlite.file import DatabaseFile
from remit.adapters.sqlite.history import foreign_log, found_rollback, marks_of
from remit.adapters.sqlite.schema import must_be_current
from remit.errors import NotFound, RemitError, RolledBack

T = TypeVar("T")


class SqliteReader:
    """Answers the named queries on a connection of its own; a writer never blocks it.

    Opening does not wait for others: Busy if another process is just making the file.
    """

    def __init__(self, path: Path | str, file: DatabaseFile | None = None, lost: Callable[[], object] = bool) -> None:
        self.path, self._file, self._lost = Path(path), file, lost
        self._is_replaced = False
        """True once the file was let go because another one took its place."""
        if not self.path.exists():
            raise NotFound(f"There is no database {self.path}.", hint="Create a task first.")
        if file is None:
            _must_fit_its_log(self.path)
        self._connection = connect(self.path, readonly=True, busy_seconds=0)
        must_be_current(self._connection, self.path)
        if file is None:
            self._must_not_have_gone_back()
        self._connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000:.0f}")

    def select(self, query: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of a named query."""
        flat = {name: json.dumps(value) if isinstance(value, list | tuple) else value for name, value in params.items()}
        return self._fetch(sql.SELECT[query], flat)

    def feed(self, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Events after a position, each with its own."""
        return self._fetch(sql.FEED, {"after": after, "limit": limit})

    def tail(self) -> int:
        """The last position."""
        return int(self._fetch(sql.TAIL, {})[0][0])

    def look(self, question: Callable[[Any], T]) -> T:
        """The answer to a question that needs more than one statement."""
        self._check()
        try:
            return question(self._connection)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def let_go(self) -> None:
        """Close a file that was replaced."""
        self._is_replaced = True
        self.close()

    def _check(self) -> None:
        """Refuse to read from a file that was replaced."""
        if self._file is not None:
            try:
                self._file.check()
                if self._is_replaced:
                    raise self._reopening()
            except RolledBack:
                self._lost()
                raise

    def _reopening(self) -> RolledBack:
        """Return the error for reads between the return of the file and its opening."""
        message = f"The database file {self.path} was replaced while it was in use and is being opened again."
        return RolledBack(message, hint="Try again in a second.")

    def _translated(self, error: Exception) -> RemitError:
        """Return an error of the driver; another thread may have let go of the file in the middle of a read."""
        return self._reopening() if self._is_replaced else translated(error, self.path)

    def _must_not_have_gone_back(self) -> None:
        try:
            _, error = found_rollback(self._connection, marks_of(self.path))
        except sqlite3.OperationalError:  # of an older version, which had no marks
            return
        except sqlite3.Error as broken:
            raise self._translated(broken) from broken
        if error is not None:
            raise error

    def _fetch(self, statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        self._check()
        try:
            rows: list[tuple[Any, ...]] = self._connection.execute(statement, params).fetchall()
        except sqlite3.Error as error:
            raise self._translated(error) from error
        return rows


def _must_fit_its_log(path: Path) -> None:
    file = DatabaseFile(path)
    try:
        found = foreign_log(path, file, marks_of(path))
    finally:
        file.close()
    if found is not None:
        raise found[1]
