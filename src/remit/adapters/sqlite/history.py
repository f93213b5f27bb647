"""Whether a database file goes on from what was seen of it before: its state, its mark, and the log beside it."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from remit.adapters.mark import HINT, Mark, Marks, is_older, rolled_back, went_back
from remit.adapters.sqlite import sql
from remit.adapters.sqlite.file import DatabaseFile, boot_id, log_identity
from remit.errors import Conflict, RolledBack

OPEN_BYTE = 128
"""A byte of the shared memory beside the log: every process that has the database open holds a lock on it (`unixShmNode`)."""
RECHECK_SECONDS, RECHECKS = 0.1, 5


class State(NamedTuple):
    """What a database holds, and where its next event must stand if that is not right after the last one."""

    mark: Mark
    floor: int

    @property
    def first_position(self) -> int | None:
        """The position of the next event, where a gap comes before it."""
        return self.floor + 1 if int(self.mark.position or 0) < self.floor else None


def read_state(connection: Any) -> State:
    """The state of a database as it is now."""
    store_id, epoch, position, event, task_id, floor = connection.execute(sql.STATE).fetchone()
    return State(Mark(store_id, epoch, position, event, task_id), floor)


def holds(connection: Any, mark: Mark) -> bool:
    """True if the event of a mark is in the database."""
    if not mark.position:
        return True
    found = connection.execute(sql.EVENT_ID, (int(mark.position),)).fetchone()
    return found is not None and found[0] == mark.event


def marks_of(path: Path) -> Marks:
    """The marks of a file, by whatever links it is reached."""
    return Marks(os.path.realpath(path))


def found_rollback(connection: Any, marks: Marks) -> tuple[Mark, RolledBack | None]:
    """The mark of a database, and the error if the database has gone back behind it."""
    # The mark is read before the state: another process may commit and mark in between.
    store_id = read_state(connection).mark.store_id
    mark = marks.read(store_id)
    state = read_state(connection).mark
    if mark is None or not went_back(state, mark, holds=holds(connection, mark)):
        return state, None
    return mark, rolled_back(marks.place, state, mark)


def foreign_log(path: Path, file: DatabaseFile, marks: Marks) -> tuple[Mark, RolledBack] | None:
    """The mark of a write-ahead log that was written for another content of the file, and the error.

    SQLite would mix both.
    """
    found: list[Mark] = []
    is_other = False
    for _ in range(RECHECKS):
        log = log_identity(path)
        writers = [mark for mark in marks.all() if log and mark.log == log]
        is_other = not file.is_empty and _lacks_all(file, writers)
        found = writers if is_other else [mark for mark in writers if _is_foreign(mark, file)]
        if not found:
            return None
        time.sleep(RECHECK_SECONDS)  # a process that has just opened the file is about to write the mark
    copy = "another store" if is_other else "an older copy"
    lost = "was deleted" if file.is_empty else f"was replaced by {copy}"
    message = f"The database file {path} {lost}, but its write-ahead log {path.name}-wal was not: they do not fit."
    newest = max(found, key=lambda mark: mark.at)
    return newest, RolledBack(message, hint=HINT)


def _lacks_all(file: DatabaseFile, writers: list[Mark]) -> bool:
    """True if a file has none of the stores that wrote its log; a new log can have the identity of a deleted one."""
    return bool(writers) and not any(mark.page == 0 or file.holds(mark.store_id, mark.page) for mark in writers)


def _is_foreign(mark: Mark, file: DatabaseFile) -> bool:
    if file.is_empty:
        return True
    # A power failure can take back a checkpoint of the same file, and then the log still has what it wrote.
    same_boot = bool(mark.boot) and mark.boot == boot_id()
    return is_older(file.generation, mark.generation) and (same_boot or mark.file != file.identity)


def set_log_aside(path: Path) -> None:
    """Rename a log that does not belong to its file; refused while a process has it open."""
    import fcntl

    memory, log = path.with_name(f"{path.name}-shm"), path.with_name(f"{path.name}-wal")
    with suppress(FileNotFoundError):
        handle = os.open(memory, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, OPEN_BYTE)
        except OSError:
            raise Conflict(f"A process still has the old {path.name} open.", hint="Stop all remit processes of this workspace first.") from None
        finally:
            os.close(handle)
        memory.unlink()
    log.rename(path.with_name(f"{path.name}-wal.replaced-{time.time_ns()}"))
