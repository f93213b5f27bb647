"""Checks that a database file contains everything that was seen of it before: its state, its mark,
and the log beside it.
"""

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from remit.adapters.stores.high_water_mark import (
    ACCEPT,
    Mark,
    Marks,
    has_gone_back,
    is_older,
    is_written_elsewhere,
    rollback_error,
)
from remit.adapters.stores.sqlite import statements
from remit.adapters.stores.sqlite.database_file import (
    DatabaseFile,
    boot_id,
    is_in_use,
    log_identity,
)
from remit.adapters.stores.sqlite.driver import scalar
from remit.errors import Conflict, RolledBack

CAUSES = "an undo of another tool, git stash or checkout, a backup"
"""What can restore an older copy of such a store."""

RECHECK_SECONDS, RECHECKS = 0.1, 5


class State(NamedTuple):
    """The state of a database, and the position of its next event if that does not directly follow
    the last one.
    """

    mark: Mark
    floor: int

    @property
    def first_position(self) -> int | None:
        """The position of the next event, where a gap comes before it."""
        if int(self.mark.position or 0) < self.floor:
            return self.floor + 1
        return None


def read_state(connection: Any) -> State:
    """Return the state of a database as it is now."""
    row: Any = connection.execute(statements.STATE["state"]).fetchone()
    store_id, epoch, position, event, task_id, commits, floor = row
    mark = Mark(store_id, epoch, position, event, task_id, commits=commits)
    return State(mark, floor)


def holds(connection: Any, mark: Mark) -> bool:
    """Return True if the event of a mark is in the database."""
    if not mark.position:
        return True
    return bool(
        scalar(connection, statements.STATE["event_id"], (int(mark.position),)) == mark.event
    )


def checked_state(connection: Any, path: Path, file: DatabaseFile, known: Mark) -> State:
    """The state of a database; RolledBack if it lacks what this process has seen."""
    state = read_state(connection)
    if state.mark.store_id != known.store_id:
        raise file.another_store()
    if state.mark == known:
        return state
    if has_gone_back(state.mark, known, holds=holds(connection, known)):
        raise rollback_error(str(path), state.mark, known, CAUSES)
    return state


def marks_of(path: Path) -> Marks:
    """Return the marks of a file, by whatever links it is reached."""
    return Marks(os.path.realpath(path))


def find_rollback(connection: Any, marks: Marks) -> tuple[Mark, RolledBack | None]:
    """Return the mark of a database, and the error if the database has gone back behind it."""
    # The mark is read before the state: another process may commit and mark in between.
    store_id = read_state(connection).mark.store_id
    mark = marks.read(store_id)
    state = read_state(connection).mark
    if mark is None or not has_gone_back(state, mark, holds=holds(connection, mark)):
        return state, None
    return mark, rollback_error(marks.place, state, mark, CAUSES)


def foreign_log(path: Path, file: DatabaseFile, marks: Marks) -> tuple[Mark, RolledBack] | None:
    """Return the mark of a write-ahead log that was written for another content of the file, and
    the error.

    SQLite would mix both.
    """
    found: list[Mark] = []
    is_other = False
    for _ in range(RECHECKS):
        log = log_identity(path)
        found = [mark for mark in marks.all() if log and mark.log == log]
        is_other = not file.is_empty and _lacks_all(file, found)
        if not is_other:
            found = [mark for mark in found if _is_foreign(mark, file)]
        if not found:
            return None
        # A process that has just opened the file is about to write the mark.
        time.sleep(RECHECK_SECONDS)
    newest = max(found, key=lambda mark: mark.at)
    lost = _explain_loss(file, newest, is_other=is_other)
    message = (
        f"The database file {path} {lost}, but its write-ahead log {path.name}-wal was not, so they"
        " do not match."
    )
    hint = (
        "Put back the file that the log belongs to, or set the log aside as"
        f" {path.name}-wal.replaced-… and continue without it, with: {ACCEPT}"
    )
    return newest, RolledBack(message, hint=hint)


def _explain_loss(file: DatabaseFile, newest: Mark, *, is_other: bool) -> str:
    """Return what happened to the file that a log belongs to."""
    if file.is_empty:
        return "was deleted"
    if is_other:
        return "was replaced by another store"
    if is_older(file.generation, newest.generation):
        return "was replaced by an older copy"
    return "was replaced by a copy that was changed elsewhere"


def _lacks_all(file: DatabaseFile, writers: list[Mark]) -> bool:
    """Return True if a file has none of the stores that wrote its log.

    A new log can have the identity of a deleted one.
    """
    for mark in writers:
        if mark.page == 0 or file.holds(mark.store_id, mark.page):
            return False
    return bool(writers)


def _is_foreign(mark: Mark, file: DatabaseFile) -> bool:
    """Return True if a log with this mark was written for another content of the file."""
    if file.is_empty:
        return True
    # A power failure can undo a checkpoint of the same file; the log still has the content.
    same_boot = bool(mark.boot) and mark.boot == boot_id()
    if mark.file == file.identity and not same_boot:
        return False
    generation = file.generation
    is_diverged = generation != mark.generation and is_written_elsewhere(generation, mark.file)
    return is_diverged or is_older(generation, mark.generation)


def set_log_aside(path: Path) -> str:
    """Rename a log that does not belong to its file, and return its new name.

    Refused while a process has it open.
    """
    if is_in_use(path):
        raise Conflict(
            f"A process still has the old {path.name} open.",
            hint="Stop all remit processes of this workspace first.",
        )
    memory, log = path.with_name(f"{path.name}-shm"), path.with_name(f"{path.name}-wal")
    memory.unlink(missing_ok=True)
    return log.rename(path.with_name(f"{path.name}-wal.replaced-{time.time_ns()}")).name
