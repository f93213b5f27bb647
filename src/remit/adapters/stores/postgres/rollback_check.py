"""Checks that a database on a server contains everything that was seen of it before."""

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from remit.adapters.stores.high_water_mark import (
    ACCEPT,
    KEEP_SECONDS,
    Mark,
    Marks,
    OnRollback,
    has_gone_back,
    rollback_error,
    say_if_other,
)
from remit.adapters.stores.postgres import statements
from remit.adapters.stores.postgres.completeness import (
    PARTS,
    incomplete,
    missing_parts,
    must_be_complete,
)
from remit.errors import Conflict, RolledBack

CAUSES = "a dump or a snapshot of the server"
"""What can restore an older copy of such a store."""

DEFAULT_PORT = "5432"
FRESH_SECONDS = 2 * KEEP_SECONDS
"""The time for which a check is valid: a store in use is checked every KEEP_SECONDS."""
MOST_SKIPPED = 2_000_000
"""The maximum number of transaction numbers to use up.

A server that is further behind needs a new database.
"""

PUT_BACK = f"""\
Put it back, and running processes continue; or create an empty database and restart them to begin \
with a new store. Accept an older copy with: {ACCEPT}"""


class History:
    """The state of a database as seen by this process, and as seen from this machine."""

    def __init__(self, place: str, on_rollback: OnRollback) -> None:
        self.marks = Marks(place)
        self._on_rollback = on_rollback
        self.rollback: RolledBack | None = None
        self.used = asyncio.Event()
        """Set when the store was used since the last look."""
        self._known: Mark | None = None
        self._trouble: RolledBack | None = None
        self._checked_at = time.monotonic()

    async def begin(self, connection: Any) -> None:
        """Compare the database with its mark.

        RolledBack if it has gone back and that is refused.
        """
        state = await read_state(connection)
        # The mark is read before the state that it is compared with: another process may commit and
        # mark in between.
        mark = self.marks.read(state.store_id)
        state = await read_state(connection)
        if mark is not None and has_gone_back(state, mark, holds=await holds(connection, mark)):
            state = await self._judge(connection, state, mark)
        say_if_other(self.marks, state)
        self._known = state
        self.write()

    async def _judge(self, connection: Any, state: Mark, mark: Mark) -> Mark:
        """Handle a database that was rolled back as the operator asked; return its state after
        that.
        """
        self.rollback = rollback_error(self.marks.place, state, mark, CAUSES)
        if self._on_rollback == "refuse":
            raise self.rollback
        if self._on_rollback == "accept":
            await _accept(connection, mark)
            return await read_state(connection)
        return state

    async def check_new(self, connection: Any) -> None:
        """Look at the database that a new connection leads to.

        For the first one there is nothing to compare.
        """
        if self._known is not None:
            await self.check(connection)

    async def check(self, connection: Any) -> None:
        """Raise RolledBack if the database lacks a state that this process has seen.

        Otherwise, remember its current state.
        """
        assert self._known is not None
        try:
            state = await self._read_sound_state(connection, self._known)
        except asyncpg.UndefinedTableError:
            gone = incomplete(self.marks.place, "a table was removed just now")
            raise await self._remember_trouble(gone) from None
        except RolledBack as error:
            raise await self._remember_trouble(error) from None
        self._trouble = None
        self._checked_at = time.monotonic()
        self._known = state.newest_with(self._known)  # a commit can have been faster

    async def _read_sound_state(self, connection: Any, known: Mark) -> Mark:
        """Return the state of the database; raise RolledBack if it lacks a state that is known."""
        if len(await missing_parts(connection)) == PARTS:
            raise self._removal_error()
        await must_be_complete(connection, self.marks.place)
        state = await read_state(connection)
        if state.store_id != known.store_id:
            raise RolledBack(
                f"Another store was put into {self.marks.place} while it was in use.",
                hint="Restart this process to use it.",
            )
        if has_gone_back(state, known, holds=await holds(connection, known)):
            raise rollback_error(self.marks.place, state, known, CAUSES)
        return state

    async def remember_removal(self) -> RolledBack:
        """Return the error for a database that is gone.

        It is raised until a check finds the database again.
        """
        return await self._remember_trouble(self._removal_error())

    def _removal_error(self) -> RolledBack:
        """Return the error for a database that is gone."""
        message = (
            f"The store {self.marks.place} was removed while it was in use; nothing more is"
            " written."
        )
        return RolledBack(message, hint=PUT_BACK)

    async def _remember_trouble(self, trouble: RolledBack) -> RolledBack:
        """Remember the problem; the operator decides by the state that this process has seen."""
        if self._trouble is None:
            await asyncio.to_thread(self.write)
        self._trouble = trouble
        return trouble

    def must_be_sound(self) -> None:
        """Raise the problem that was found, until a check finds it solved."""
        self.used.set()
        if self._trouble is not None:
            raise self._trouble

    async def check_if_due(self, connection: Any) -> None:
        """Check a database that had a problem, or that was not checked for a while."""
        is_old = time.monotonic() - self._checked_at > FRESH_SECONDS
        if self._trouble is not None or is_old:
            await self.check(connection)

    async def commit(self, connection: Any, arguments: list[Any]) -> list[int]:
        """Commit a batch; raise if the database lacks a state that this process has seen."""
        self.used.set()
        await self.check_if_due(connection)
        assert self._known is not None
        known = self._known
        tx, _, pos = known.position.partition(".")
        seen = (known.epoch, tx, int(pos or 0), known.event, known.commits)
        row = await connection.fetchrow(statements.EVENTS["commit"], *seen, *arguments)
        if row["fates"] is None or row["store_id"] != known.store_id:
            await self.check(connection)
            raise rollback_error(self.marks.place, await read_state(connection), known, CAUSES)
        if row["epoch"] == self._known.epoch:
            self._known = _raise_mark(self._known, row)
        fates: list[int] = row["fates"]
        return fates

    def write(self) -> None:
        """Write the mark of the last state that was seen."""
        if self._known is None:
            return
        if self.rollback is not None and self._on_rollback == "report":
            return
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self.marks.write(self._known._replace(at=at))


