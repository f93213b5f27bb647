"""The embedded store: one file, one writer thread that commits for all callers together."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from remit.adapters.sqlite import queue, sql
from remit.adapters.sqlite.batch import Batch
from remit.adapters.sqlite.bell import Bell, Listener
from remit.adapters.sqlite.clock import Clock
from remit.adapters.sqlite.driver import connect, patiently, sqlite3, translated
from remit.adapters.sqlite.read import SqliteReader
from remit.adapters.sqlite.schema import migrate
from remit.domain.event import Stored
from remit.domain.project import Change
from remit.errors import Conflict, Unavailable
from remit.ports import Claim, Claimed, Lease, Recorded, Row, Topic, Unit, WorkerRow

log = logging.getLogger("remit.sqlite")

Work = Callable[[Any], Any]

BATCH = 256
SAFETY_SECONDS = 1.0
"""How long a watcher may sleep although it missed a ring; it asks SQLite then, which costs next to nothing."""


class _Request(NamedTuple):
    """Something for the writer thread, and whom to tell: ids to reserve, a unit to commit, or work on the queue."""

    reply: "asyncio.Future[Any]"
    ids: int = 0
    unit: Unit | None = None
    work: "Work | None" = None


class SqliteEventStore:
    """Events, rows and ids in one SQLite file; many processes may share it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self.path.touch(mode=0o600)
        self._clock = Clock()
        self._writer = Writer(self.path)
        self._reader = SqliteReader(self.path)
        self._bell = Bell(self.path)
        self._watches: set[SqliteWatch] = set()
        self._listener: Listener | None = None
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="remit-writer", daemon=True)
        self._thread.start()
        self._closed = False

    async def new_ids(self, count: int) -> list[int]:
        """Numbers that nobody was given before, ascending."""
        last: int = await self._ask(ids=count)
        return list(range(last - count + 1, last + 1))

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, together with whatever else is waiting."""
        await self._ask(unit=unit)

    def now(self) -> datetime:
        """This instant."""
        return self._clock.now()

    async def claim(self, claim: Claim) -> Claimed:
        """Jobs for a worker; a look comes first, since most wakes of many workers find nothing."""
        seen = self._reader.look(lambda connection: queue.next_in(connection, claim, self.now()))
        if seen != 0.0:
            return Claimed([], seen)
        claimed: Claimed = await self._ask(work=lambda connection: queue.claim(connection, claim, self.now()))
        self._clock.busy |= bool(claimed.jobs)
        return claimed

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Say that a worker lives; those of its jobs that another has by now."""
        lost: set[int] = await self._ask(work=lambda connection: queue.beat(connection, row, jobs))
        self._clock.busy = self._reader.look(lambda connection: queue.busy(connection, self.now()))
        return lost

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue."""
        await self._ask(work=lambda connection: queue.give_back(connection, lease, delay_seconds, self.now()))
        self._ring()

    async def leave(self, worker: str) -> None:
        """Take a worker off the list, and its leases."""
        await self._ask(work=lambda connection: queue.leave(connection, worker))
        self._bell.ring()

    async def workers(self) -> list[WorkerRow]:
        """Everybody who was heard of lately."""
        return self._reader.look(queue.workers)

    async def select(self, query: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows of a named query; an indexed read is cheaper than a hop to a thread."""
        return self._reader.select(query, params)

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Events after a position; with one writer at a time the row number is the order of commits."""
        return [Recorded(str(row[-1]), Stored(*row[:-1])) for row in self._reader.feed(int(after or 0), limit)]

    async def tail(self) -> str:
        """The last position."""
        return str(self._reader.tail())

    @asynccontextmanager
    async def watch(self, topic: Topic = "events") -> AsyncGenerator["SqliteWatch", None]:  # noqa: ARG002 - one bell for both
        """Be told of commits of any process; all who watch here share one ear for those of others."""
        watch = SqliteWatch(asyncio.get_running_loop())
        if self._listener is None:
            self._listener = self._bell.listen(self._heard)
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            await self._listen_no_longer()

    async def _listen_no_longer(self) -> None:
        if not self._watches and self._listener is not None:
            listener, self._listener = self._listener, None
            await asyncio.to_thread(listener.close)

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store, in one transaction."""
        await asyncio.to_thread(Writer(self.path).load, events, changes)
        Bell(self.path).ring()

    async def close(self) -> None:
        """Finish what was accepted and let go."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._reader.close()

    async def _ask(self, *, ids: int = 0, unit: Unit | None = None, work: Work | None = None) -> Any:
        if self._closed:
            raise Unavailable(f"The store {self.path} is closed.")
        reply = asyncio.get_running_loop().create_future()
        self._queue.put(_Request(reply, ids, unit, work))
        return await reply

    def _work(self) -> None:
        """The writer thread: take all that waits, commit it at once, answer all, until told to stop."""
        open_for_more = True
        while open_for_more:
            batch, open_for_more = self._take()
            if batch:
                answers = self._writer.answer(batch)
                if any(request.unit for request in batch):
                    self._ring()
                _tell(answers)
        self._writer.close()

    def _ring(self) -> None:
        """Tell everybody of a commit: those in this process directly."""
        try:
            self._heard()
            self._bell.ring(self._listener)
        except Exception:
            # The commit stands, and a watcher that is not rung looks for itself; but whoever asked must be answered.
            log.exception("nobody could be told of a commit to %s", self.path)

    def _heard(self) -> None:
        """Wake all who watch here, with one call into each event loop; called by any thread."""
        loops: dict[asyncio.AbstractEventLoop, list[SqliteWatch]] = {}
        for watch in tuple(self._watches):
            loops.setdefault(watch.loop, []).append(watch)
        for loop, watches in loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, watches)

    def _take(self) -> tuple[list[_Request], bool]:
        """All that waits, up to a batch, and whether more may come."""
        batch: list[_Request] = []
        while len(batch) < BATCH:
            try:
                request = self._queue.get(block=not batch)
            except Empty:
                break
            if request is None:
                return batch, False
            batch.append(request)
        return batch, True


class SqliteWatch:
    """Wakes on a ring, and looks for itself now and then in case one was missed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.rung = asyncio.Event()

    async def wait(self) -> None:
        """Return after a ring, or after a short while."""
        try:
            async with asyncio.timeout(SAFETY_SECONDS):
                await self.rung.wait()
        except TimeoutError:
            return
        self.rung.clear()


