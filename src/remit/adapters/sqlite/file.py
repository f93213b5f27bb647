"""The database file itself: recognizes that another file took its place, or that other content was written into it.

SQLite does not notice while it has a file open. It goes on with a deleted file, and it mixes an older copy with its write-ahead log.

An older copy is recognized by a number in the header of the file, the *generation*. Writers raise it in transactions, and
checkpoints copy it from the log into the file, so the generation of the file never becomes lower. The rest of the content is not examined: a process
that is killed during a checkpoint leaves pages of different times side by side, which the write-ahead log makes whole again.

Another store is recognized by its id, which stands in one page of the file. The page is read through the descriptor that
is open already: SQLite would open one of its own, and closing that would drop the locks of this process.
"""

import os
import threading
from pathlib import Path
from typing import ClassVar

from remit.adapters.mark import is_older
from remit.adapters.sqlite.driver import sqlite3
from remit.errors import RolledBack

DECIDE = "Put the file back, or accept what is there now with: remit doctor --accept-rollback. Running processes then go on."
RESTART = "Put the file back, and running processes go on; or restart them to begin with a new store."
USE_OTHER = "Put the file back, and running processes go on; or restart this process to use it."


GENERATION_OFFSET, GENERATION_BYTES = 68, 4
"""Where the header of a SQLite file has its application id, which holds the generation."""
PAGE_SIZE_OFFSET, PAGE_SIZE_BYTES, LARGEST_PAGE = 16, 2, 65_536
"""Where the header has the size of a page; the largest size is written as 1."""


class _Shared:
    """What all users of a file in this process share."""

    def __init__(self, handle: int) -> None:
        self.handle, self.users = handle, 0
        self.highest_generation = 0


class DatabaseFile:
    """One opened database file. To be opened before SQLite opens it, and closed after SQLite has closed it."""

    _shared: ClassVar[dict[str, _Shared]] = {}
    """One descriptor for each file and process: to close any descriptor of a file drops all locks that the process has on it."""
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._lock:
            status = path.stat()
            known = self._shared.get(identity(status))
            if known is None:
                known = _Shared(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                status = os.fstat(known.handle)
            known.users += 1
            self.identity = identity(status)
            self._shared[self.identity] = self._here = known
        self.store_id = ""
        """The store that is in this file, once it is known."""
        self.page = 0
        """The page that holds the id of that store; 0 if the file does not have it yet."""
        self._beside: dict[Path, str] = {}
        """The log and the shared memory that SQLite uses, once it has opened them."""
        self._must_not_be_older()
        self.is_empty = status.st_size == 0
        """True if the file had no content when it was opened."""

    @property
    def generation(self) -> int:
        """The generation of the file, without what is only in the log; 0 for a file without a header."""
        return int.from_bytes(os.pread(self._here.handle, GENERATION_BYTES, GENERATION_OFFSET), "big")

    @property
    def highest_generation(self) -> int:
        """The highest generation that this process has seen in the file."""
        return self._here.highest_generation

    def check(self) -> None:
        """Raise RolledBack unless the path still leads to this file, and no other content was written into it."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise deleted(self.path) from None
        if identity(status) != self.identity:
            raise self._changed(f"The database file {self.path} was replaced while it was in use")
        self._must_not_be_older()
        if self.page and not self.holds(self.store_id, self.page):
            raise self._changed(f"Other content was written into the database file {self.path} while it was in use")
        for path, known in self._beside.items():
            if _identity_at(path) != known:
                raise self._changed(f"{path} was deleted or replaced while it was in use")

    def know_store(self, store_id: str, page: int) -> None:
        """Check from now on that the file holds this store, whose id is in a page of it."""
        self.store_id = store_id
        self.page = page if self.holds(store_id, page) else 0

    def holds(self, store_id: str, page: int) -> bool:
        """True if a page of the file, without what is only in the log, has the id of a store."""
        raw = os.pread(self._here.handle, PAGE_SIZE_BYTES, PAGE_SIZE_OFFSET)
        size = int.from_bytes(raw, "big")
        size = LARGEST_PAGE if size == 1 else size
        return store_id.encode() in os.pread(self._here.handle, size, (page - 1) * size)

    def keep_beside(self) -> None:
        """Check from now on that the log and the shared memory of SQLite stay where they are; a connection must be open."""
        paths = [self.path.with_name(f"{self.path.name}{suffix}") for suffix in ("-wal", "-shm")]
        self._beside = {path: found for path in paths if (found := _identity_at(path))}

    @property
    def lacks_only_files_beside(self) -> bool:
        """True if the log or the shared memory was deleted, and the database file itself is as it was: no other process wrote since."""
        try:
            is_same = identity(self.path.stat()) == self.identity and self.generation == self._here.highest_generation
        except OSError:
            return False
        found = {path: _identity_at(path) for path in self._beside}
        return is_same and found != self._beside and all(found[path] in ("", known) for path, known in self._beside.items())

    def _must_not_be_older(self) -> None:
        highest = self._here.highest_generation  # read before the file, since other threads check too
        generation = self.generation
        if is_older(generation, highest):
            raise self._changed(f"An older copy was written into the database file {self.path} while it was in use")
        self._here.highest_generation = generation

    @property
    def leads_to_another_store(self) -> bool:
        """True if the file at the path holds another store than the one that was opened."""
        found = store_id_at(self.path)
        return bool(self.store_id and found) and found != self.store_id

    def _changed(self, change: str) -> RolledBack:
        """Return the error for a file that changed while it was in use."""
        if self.leads_to_another_store:
            return another_store(self.path)
        return RolledBack(f"{change}; nothing more is written.", hint=DECIDE)

    def close(self) -> None:
        """Let go of the file, once SQLite has."""
        with self._lock:
            self._here.users -= 1
            if not self._here.users:
                del self._shared[self.identity]
                os.close(self._here.handle)


def another_store(path: Path) -> RolledBack:
    """Return the error for a database file in which another store was put."""
    message = f"Another store was put into the database file {path} while it was in use; nothing more is written."
    return RolledBack(message, hint=USE_OTHER)


def store_id_at(path: Path) -> str:
    """Return the id of the store in a file; empty if there is none that can be read.

    Only the file itself is read: a log beside it can belong to another store. The id of a store is
    written into its file when the store is created.
    """
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        try:
            return str(connection.execute("SELECT id FROM store").fetchone()[0])
        finally:
            connection.close()
    except (sqlite3.Error, TypeError):
        return ""


def boot_id() -> str:
    """This boot of the machine; empty if the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _identity_at(path: Path) -> str:
    """The file at a path; empty if there is none."""
    try:
        return identity(path.stat())
    except OSError:
        return ""


def identity(status: os.stat_result) -> str:
    """A file among all of this machine."""
    return f"{status.st_dev}:{status.st_ino}"


def deleted(path: Path) -> RolledBack:
    """Return the error for a database file that is gone."""
    message = f"The database file {path} was deleted while it was in use; nothing more is written."
    return RolledBack(message, hint=RESTART)


def log_identity(path: Path) -> str:
    """The write-ahead log of a database; empty if there is none with content."""
    try:
        status = path.with_name(f"{path.name}-wal").stat()
    except OSError:
        return ""
    return identity(status) if status.st_size else ""
