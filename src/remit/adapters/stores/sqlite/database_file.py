"""The database file: detects that another file took its place, or that other content was written
into it.

SQLite does not notice this while the file is open. It continues with a deleted file, and it mixes
an older copy with its write-ahead log.

An older copy is detected by a number in the header of the file, the *generation*. Writers raise it
in transactions, and checkpoints copy it from the log into the file, so it never decreases. The rest
of the content is not examined: a process that is killed during a checkpoint leaves pages of
different times, which the write-ahead log repairs.

A copy of the same store that was changed elsewhere is detected by the tag in its generation, which
comes from the inode of the file into which the generation was written.

Another store is detected by its id, which is in one page of the file. The page is read through the
open descriptor: SQLite would open another one, and closing that would drop the locks of this
process.
"""

import os
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from remit.adapters.stores.high_water_mark import is_older, is_written_elsewhere
from remit.adapters.stores.sqlite.driver import scalar, sqlite3
from remit.errors import RolledBack

DECIDE = (
    "Put the file back, or accept what is there now with: `remit doctor --accept-rollback`."
    " Running processes then continue."
)
RESTART = (
    "Put the file back, and running processes continue; or restart them to begin with a new store."
)
USE_OTHER = "Put the file back, and running processes continue; or restart this process to use it."
SET_ASIDE = (
    "Put the file back, and running processes continue; or set the log of this store aside as"
    " {name}-wal.replaced-… with: `remit doctor --accept-rollback`. Then restart this process to"
    " use the other store."
)


OPEN_BYTE = 128
"""A byte of the shared memory beside the log: every process that has the database open locks it
(`unixShmNode`).
"""
SEARCH_BYTES = 2**20
"""The number of bytes per read when a file is searched."""
GENERATION_OFFSET, GENERATION_BYTES = 68, 4
"""The offset of the application id in the header of a SQLite file; it contains the generation."""
TIMESTAMP_NANOSECONDS = 50_000_000
"""Two writes that are further apart than this have different times on common file systems."""
PAGE_SIZE_OFFSET, PAGE_SIZE_BYTES, LARGEST_PAGE = 16, 2, 65_536
"""The offset of the page size in the header; the largest size is written as 1."""


