"""High-water marks: what was seen of a store, kept outside of it, so that a store that went back in time is recognized."""

import json
import logging
import os
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from remit.errors import RolledBack
from remit.home import home_folder

log = logging.getLogger("remit.store")

OnRollback = Literal["refuse", "report", "accept"]
"""What opening does with a store that went back in time."""
KEEP_SECONDS = 1.0
"""How often a mark is written at most."""

GENERATIONS = 2**31
"""After how many generations the number starts again at 0: SQLite stores a signed integer."""

ACCEPT = "remit doctor --accept-rollback"
CAUSES = "Something restored an older copy (an undo of another tool, git stash or checkout, a backup)."
HINT = f"Put the newer copy back, or accept the loss with: {ACCEPT}"


class Mark(NamedTuple):
    """The newest state of a store that was seen at a place."""

    store_id: str
    epoch: int
    position: str = ""
    """Of the newest event; empty if there is none."""
    event: str = ""
    """The id of that event: the same position of another history has another one."""
    task_id: int = 0
    """The highest id of a task."""
    place: str = ""
    at: str = ""
    file: str = ""
    """SQLite only: the database file (device and inode)."""
    log: str = ""
    """SQLite only: the write-ahead log beside it; empty if there is none."""
    generation: int = 0
    """SQLite only: the generation of the database file (`sqlite/file.py`)."""
    boot: str = ""
    """SQLite only: the boot of the machine in which it had that generation. A power failure can take back a checkpoint, not the log."""
    page: int = 0
    """SQLite only: the page of the database file that holds the id of the store; 0 if it is not known."""
    highest_position: str = ""
    """The highest position of all epochs: an accepted rollback does not lower it."""
    highest_task_id: int = 0
    """The highest task id of all epochs."""

    @property
    def order(self) -> tuple[int, ...]:
        """The position as numbers: what was seen later is higher."""
        return _order(self.position)

    @property
    def highest_order(self) -> tuple[int, ...]:
        """The highest position of all epochs, as numbers."""
        return _order(self.highest_position)

    def with_highest(self, *others: "Mark | None") -> "Mark":
        """Return this mark with the highest position and task id of itself and of other marks."""
        marks = [self, *(mark for mark in others if mark is not None)]
        positions = [text for mark in marks for text in (mark.position, mark.highest_position)]
        task_ids = [number for mark in marks for number in (mark.task_id, mark.highest_task_id)]
        return self._replace(
            highest_position=max(positions, key=_order),
            highest_task_id=max(task_ids),
        )


_ADDED = ("highest_position", "highest_task_id", "generation", "boot", "page")
"""What marks of older versions lack."""


class Marks:
    """The marks of one place: a file, or a database on a server. A place can have had several stores."""

    def __init__(self, place: str) -> None:
        self.place = place
        name = f"{zlib.crc32(place.encode()):08x}{zlib.adler32(place.encode()):08x}"
        self.folder = marks_folder() / name
        self.problem = ""
        """Why the last mark could not be written."""

    def read(self, store_id: str) -> Mark | None:
        """The mark of a store; None if there is none that can be read."""
        return self._load(self.folder / f"{store_id}.json")

    def all(self) -> list[Mark]:
        """The marks of every store that was seen here."""
        with suppress(OSError):
            return [mark for path in sorted(self.folder.glob("*.json")) if (mark := self._load(path))]
        return []

    def write(self, mark: Mark) -> None:
        """Replace a mark by a newer one. The caller has read the state from the database, so it is durable."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                self._write(mark)
            self.problem = ""
        except OSError as error:
            self.problem = f"{self.folder} cannot be written: {error.strerror or error}"

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Keep other processes from writing a mark of this place meanwhile."""
        import fcntl

        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _write(self, mark: Mark) -> None:
        known = self.read(mark.store_id)
        newest = mark._replace(place=self.place)
        if known is not None:
            if (known.epoch, known.order, known.task_id) > (mark.epoch, mark.order, mark.task_id):
                newest = known  # another process has seen more
            if (known.file, known.boot) == (mark.file, mark.boot):
                generation = known.generation if is_older(mark.generation, known.generation) else mark.generation
                newest = newest._replace(generation=generation)
            newest = newest.with_highest(known, mark)
            if known._replace(at="") == newest._replace(at=""):
                return
        newest = newest.with_highest()
        new = self.folder / f".{os.getpid()}-{os.urandom(4).hex()}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(newest._asdict(), file)
        new.replace(self.folder / f"{mark.store_id}.json")

    def _load(self, path: Path) -> Mark | None:
        try:
            found = json.loads(path.read_bytes())
            kinds = Mark.__annotations__.items()
            values = {name: kind(found[name]) for name, kind in kinds if name in found or name not in _ADDED}
            mark = Mark(**values).with_highest()
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return mark if mark.place == self.place else None


