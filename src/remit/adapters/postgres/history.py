"""Whether a database on a server goes on from what was seen of it before."""

import asyncio
import os
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from remit.adapters.mark import Mark, Marks, OnRollback, rolled_back, say_if_new, went_back
from remit.adapters.postgres import sql
from remit.errors import Conflict, RolledBack

DEFAULT_PORT = "5432"
MOST_SKIPPED = 2_000_000
"""How many transaction numbers are used up at most; a server that is further behind needs a new database."""


class History:
    """What this process has seen of a database, and what was seen of it from this machine."""

    def __init__(self, place: str, on_rollback: OnRollback) -> None:
        self.marks = Marks(place)
        self._on_rollback = on_rollback
        self.rollback: RolledBack | None = None
        self.used = asyncio.Event()
        """Set when the store was used since the last look."""
        self._known: Mark | None = None
        self._trouble: RolledBack | None = None

    async def begin(self, connection: Any) -> None:
        """Compare the database with its mark; RolledBack if it has gone back and that is refused."""
        state = await read_state(connection)
        # The mark is read before the state that it is compared with: another process may commit and mark in between.
        mark = self.marks.read(state.store_id)
        state = await read_state(connection)
        if mark is None:
            if not state.position:
                say_if_new(self.marks.place, self.marks)
        elif went_back(state, mark, holds=await holds(connection, mark)):
            self.rollback = rolled_back(self.marks.place, state, mark)
            if self._on_rollback == "refuse":
                raise self.rollback
            if self._on_rollback == "accept":
                await _accept(connection, mark)
                state = await read_state(connection)
        self._known = state
        self.write()

    async def check_new(self, connection: Any) -> None:
        """Look at the database that a new connection leads to; for the first one there is nothing to compare."""
        if self._known is not None:
            await self.check(connection)

    async def check(self, connection: Any) -> None:
        """Raise RolledBack if the database lacks what this process has seen; else remember what there is now."""
        assert self._known is not None
        try:
            known = self._known
            state = await read_state(connection)
            if state.store_id != known.store_id:
                raise RolledBack(f"Another store was put into {self.marks.place} while it was in use.", hint="Restart this process to use it.")
            if went_back(state, known, holds=await holds(connection, known)):
                raise rolled_back(self.marks.place, state, known)
        except (RolledBack, asyncpg.UndefinedTableError, asyncpg.InvalidCatalogNameError) as error:
            gone = RolledBack(f"The store {self.marks.place} was removed while it was in use.", hint="Put it back, and running processes go on.")
            if self._trouble is None:
                await asyncio.to_thread(self.write)  # the operator decides by what this process has seen
            self._trouble = error if isinstance(error, RolledBack) else gone
            raise self._trouble from None
        self._trouble = None
        if (state.epoch, state.order) >= (self._known.epoch, self._known.order):  # else a commit was faster
            self._known = state

    def must_be_sound(self) -> None:
        """Raise what was found wrong, until it is found to be right."""
        self.used.set()
        if self._trouble is not None:
            raise self._trouble

    async def commit(self, connection: Any, arguments: list[Any]) -> list[int]:
        """Commit a batch, unless the database lacks what this process has seen."""
        self.used.set()
        assert self._known is not None
        known = self._known
        tx, _, pos = known.position.partition(".")
        row = await connection.fetchrow(sql.COMMIT, known.epoch, tx, int(pos or 0), known.event, *arguments)
        if row["fates"] is None or row["store_id"] != known.store_id:
            await self.check(connection)
            raise rolled_back(self.marks.place, await read_state(connection), known)
        if row["epoch"] == self._known.epoch and row["tx"] is not None:
            highest = max(row["task_id"] or 0, self._known.task_id)
            newest = self._known._replace(position=f"{row['tx']}.{row['pos']}", event=row["id"], task_id=highest)
            if newest.order > self._known.order:
                self._known = newest
        fates: list[int] = row["fates"]
        return fates

    def write(self) -> None:
        """Write the mark of what was seen last."""
        if self._known is None or (self.rollback is not None and self._on_rollback == "report"):
            return
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self.marks.write(self._known._replace(at=at))


async def read_state(connection: Any) -> Mark:
    """The state of a database as it is now."""
    store_id, epoch, position, event, task_id = await connection.fetchrow(sql.STATE)
    return Mark(store_id, epoch, position or "", event or "", task_id or 0)


async def holds(connection: Any, mark: Mark) -> bool:
    """True if the event of a mark is in the database."""
    if not mark.position:
        return True
    tx, _, pos = mark.position.partition(".")
    return bool(await connection.fetchval(sql.HOLDS, tx, int(pos), mark.event))


def place_of(url: str) -> str:
    """The database that a URL names, in one spelling, without user, password and options that may be secret."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    hosts = unquote(parts.netloc.rpartition("@")[2]) or ",".join(query.get("host", []))
    ports = ",".join(query.get("port", []))
    found = ",".join(_host(host) for host in hosts.split(","))
    if ports and ports != DEFAULT_PORT:
        found = f"{found}:{ports}"
    name = parts.path.strip("/") or "".join(query.get("dbname", query.get("database", []))[:1])
    return f"postgresql://{found}/{name}"


def _host(text: str) -> str:
    """One spelling for a host with its port, or for the folder of a socket."""
    if text.startswith("/"):
        return os.path.realpath(text)
    return text.lower().removesuffix(f":{DEFAULT_PORT}")


async def _accept(connection: Any, mark: Mark) -> None:
    """Start a new epoch: ids and positions go on above all that the mark has seen."""
    tx, pos = mark.highest_order or (0, 0)
    behind = tx - await connection.fetchval(sql.TRANSACTION)
    if behind > MOST_SKIPPED:
        hint = "Move the workspace into a new database with: remit export events, remit import"
        raise Conflict(f"The transaction numbers of this server are {behind} behind those that followers of events have seen.", hint=hint)
    while await connection.fetchval(sql.TRANSACTION) <= tx:
        await connection.execute(sql.SKIP_TRANSACTIONS)
    async with connection.transaction():
        await connection.execute(sql.NEW_EPOCH, mark.epoch)
        await connection.fetchval(sql.SET_COUNTER, max(mark.highest_task_id, 1))
        await connection.fetchval(sql.SKIP_POSITIONS, pos)
