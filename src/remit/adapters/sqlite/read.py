"""Reading the embedded store, without asyncio: what commands that only read start from."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from remit.adapters.sqlite import sql
from remit.adapters.sqlite.driver import connect, sqlite3, translated
from remit.adapters.sqlite.schema import must_be_current
from remit.errors import NotFound

T = TypeVar("T")


class SqliteReader:
    """Answers the named queries on a connection of its own; a writer never blocks it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise NotFound(f"There is no database {self.path}.", hint="Create a task first.")
        self._connection = connect(self.path, readonly=True)
        must_be_current(self._connection, self.path)

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
        try:
            return question(self._connection)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _fetch(self, statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        try:
            rows: list[tuple[Any, ...]] = self._connection.execute(statement, params).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        return rows
