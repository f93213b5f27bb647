"""The PostgreSQL store: one round trip commits what many callers of this process have waiting."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import asyncpg

from remit.adapters.mark import KEEP_SECONDS, Marks, OnRollback
from remit.adapters.opening import OpeningWait
from remit.adapters.postgres import sql
from remit.adapters.postgres.batch import packed
from remit.adapters.postgres.history import History, place_of
from remit.adapters.postgres.schema import CHANNELS, SCHEMA, migrate, must_follow_own_clock
from remit.domain.event import Stored
from remit.domain.project import Change
from remit.domain.table import BESIDE, TABLES
from remit.errors import Busy, Conflict, Internal, RemitError, RolledBack, Unacknowledged, Unavailable
from remit.ports import Claim, Claimed, Lease, LeaseLost, OverBudget, Recorded, Row, Stale, Taken, Topic, Unit, WorkerRow

log = logging.getLogger("remit.store")

T = TypeVar("T")

COMMITS, SHARE = 2, 2
"""How many commits may be under way, and which part of what waits makes one: the server works on some while we go on with others."""
SMALL, LARGE = 16, 256
"""How many units are not worth parting, and how many are enough for one commit."""
POOL = 8
PATIENCE_SECONDS = 30.0
"""How long a restart of the server, or a lock of another program, is waited out before a caller is told."""
SAY_SECONDS = 5.0
"""After how long a wait for the server is announced: a busy machine may take a few seconds for an answer."""
SILENCE_SECONDS = 10.0
"""How long an answer is waited for before its connection counts as dead: a wire can go silent without breaking."""
CLOCK_SECONDS = 10.0
"""How often the clock of the server is looked at."""
GOODBYE_SECONDS = 2.0
SAFETY_SECONDS = 1.0
"""How long a watcher may sleep although it missed a notice."""
UNKNOWN = "It is not known whether the change was made. Look before you try again."
STORED = (0, 1)
"""Stored now, or before when only the acknowledgement got lost."""
REFUSALS: dict[int, type[Exception]] = {2: Stale, 3: LeaseLost, 4: OverBudget}

SETTINGS = {
    "search_path": SCHEMA,
    "application_name": "remit",
    "tcp_user_timeout": "5000",
    # Whoever falls silent in the middle of a transaction must not keep its locks.
    "idle_in_transaction_session_timeout": "10000",
    # A table that another program has locked is asked for again, so that the wait can be announced and ended.
    "lock_timeout": "2000",
    "plan_cache_mode": "force_generic_plan",
    # Every statement here is meant to walk an index. Without statistics, as after a large import or in a young database,
    # the planner would rather sort or scan.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    TimeoutError,
)
"""What goes away by itself when the server is back or the others are done."""


HELD_UP = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
)
"""What an opening waits for: the server starts or is full, or others have locked or upgrade the database."""


class _Request(NamedTuple):
    unit: Unit
    reply: "asyncio.Future[None]"
    touched: list[str]
    """What no other commit may change at the same time: its streams, and its job."""


@asynccontextmanager
async def open_postgres(
    url: str,
    on_rollback: OnRollback = "refuse",
    *,
    to_write: bool = False,
) -> AsyncGenerator["PostgresEventStore", None]:
    """A store on a PostgreSQL database, brought to the newest schema; its connections live as long as the block.

    With `to_write`, opening also waits while another program keeps the tables locked against writes.
    """

    async def connect() -> Any:
        return await asyncpg.connect(url, server_settings=SETTINGS, timeout=SILENCE_SECONDS)

    history = History(place_of(url), on_rollback)
    async with AsyncExitStack() as stack:
        try:
            # An opening has its own limit for an answer, which is not longer.
            options: dict[str, Any] = {"server_settings": SETTINGS, "timeout": SILENCE_SECONDS}
            pool = await asyncpg.create_pool(url, min_size=0, max_size=POOL, reset=_keep_session, init=history.check_new, **options)
            stack.push_async_callback(_close, pool)
            zero = await _prepared(pool, history, to_write=to_write)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TimeoutError) as error:
            raise translated(error) from error
        store = PostgresEventStore(pool, connect, zero, history)
        # Owned by this block, which ends it before it returns; a TaskGroup here would wrap the caller's own errors in a group.
        running = asyncio.create_task(store.run())
        try:
            yield store
        finally:
            await store.close()
            await running
            await _last_mark(store)


async def _prepared(pool: Any, history: History, *, to_write: bool) -> datetime:
    """Bring the database to the newest schema; waits while the server is silent, starts or is full, or is upgraded by another process."""
    wait = OpeningWait(history.marks.place)
    while True:
        try:
            async with _first_connection(pool, wait) as connection:
                await migrate(connection, wait=wait)
                await wait.answer(must_follow_own_clock(connection))
                await wait.answer(history.begin(connection))
                if to_write:
                    await wait.answer(_try_to_write(connection))
                return await wait.answer(_zero(connection))
        except HELD_UP:
            await asyncio.sleep(wait.again())
        except TimeoutError:
            wait.must_go_on()


@asynccontextmanager
async def _first_connection(pool: Any, wait: OpeningWait) -> AsyncGenerator[Any, None]:
    """A connection for the block; it is dropped if its server does not answer, which the driver would wait for."""
    connection = await wait.answer(pool.acquire())
    try:
        yield connection
    except (asyncio.CancelledError, TimeoutError):
        connection.terminate()
        raise
    finally:
        await pool.release(connection)


async def _try_to_write(connection: Any) -> None:
    """Raise LockNotAvailableError if another program keeps a table locked against writes."""
    async with connection.transaction():
        await connection.execute(sql.LOCK_FOR_WRITES)


async def _last_mark(store: "PostgresEventStore") -> None:
    """Write down what was seen last; a server that does not answer is not waited for."""
    with suppress(*LOST, asyncpg.PostgresError, RolledBack):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await store.write_mark()


async def _close(pool: Any) -> None:
    """Take leave of the server, but do not wait for one that does not answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await pool.close()


