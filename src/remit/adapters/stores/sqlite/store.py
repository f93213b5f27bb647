"""The embedded store: one file, one writer thread that commits for all callers together."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from remit.adapters.stores.high_water_mark import MarkKeeper, OnRollback
from remit.adapters.stores.opening import OpeningWait
from remit.adapters.stores.sqlite import job_queue
from remit.adapters.stores.sqlite.notifier import Notifier
from remit.adapters.stores.sqlite.reader import StoreReader
from remit.adapters.stores.sqlite.store_clock import Clock
from remit.adapters.stores.sqlite.watches import SqliteWatch, Watches
from remit.adapters.stores.sqlite.writing.opened_file import OpenedFile
from remit.adapters.stores.sqlite.writing.writer import Request, Writer
from remit.adapters.stores.sqlite.writing.writer_thread import WriterThread
from remit.domain.projection.rows import Change
from remit.domain.task.event_position import parse_position
from remit.domain.task.stored_event import Stored
from remit.errors import Busy, RolledBack
from remit.ports import Claim, ClaimResult, Lease, Recorded, Topic, Unit, WorkerRow
from remit.store_queries.query import Query, R


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

    def __init__(
        self, path: Path | str, on_rollback: OnRollback = "refuse", *, create: bool = True
    ) -> None:
        self.path = Path(path)
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self.path.touch(mode=0o600)
        self._clock = Clock()
        requests: SimpleQueue[Request | None] = SimpleQueue()
        self._opened = OpenedFile(
            self.path, on_rollback, self._clock.now, lambda: requests.put(Request(None))
        )
        self.marks = self._opened.marks
        keeper = MarkKeeper(self._opened.write_mark)
        keeper.write()
        self._opened.must_still_have_one_log()
        self._watches = Watches(self.path)
        self._thread = WriterThread(requests, self._opened, self._watches, keeper)

    @property
    def rollback(self) -> RolledBack | None:
        """The problem that opening found and did not refuse."""
        return self._opened.rollback

    def can_write_now(self) -> bool:
        """Return True if no other process holds the write lock.

        Called by opening before anything is written.
        """
        return self._opened.writer.can_write_now()

    async def new_ids(self, count: int) -> list[int]:
        """Return new, ascending ids."""
        last: int = await self._thread.ask(ids=count)
        return list(range(last - count + 1, last + 1))

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, together with whatever else is waiting."""
        await self._thread.ask(unit=unit)

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
        claimed: ClaimResult = await self._thread.ask(
            work=lambda connection: job_queue.claim(connection, claim, self.now())
        )
        self._clock.busy |= bool(claimed.jobs)
        return claimed

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Record a heartbeat; return jobs that other workers have taken over."""
        sent_at = self.now()  # the commit is later if this process stands still
        lost: set[int] = await self._thread.ask(
            work=lambda connection: job_queue.beat(connection, row, jobs, sent_at)
        )
        self._clock.busy = self._open_reader.look(
            lambda connection: job_queue.busy(connection, self.now())
        )
        return lost

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue."""
        await self._thread.ask(
            work=lambda connection: job_queue.give_back(
                connection, lease, delay_seconds, self.now()
            )
        )
        self._watches.notify()

    async def leave(self, worker: str) -> None:
        """Take a worker off the list, and its leases."""
        await self._thread.ask(work=lambda connection: job_queue.leave(connection, worker))
        self._watches.notify_listeners()

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
    ) -> AsyncGenerator[SqliteWatch, None]:
        """Yield a watch that wakes after commits of any process.

        All watchers of this process share one listener.
        """
        async with self._watches.watch() as watch:
            yield watch

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store, in one transaction."""
        await asyncio.to_thread(lambda: Writer(self.path, self._opened.file).load(events, changes))
        Notifier(self.path).notify()

    def end_within(self, seconds: float) -> None:
        """Let writes wait for other processes at most this long from now on."""
        self._opened.end_within(seconds)

    async def close(self) -> None:
        """Finish accepted requests and close."""
        await self._thread.close()

    @property
    def _open_reader(self) -> StoreReader:
        """The reader; Unavailable once the store is closed."""
        self._thread.must_be_open()
        return self._opened.reader
