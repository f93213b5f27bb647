"""A workspace whose store is copied and put back behind the back of remit."""

import asyncio
import json
import shutil
import sqlite3
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import asyncpg

from remit.adapters.stores.high_water_mark import marks_folder
from tests.patience import patient
from tests.people import desk
from tests.postgres import PostgresForTests
from tests.surfaces.cli_host import Said
from tests.surfaces.shell import Served, Shell


class CopiedPlace:
    """A workspace whose store can be copied, and put back to an older copy behind the back of
    remit.
    """

    def __init__(self, folder: Path, server: PostgresForTests | None) -> None:
        self.server = server
        folder.mkdir(exist_ok=True)
        self.url = (
            server.new_database() if server else f"sqlite:///{folder / '.remit' / 'remit.db'}"
        )
        self.shell = Shell(folder, REMIT_DATABASE_URL=self.url)
        assert self.shell.remit("init").code == 0
        self.file, self.copy = folder / ".remit" / "remit.db", folder / "copy.db"

    def create(self, title: str) -> str:
        said = self.shell.remit("task", "create", title, "--json")
        assert said.code == 0, said.err
        return str(said.json["task_id"])

    def keep_copy(self) -> None:
        """Copy the store as it is now; nobody else must have it open."""
        if self.server is None:
            shutil.copy(self.file, self.copy)
        else:
            self._sql(f"CREATE DATABASE {self.name}_copy TEMPLATE {self.name}")

    def go_back(self) -> None:
        """Put the copy in the place of the store."""
        if self.server is None:
            shutil.copyfile(self.copy, self.file.with_name("older"))
            self.file.with_name("older").replace(self.file)
        else:
            self._sql(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
            self._sql(f"CREATE DATABASE {self.name} TEMPLATE {self.name}_copy")

    def put_another_store(self) -> None:
        """Put another store in the place of this one."""
        if self.server is None:
            for suffix in ("", "-wal", "-shm"):
                self.file.with_name(f"remit.db{suffix}").unlink()
        else:
            self._sql(f"DROP DATABASE {self.name} WITH (FORCE)")
            self._sql(f"CREATE DATABASE {self.name}")
        self.create("Other")

    def swap(self, other: "CopiedPlace") -> None:
        """Put each of two stores in the place of the other one; nobody must have them open."""
        if self.server is None:
            aside = self.file.with_name("aside")
            self.file.rename(aside)
            other.file.rename(self.file)
            aside.rename(other.file)
        else:
            self._sql(f"ALTER DATABASE {self.name} RENAME TO {self.name}_aside")
            self._sql(f"ALTER DATABASE {other.name} RENAME TO {self.name}")
            self._sql(f"ALTER DATABASE {self.name}_aside RENAME TO {other.name}")

    def drop(self) -> None:
        """Remove the database from the server."""
        self._sql(f"DROP DATABASE {self.name} WITH (FORCE)")

    def empty(self) -> None:
        """Put a database without tables in the place of the store."""
        self.drop()
        self._sql(f"CREATE DATABASE {self.name}")

    @property
    def name(self) -> str:
        return self.url.partition("?")[0].rpartition("/")[2]

    def _sql(self, statement: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self.url.replace(f"/{self.name}?", "/postgres?"))
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(execute())


def asked(server: Served, path: str, **body: Any) -> tuple[int, Any]:
    """The status and the answer of a request."""
    data = json.dumps(body).encode() if body else None
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(server.url + path, data, headers), timeout=patient(20)
        ) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def refusal(server: Served) -> str:
    """Why a server refuses a request."""
    return str(asked(server, "/api/tasks")[1]["error"]["message"])


def accepted_rollback(place: CopiedPlace) -> Said:
    """What doctor says once no process has the old file open any more."""
    deadline = time.monotonic() + patient(30)
    while (said := place.shell.remit("doctor", "--accept-rollback")).code != 0:
        assert time.monotonic() < deadline, said.err
    return said


async def fill(url: str, title: str, count: int) -> None:
    """Create tasks in a store; each is a transaction of its own."""
    async with desk(url) as at:
        for number in range(count):
            await at.create(f"{title} {number}", description="x" * 800)


def stored_titles(file: Path) -> list[str]:
    """The tasks in a database file that is sound."""
    connection = sqlite3.connect(file)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in connection.execute("SELECT title FROM task ORDER BY id")]
    finally:
        connection.close()


def marked(place: CopiedPlace) -> int:
    """The highest task in the marks of a place."""
    found = [json.loads(path.read_text()) for path in marks_folder().rglob("*.json")]
    return max((mark["task_id"] for mark in found if mark["place"] == str(place.file)), default=0)


def replace(place: CopiedPlace) -> None:
    """Another file takes the place of the database, as git does it."""
    shutil.copy(place.copy, place.file.with_name("new"))
    place.file.with_name("new").replace(place.file)


def overwrite(place: CopiedPlace) -> None:
    """An older copy is written into the database file itself, as `cp` does it."""
    shutil.copyfile(place.copy, place.file)


def delete(place: CopiedPlace) -> None:
    place.file.unlink()
