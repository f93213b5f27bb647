"""The one connection that writes to a database file."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from remit.adapters.stores.high_water_mark import (
    Mark,
    Marks,
    newer_generation,
    next_generation,
)
from remit.adapters.stores.sqlite import statements
from remit.adapters.stores.sqlite.batch import Batch
from remit.adapters.stores.sqlite.database_file import DatabaseFile
from remit.adapters.stores.sqlite.driver import (
    connect,
    is_busy,
    patiently,
    scalar,
    sqlite3,
    translate,
)
from remit.adapters.stores.sqlite.migration import migrate
from remit.adapters.stores.sqlite.rollback_check import (
    State,
    checked_state,
    find_rollback,
    read_state,
)
from remit.adapters.stores.wait_notice import WaitNotice
from remit.domain.projection.rows import Change
from remit.domain.task.stored_event import Stored
from remit.errors import Conflict, RolledBack, Unavailable
from remit.ports import Unit

Work = Callable[[Any], Any]

RAISE_GENERATION_EVERY = 8
"""In every how many transactions of a connection the generation of the file is raised at least.

It is also raised after every checkpoint, so that no two checkpoints write the same generation; this
number matters only where a file system has coarse timestamps. It costs one more page in the log.
"""

Answers = list[tuple["asyncio.Future[Any] | None", Any]]


class Request(NamedTuple):
    """A request to the writer thread, with the future for its answer: ids to reserve, a unit to
    commit, or work on the queue.
    """

    reply: "asyncio.Future[Any] | None"
    """The future for the answer; None if the writer only checks its file."""
    ids: int = 0
    unit: Unit | None = None
    work: "Work | None" = None
    asked_at: float = 0.0
    """By the monotonic clock: the wait for a lock is counted from here, whatever had to wait
    before.
    """


class Writer:
    """The one connection that writes; used by one thread at a time."""

    def __init__(self, path: Path, file: DatabaseFile) -> None:
        self._path, self._file = path, file
        self.known = Mark("", 0)
        """The newest state that was seen and is durable."""
        self._state = State(self.known, 0)
        self._notice, self._waits = WaitNotice(str(path)), False
        self.ends_at = math.inf
        """When the wait for a lock ends at the latest, by the monotonic clock."""
        self._asked_at: float | None = None
        """The time at which the first request of the current batch was made."""
        self._transactions = 0
        self._changed_at: int | None = None
        """When the file was last written, as seen in the last transaction."""
        # Our own waits give all processes a fair chance.
        self._connection = connect(path, busy_seconds=0)
        try:
            self._run_guarded(self._prepare)
            migrate(self._connection, path)
            if file.is_empty:
                self._run_guarded(self._write_schema)
            self._run_guarded(self._look)
        except BaseException:
            self.close()
            raise

    def _write_schema(self) -> None:
        """Write the schema of a new store into the file itself: without it, a file whose log was
        deleted would not be recognized as a store.
        """
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _look(self) -> None:
        """Read the state, the page of the id, and the generation."""
        self.known = read_state(self._connection).mark
        self.page_of_id: int = scalar(self._connection, statements.STATE["page_of_id"])
        """The page of the file with the id of the store."""
        self.generation: int = self._read_generation()
        """The generation of the store at its opening."""

    def can_write_now(self) -> bool:
        """Return True if no other process holds the write lock; do not wait for it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            raise translate(error, self._path) from error
        return True

    def find_rollback(self, marks: Marks) -> tuple[Mark, RolledBack | None]:
        """Return the mark of the store, and the error if the store has gone back behind it."""
        try:
            return find_rollback(self._connection, marks)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def accept(self, mark: Mark) -> None:
        """Start a new epoch: ids and positions go on above all that the mark has seen."""
        highest = mark.with_highest()

        def raise_epoch() -> None:
            epoch = max(self.known.epoch, mark.epoch) + 1
            floor = int(highest.highest_position or 0)
            # A lost file is replaced by a new store: live processes of the lost one can continue
            # with it.
            self._connection.execute(statements.STATE["take_over"], (mark.store_id,))
            self._connection.execute(
                statements.STATE["new_epoch"], {"epoch": epoch, "floor": floor}
            )
            self._connection.execute(
                statements.EVENTS["set_counter"], {"value": highest.highest_task_id}
            )
            self._raise_generation(at_least=mark.generation)

        self._transaction(raise_epoch)
        self._run_guarded(self._look)
        self._run_guarded(self._write_generation)

    def save_log(self) -> None:
        """Write the log into the file: the log was deleted, and this process still has it open."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(FULL)")

    def _write_generation(self) -> None:
        """Have the file itself show its generation: live processes that refused it look for
        that.
        """
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def answer(self, batch: list[Request]) -> Answers:
        """Carry out requests; each gets its own answer or error."""
        answers: Answers = []
        self._asked_at = min((request.asked_at for request in batch if request.reply), default=None)
        wanted_ids = [request for request in batch if request.ids]
        if wanted_ids:
            answers += self._reserve(wanted_ids)
        commits = [request for request in batch if request.unit is not None]
        if commits:
            answers += self._commit(commits)
        queue_work = [request for request in batch if request.work is not None]
        if queue_work:
            answers += self._serve(queue_work)
        return answers

    def load(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Fill an empty database."""

        def fill() -> None:
            if scalar(self._connection, statements.EVENTS["tail"]):
                raise Conflict(
                    f"{self._path} already has events.", hint="Import into a new database."
                )
            highest = self._insert_events(events)
            for table, _, values in changes:
                self._connection.execute(statements.PUT[table], values)
            self._connection.execute(statements.EVENTS["set_counter"], {"value": highest})

        try:
            self._transaction(fill)
        finally:
            self.close()

    def _insert_events(self, events: Iterable[Stored]) -> int:
        """Insert events into an empty database; return the highest id of a task."""
        highest = 0
        gap = read_state(self._connection).first_position
        for event in events:
            if gap is None:
                self._connection.execute(statements.EVENTS["insert_event"], event)
            else:
                self._connection.execute(statements.EVENTS["insert_event_at"], (gap, *event))
                gap = None
            if event.stream.isdigit():
                highest = max(highest, int(event.stream))
        return highest

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")

    def _run_guarded(self, action: Callable[[], None]) -> None:
        """Run an action; errors of the driver are raised in remit's terms."""
        try:
            action()
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _announce_wait(self, waited: float) -> None:
        """Announce that a write waits."""
        self._waits = True
        cause = "another process is writing to it"
        self._notice.announce(cause, waited, lambda: self._waits)

    def _transaction(self, action: Callable[[], None]) -> None:
        """Run an action alone in the database, all of it or nothing."""

        def whole() -> None:
            self._file.check()
            try:
                patiently(
                    lambda: self._connection.execute("BEGIN IMMEDIATE"),
                    self._announce_wait,
                    self._asked_at,
                    lambda: self.ends_at,
                )
            except sqlite3.OperationalError as error:
                if is_busy(error) and time.monotonic() > self.ends_at:
                    raise self._closing_error() from error
                raise
            finally:
                self._waits = False
            try:
                self._state = self._read_checked_state()
                action()
                changed_at = self._file.changed_at
                if self._is_generation_due(changed_at):
                    self._raise_generation()
                after = read_state(self._connection).mark
                self._connection.execute("COMMIT")
            except BaseException:
                # On a full disk, SQLite rolls back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            # A commit into a file that is gone must not be acknowledged.
            self._file.check()
            self.known = after
            self._changed_at = changed_at
            self._transactions += 1

        self._run_guarded(whole)

    def _closing_error(self) -> Unavailable:
        """Return the error of a write that the end of the process cut short."""
        return Unavailable(f"The store {self._path} is locked by another process and is closing.")

    def _is_generation_due(self, changed_at: int | None) -> bool:
        """True if a checkpoint may have written the current generation into the file."""
        if changed_at is None or changed_at != self._changed_at:
            return True
        return self._transactions % RAISE_GENERATION_EVERY == 0

    def _raise_generation(self, at_least: int = 0) -> None:
        """Raise the generation; the next checkpoint writes it into the file."""
        highest = newer_generation(self._read_generation(), at_least)
        self._connection.execute(
            f"PRAGMA application_id={next_generation(highest, self._file.identity):d}"
        )

    def _read_generation(self) -> int:
        generation: int = scalar(self._connection, "PRAGMA application_id")
        return generation

    def _read_checked_state(self) -> State:
        """Return the state at the start of a transaction.

        Raise RolledBack if it lacks a state that this process has seen.
        """
        return checked_state(self._connection, self._path, self._file, self.known)

    def _reserve(self, wanted: list[Request]) -> Answers:
        """Reserve ids without waiting for the disk.

        This is safe: the log is written in order, so the commit of a task that uses an id, which
        does wait, makes the earlier reservation durable too. An id that a power failure takes back
        was never returned to a caller.
        """
        last = 0

        def reserve() -> None:
            nonlocal last
            last = scalar(
                self._connection,
                statements.EVENTS["new_ids"],
                {"count": sum(request.ids for request in wanted)},
            )

        try:
            self._run_unsynced(reserve)
        except Exception as error:  # noqa: BLE001 - it becomes the answer of those who asked
            return [(request.reply, error) for request in wanted]
        answers: Answers = []
        for request in reversed(wanted):
            answers.append((request.reply, last))
            last -= request.ids
        return answers

    def _run_unsynced(self, action: Callable[[], None]) -> None:
        """Run a transaction without waiting for the disk: a power failure may undo it, but only
        with all later ones.
        """
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            self._transaction(action)
        finally:
            self._connection.execute("PRAGMA synchronous=FULL")

    def _serve(self, requests: list[Request]) -> Answers:
        """Claim jobs and record heartbeats: a power failure that undoes these also ends the worker,
        and the job is claimed again.
        """
        answers: Answers = []

        def serve() -> None:
            answers.extend(
                (request.reply, request.work(self._connection))
                for request in requests
                if request.work
            )

        try:
            self._run_unsynced(serve)
        except Exception as error:  # noqa: BLE001 - it becomes the answer of those who asked
            return [(request.reply, error) for request in requests]
        return answers

    def _commit(self, requests: list[Request]) -> Answers:
        """Commit all units in one transaction.

        If it fails, commit each unit on its own, so that a bad unit fails alone.
        """
        answers: Answers = []

        def write() -> None:
            units = [request.unit for request in requests if request.unit]
            batch = Batch(self._connection, units, self._state.first_position)
            answers.extend(
                (request.reply, batch.add(request.unit)) for request in requests if request.unit
            )
            batch.write()

        try:
            self._transaction(write)
        except Exception as error:  # noqa: BLE001 - it becomes the answer of those who asked
            if len(requests) == 1 or isinstance(error, Unavailable):
                return [(request.reply, error) for request in requests]
            alone: Answers = []
            for request in requests:
                alone += self._commit([request])
            return alone
        return answers