def _wake(watches: Sequence[SqliteWatch]) -> None:
    for watch in watches:
        watch.rung.set()


Answers = list[tuple["asyncio.Future[Any]", Any]]


def _tell(answers: Answers) -> None:
    """Wake the callers, with one call into each event loop for the whole batch."""
    loops: dict[asyncio.AbstractEventLoop, Answers] = {}
    for reply, answer in answers:
        loops.setdefault(reply.get_loop(), []).append((reply, answer))
    for loop, group in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, group)


def _settle(answers: Answers) -> None:
    for reply, answer in answers:
        if reply.cancelled():
            continue
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)


class Writer:
    """The one connection that writes; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._guarded(self._prepare)
        migrate(self._connection, path)
        self._connection.execute("PRAGMA busy_timeout=0")  # from here on every wait is for the lock of writers, patiently

    def answer(self, batch: list[_Request]) -> Answers:
        """Do what is asked; each request gets its own answer, an error of one is not the others'."""
        answers: Answers = []
        if wanted := [request for request in batch if request.ids]:
            answers += self._reserve(wanted)
        if units := [request for request in batch if request.unit is not None]:
            answers += self._commit(units)
        if asked := [request for request in batch if request.work is not None]:
            answers += self._serve(asked)
        return answers

    def load(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Fill an empty database."""

        def fill() -> None:
            if self._connection.execute(sql.TAIL).fetchone()[0]:
                raise Conflict(f"{self._path} already has events.", hint="Import into a new database.")
            highest = 0
            for event in events:
                self._connection.execute(sql.INSERT_EVENT, event)
                highest = max(highest, int(event.stream)) if event.stream.isdigit() else highest
            for table, _, values in changes:
                self._connection.execute(sql.PUT[table], values)
            self._connection.execute(sql.SET_COUNTER, {"value": highest})

        try:
            self._transaction(fill)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _prepare(self) -> None:
        # SQLite itself does not wait when several processes make a write-ahead log at once.
        patiently(lambda: self._connection.execute("PRAGMA journal_mode=WAL"))
        self._connection.execute("PRAGMA synchronous=FULL")

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _transaction(self, action: Callable[[], None]) -> None:
        """Run an action alone in the database, all of it or nothing."""

        def whole() -> None:
            patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
            try:
                action()
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk makes SQLite roll back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

        self._guarded(whole)

    def _reserve(self, wanted: list[_Request]) -> Answers:
        """Hand out numbers without waiting for the disk.

        That is safe: the log is written in order, so the commit of a task that uses a number, which does wait, makes the
        reservation before it durable too; a number that a power cut takes back was never seen by anybody.
        """
        last = 0

        def reserve() -> None:
            nonlocal last
            last = self._connection.execute(sql.NEW_IDS, {"count": sum(request.ids for request in wanted)}).fetchone()[0]

        try:
            self._lightly(reserve)
        except Exception as error:  # noqa: BLE001 - it becomes the answer of those who asked
            return [(request.reply, error) for request in wanted]
        answers: Answers = []
        for request in reversed(wanted):
            answers.append((request.reply, last))
            last -= request.ids
        return answers

    def _lightly(self, action: Callable[[], None]) -> None:
        """A transaction that a power cut may take back, but nothing that comes after it alone."""
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            self._transaction(action)
        finally:
            self._connection.execute("PRAGMA synchronous=FULL")

    def _serve(self, requests: list[_Request]) -> Answers:
        """Claims and heartbeats: whoever lost one by a power cut is dead too, and the job is claimed again."""
        answers: Answers = []

        def serve() -> None:
            answers.extend((request.reply, request.work(self._connection)) for request in requests if request.work)

        try:
            self._lightly(serve)
        except Exception as error:  # noqa: BLE001 - it becomes the answer of those who asked
            return [(request.reply, error) for request in requests]
        return answers

    def _commit(self, requests: list[_Request]) -> Answers:
        """One transaction for all; if it fails, each unit on its own, so that a bad one stands alone."""
        answers: Answers = []

        def write() -> None:
            batch = Batch(self._connection, [request.unit for request in requests if request.unit])
            answers.extend((request.reply, batch.add(request.unit)) for request in requests if request.unit)
            batch.write()

        try:
            self._transaction(write)
        except Exception as error:  # noqa: BLE001 - it becomes the answer of those who asked
            if len(requests) == 1 or isinstance(error, Unavailable):
                return [(request.reply, error) for request in requests]
            return [answer for request in requests for answer in self._commit([request])]
        return answers
