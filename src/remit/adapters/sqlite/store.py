"""The embedded store: one file, one writer thread that commits for all callers together."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from remit.adapters.mark import Mark, MarkKeeper, Marks, OnRollback, is_older, next_generation, rolled_back, say_if_new, went_back
from remit.adapters.opening import OpeningWait
from remit.adapters.sqlite import queue, sql
from remit.adapters.sqlite.batch import Batch
from remit.adapters.sqlite.bell import Bell, Listener
from remit.adapters.sqlite.clock import Clock
from remit.adapters.sqlite.driver import connect, is_busy, patiently, sqlite3, translated
from remit.adapters.sqlite.file import DatabaseFile, another_store, boot_id, deleted, log_identity
from remit.adapters.sqlite.history import State, foreign_log, found_rollback, holds, marks_of, read_state, set_log_aside
from remit.adapters.sqlite.read import SqliteReader
from remit.adapters.sqlite.schema import migrate
from remit.domain.event import Stored
from remit.domain.project import Change
from remit.errors import Busy, Conflict, RemitError, RolledBack, Unavailable
from remit.ports import Claim, Claimed, Lease, Recorded, Row, Topic, Unit, WorkerRow

log = logging.getLogger("remit.sqlite")

Work = Callable[[Any], Any]

BATCH = 256
RAISE_GENERATION_EVERY = 8
"""In every how many transactions of a connection the generation of the file is raised; it costs one more page in the log."""
REOPEN_SECONDS = 1.0
"""How often a file that took the place of ours is looked at."""
SAFETY_SECONDS = 1.0
"""How long a watcher may sleep although it missed a ring; it asks SQLite then, which costs next to nothing."""


class _Request(NamedTuple):
    """Something for the writer thread, and whom to tell: ids to reserve, a unit to commit, or work on the queue."""

    reply: "asyncio.Future[Any] | None"
    """None if nobody waits: the writer is only to look at its file."""
    ids: int = 0
    unit: Unit | None = None
    work: "Work | None" = None
    asked_at: float = 0.0
    """By the monotonic clock: the wait for a lock is counted from here, whatever had to wait before."""


async def open_sqlite(
    path: Path,
    on_rollback: OnRollback = "refuse",
    *,
    create: bool = True,
    to_write: bool = False,
) -> "SqliteEventStore":
    """A store on a file, brought to the newest schema; waits while other processes make or upgrade the file.

    Without `create`, a file that does not exist is refused (RolledBack). With `to_write`, opening
    also waits while another process keeps the file locked for its own writes.
    """
    wait = OpeningWait(str(path))
    while True:
        try:
            store = SqliteEventStore(path, on_rollback, create=create)
            break
        except Busy:
            pause = wait.again()
        await asyncio.sleep(pause)
    if to_write:
        await _wait_until_writable(store, wait)
    return store


async def _wait_until_writable(store: "SqliteEventStore", wait: OpeningWait) -> None:
    try:
        while not store.can_write_now():  # noqa: ASYNC110 - SQLite has no event for this
            await asyncio.sleep(wait.again())
    except BaseException:
        await store.close()
        raise


class SqliteEventStore:
    """Events, rows and ids in one SQLite file; many processes may share it."""

    _file: DatabaseFile
    _writer: "Writer"
    _reader: SqliteReader

    def __init__(self, path: Path | str, on_rollback: OnRollback = "refuse", *, create: bool = True) -> None:
        self.path = Path(path)
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self.path.touch(mode=0o600)
        self._clock = Clock()
        self.marks = marks_of(self.path)
        self._on_rollback = on_rollback
        self.rollback: RolledBack | None = None
        """What was wrong with the store when it was opened, where that was not refused."""
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._poked_at = self._reopened_at = -math.inf
        self._lost: RolledBack | None = None
        """Why our file cannot be used, from when another took its place until that one was opened."""
        self._file, self._writer, self._reader = self._opened()
        self._say_if_new()
        self._keeper = MarkKeeper(self._mark)
        self._keeper.write()
        self._bell = Bell(self.path)
        self._watches: set[SqliteWatch] = set()
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._work, name="remit-writer", daemon=True)
        self._thread.start()
        self._closed = False

    def _opened(self) -> tuple[DatabaseFile, "Writer", SqliteReader]:
        """The file and both connections to it; RolledBack if it has gone back behind its mark."""
        with ExitStack() as stack:
            try:
                file = DatabaseFile(self.path)
            except FileNotFoundError:
                raise deleted(self.path) from None
            stack.callback(file.close)
            foreign: Mark | None = None
            if found := foreign_log(self.path, file, self.marks):
                foreign, error = found
                if self._on_rollback != "accept":
                    raise error
                set_log_aside(self.path)
                self.rollback = error
            writer = Writer(self.path, file)
            stack.callback(writer.close)
            self._judge(writer, foreign)
            reader = SqliteReader(self.path, file, self._poke)
            file.know_store(writer.known.store_id, writer.page_of_id)
            file.keep_beside()
            stack.pop_all()
        return file, writer, reader

    def _judge(self, writer: "Writer", foreign: Mark | None) -> None:
        """Compare the store with its mark, and do what was asked for if it has gone back.

        `foreign` is the mark of the store whose log was set aside.
        """
        mark, error = writer.found_rollback(self.marks)
        self.rollback = error or self.rollback
        if error is not None and self._on_rollback == "refuse":
            raise error
        if self.rollback is not None and self._on_rollback == "accept":
            is_new = not writer.known.position and self.marks.read(writer.known.store_id) is None
            writer.accept(foreign if foreign is not None and is_new else mark.with_highest(foreign))

    def _say_if_new(self) -> None:
        """Warn once, when a store begins where another one was."""
        known = self._writer.known
        if known.position or self.marks.read(known.store_id) is not None:
            return
        say_if_new(str(self.path), self.marks)

    def _mark(self) -> None:
        """Write down what is durable, and in which files."""
        if self._lost is not None or (self.rollback is not None and self._on_rollback == "report"):
            return
        at = self.now().isoformat(timespec="seconds").replace("+00:00", "Z")
        file = self._file
        mark = self._writer.known._replace(
            at=at,
            file=file.identity,
            log=log_identity(self.path),
            generation=file.highest_generation,
            boot=boot_id(),
            page=file.page,
        )
        self.marks.write(mark)

    def _poke(self) -> None:
        """Have the writer look whether the file can be opened again."""
        if time.monotonic() - self._poked_at > REOPEN_SECONDS:
            self._poked_at = time.monotonic()
            self._queue.put(_Request(None))

    def _reopen_if_replaced(self) -> None:
        """Close a file that was replaced, and open its replacement as soon as that is allowed."""
        try:
            self._file.check()
        except RolledBack as error:
            if self._lost is None:
                if self._file.lacks_only_files_beside:
                    self._writer.save_log()
                self._mark()  # the operator decides by what this process has seen
                self._let_go()
            self._lost = error
        if self._lost is None or time.monotonic() - self._reopened_at < REOPEN_SECONDS:
            return
        self._reopened_at = time.monotonic()
        if self._file.leads_to_another_store:  # SQLite would mix it with the log of ours
            return
        known = self._writer.known
        with suppress(RemitError, OSError):
            file, writer, reader = self._opened()
            if writer.known.store_id != known.store_id:
                reader.close()
                writer.close()
                file.close()
                return
            self._file.close()
            self._file, self._writer, self._reader = file, writer, reader
            self._lost = None

    def _let_go(self) -> None:
        # The reader is still open and cannot write: so nobody checkpoints into a file that is gone, or deletes the log of another.
        self._writer.close()
        self._reader.let_go()

    def can_write_now(self) -> bool:
        """True if no other process holds the lock for writes; for an opening, before anything is written."""
        return self._writer.can_write_now()

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
        lost: set[int] = await self._ask(work=lambda connection: queue.beat(connection, row, jobs, self.now()))
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
        await asyncio.to_thread(lambda: Writer(self.path, self._file).load(events, changes))
        Bell(self.path).ring()

    async def close(self) -> None:
        """Finish what was accepted and let go."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        self._thread.join()
        self._keeper.close()
        try:
            self._file.check()
        except RolledBack:
            if self._lost is None:
                self._let_go()
        else:
            # The last to close writes the log into the file and removes it, so that the file alone is the whole store.
            self._reader.close()
            self._writer.close()
            self._mark()
        self._file.close()

    async def _ask(self, *, ids: int = 0, unit: Unit | None = None, work: Work | None = None) -> Any:
        if self._closed:
            raise Unavailable(f"The store {self.path} is closed.")
        reply = asyncio.get_running_loop().create_future()
        self._queue.put(_Request(reply, ids, unit, work, time.monotonic()))
        return await reply

    def _work(self) -> None:
        """The writer thread: take all that waits, commit it at once, answer all, until told to stop."""
        open_for_more = True
        while open_for_more:
            batch, open_for_more = self._take()
            if batch:
                self._reopen_if_replaced()
                if self._lost is not None:
                    _tell([(request.reply, self._lost) for request in batch])
                    continue
                answers = self._writer.answer(batch)
                if any(request.unit for request in batch):
                    self._ring()
                _tell(answers)
                self._keeper.wake()

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


