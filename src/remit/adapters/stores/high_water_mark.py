"""High-water marks: the last known state of each store, kept outside of it, to detect a rolled-back
store.
"""

import json
import logging
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from remit.adapters.state_files import locked, replace_json, state_folder
from remit.errors import RolledBack

log = logging.getLogger("remit.store")

OnRollback = Literal["refuse", "report", "accept"]
"""How opening handles a store that was rolled back."""
KEEP_SECONDS = 1.0
"""The minimum time between two writes of a mark."""

GENERATIONS = 2**31
"""After how many generations the number starts again at 0: SQLite stores a signed integer."""
TAGS = 2**10
"""A generation is a count, times this, plus the tag of the file into which it was written."""

LAST = "last"
"""The file with the id of the store that was opened last, and of the one before it."""

ACCEPT = "`remit doctor --accept-rollback`"
HINT = f"Put the newer copy back, or accept the loss with: {ACCEPT}"

KEEP_OR_RETURN = (
    "Put the copy of epoch {epoch} back, or keep this one and lose what was written since, with:"
    f" {ACCEPT}"
)


class Mark(NamedTuple):
    """The newest state of a store that was seen at a place."""

    store_id: str
    epoch: int
    position: str = ""
    """The id of the newest event; empty if there is none."""
    event: str = ""
    """The id of that event: the same position of another history has another one."""
    task_id: int = 0
    """The highest id of a task."""
    place: str = ""
    at: str = ""
    file: str = ""
    """SQLite only: the database file (device and inode)."""
    log: str = ""
    """SQLite only: the write-ahead log beside the file; empty if there is none."""
    generation: int = 0
    """SQLite only: the generation of the database file (`sqlite/file.py`)."""
    boot: str = ""
    """SQLite only: the boot of the machine in which it had that generation.

    A power failure can take back a checkpoint, not the log.
    """
    page: int = 0
    """SQLite only: the page of the database file with the id of the store; 0 if unknown."""
    highest_position: str = ""
    """The highest position of all epochs: an accepted rollback does not lower it."""
    highest_task_id: int = 0
    """The highest task id of all epochs."""
    commits: int = 0
    """How many commits stored no event.

    The turns of a run write messages and calls, but no events.
    """

    @property
    def order(self) -> tuple[int, ...]:
        """The position as numbers: a later state is higher."""
        return _order(self.position)

    @property
    def highest_order(self) -> tuple[int, ...]:
        """The highest position of all epochs, as numbers."""
        return _order(self.highest_position)

    def with_highest(self, *others: "Mark | None") -> "Mark":
        """Return this mark with the highest position and task id of itself and of other marks."""
        positions: list[str] = []
        task_ids: list[int] = []
        for mark in filter(None, (self, *others)):
            positions += [mark.position, mark.highest_position]
            task_ids += [mark.task_id, mark.highest_task_id]
        return self._replace(
            highest_position=max(positions, key=_order),
            highest_task_id=max(task_ids),
        )

    def newest_with(self, other: "Mark") -> "Mark":
        """Return the newer one of two marks of a store, with the most commits of its epoch."""
        newer, older = self, other
        if (other.epoch, other.order, other.task_id) > (self.epoch, self.order, self.task_id):
            newer, older = other, self
        if older.epoch == newer.epoch:
            newer = newer._replace(commits=max(older.commits, newer.commits))
        return newer


_ADDED = ("highest_position", "highest_task_id", "generation", "boot", "page", "commits")
"""The fields that marks of older versions lack."""


