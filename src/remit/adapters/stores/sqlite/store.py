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
from typing import Any, TypeVar

from remit.adapters.stores.high_water_mark import (
    Mark,
    MarkKeeper,
    OnRollback,
    say_if_other,
)
from remit.adapters.stores.opening import OpeningWait
from remit.adapters.stores.sqlite import job_queue
from remit.adapters.stores.sqlite.database_file import (
    DatabaseFile,
    boot_id,
    deletion_error,
    log_identity,
)
from remit.adapters.stores.sqlite.hard_link import must_have_one_log
from remit.adapters.stores.sqlite.notifier import Listener, Notifier
from remit.adapters.stores.sqlite.reader import StoreReader
from remit.adapters.stores.sqlite.rollback_check import (
    foreign_log,
    marks_of,
    set_log_aside,
)
from remit.adapters.stores.sqlite.store_clock import Clock
from remit.adapters.stores.sqlite.writer import Answers, Request, Work, Writer
from remit.domain.projection.rows import Change
from remit.domain.task.event_position import parse_position
from remit.domain.task.stored_event import Stored
from remit.errors import Busy, RemitError, RolledBack, Unacknowledged, Unavailable
from remit.ports import Claim, ClaimResult, Lease, Recorded, Topic, Unit, WorkerRow
from remit.store_queries.query import Query, R

T = TypeVar("T")

log = logging.getLogger("remit.sqlite")

BATCH = 256
REOPEN_SECONDS = 1.0
"""How often a file that replaced ours is checked."""
UNKNOWN = "It is not known whether the change was made. Look before you try again."
SAFETY_SECONDS = 1.0
"""The longest sleep of a watcher, in case it missed a notification.

Asking SQLite then costs almost nothing.
"""


