"""The PostgreSQL store: its operations, and its background work."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import asyncpg

from remit.adapters.stores.high_water_mark import KEEP_SECONDS, Marks, OnRollback
from remit.adapters.stores.postgres import statements
from remit.adapters.stores.postgres.connections import SILENCE_SECONDS, Connections
from remit.adapters.stores.postgres.driver_errors import LOST, translate
from remit.adapters.stores.postgres.group_commit import CommitQueue
from remit.adapters.stores.postgres.preparation import (
    GOODBYE_SECONDS,
    connect,
    open_pool,
    prepare,
    read_zero,
)
from remit.adapters.stores.postgres.rollback_check import History, place_of
from remit.adapters.stores.postgres.schema import CHANNELS
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

CLOCK_SECONDS = 10.0
"""How often the clock of the server is read."""
SAFETY_SECONDS = 1.0
"""The longest sleep of a watcher, in case it missed a notification."""


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
            await _last_mark(store)


async def _last_mark(store: "PostgresEventStore") -> None:
    """Write the last state that was seen; do not wait for a server that does not respond."""
    with suppress(*LOST, asyncpg.PostgresError, RolledBack):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await store.write_mark()


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
        self._connections, self._connect = connections, connect
        self._history = connections.history
        self._zero = zero
        """The server time at which our monotonic clock was zero."""
        self._commits = CommitQueue(connections)
        self._watched = asyncio.Event()
        self._watch_events: dict[str, set[asyncio.Event]] = {topic: set() for topic in CHANNELS}

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
        return self._zero + timedelta(seconds=time.monotonic())

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
    async def watch(self, topic: Topic = "events") -> AsyncGenerator["PostgresWatch", None]:
        """Yield a watch that wakes after commits of any process."""
        notified = asyncio.Event()
        self._watch_events[topic].add(notified)
        self._watched.set()
        try:
            yield PostgresWatch(notified)
        finally:
            self._watch_events[topic].discard(notified)

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store, in one transaction."""
        # Not within the transaction, which must not stay idle.
        history, rows = list(events), list(changes)
        try:
            async with self._connections.pool.acquire() as connection, connection.transaction():
                await _load(connection, history, rows)
        except (*LOST, asyncpg.PostgresError) as error:
            raise translate(error) from error

    async def write_mark(self) -> None:
        """Look at the newest state and write it down."""
        if self._history.used.is_set():
            await self._connections.use(self._history.check)
            await asyncio.to_thread(self._history.write)

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
                parts = (self._listen_again, self._keep_time, self._keep_mark)
                helpers = [workers.create_task(_forever(part)) for part in parts]
                await self._commits.run()
                for helper in helpers:
                    helper.cancel()
        finally:
            self._commits.refuse_waiting()

    async def _listen_again(self) -> None:
        """Wake every watcher on a notification, and after each reconnect, because one may have been
        missed.
        """
        await self._watched.wait()
        with suppress(*LOST, asyncpg.PostgresError):
            await self._listen()
        self._wake_watchers()
        # so that processes do not all reconnect at the same time
        await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311

    async def _keep_time(self) -> None:
        """Look at the server's clock now and then: it may be set, and ours stands still while
        this machine sleeps.
        """
        await asyncio.sleep(CLOCK_SECONDS)
        with suppress(*LOST, asyncpg.PostgresError, RolledBack):
            self._zero = await self._connections.use(read_zero)

    async def _keep_mark(self) -> None:
        """Check every second, while the store is in use, that it was not rolled back; write its
        mark.
        """
        await asyncio.sleep(KEEP_SECONDS)
        await self._history.used.wait()
        with suppress(*LOST, asyncpg.PostgresError, RolledBack):
            await self._connections.use(self._history.check)
            self._history.used.clear()
            await asyncio.to_thread(self._history.write)

    async def _listen(self) -> None:
        """Pass on notices until the connection is lost."""
        gone = asyncio.Event()
        connection = await self._connect()

        topics = {channel: topic for topic, channel in CHANNELS.items()}

        def on_notice(_connection: Any, _pid: int, channel: str, _payload: Any) -> None:
            self._wake_watchers(topics[channel])

        def on_end(*_: Any) -> None:
            gone.set()

        try:
            connection.add_termination_listener(on_end)
            for channel in topics:
                await connection.add_listener(channel, on_notice)
            self._wake_watchers()
            while not gone.is_set():
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await gone.wait()
                except TimeoutError:
                    # A process that only listens would never notice a silent connection.
                    await connection.execute("SELECT 1", timeout=SILENCE_SECONDS)
        finally:
            connection.terminate()

    def _wake_watchers(self, *topics: str) -> None:
        for topic in topics or CHANNELS:
            for notified in self._watch_events[topic]:
                notified.set()


class PostgresWatch:
    """Wakes on a notice, and now and then in case one was missed."""

    def __init__(self, notified: asyncio.Event) -> None:
        self._notified = notified

    async def wait(self) -> None:
        """Return after a notice, or after a short while."""
        try:
            async with asyncio.timeout(SAFETY_SECONDS):
                await self._notified.wait()
        except TimeoutError:
            return
        self._notified.clear()


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
