"""The PostgreSQL store: its operations, and its background work."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any

import asyncpg

from remit.adapters.stores.high_water_mark import KEEP_SECONDS, Marks, OnRollback
from remit.adapters.stores.postgres import statements
from remit.adapters.stores.postgres.connections import Connections
from remit.adapters.stores.postgres.driver_errors import LOST, translate
from remit.adapters.stores.postgres.group_commit import CommitQueue
from remit.adapters.stores.postgres.preparation import (
    GOODBYE_SECONDS,
    connect,
    open_pool,
    prepare,
)
from remit.adapters.stores.postgres.rollback_check import History, place_of
from remit.adapters.stores.postgres.schema import CHANNELS
from remit.adapters.stores.postgres.server_clock import ServerClock
from remit.adapters.stores.postgres.watches import PostgresWatch, Watches
from remit.domain.projection.rows import Change
from remit.domain.projection.tables import BESIDE, TABLES
from remit.domain.task.event_position import parse_position
from remit.domain.task.stored_event import Stored
from remit.errors import Conflict, RolledBack
from remit.ports import (
    Claim,
    ClaimedJob,
    ClaimResult,
    Lease,
    Recorded,
    Topic,
    Unit,
    WorkerRow,
)
from remit.store_queries.event_queries import PlacedEvent
from remit.store_queries.query import Query, R

log = logging.getLogger("remit.store")


@asynccontextmanager
async def open_postgres(
    url: str,
    on_rollback: OnRollback = "refuse",
    *,
    to_write: bool = False,
) -> AsyncGenerator["PostgresEventStore", None]:
    """Open a store on a PostgreSQL database, upgraded to the newest schema.

    Its connections are open during the block.

    With `to_write`, opening also waits while another program locks the tables against writes.
    """
    history = History(place_of(url), on_rollback)
    async with AsyncExitStack() as stack:
        try:
            pool = await stack.enter_async_context(open_pool(url, history))
            zero = await prepare(pool, history, to_write=to_write)
        except (
            OSError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            ValueError,
            TimeoutError,
        ) as error:
            raise translate(error) from error
        connections = Connections(pool, history)
        store = PostgresEventStore(connections, partial(connect, url), zero)
        # Owned by this block, which ends it before it returns. A TaskGroup would wrap the caller's
        # errors in a group.
        running = asyncio.create_task(store.run())
        try:
            yield store
        finally:
            await store.close()
            await asyncio.wait([running])  # the end of the event loop may have canceled it
            if not running.cancelled():
                running.result()
            await _last_mark(connections)


async def _last_mark(connections: Connections) -> None:
    """Write the last state that was seen; do not wait for a server that does not respond."""
    with suppress(*LOST, asyncpg.PostgresError, RolledBack):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await _write_mark(connections)


def _hello(row: WorkerRow) -> list[Any]:
    """Return a worker as it announces itself; the database knows when."""
    return [value for name, value in row._asdict().items() if name != "age_seconds"]


async def _beat(connection: Any, row: WorkerRow, jobs: list[int]) -> set[int]:
    """Announce a worker, renew its leases, and return the jobs that it has lost."""
    await connection.execute(statements.JOBS["hello"], *_hello(row))
    await connection.execute(statements.JOBS["forget"])
    lost: set[int] = set()
    if jobs:
        await connection.execute(statements.JOBS["beat"], row.worker, jobs)
        lost = {
            gone["id"] for gone in await connection.fetch(statements.JOBS["lost"], row.worker, jobs)
        }
    # Last: all workers write the same row, and none should wait long for another.
    await connection.execute(statements.JOBS["attend"], sorted(row.attended))
    await connection.execute(statements.JOBS["unattend"])
    return lost


class PostgresEventStore:
    """Events, rows and ids in a PostgreSQL database.

    Many processes on many machines may share it.
    """

    def __init__(
        self, connections: Connections, connect: Callable[[], Awaitable[Any]], zero: datetime
    ) -> None:
        self._connections = connections
        self._history = connections.history
        self._clock = ServerClock(connections, zero)
        self._commits = CommitQueue(connections)
        self._watches = Watches(connect)

    @property
    def marks(self) -> Marks:
        """The marks of this database."""
        return self._history.marks

    @property
    def rollback(self) -> RolledBack | None:
        """The problem that opening found and did not refuse."""
        return self._history.rollback

    async def new_ids(self, count: int) -> list[int]:
        """Return new, ascending ids."""
        return [
            row["id"] for row in await self._connections.fetch(statements.EVENTS["new_ids"], count)
        ]

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, together with whatever else is waiting."""
        await self._commits.commit(unit)

    def now(self) -> datetime:
        """Return the current time of the server's clock, which all machines share."""
        return self._clock.now()

    async def claim(self, claim: Claim) -> ClaimResult:
        """Claim jobs for a worker."""
        limits = list(claim.queues.values())
        asked = (
            claim.worker,
            list(claim.queues),
            limits,
            claim.room,
            claim.signals,
            claim.lease_seconds,
            claim.fleet,
        )
        if claim.roots is None:
            found = await self._connections.fetch(statements.JOBS["claim"], *asked)
        else:
            found = await self._connections.fetch(
                statements.JOBS["claim_of"], *asked, list(claim.roots)
            )
        *jobs, last = found
        return ClaimResult(
            [ClaimedJob(*(row[name] for name in ClaimedJob._fields)) for row in jobs],
            last["seconds"],
        )

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Record a heartbeat; return jobs that other workers have taken over."""

        async def whole(connection: Any) -> set[int]:
            async with connection.transaction():
                return await _beat(connection, row, list(jobs))

        with self._connections.translating():
            return await self._connections.patiently(whole)

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue; a newer one with its key gives way to it."""

        async def back(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute(statements.JOBS["give_back"], lease.job, lease.worker)
                await connection.execute(
                    statements.JOBS["return"], lease.job, lease.worker, delay_seconds
                )

        with self._connections.translating():
            await self._connections.use(back)

    async def leave(self, worker: str) -> None:
        """Take a worker off the list, and its leases."""
        await self._connections.fetch(statements.JOBS["expire"], worker)
        await self._connections.fetch(statements.JOBS["leave"], worker)

    async def workers(self) -> list[WorkerRow]:
        """Return workers with a recent heartbeat."""
        return [
            WorkerRow(*row) for row in await self._connections.fetch(statements.JOBS["workers"])
        ]

    async def select(self, query: Query[R], params: Mapping[str, Any]) -> list[R]:
        """Return the rows of a named query."""
        statement, names = statements.SELECT[query.name]
        return query.rows(
            await self._connections.fetch(statement, *(params[name] for name in names))
        )

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Return the events after a position.

        A sequence number is assigned before its transaction commits, so numbers appear out of
        order, and a reader that remembers only the number misses late commits. The order is final
        once it includes the transaction number and no older transaction is open.
        """
        tx, pos = parse_position(after, parts=2)
        rows = await self._connections.fetch(statements.EVENTS["feed"], str(tx), pos, limit)
        events = map(PlacedEvent._make, rows)
        return [Recorded(event.position, event.stored) for event in events]

    async def tail(self) -> str:
        """Return the last position whose order is final."""
        rows = await self._connections.fetch(statements.EVENTS["tail"])
        if not rows:
            return ""
        return str(rows[0]["position"])

    async def check(self) -> None:
        """Raise RolledBack if the database was rolled back or is being restored."""
        with self._connections.translating():
            await self._connections.patiently(self._history.check)

    @asynccontextmanager
    async def watch(self, topic: Topic = "events") -> AsyncGenerator[PostgresWatch, None]:
        """Yield a watch that wakes after commits of any process."""
        async with self._watches.watch(topic) as watch:
            yield watch

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store, in one transaction."""
        # Not within the transaction, which must not stay idle.
        history, rows = list(events), list(changes)
        try:
            async with self._connections.pool.acquire() as connection, connection.transaction():
                await _load(connection, history, rows)
        except (*LOST, asyncpg.PostgresError) as error:
            raise translate(error) from error

    def end_within(self, seconds: float) -> None:
        """Let calls wait for the server at most this long from now on."""
        self._connections.end_within(seconds)

    async def close(self) -> None:
        """Accept no more units; accepted ones are finished."""
        self._commits.close()

    async def run(self) -> None:
        """Commit and listen until the store is closed; after that, calls get no response."""
        try:
            async with asyncio.TaskGroup() as workers:
                parts = (
                    self._watches.listen_again,
                    self._clock.keep,
                    partial(_keep_mark, self._connections),
                )
                helpers = [workers.create_task(_forever(part)) for part in parts]
                await self._commits.run()
                for helper in helpers:
                    helper.cancel()
        finally:
            self._commits.refuse_waiting()


async def _write_mark(connections: Connections) -> None:
    """Look at the newest state and write it down."""
    history = connections.history
    if history.used.is_set():
        await connections.use(history.check)
        await asyncio.to_thread(history.write)


async def _keep_mark(connections: Connections) -> None:
    """Check every second, while the store is in use, that it was not rolled back; write its
    mark.
    """
    history = connections.history
    await asyncio.sleep(KEEP_SECONDS)
    await history.used.wait()
    with suppress(*LOST, asyncpg.PostgresError, RolledBack):
        await connections.use(history.check)
        history.used.clear()
        await asyncio.to_thread(history.write)


async def _forever(part: Callable[[], Awaitable[None]]) -> None:
    """Do a part of the background work again and again.

    It must outlive any error: without it this process would go on with a store that it no longer
    follows.
    """
    while True:
        try:
            await part()
        except Exception:
            log.exception("A background task of the store failed; it is tried again.")
            await asyncio.sleep(KEEP_SECONDS)


async def _load(connection: Any, events: list[Stored], changes: list[Change]) -> None:
    if await connection.fetchval(statements.EVENTS["any_event"]):
        raise Conflict("The database already has events.", hint="Import into a new database.")
    await connection.copy_records_to_table("event", records=events, columns=Stored._fields)
    for name, table in (TABLES | BESIDE).items():
        records = [change.values for change in changes if change.table == name and change.values]
        await connection.copy_records_to_table(name, records=records, columns=table.columns)
    if highest := max((int(event.stream) for event in events if event.stream.isdigit()), default=0):
        await connection.fetchval(statements.EVENTS["set_counter"], highest)
    await connection.execute("SELECT pg_notify($1, '')", CHANNELS["events"])