async def open_sqlite(
    path: Path,
    on_rollback: OnRollback = "refuse",
    *,
    create: bool = True,
    to_write: bool = False,
) -> "SqliteEventStore":
    """Return a store on a file, brought to the newest schema.

    Waits while other processes make or upgrade the file.

    Without `create`, a file that does not exist is refused (RolledBack). With `to_write`, opening
    also waits while another process keeps the file locked for its own writes.
    """
    with OpeningWait(str(path)) as wait:
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
    _writer: Writer
    _reader: StoreReader

    def __init__(
        self, path: Path | str, on_rollback: OnRollback = "refuse", *, create: bool = True
    ) -> None:
        self.path = Path(path)
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self.path.touch(mode=0o600)
        self._clock = Clock()
        self.marks = marks_of(self.path)
        self._on_rollback = on_rollback
        self.rollback: RolledBack | None = None
        """The problem that opening found and did not refuse."""
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._file_check_requested_at = self._reopened_at = -math.inf
        self._ends_at = math.inf
        self._lost: RolledBack | None = None
        """Why our file cannot be used, from when another took its place until that one was
        opened.
        """
        self._file, self._writer, self._reader = self._open()
        say_if_other(self.marks, self._writer.known)
        self._keeper = MarkKeeper(self._mark)
        self._keeper.write()
        self._must_still_have_one_log()
        self._notifier = Notifier(self.path)
        self._watches: set[SqliteWatch] = set()
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._work, name="remit-writer", daemon=True)
        self._thread.start()
        self._closed = False

    def _open(self) -> tuple[DatabaseFile, Writer, StoreReader]:
        """Return the file and both connections to it; RolledBack if it has gone back behind its
        mark.
        """
        with ExitStack() as stack:
            try:
                file = DatabaseFile(self.path)
            except FileNotFoundError:
                raise deletion_error(self.path) from None
            stack.callback(file.close)
            must_have_one_log(file)
            foreign = self._set_foreign_log_aside(file)
            writer = Writer(self.path, file)
            stack.callback(writer.close)
            self._judge(writer, foreign)
            reader = StoreReader(self.path, file, lambda: writer.known, self._request_file_check)
            file.know_store(writer.known.store_id, writer.page_of_id, writer.generation)
            file.keep_beside()
            stack.pop_all()
        return file, writer, reader

    def _set_foreign_log_aside(self, file: DatabaseFile) -> Mark | None:
        """Set a log aside that was written for another content of the file, and return its mark.

        RolledBack if that is refused.
        """
        found = foreign_log(self.path, file, self.marks)
        if found is None:
            return None
        mark, error = found
        if self._on_rollback != "accept":
            raise error
        aside = set_log_aside(self.path)
        message = f"{error.message} The log was set aside as {aside}."
        self.rollback = RolledBack(message, hint=error.hint)
        return mark

    def _must_still_have_one_log(self) -> None:
        """Check again now that other processes see the mark: one may have opened another name in
        between.
        """
        try:
            must_have_one_log(self._file)
        except RolledBack:
            self._reader.close()
            self._writer.close()
            self._file.close()
            raise

    def _judge(self, writer: Writer, foreign: Mark | None) -> None:
        """Compare the store with its mark; if it was rolled back, do as the operator asked.

        `foreign` is the mark of the store whose log was set aside.
        """
        mark, error = writer.find_rollback(self.marks)
        self.rollback = self.rollback or error
        if error is not None and self._on_rollback == "refuse":
            raise error
        if self.rollback is None or self._on_rollback != "accept":
            return
        is_new = not writer.known.position and self.marks.read(writer.known.store_id) is None
        if foreign is not None and is_new:
            writer.accept(foreign)
        else:
            writer.accept(mark.with_highest(foreign))

    def _mark(self) -> None:
        """Write a mark with the durable state and its files."""
        if self._lost is not None:
            return
        if self.rollback is not None and self._on_rollback == "report":
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

    def _request_file_check(self) -> None:
        """Request that the writer checks whether the file can be opened again."""
        if time.monotonic() - self._file_check_requested_at > REOPEN_SECONDS:
            self._file_check_requested_at = time.monotonic()
            self._queue.put(Request(None))

    def _reopen_if_replaced(self) -> None:
        """Close a file that was replaced, and open its replacement as soon as that is allowed."""
        self._close_if_replaced()
        if self._lost is None or time.monotonic() - self._reopened_at < REOPEN_SECONDS:
            return
        self._reopened_at = time.monotonic()
        if self._file.leads_to_another_store:  # SQLite would mix it with our log
            return
        self._try_to_reopen()

    def _close_if_replaced(self) -> None:
        """Close the file once another one took its place."""
        try:
            self._file.check()
        except RolledBack as error:
            if self._lost is None:
                if self._file.lacks_only_files_beside:
                    self._writer.save_log()
                self._mark()  # the operator decides by the state that this process has seen
                self._let_go()
            self._lost = error

    def _try_to_reopen(self) -> None:
        """Open the file that took the place of ours, if it is the same store."""
        known = self._writer.known
        with suppress(RemitError, OSError):
            file, writer, reader = self._open()
            if writer.known.store_id != known.store_id:
                reader.close()
                writer.close()
                file.close()
                return
            self._file.close()
            self._file, self._writer, self._reader = file, writer, reader
            self._writer.ends_at = self._ends_at
            self._lost = None

    def _let_go(self) -> None:
        # The reader is still open and cannot write, so closing does not checkpoint into a file that
        # is gone, or delete the log of another one.
        self._writer.close()
        self._reader.let_go()

    def can_write_now(self) -> bool:
        """Return True if no other process holds the write lock.

        Called by opening before anything is written.
        """
        return self._writer.can_write_now()

    async def new_ids(self, count: int) -> list[int]:
        """Return new, ascending ids."""
        last: int = await self._ask(ids=count)
        return list(range(last - count + 1, last + 1))

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, together with whatever else is waiting."""
        await self._ask(unit=unit)

    def now(self) -> datetime:
        """Return the current time."""
        return self._clock.now()

    async def claim(self, claim: Claim) -> ClaimResult:
        """Claim jobs for a worker; check first, because most wakes of many workers find no job."""
        seen = self._open_reader.look(
            lambda connection: job_queue.next_in(connection, claim, self.now())
        )
        if seen != 0.0:
            return ClaimResult([], seen)
        claimed: ClaimResult = await self._ask(
            work=lambda connection: job_queue.claim(connection, claim, self.now())
        )
        self._clock.busy |= bool(claimed.jobs)
        return claimed

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Record a heartbeat; return jobs that other workers have taken over."""
        sent_at = self.now()  # the commit is later if this process stands still
        lost: set[int] = await self._ask(
            work=lambda connection: job_queue.beat(connection, row, jobs, sent_at)
        )
        self._clock.busy = self._open_reader.look(
            lambda connection: job_queue.busy(connection, self.now())
        )
        return lost

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue."""
        await self._ask(
            work=lambda connection: job_queue.give_back(
                connection, lease, delay_seconds, self.now()
            )
        )
        self._notify_watchers()

    async def leave(self, worker: str) -> None:
        """Take a worker off the list, and its leases."""
        await self._ask(work=lambda connection: job_queue.leave(connection, worker))
        self._notifier.notify()

    async def workers(self) -> list[WorkerRow]:
        """Return workers with a recent heartbeat."""
        return self._open_reader.look(job_queue.workers)

    async def select(self, query: Query[R], params: Mapping[str, Any]) -> list[R]:
        """Return the rows of a named query; an indexed read is cheaper than a hop to a thread."""
        return self._open_reader.select(query, params)

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Return the events after a position.

        With one writer at a time, the row number is the order of commits.
        """
        (start,) = parse_position(after, parts=1)
        rows = self._open_reader.feed(start, limit)
        return [Recorded(row.position, row.stored) for row in rows]

    async def tail(self) -> str:
        """Return the last position."""
        return str(self._open_reader.tail())

    async def check(self) -> None:
        """Raise RolledBack if the file was replaced; every read checks this."""
        self._open_reader.tail()

    @asynccontextmanager
    async def watch(
        self,
        topic: Topic = "events",  # noqa: ARG002 - one notifier for both
    ) -> AsyncGenerator["SqliteWatch", None]:
        """Yield a watch that wakes after commits of any process.

        All watchers of this process share one listener.
        """
        watch = SqliteWatch(asyncio.get_running_loop())
        if self._listener is None:
            self._listener = self._notifier.listen(self._wake_watches)
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
        Notifier(self.path).notify()

    def end_within(self, seconds: float) -> None:
        """Let writes wait for other processes at most this long from now on."""
        self._ends_at = min(self._ends_at, time.monotonic() + seconds)
        self._writer.ends_at = self._ends_at

    async def close(self) -> None:
        """Finish accepted requests and close."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        """End the writer thread, and close the file; a file that was replaced is left alone."""
        self._thread.join()
        self._keeper.close()
        try:
            self._file.check()
        except RolledBack:
            if self._lost is None:
                self._let_go()
        else:
            # The last process to close writes the log into the file and removes it, so that the
            # file alone is the whole store.
            self._reader.close()
            self._writer.close()
            self._mark()
        self._file.close()

    @property
    def _open_reader(self) -> StoreReader:
        """The reader; Unavailable once the store is closed."""
        self._must_be_open()
        return self._reader

    def _must_be_open(self) -> None:
        if self._closed:
            raise Unavailable(f"The store {self.path} is closed.")

    async def _ask(
        self, *, ids: int = 0, unit: Unit | None = None, work: Work | None = None
    ) -> Any:
        """Have the writer thread do something, and return its answer."""
        self._must_be_open()
        reply = asyncio.get_running_loop().create_future()
        self._queue.put(Request(reply, ids, unit, work, time.monotonic()))
        return await reply

    def _work(self) -> None:
        """Run the writer thread: commit all waiting requests together and answer them, until
        stopped.
        """
        open_for_more = True
        while open_for_more:
            batch, open_for_more = self._take()
            if batch:
                self._serve_safely(batch)

    def _serve_safely(self, batch: list[Request]) -> None:
        """Answer all requests, whatever happens."""
        try:
            self._serve(batch)
        except Exception as error:
            log.exception("the store %s failed unexpectedly", self.path)
            message = f"The store {self.path} failed unexpectedly: {type(error).__name__}."
            surprise = Unacknowledged(message, hint=UNKNOWN)
            _tell([(request.reply, surprise) for request in batch])

    def _serve(self, batch: list[Request]) -> None:
        """Answer a batch, and notify watchers of its commits."""
        self._reopen_if_replaced()
        if self._lost is not None:
            _tell([(request.reply, self._lost) for request in batch])
            return
        answers = self._writer.answer(batch)
        if any(request.unit for request in batch):
            self._notify_watchers()
        _tell(answers)
        self._keeper.wake()

    def _notify_watchers(self) -> None:
        """Notify all watchers of a commit; those in this process directly."""
        try:
            self._wake_watches()
            self._notifier.notify(self._listener)
        except Exception:
            # The commit is durable, and a watcher that misses a notification checks by itself; but
            # the caller must be answered.
            log.exception("could not notify watchers of a commit to %s", self.path)

    def _wake_watches(self) -> None:
        """Wake all watchers of this process, with one call per event loop; may be called by any
        thread.
        """
        loops: dict[asyncio.AbstractEventLoop, list[SqliteWatch]] = {}
        for watch in tuple(self._watches):
            loops.setdefault(watch.loop, []).append(watch)
        _call_in_loops(_wake, loops)

    def _take(self) -> tuple[list[Request], bool]:
        """Return the waiting requests, up to a batch, and whether more may come."""
        batch: list[Request] = []
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
    """Wakes on a notification, and checks periodically in case one was missed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.notified = asyncio.Event()

    async def wait(self) -> None:
        """Return after a notification, or after a short while."""
        try:
            async with asyncio.timeout(SAFETY_SECONDS):
                await self.notified.wait()
        except TimeoutError:
            return
        self.notified.clear()


def _wake(watches: Sequence[SqliteWatch]) -> None:
    for watch in watches:
        watch.notified.set()


def _tell(answers: Answers) -> None:
    """Wake the callers, with one call into each event loop for the whole batch."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for reply, answer in answers:
        if reply is not None:
            loops.setdefault(reply.get_loop(), []).append((reply, answer))
    _call_in_loops(_settle, loops)


def _call_in_loops(
    action: Callable[[list[T]], None], groups: Mapping[asyncio.AbstractEventLoop, list[T]]
) -> None:
    """Call a function once in each event loop that is open, with the group of the loop."""
    for loop, group in groups.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(action, group)


def _settle(answers: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    for reply, answer in answers:
        if reply.done():
            continue
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)