Answers = list[tuple["asyncio.Future[Any] | None", Any]]


def _tell(answers: Answers) -> None:
    """Wake the callers, with one call into each event loop for the whole batch."""
    loops: dict[asyncio.AbstractEventLoop, Answers] = {}
    for reply, answer in answers:
        if reply is not None:
            loops.setdefault(reply.get_loop(), []).append((reply, answer))
    for loop, group in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, group)


def _settle(answers: Answers) -> None:
    for reply, answer in answers:
        if reply is None or reply.cancelled():
            continue
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)


class Writer:
    """The one connection that writes; used by one thread at a time."""

    def __init__(self, path: Path, file: DatabaseFile) -> None:
        self._path, self._file = path, file
        self.known = Mark("", 0)
        """The newest state that was seen and is durable."""
        self._state = State(self.known, 0)
        self._announced = False
        self._asked_at: float | None = None
        """When the first of the requests was made that are carried out now."""
        self._transactions = 0
        self._connection = connect(path, busy_seconds=0)  # waits are ours, with a fair chance for all
        try:
            self._guarded(self._prepare)
            migrate(self._connection, path)
            if file.is_empty:
                self._guarded(self._write_schema)
            self._guarded(self._look)
        except BaseException:
            self.close()
            raise

    def _write_schema(self) -> None:
        """Write the schema of a new store into the file itself: a file without one, whose log was deleted, looks like no store at all."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _look(self) -> None:
        self.known = read_state(self._connection).mark
        self.page_of_id: int = self._connection.execute(sql.PAGE_OF_ID).fetchone()[0]
        """The page of the file that holds the id of the store."""

    def can_write_now(self) -> bool:
        """True if no other process holds the lock for writes; does not wait for it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            raise translated(error, self._path) from error
        return True

    def found_rollback(self, marks: Marks) -> tuple[Mark, RolledBack | None]:
        """The mark of the store, and the error if the store has gone back behind it."""
        try:
            return found_rollback(self._connection, marks)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def accept(self, mark: Mark) -> None:
        """Start a new epoch: ids and positions go on above all that the mark has seen."""
        highest = mark.with_highest()

        def raise_epoch() -> None:
            epoch = max(self.known.epoch, mark.epoch) + 1
            floor = int(highest.highest_position or 0)
            # A file that was lost is a new store: live processes of the lost one can go on with it.
            self._connection.execute(sql.TAKE_OVER, (mark.store_id,))
            self._connection.execute(sql.NEW_EPOCH, {"epoch": epoch, "floor": floor})
            self._connection.execute(sql.SET_COUNTER, {"value": highest.highest_task_id})
            self._raise_generation(at_least=mark.generation)

        self._transaction(raise_epoch)
        self._guarded(self._look)
        self._guarded(self._write_generation)

    def save_log(self) -> None:
        """Write the log into the file: the log was deleted, and this process still has it open."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(FULL)")

    def _write_generation(self) -> None:
        """Have the file itself show its generation: live processes that refused it look for that."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def answer(self, batch: list[_Request]) -> Answers:
        """Do what is asked; each request gets its own answer, an error of one is not the others'."""
        answers: Answers = []
        self._asked_at = min((request.asked_at for request in batch if request.reply), default=None)
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
            gap = read_state(self._connection).first_position
            for event in events:
                if gap is None:
                    self._connection.execute(sql.INSERT_EVENT, event)
                else:
                    self._connection.execute(sql.INSERT_EVENT_AT, (gap, *event))
                    gap = None
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
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _announce_wait(self) -> None:
        """Say once that writes wait: on a busy machine they may do so again and again."""
        if not self._announced:
            self._announced = True
            log.warning("Waiting for the store %s: another process is writing to it.", self._path)

    def _transaction(self, action: Callable[[], None]) -> None:
        """Run an action alone in the database, all of it or nothing."""

        def whole() -> None:
            self._file.check()
            patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"), self._announce_wait, self._asked_at)
            try:
                self._state = self._checked()
                action()
                if self._transactions % RAISE_GENERATION_EVERY == 0:
                    self._raise_generation()
                after = read_state(self._connection).mark
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk makes SQLite roll back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._file.check()  # what was committed into a file that is gone must not be acknowledged
            self.known = after
            self._transactions += 1

        self._guarded(whole)

    def _raise_generation(self, at_least: int = 0) -> None:
        """Raise the generation; the next checkpoint writes it into the file."""
        generation: int = self._connection.execute("PRAGMA application_id").fetchone()[0]
        self._connection.execute(f"PRAGMA application_id={next_generation(at_least if is_older(generation, at_least) else generation):d}")

    def _checked(self) -> State:
        """The state at the start of a transaction; RolledBack if it lacks what this process has seen."""
        state = read_state(self._connection)
        if state.mark.store_id != self.known.store_id:
            raise another_store(self._path)
        if state.mark != self.known and went_back(state.mark, self.known, holds=holds(self._connection, self.known)):
            raise rolled_back(str(self._path), state.mark, self.known)
        return state

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
            units = [request.unit for request in requests if request.unit]
            batch = Batch(self._connection, units, self._state.first_position)
            answers.extend((request.reply, batch.add(request.unit)) for request in requests if request.unit)
            batch.write()

        try:
            self._transaction(write)
        except Exception as error:  # noqa: BLE001 - it becomes the answer of those who asked
            if len(requests) == 1 or isinstance(error, Unavailable):
                return [(request.reply, error) for request in requests]
            return [answer for request in requests for answer in self._commit([request])]
        return answers
