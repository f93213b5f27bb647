"""The file of a store and the connections to it: opened, opened again when replaced, and closed."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path

from remit.adapters.stores.high_water_mark import Mark, OnRollback, say_if_other
from remit.adapters.stores.sqlite.database_file import (
    DatabaseFile,
    boot_id,
    deletion_error,
    log_identity,
)
from remit.adapters.stores.sqlite.hard_link import must_have_one_log
from remit.adapters.stores.sqlite.reader import StoreReader
from remit.adapters.stores.sqlite.rollback_check import foreign_log, marks_of, set_log_aside
from remit.adapters.stores.sqlite.writing.writer import Writer
from remit.errors import RemitError, RolledBack

REOPEN_SECONDS = 1.0
"""How often a file that replaced ours is checked."""


class OpenedFile:
    """The file of a store with its reader and its writer."""

    file: DatabaseFile
    writer: Writer
    reader: StoreReader

    def __init__(
        self,
        path: Path,
        on_rollback: OnRollback,
        now: Callable[[], datetime],
        request_check: Callable[[], None],
    ) -> None:
        """Open the file; `request_check` asks for a call of `reopen_if_replaced`."""
        self.path, self._on_rollback, self._now = path, on_rollback, now
        self._request_check = request_check
        self.marks = marks_of(path)
        self.rollback: RolledBack | None = None
        """The problem that opening found and did not refuse."""
        self.lost: RolledBack | None = None
        """Why our file cannot be used, from when another took its place until that one was
        opened.
        """
        self._check_requested_at = self._reopened_at = -math.inf
        self._ends_at = math.inf
        self.file, self.writer, self.reader = self._open()
        say_if_other(self.marks, self.writer.known)

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

    def must_still_have_one_log(self) -> None:
        """Check again now that other processes see the mark: one may have opened another name in
        between.
        """
        try:
            must_have_one_log(self.file)
        except RolledBack:
            self.reader.close()
            self.writer.close()
            self.file.close()
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

    def write_mark(self) -> None:
        """Write a mark with the durable state and its files."""
        if self.lost is not None:
            return
        if self.rollback is not None and self._on_rollback == "report":
            return
        at = self._now().isoformat(timespec="seconds").replace("+00:00", "Z")
        mark = self.writer.known._replace(
            at=at,
            file=self.file.identity,
            log=log_identity(self.path),
            generation=self.file.highest_generation,
            boot=boot_id(),
            page=self.file.page,
        )
        self.marks.write(mark)

    def _request_file_check(self) -> None:
        """Request a check whether the file can be opened again."""
        if time.monotonic() - self._check_requested_at > REOPEN_SECONDS:
            self._check_requested_at = time.monotonic()
            self._request_check()

    def reopen_if_replaced(self) -> None:
        """Close a file that was replaced, and open its replacement as soon as that is allowed."""
        self._close_if_replaced()
        if self.lost is None or time.monotonic() - self._reopened_at < REOPEN_SECONDS:
            return
        self._reopened_at = time.monotonic()
        if self.file.leads_to_another_store:  # SQLite would mix it with our log
            return
        self._try_to_reopen()

    def _close_if_replaced(self) -> None:
        """Close the file once another one took its place."""
        try:
            self.file.check()
        except RolledBack as error:
            if self.lost is None:
                if self.file.lacks_only_files_beside:
                    self.writer.save_log()
                self.write_mark()  # the operator decides by the state that this process has seen
                self._let_go()
            self.lost = error

    def _try_to_reopen(self) -> None:
        """Open the file that took the place of ours, if it is the same store."""
        known = self.writer.known
        with suppress(RemitError, OSError):
            file, writer, reader = self._open()
            if writer.known.store_id != known.store_id:
                reader.close()
                writer.close()
                file.close()
                return
            self.file.close()
            self.file, self.writer, self.reader = file, writer, reader
            self.writer.end_at(self._ends_at)
            self.lost = None

    def _let_go(self) -> None:
        # The reader is still open and cannot write, so closing does not checkpoint into a file that
        # is gone, or delete the log of another one.
        self.writer.close()
        self.reader.let_go()

    def end_within(self, seconds: float) -> None:
        """Let writes wait for other processes at most this long from now on."""
        self._ends_at = min(self._ends_at, time.monotonic() + seconds)
        self.writer.end_at(self._ends_at)

    def close(self) -> None:
        """Close the file; one that was replaced is left alone."""
        try:
            self.file.check()
        except RolledBack:
            if self.lost is None:
                self._let_go()
        else:
            # The last process to close writes the log into the file and removes it, so that the
            # file alone is the whole store.
            self.reader.close()
            self.writer.close()
            self.write_mark()
        self.file.close()