async def _zero(connection: Any) -> datetime:
    """When our monotonic clock stood at zero, by the server's; it answers about half-way between question and answer."""
    asked = time.monotonic()
    there: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return there - timedelta(seconds=(asked + time.monotonic()) / 2)


async def _beat(connection: Any, row: WorkerRow, jobs: list[int]) -> set[int]:
    await connection.execute(sql.HELLO, *row[:8], row.place, row.models, row.scope)
    await connection.execute(sql.FORGET)
    lost: set[int] = set()
    if jobs:
        await connection.execute(sql.BEAT, row.worker, jobs)
        lost = {gone[0] for gone in await connection.fetch(sql.LOST, row.worker, jobs)}
    # Last: all workers write the same row, and none should wait long for another.
    await connection.execute(sql.ATTEND, [0] if row.roots is None else sorted(row.roots))
    await connection.execute(sql.UNATTEND)
    return lost


async def _keep_session(_connection: Any) -> None:
    """Nothing we send changes a session, so none has to be cleaned: that saves a round trip per statement."""


class PostgresEventStore:
    """Events, rows and ids in a PostgreSQL database; many processes on many machines may share it."""

    def __init__(self, pool: Any, connect: Callable[[], Awaitable[Any]], zero: datetime, history: History) -> None:
        self._pool, self._connect, self._history = pool, connect, history
        self._zero = zero
        """When our own monotonic clock, which nobody sets, stood at zero by the clock of the server."""
        self._waiting: list[_Request] = []
        self._under_way: set[str] = set()
        """What is touched by commits that the server has not answered yet."""
        self._work = asyncio.Event()
        self._watched = asyncio.Event()
        self._bells: dict[str, set[asyncio.Event]] = {topic: set() for topic in CHANNELS}
        self._closed = self._announced = False

    @property
    def marks(self) -> Marks:
        """The marks of this database."""
        return self._history.marks

    @property
    def rollback(self) -> RolledBack | None:
        """What was wrong with the store when it was opened, where that was not refused."""
        return self._history.rollback

    async def new_ids(self, count: int) -> list[int]:
        """Numbers that nobody was given before, ascending."""
        return [int(row[0]) for row in await self._fetch(sql.NEW_IDS, count)]

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, together with whatever else is waiting."""
        if self._closed:
            raise Unavailable("The store is closed.")
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        touched = [append.stream for append in unit.appends]
        if unit.lease:
            touched.append(f"job {unit.lease.job}")
        self._waiting.append(_Request(unit, reply, touched))
        self._work.set()
        await reply

    def now(self) -> datetime:
        """This instant by the clock of the server, on which all machines agree, whatever theirs say."""
        return self._zero + timedelta(seconds=time.monotonic())

    async def claim(self, claim: Claim) -> Claimed:
        """Jobs for a worker."""
        limits = list(claim.queues.values())
        asked = (claim.worker, list(claim.queues), limits, claim.room, claim.signals, claim.lease_seconds, claim.fleet)
        if claim.roots is None:
            found = await self._fetch(sql.CLAIM, *asked)
        else:
            found = await self._fetch(sql.CLAIM_OF, *asked, list(claim.roots))
        *jobs, (*_, seconds) = found
        return Claimed([Taken(*row[:-1]) for row in jobs], seconds)

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Say that a worker lives; those of its jobs that another has by now."""

        async def whole(connection: Any) -> set[int]:
            async with connection.transaction():
                return await _beat(connection, row, list(jobs))

        try:
            return await self._patiently(whole)
        except (*LOST, asyncpg.PostgresError) as error:
            raise translated(error) from error

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue; a newer one with its key gives way to it."""

        async def back(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute(sql.GIVE_BACK, lease.job, lease.worker)
                await connection.execute(sql.RETURN, lease.job, lease.worker, delay_seconds)

        try:
            await self._use(back)
        except (*LOST, asyncpg.PostgresError) as error:
            raise translated(error) from error

    async def leave(self, worker: str) -> None:
        """Take a worker off the list, and its leases."""
        await self._fetch(sql.EXPIRE, worker)
        await self._fetch(sql.LEAVE, worker)

    async def workers(self) -> list[WorkerRow]:
        """Everybody who was heard of lately."""
        return [WorkerRow(*row) for row in await self._fetch(sql.WORKERS)]

    async def select(self, query: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows of a named query."""
        statement, names = sql.SELECT[query]
        return [tuple(row) for row in await self._fetch(statement, *(params[name] for name in names))]

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Events after a position.

        A number from a sequence is taken before its transaction commits, so numbers appear out of order; a reader that
        remembers only the number misses what commits late. The transaction's own number, and waiting until no older
        one is open, make the order final.
        """
        tx, _, pos = (after or "0.0").partition(".")
        rows = await self._fetch(sql.FEED, tx, int(pos), limit)
        return [Recorded(f"{row[-2]}.{row[-1]}", Stored(*row[:-2])) for row in rows]

    async def tail(self) -> str:
        """The last position whose order is final."""
        rows = await self._fetch(sql.TAIL)
        return f"{rows[0][0]}.{rows[0][1]}" if rows else ""

    @asynccontextmanager
    async def watch(self, topic: Topic = "events") -> AsyncGenerator["PostgresWatch", None]:
        """Be told of commits of any process."""
        bell = asyncio.Event()
        self._bells[topic].add(bell)
        self._watched.set()
        try:
            yield PostgresWatch(bell)
        finally:
            self._bells[topic].discard(bell)

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store, in one transaction."""
        history, rows = list(events), list(changes)  # not within the transaction, which must not stand idle
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await _load(connection, history, rows)
        except (*LOST, asyncpg.PostgresError) as error:
            raise translated(error) from error

    async def write_mark(self) -> None:
        """Look at the newest state and write it down."""
        if self._history.used.is_set():
            await self._use(self._history.check)
            await asyncio.to_thread(self._history.write)

    async def close(self) -> None:
        """Accept nothing more; what was accepted is finished."""
        self._closed = True
        self._work.set()

    async def run(self) -> None:
        """Commit and listen until the store is closed."""
        async with asyncio.TaskGroup() as workers:
            helpers = [workers.create_task(part) for part in (self._listen_forever(), self._keep_time(), self._keep_mark())]
            await asyncio.gather(*(self._commit_forever() for _ in range(COMMITS)))
            for helper in helpers:
                helper.cancel()

    async def _commit_forever(self) -> None:
        """Commit batch after batch until the store is closed and nothing waits."""
        while self._waiting or not self._closed:
            await self._work.wait()
            self._work.clear()
            while batch := self._take():
                touched = {name for request in batch for name in request.touched}
                self._under_way |= touched
                await self._commit(batch)
                self._under_way -= touched
        self._work.set()

    async def _listen_forever(self) -> None:
        """Ring every bell on a notice, and after each reconnection since one may have been missed."""
        await self._watched.wait()
        while True:
            with suppress(*LOST, asyncpg.PostgresError):
                await self._listen()
            self._ring()
            await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - so that many processes do not return at once

    async def _keep_time(self) -> None:
        """Look at the server's clock now and then: it may be set, and ours stands still while this machine sleeps."""
        while True:
            await asyncio.sleep(CLOCK_SECONDS)
            with suppress(*LOST, asyncpg.PostgresError, RolledBack):
                self._zero = await self._use(_zero)

    async def _keep_mark(self) -> None:
        """See every second, while the store is used, that it has not gone back, and write its mark."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            await self._history.used.wait()
            with suppress(*LOST, asyncpg.PostgresError, RolledBack):
                await self._use(self._history.check)
                self._history.used.clear()
                await asyncio.to_thread(self._history.write)

    async def _listen(self) -> None:
        gone = asyncio.Event()
        connection = await self._connect()

        topics = {channel: topic for topic, channel in CHANNELS.items()}

        def noticed(_connection: Any, _pid: int, channel: str, _payload: Any) -> None:
            self._ring(topics[channel])

        def ended(*_: Any) -> None:
            gone.set()

        try:
            connection.add_termination_listener(ended)
            for channel in topics:
                await connection.add_listener(channel, noticed)
            self._ring()
            while not gone.is_set():
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await gone.wait()
                except TimeoutError:
                    await connection.execute("SELECT 1", timeout=SILENCE_SECONDS)  # who only listens would never notice a silent wire
        finally:
            connection.terminate()

    def _ring(self, *topics: str) -> None:
        for topic in topics or CHANNELS:
            for bell in self._bells[topic]:
                bell.set()

    def _take(self) -> list[_Request]:
        """What can be committed together: units that touch the same follow one another."""
        batch: list[_Request] = []
        later: list[_Request] = []
        taken = self._under_way.copy()
        most = min(LARGE, max(SMALL, len(self._waiting) // SHARE))
        for request in self._waiting:
            if len(batch) < most and taken.isdisjoint(request.touched):
                batch.append(request)
            else:
                later.append(request)
            taken.update(request.touched)
        self._waiting = later
        return batch

    async def _commit(self, batch: list[_Request], looks: int = 3) -> None:
        try:
            arguments = packed([request.unit for request in batch])
            fates = await self._patiently(lambda connection: self._history.commit(connection, arguments))
        except LOST as error:
            message = f"PostgreSQL did not answer for {PATIENCE_SECONDS:.0f} seconds: {_why(error)}."
            lost = Unacknowledged(message, hint=UNKNOWN)
            return _settle(batch, [lost] * len(batch))
        except asyncpg.PostgresError as error:
            if isinstance(error, asyncpg.UniqueViolationError) and looks > 1:
                # The same stream was stored while we were at it, by somebody else or by us before an answer was lost: a new look tells.
                return await self._commit(batch, looks - 1)
            if len(batch) == 1:
                return _settle(batch, [translated(error)])
            for request in batch:
                await self._commit([request])
            return None
        except RolledBack as error:
            return _settle(batch, [error] * len(batch))
        except Exception as error:  # noqa: BLE001 - the loop outlives any surprise, else every caller waits for ever
            surprise = Unacknowledged(f"The commit failed unexpectedly: {_why(error)}.", hint=UNKNOWN)
            return _settle(batch, [surprise] * len(batch))
        return _settle(batch, [None if fate in STORED else REFUSALS[fate]() for fate in fates])

    async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
        self._history.must_be_sound()
        try:
            return await self._patiently(lambda connection: connection.fetch(statement, *arguments))
        except (*LOST, asyncpg.PostgresError) as error:
            raise translated(error) from error

    async def _patiently(self, action: Callable[[Any], Awaitable[T]]) -> T:
        """Do it again while the server restarts; whatever we send can be sent twice."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        pause = 0.02
        announcement = loop.call_later(SAY_SECONDS, self._announce_wait)
        try:
            while True:
                try:
                    return await self._use(action)
                except LOST:
                    if loop.time() + pause > deadline:
                        raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.5)
        finally:
            announcement.cancel()

    def _announce_wait(self) -> None:
        """Say once that PostgreSQL is waited for: it may be so again and again."""
        if not self._announced:
            self._announced = True
            log.warning("Waiting for %s: the server does not answer, or another program has locked a table.", self._history.marks.place)

    async def _use(self, action: Callable[[Any], Awaitable[T]]) -> T:
        """Do something with a connection; one whose answer does not come, or is not waited for any more, is dropped.

        The driver would rather ask the server to cancel, and wait for that, on a wire that may be silent.
        """
        async with asyncio.timeout(SILENCE_SECONDS), self._pool.acquire() as connection:
            try:
                return await action(connection)
            except asyncio.CancelledError:
                connection.terminate()
                raise