class _Shared:
    """The state that all users of a file in this process share."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.places: list[str] = []
        """The path of each user, without symbolic links."""
        self.highest_generation: int | None = None
        self.opened_generation = 0
        """The generation when the store was opened, including the log: a checkpoint can copy it
        into the file.
        """
        self.store_id = ""
        """The store that is in this file, once it is known."""
        self.page = 0
        """The page with the id of that store; 0 if the file does not have it yet."""


class DatabaseFile:
    """One opened database file.

    Open it before SQLite opens the file, and close it after SQLite has closed the file.
    """

    _shared: ClassVar[dict[str, _Shared]] = {}
    """One descriptor for each file and process: to close any descriptor of a file drops all
    locks that the process has on it.
    """
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._lock:
            status = path.stat()
            known = self._shared.get(identity(status))
            if known is None:
                known = _Shared(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                status = os.fstat(known.handle)
            self._place = os.path.realpath(path)
            known.places.append(self._place)
            self.identity = identity(status)
            self._shared[self.identity] = self._here = known
        self._beside: dict[Path, str] = {}
        """The log and the shared memory that SQLite uses, once it has opened them."""
        try:
            self._must_hold_our_content()
        except RolledBack:
            self.close()
            raise
        self.was_empty = status.st_size == 0
        """True if the file had no content when it was opened."""

    @property
    def is_empty(self) -> bool:
        """True if the file has no content; another process can create a store at any moment."""
        return os.fstat(self._here.handle).st_size == 0

    @property
    def has_several_names(self) -> bool:
        """True if the file has hard links."""
        return os.fstat(self._here.handle).st_nlink > 1

    @contextmanager
    def places_in_this_process(self) -> Generator[Sequence[str]]:
        """Yield the paths by which this process has the file open.

        It opens no other path during the block.
        """
        with self._lock:
            yield self._here.places

    @property
    def generation(self) -> int:
        """The generation of the file, without the log; 0 for a file without a header."""
        return int.from_bytes(
            os.pread(self._here.handle, GENERATION_BYTES, GENERATION_OFFSET), "big"
        )

    @property
    def changed_at(self) -> int | None:
        """When the file was last written, in nanoseconds; None if a later write could have the
        same time. Only checkpoints write into the file.
        """
        changed_at = os.fstat(self._here.handle).st_mtime_ns
        return changed_at if time.time_ns() - changed_at > TIMESTAMP_NANOSECONDS else None

    @property
    def highest_generation(self) -> int:
        """The highest generation that this process has seen in the file."""
        return self._here.highest_generation or 0

    def check(self) -> None:
        """Raise RolledBack unless the path still leads to this file, and no other content was
        written into it.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise deletion_error(self.path) from None
        if identity(status) != self.identity:
            raise self._change_error(
                f"The database file {self.path} was replaced while it was in use"
            )
        self._must_hold_our_content()
        for path, known in self._beside.items():
            if _identity_at(path) != known:
                raise self._change_error(f"{path} was deleted or replaced while it was in use")

    @property
    def page(self) -> int:
        """The page with the id of the store; 0 if the file does not have it yet."""
        return self._here.page

    def know_store(self, store_id: str, page: int, generation: int) -> None:
        """Check from now on that the file is this store: its id is in a page of the file, and it
        was opened with this generation.
        """
        self._here.store_id = store_id
        self._here.opened_generation = generation
        self._here.page = 0
        if self.holds(store_id, page):
            self._here.page = page

    def holds(self, store_id: str, page: int) -> bool:
        """Return True if the file, without the log, has the id of a store.

        VACUUM moves the id to another page, so the whole file is searched if the page lacks it.
        """
        raw = os.pread(self._here.handle, PAGE_SIZE_BYTES, PAGE_SIZE_OFFSET)
        size = int.from_bytes(raw, "big")
        if size == 1:
            size = LARGEST_PAGE
        known = os.pread(self._here.handle, size, (page - 1) * size)
        return store_id.encode() in known or self._contains(store_id.encode())

    def _contains(self, text: bytes) -> bool:
        """Return True if the file has a text anywhere; read by the descriptor that is open
        already.
        """
        offset = 0
        while chunk := os.pread(self._here.handle, SEARCH_BYTES, offset):
            if text in chunk:
                return True
            # The last bytes are read again, because a text can begin in them.
            offset += max(len(chunk) - len(text) + 1, 1)
        return False

    def keep_beside(self) -> None:
        """Check from now on that the log and the shared memory of SQLite stay where they are.

        A connection must be open.
        """
        paths = [self.path.with_name(f"{self.path.name}{suffix}") for suffix in ("-wal", "-shm")]
        self._beside = {path: found for path in paths if (found := _identity_at(path))}

    @property
    def lacks_only_files_beside(self) -> bool:
        """True if the log or the shared memory was deleted, and the database file itself is as
        it was: no other process wrote since.
        """
        try:
            is_same = (
                identity(self.path.stat()) == self.identity
                and self.generation == self._here.highest_generation
            )
        except OSError:
            return False
        found = {path: _identity_at(path) for path in self._beside}
        return (
            is_same
            and found != self._beside
            and all(found[path] in ("", known) for path, known in self._beside.items())
        )

    def _must_hold_our_content(self) -> None:
        """Raise RolledBack if other content was written into the file.

        Only a generation of our own store is remembered.
        """
        here = self._here
        highest = here.highest_generation  # read before the file, because other threads check too
        generation = self.generation
        if here.page and not self.holds(here.store_id, here.page):
            raise self._change_error(
                f"Other content was written into the database file {self.path} while it was in use"
            )
        if highest is not None and is_older(generation, highest):
            raise self._change_error(
                f"An older copy was written into the database file {self.path} while it was in use"
            )
        is_known = highest is None or generation in (highest, here.opened_generation)
        if not is_known and is_written_elsewhere(generation, self.identity):
            raise self._change_error(
                f"A copy that was changed elsewhere was written into the database file {self.path}"
                " while it was in use"
            )
        here.highest_generation = generation

    @property
    def leads_to_another_store(self) -> bool:
        """True if the file at the path is not the store that was opened."""
        found = store_id_at(self.path)
        return bool(self._here.store_id and found) and found != self._here.store_id

    def _change_error(self, change: str) -> RolledBack:
        """Return the error for a file that changed while it was in use."""
        if self.leads_to_another_store:
            return self.another_store()
        return RolledBack(f"{change}; nothing more is written.", hint=DECIDE)

    def another_store(self) -> RolledBack:
        """Return the error for another store in this file."""
        log = self.path.with_name(f"{self.path.name}-wal")
        message = (
            f"Another store was put into the database file {self.path} while it was in use; nothing"
            " more is written."
        )
        found = log_identity(self.path)
        if found and self._beside.get(log) == found:
            return RolledBack(message, hint=SET_ASIDE.format(name=self.path.name))
        return RolledBack(message, hint=USE_OTHER)

    def close(self) -> None:
        """Close the file; call this only after SQLite has closed it."""
        with self._lock:
            self._here.places.remove(self._place)
            if not self._here.places:
                del self._shared[self.identity]
                os.close(self._here.handle)


def store_id_at(path: Path) -> str:
    """Return the id of the store in a file; empty if it cannot be read.

    Only the file itself is read: a log beside it can belong to another store. The id of a store is
    written into its file when the store is created.
    """
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        try:
            return str(scalar(connection, "SELECT id FROM store"))
        finally:
            connection.close()
    except (sqlite3.Error, TypeError):
        return ""


def boot_id() -> str:
    """Return the id of this boot of the machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _identity_at(path: Path) -> str:
    """Return the file at a path; empty if there is none."""
    try:
        return identity(path.stat())
    except OSError:
        return ""


def identity(status: os.stat_result) -> str:
    """Return the identity of a file, unique on this machine."""
    return f"{status.st_dev}:{status.st_ino}"


def deletion_error(path: Path) -> RolledBack:
    """Return the error for a database file that is gone."""
    message = f"The database file {path} was deleted while it was in use; nothing more is written."
    return RolledBack(message, hint=RESTART)


def log_identity(path: Path) -> str:
    """Return the write-ahead log of a database; empty if there is none with content."""
    try:
        status = path.with_name(f"{path.name}-wal").stat()
    except OSError:
        return ""
    if not status.st_size:
        return ""
    return identity(status)


def is_in_use(path: Path) -> bool:
    """Return True if another process has the database open by this name.

    This process must not have it open: its locks would be dropped.
    """
    import fcntl

    try:
        handle = os.open(path.with_name(f"{path.name}-shm"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, OPEN_BYTE)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