class MarkKeeper:
    """Writes a mark now and then, in a thread of its own: no commit ever waits for it."""

    def __init__(self, write: Callable[[], None]) -> None:
        import threading

        self.write = write
        self._news, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Say that there may be something new."""
        if self._thread is None:
            import threading

            self._thread = threading.Thread(target=self._keep, name="remit-mark", daemon=True)
            self._thread.start()
        self._news.set()

    def close(self) -> None:
        """Write nothing more."""
        self._closed.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            if self._closed.is_set():
                return
            self.write()
            self._closed.wait(KEEP_SECONDS)


def marks_folder() -> Path:
    """Where marks are kept: `$XDG_STATE_HOME/remit/marks`, or below `~/.local/state`."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    if not state.is_absolute():  # relative ones are to be ignored
        state = home_folder(os.environ) / ".local" / "state"
    return state / "remit" / "marks"


def is_older(generation: int, than: int) -> bool:
    """True if a generation came before another one; the numbers start again after the last one."""
    return 0 < (than - generation) % GENERATIONS < GENERATIONS // 2


def next_generation(generation: int) -> int:
    """The generation after another one."""
    return (generation + 1) % GENERATIONS


def went_back(state: Mark, mark: Mark | None, *, holds: bool) -> bool:
    """True if a store has lost something that the mark has; `holds` says whether it has the event of the mark."""
    if mark is None or state.epoch > mark.epoch:
        return False
    return state.epoch < mark.epoch or not holds or state.task_id < mark.task_id


def rolled_back(place: str, state: Mark, mark: Mark) -> RolledBack:
    """The error that says what a store has and what was seen of it."""
    seen = f"at {mark.at}" if mark.at else "by this process"
    details = {"store_id": mark.store_id, "place": place, "position": state.position, "seen_position": mark.position}
    message = f"it has {_counted(state)}, and {_counted(mark)} were seen here {seen}"
    if _counted(state) == _counted(mark):
        message = f"its newest event is not the one that was seen here {seen} at position {mark.position}"
    if state.epoch < mark.epoch:
        message = f"its epoch is {state.epoch}, and epoch {mark.epoch} was seen here {seen}"
    return RolledBack(f"The store {place} went back in time: {message}. {CAUSES}", hint=HINT, details=details)


def say_if_new(place: str, marks: Marks) -> None:
    """Warn that a store begins where another one was."""
    before = [mark for mark in marks.all() if mark.position]
    if not before:
        return
    last = max(before, key=lambda mark: mark.at)
    tasks = "1 task" if last.task_id == 1 else f"{last.task_id} tasks"
    log.warning(
        "The store %s is new. Another one with %s was here until %s; it was deleted or moved away. Ids begin again at 1.",
        place,
        tasks,
        last.at,
    )


def _order(position: str) -> tuple[int, ...]:
    """Return a position as numbers that can be compared."""
    return tuple(int(part) for part in position.split(".") if part)


def _counted(mark: Mark) -> str:
    """The newest event and task in words."""
    event = f"events up to {mark.position}" if mark.position else "no events"
    task = f"tasks up to {mark.task_id}" if mark.task_id else "no tasks"
    return f"{event} and {task}"