class Marks:
    """The marks of one place: a file, or a database on a server.

    A place can have had several stores.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        name = f"{zlib.crc32(place.encode()):08x}{zlib.adler32(place.encode()):08x}"
        self.folder = marks_folder() / name
        self.problem = ""
        """Why the last mark could not be written."""

    def read(self, store_id: str) -> Mark | None:
        """Return the mark of a store; None if there is none that can be read."""
        return self._load(self.folder / f"{store_id}.json")

    def all(self) -> list[Mark]:
        """Return the marks of every store that was seen here."""
        with suppress(OSError):
            found = map(self._load, sorted(self.folder.glob("*.json")))
            return list(filter(None, found))
        return []

    def write(self, mark: Mark) -> None:
        """Replace a mark by a newer one.

        The caller has read the state from the database, so it is durable.
        """
        try:
            with locked(self.folder):
                self._write(mark)
            self.problem = ""
        except OSError as error:
            self.problem = f"{self.folder} cannot be written: {error.strerror or error}"

    def is_last(self, store_id: str) -> bool:
        """Return True if this store was the last one that was opened here, or the only one."""
        last = self._read_last()[0]
        if last:
            return last == store_id
        return all(mark.store_id == store_id for mark in self.all())

    def last_store(self) -> Mark | None:
        """Return the mark of the store that was opened here last."""
        last = self._read_last()[0]
        if last:
            return self.read(last)
        # Older versions remembered only when each store was seen.
        return max(self.all(), key=lambda mark: mark.at, default=None)

    def store_before(self) -> Mark | None:
        """Return the mark of the store that was here before the one that was opened last."""
        before = self._read_last()[1]
        if not before:
            return None
        return self.read(before)

    def remember(self, store_id: str, before: Mark | None) -> None:
        """Remember which store is here now, and which one was here before."""
        ids = [store_id, "" if before is None else before.store_id]
        with suppress(OSError):
            replace_json(self.folder / LAST, ids)

    def _read_last(self) -> tuple[str, str]:
        """Return the ids of the last store and of the one before; empty if unknown."""
        try:
            last, before = json.loads((self.folder / LAST).read_bytes())
        except (OSError, ValueError, TypeError):
            return "", ""
        return str(last), str(before)

    def _write(self, mark: Mark) -> None:
        """Merge a mark with the stored one, and write it if something changed."""
        known = self.read(mark.store_id)
        newest = mark._replace(place=self.place)
        if known is not None:
            newest = newest.newest_with(known)  # another process can have seen more
            if (known.file, known.boot) == (mark.file, mark.boot):
                generation = newer_generation(mark.generation, known.generation)
                newest = newest._replace(generation=generation)
            newest = newest.with_highest(known, mark)
            if known._replace(at="") == newest._replace(at=""):
                return
        newest = newest.with_highest()
        replace_json(self.folder / f"{mark.store_id}.json", newest._asdict())

    def _load(self, path: Path) -> Mark | None:
        """Return the mark in a file; None if it is not one of this place."""
        mark = _load_mark(path)
        if mark is None or mark.place != self.place:
            return None
        return mark


def places_of(file: str) -> set[str]:
    """Return the places where a SQLite file (device and inode) was seen: hard links have
    several.
    """
    with suppress(OSError):
        found = map(_load_mark, marks_folder().glob("*/*.json"))
        return {mark.place for mark in filter(None, found) if mark.file == file}
    return set()


def _load_mark(path: Path) -> Mark | None:
    """Return the mark in a file; None if there is none that can be read."""
    try:
        found = json.loads(path.read_bytes())
        kinds = Mark.__annotations__.items()
        values = {
            name: kind(found[name]) for name, kind in kinds if name in found or name not in _ADDED
        }
        return Mark(**values).with_highest()
    except (OSError, ValueError, TypeError, KeyError):
        return None


class MarkKeeper:
    """Writes a mark periodically, in a separate thread: commits never wait for it."""

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
        """Write the mark after each wake, until closed."""
        while True:
            self._news.wait()
            self._news.clear()
            if self._closed.is_set():
                return
            try:
                self.write()
            except Exception:
                log.exception("The mark of the store could not be written; it is tried again.")
            self._closed.wait(KEEP_SECONDS)


def marks_folder() -> Path:
    """Return the folder of the marks: `$XDG_STATE_HOME/remit/marks`, or below `~/.local/state`."""
    return state_folder() / "marks"


def is_older(generation: int, than: int) -> bool:
    """Return True if a generation came before another one; the numbers start again after the last
    one.
    """
    return 0 < (than - generation) % GENERATIONS < GENERATIONS // 2


def newer_generation(first: int, second: int) -> int:
    """Return the later one of two generations."""
    if is_older(first, second):
        return second
    return first


def next_generation(generation: int, file: str) -> int:
    """Return the generation after another one, for a file (device and inode)."""
    return ((generation // TAGS + 1) * TAGS + _tag(file)) % GENERATIONS


def is_written_elsewhere(generation: int, file: str) -> bool:
    """Return True if a generation was written into another file than this one (device and
    inode).
    """
    return generation % TAGS != _tag(file)


def _tag(file: str) -> int:
    """Return the inode alone: one file can have several device numbers, as in containers."""
    return int(file.rpartition(":")[2] or 0) % TAGS


def has_gone_back(state: Mark, mark: Mark, *, holds: bool) -> bool:
    """Return True if a store lacks something that the mark has.

    `holds` says whether it has the event of the mark.
    """
    if state.epoch != mark.epoch:
        return state.epoch < mark.epoch
    return not holds or state.task_id < mark.task_id or state.commits < mark.commits


def rollback_error(place: str, state: Mark, mark: Mark, causes: str) -> RolledBack:
    """Return the error with the state of a store and the state that was seen of it.

    `causes` names what can restore an older copy of such a store.
    """
    seen = f"at {mark.at}" if mark.at else "by this process"
    details = {
        "store_id": mark.store_id,
        "place": place,
        "position": state.position,
        "seen_position": mark.position,
    }
    message = f"it has {_count(state)}, and {_count(mark)} were seen here {seen}"
    if (state.event, state.task_id) == (mark.event, mark.task_id):
        lacking = mark.commits - state.commits
        message = (
            f"it has the same events, but lacks {lacking} commits of turns of agents' runs that"
            f" were seen here {seen}"
        )
    elif _count(state) == _count(mark):
        message = (
            f"its newest event is not the one at position {mark.position} that was seen here {seen}"
        )
    if state.epoch < mark.epoch:
        hint = KEEP_OR_RETURN.format(epoch=mark.epoch)
        text = _describe_earlier_epoch(place, state, mark, seen)
        return RolledBack(text, hint=hint, details=details)
    if state.order > mark.order:
        text = _describe_divergence(place, state, mark, seen)
        return RolledBack(text, hint=HINT, details=details)
    return RolledBack(
        f"The store {place} went back in time: {message}. An older copy was restored ({causes}).",
        hint=HINT,
        details=details,
    )


def _describe_earlier_epoch(place: str, state: Mark, mark: Mark, seen: str) -> str:
    """Return the message for a copy from before an accepted rollback."""
    return (
        f"The store {place} is a copy from before a rollback was accepted: its epoch is"
        f" {state.epoch}, and epoch {mark.epoch} was seen here {seen}. It has {_count(state)};"
        f" epoch {mark.epoch} had {_count(mark)}. Each of the two can have tasks that the other"
        " one lacks."
    )


def _describe_divergence(place: str, state: Mark, mark: Mark, seen: str) -> str:
    """Return the message for a store that has newer events, but not everything that was seen."""
    lacking = f"the event at {mark.position} that was"
    if state.commits < mark.commits:
        lacking = f"all turns of agents' runs up to the event at {mark.position} that were"
    return (
        f"The store {place} went back in time and diverged: it has {_count(state)}, but not"
        f" {lacking} seen here {seen}, when there were tasks up to {mark.task_id}. An older copy"
        " was changed elsewhere; what was written here after that copy was made is not in it."
    )


def say_if_other(marks: Marks, state: Mark) -> None:
    """Warn that another store was here before, and remember the one that is here now."""
    if marks.is_last(state.store_id):
        return
    last = marks.last_store()
    if last is not None and last.position and last.store_id != state.store_id:
        if state.position:
            _say_other(marks.place, state, last)
        else:
            _say_new(marks.place, last)
    marks.remember(state.store_id, last)


def _say_new(place: str, last: Mark) -> None:
    log.warning(
        "The store %s is new. Another one with %s was here until %s; it was deleted or moved away."
        " Ids begin again at 1.",
        place,
        _tasks(last),
        last.at,
    )


def _say_other(place: str, state: Mark, last: Mark) -> None:
    log.warning(
        "The store at %s was replaced: it is now %s with %s. Until %s it was %s with %s. If you did"
        " not replace it, put the earlier one back.",
        place,
        state.store_id,
        _tasks(state),
        last.at,
        last.store_id,
        _tasks(last),
    )


def _tasks(mark: Mark) -> str:
    if mark.task_id == 1:
        return "1 task"
    return f"{mark.task_id} tasks"


def _order(position: str) -> tuple[int, ...]:
    """Return a position as numbers that can be compared."""
    return tuple(int(part) for part in position.split(".") if part)


def _count(mark: Mark) -> str:
    """Return the newest event and task in words."""
    event = f"events up to {mark.position}" if mark.position else "no events"
    task = f"tasks up to {mark.task_id}" if mark.task_id else "no tasks"
    return f"{event} and {task}"