def _raise_mark(known: Mark, row: Any) -> Mark:
    """Return the mark after a commit; another commit can already have raised it further."""
    known = known._replace(commits=max(row["commits"], known.commits))
    if row["tx"] is None:
        return known
    highest = max(row["task_id"] or 0, known.task_id)
    position = f"{row['tx']}.{row['pos']}"
    newest = known._replace(position=position, event=row["id"], task_id=highest)
    if newest.order > known.order:
        return newest
    return known


async def read_state(connection: Any) -> Mark:
    """Return the state of a database as it is now."""
    store_id, epoch, position, event, task_id, commits = await connection.fetchrow(
        statements.STATE["state"]
    )
    return Mark(store_id, epoch, position or "", event or "", task_id or 0, commits=commits)


async def holds(connection: Any, mark: Mark) -> bool:
    """Return True if the event of a mark is in the database."""
    if not mark.position:
        return True
    tx, _, pos = mark.position.partition(".")
    return bool(await connection.fetchval(statements.STATE["holds"], tx, int(pos), mark.event))


def place_of(url: str) -> str:
    """Return the database of a URL in one spelling, without user, password and options that may be
    secret.

    Missing parts of the URL come from PGHOST, PGPORT and PGDATABASE, as in the driver.
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    hosts = (
        unquote(parts.netloc.rpartition("@")[2])
        or ",".join(query.get("host", []))
        or os.environ.get("PGHOST", "")
    )
    port = ",".join(query.get("port", [])) or os.environ.get("PGPORT", "")
    found = ",".join(_host(host, port) for host in hosts.split(","))
    name = (
        parts.path.strip("/")
        or "".join(query.get("dbname", query.get("database", []))[:1])
        or os.environ.get("PGDATABASE", "")
        or parts.username
        or os.environ.get("PGUSER", "")
    )
    return f"postgresql://{found}/{name}"


def _host(text: str, port: str) -> str:
    """Return one spelling of a host with its port, or of the folder of a socket."""
    if text.startswith("/"):
        host = os.path.realpath(text)
    else:
        host, _, own_port = text.lower().partition(":")
        port = own_port or port
    if port in ("", DEFAULT_PORT):
        return host
    return f"{host}:{port}"


async def _accept(connection: Any, mark: Mark) -> None:
    """Start a new epoch: ids and positions go on above all that the mark has seen."""
    tx, pos = mark.highest_order or (0, 0)
    behind = tx - await connection.fetchval(statements.STATE["transaction"])
    if behind > MOST_SKIPPED:
        hint = "Import all events into a new database. Export them with: `remit export events FILE`"
        raise Conflict(
            f"The transaction numbers of this server are {behind} behind those that followers of"
            " events have seen.",
            hint=hint,
        )
    while await connection.fetchval(statements.STATE["transaction"]) <= tx:
        await connection.execute(statements.STATE["skip_transactions"])
    async with connection.transaction():
        await connection.execute(statements.STATE["new_epoch"], mark.epoch)
        await connection.fetchval(statements.EVENTS["set_counter"], max(mark.highest_task_id, 1))
        await connection.fetchval(statements.STATE["skip_positions"], pos)