class PostgresWatch:
    """Wakes on a notice, and now and then in case one was missed."""

    def __init__(self, bell: asyncio.Event) -> None:
        self._bell = bell

    async def wait(self) -> None:
        """Return after a notice, or after a short while."""
        try:
            async with asyncio.timeout(SAFETY_SECONDS):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()


def translated(error: Exception) -> RemitError:
    """An error of the driver in remit's own terms; connection strings never show."""
    if isinstance(error, asyncpg.LockNotAvailableError):
        message = f"A table of PostgreSQL has been locked by another program for {PATIENCE_SECONDS:.0f} seconds."
        return Busy(message, hint="Find the program that holds the lock, or try again.")
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return Internal(f"PostgreSQL refused a write: {_why(error)}.")
    return Unavailable(f"PostgreSQL cannot be used: {_why(error)}.", hint="Check the database URL and that the server runs.")


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer came in time"
    if isinstance(error, asyncpg.LockNotAvailableError):
        return "another program has locked a table"
    if isinstance(error, FileNotFoundError | ConnectionError):
        return "no server listens at this address"
    if isinstance(error, asyncpg.ConnectionDoesNotExistError | asyncpg.InterfaceError):
        return "the connection was lost"
    return f"{type(error).__name__}: {error}".rstrip(".: ") if isinstance(error, asyncpg.PostgresError | OSError) else type(error).__name__


def _settle(batch: Sequence[_Request], answers: Sequence[Exception | None]) -> None:
    for request, answer in zip(batch, answers, strict=True):
        if request.reply.cancelled():
            continue
        if answer is None:
            request.reply.set_result(None)
        else:
            request.reply.set_exception(answer)


async def _load(connection: Any, events: list[Stored], changes: list[Change]) -> None:
    if await connection.fetchval(sql.ANY_EVENT):
        raise Conflict("The database already has events.", hint="Import into a new database.")
    await connection.copy_records_to_table("event", records=events, columns=sql.EVENT_COLUMNS)
    for name, table in (TABLES | BESIDE).items():
        records = [change.values for change in changes if change.table == name and change.values]
        await connection.copy_records_to_table(name, records=records, columns=table.columns)
    if highest := max((int(event.stream) for event in events if event.stream.isdigit()), default=0):
        await connection.fetchval(sql.SET_COUNTER, highest)
    await connection.execute("SELECT pg_notify($1, '')", CHANNELS["events"])
