"""People who change a database without remit."""

from pathlib import Path
from typing import Any, Protocol

import asyncpg

from remit.adapters.stores.sqlite.driver import sqlite3


class Hand(Protocol):
    """A tamperer with the password of the database."""

    refusal: type[Exception]

    async def run(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a statement whose parameters are written as $1, $2."""
        ...

    async def unlock(self) -> None:
        """Take away what protects the events."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class SqliteHand:
    """A tamperer with access to the file."""

    refusal: type[Exception] = sqlite3.IntegrityError

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(str(path), isolation_level=None)

    async def run(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        for number in range(len(arguments), 0, -1):
            statement = statement.replace(f"${number}", f"?{number}")
        rows: list[tuple[Any, ...]] = self._connection.execute(statement, arguments).fetchall()
        return rows

    async def unlock(self) -> None:
        for (name,) in await self.run(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'event'"
        ):
            await self.run(f"DROP TRIGGER {name}")

    async def close(self) -> None:
        self._connection.close()


class PostgresHand:
    """A tamperer with the password of the server."""

    refusal: type[Exception] = asyncpg.RaiseError

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(statement, *arguments)]

    async def unlock(self) -> None:
        await self.run("ALTER TABLE event DISABLE TRIGGER USER")

    async def close(self) -> None:
        await self._connection.close()
