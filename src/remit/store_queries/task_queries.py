"""Queries about tasks: documents, pages of lists, and what keeps tasks from starting.

Commands that only read import this module, so it defines no row that they do not need.
"""

from typing import NamedTuple

from remit.store_queries.query import BATCH, Query, TaskNumber

PAGE = (
    "owner",
    "parent",
    "parent_session",
    "session",
    "root",
    "label",
    "states",
    "state",
    "before",
    "limit",
)


class TaskDocument(NamedTuple):
    """A task as its document, with the hash of its last event."""

    id: int
    uid: str
    hash: bytes
    doc: str


class TaskSummary(NamedTuple):
    """A task in a list."""

    id: int
    title: str
    state: str
    owner: str | None
    parent_id: int | None
    wait: str | None
    priority: int
    updated_at: str


class EndedSummary(NamedTuple):
    """A task in the list of ended tasks."""

    id: int
    title: str
    state: str
    owner: str | None
    parent_id: int | None
    wait: str | None
    priority: int
    updated_at: str
    archived_at: str


class UnmetDependency(NamedTuple):
    """A dependency that keeps a task from starting."""

    id: int
    needs: int
    state: str


class TaskStart(NamedTuple):
    """What decides when a task starts; `at` is when its job is due."""

    id: int
    session_id: str | None = None
    not_before: str | None = None
    started_at: str | None = None
    at: str | None = None


class Successors(NamedTuple):
    """The first and the newest task that a task was rerun as."""

    first: int
    newest: int


TASKS = Query("tasks", ("ids",), TaskDocument)
TASKS_BY_UID = Query("tasks_by_uid", ("uids",), TaskDocument)
LIST_LIVE = Query("list_live", PAGE, TaskSummary)
LIST_OWNER = Query("list_owner", PAGE, TaskSummary)
LIST_ENDED = Query("list_ended", PAGE, TaskSummary)
LIST_ANY = Query("list_any", PAGE, TaskSummary)
LIST_PARENT = Query("list_parent", PAGE, TaskSummary)
LIST_SESSION = Query("list_session", PAGE, TaskSummary)
LIST_ASSIGNED = Query("list_assigned", PAGE, TaskSummary)
LIST_TREE = Query("list_tree", PAGE, TaskSummary)
LIST_LABEL = Query("list_label", PAGE, TaskSummary)
HISTORY = Query("history", ("before_at", "before", "limit"), EndedSummary)
READY = Query("ready", ("now", "priority", "after", "limit"), TaskSummary)
JOBLESS = Query("jobless", BATCH, TaskNumber)
IN_FLIGHT = Query("in_flight", (), TaskNumber)
UNMET = Query("unmet", ("ids",), UnmetDependency)
STARTS = Query("starts", ("ids",), TaskStart)
SUCCESSOR = Query("successor", ("id",), Successors)
PATH = Query("path", ("id",), TaskNumber)
