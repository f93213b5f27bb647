"""The roles that remit needs somebody to play, and the values that cross them."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from remit.domain.event import Stored
from remit.domain.project import Change
from remit.domain.table import TABLES

if TYPE_CHECKING:  # only who runs agents pays for it
    from remit.domain.tool import ToolCallRequest, ToolOutcome, ToolSpec

Row = tuple[Any, ...]


class Append(NamedTuple):
    """Events for one stream that must be at `expected` when they land; without events only that is checked."""

    stream: str
    expected: int
    events: tuple[Stored, ...]


class Unit(NamedTuple):
    """What lands together or not at all."""

    appends: tuple[Append, ...]
    changes: tuple[Change, ...]
    dependents: tuple[tuple[int, int], ...] = ()
    """Tasks, and how many others may name them as a dependency."""

    @property
    def first(self) -> Stored:
        """The event by which a store recognises a unit that it has already."""
        return next(event for append in self.appends for event in append.events)


class Stale(Exception):
    """A stream of the unit has moved on; nothing was written."""


class Recorded(NamedTuple):
    """A stored event at its place in the order of the whole store."""

    position: str
    event: Stored


class EventStore(Protocol):
    """Keeps events for ever and the rows that follow from them."""

    async def new_ids(self, count: int) -> list[int]:
        """Numbers that nobody was given before, ascending."""
        ...

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably. Stale if a stream moved on; a unit that is there already is not stored again."""
        ...

    async def select(self, query: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows of a named query (`QUERIES`)."""
        ...

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Events of all streams after a position ("" is the beginning), in the one order every reader sees."""
        ...

    async def tail(self) -> str:
        """The position after which every event of the future comes."""
        ...

    def watch(self) -> AbstractAsyncContextManager["Watch"]:
        """Be told when there may be something new."""
        ...

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store, in one transaction."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go."""
        ...


class Watch(Protocol):
    """A bell that rings when a store has changed."""

    async def wait(self) -> None:
        """Return once something may have changed since the last return; a short while at most."""
        ...


class Clock(Protocol):
    """Time and names."""

    def now(self) -> datetime:
        """This instant, in UTC."""
        ...

    def uid(self) -> str:
        """A UUIDv7."""
        ...


class Agents(Protocol):
    """Who can be given work."""

    def ids(self) -> frozenset[str]:
        """Every known agent."""
        ...


SUMMARY = ("id", "title", "state", "owner", "parent_id", "wait", "priority", "updated_at")

QUESTION = ("interaction_id", "task_id", "question", "options", "blocking", "asked_by", "asked_at", "status", "answer", "answered_by", "answered_at")
PAGE = ("owner", "parent", "parent_session", "root", "label", "states", "state", "before", "limit")

QUERIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "heads": (("streams",), ("stream", "version", "hash")),
    "tasks": (("ids",), ("id", "hash", "doc")),
    "tasks_by_uid": (("uids",), ("id", "uid", "hash", "doc")),
    "list_live": (PAGE, SUMMARY),
    "list_owner": (PAGE, SUMMARY),
    "list_ended": (PAGE, SUMMARY),
    "list_any": (PAGE, SUMMARY),
    "list_parent": (PAGE, SUMMARY),
    "list_session": (PAGE, SUMMARY),
    "list_tree": (PAGE, SUMMARY),
    "list_label": (PAGE, SUMMARY),
    "history": (("before_at", "before", "limit"), (*SUMMARY, "archived_at")),
    "ready": (("now", "priority", "after", "limit"), SUMMARY),
    "in_flight": ((), ("id",)),
    "dependents": (("id",), ("id",)),
    "blocked_by": (("id",), ("id",)),
    "successor": (("id",), ("id",)),
    "path": (("id",), ("id",)),
    "events": (("stream", "after", "limit"), (*Stored._fields, "position")),
    "updates": (("id", "after", "limit"), ("update_id", "type", "content", "status", "run_id", "turn", "at")),
    "interactions": (("statuses", "task", "after", "number", "limit"), QUESTION),
    "interaction": (("interaction",), QUESTION),
    "notifications": (("after_at", "after_id", "limit"), ("notification_id", "task_id", "message", "actor", "at")),
    "runs": (("id",), ("run_id", "worker", "started_at", "ended_at", "outcome", "error")),
    "guides": (("after_id", "limit"), ("id", "title", "created_by", "created_at")),
    "guide": (("names",), ("id", "title", "body", "created_by", "created_at")),
    "counts": ((), ("state", "count")),
    "streams": (("after_id", "limit"), ("stream",)),
    "events_of": (("streams",), Stored._fields),
    **{f"rows_{name}": (("names" if name == "guide" else "ids",), table.columns) for name, table in TABLES.items()},
    **{f"count_{name}": ((), ("count",)) for name in ("event", *TABLES)},
}
"""Every question a store can be asked: by name, its parameters and the columns of its rows, the same on each."""


class ToolHost(Protocol):
    """Does what a sub-agent's tools ask for; one for each run."""

    def specs(self) -> tuple["ToolSpec", ...]:
        """Every tool there is, granted or not."""
        ...

    async def call(self, call: "ToolCallRequest") -> "ToolOutcome":
        """Do one call, if it is granted; whatever goes wrong is an outcome for the model. Nothing of it runs on afterwards."""
        ...

    async def close(self) -> None:
        """Let go of the workspace."""
        ...
