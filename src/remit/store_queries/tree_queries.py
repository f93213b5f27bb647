"""Queries about trees of tasks: how tasks relate and stand, who works on them, what they have
used, and their clocks.
"""

from typing import NamedTuple

from remit.store_queries.query import BATCH, Query, TaskNumber


class TaskHead(NamedTuple):
    """The hash of the last event of a task."""

    hash: bytes


class StateCount(NamedTuple):
    """How many tasks are in a state."""

    state: str
    tasks: int


class TaskState(NamedTuple):
    """The state of a task."""

    id: int
    state: str


class TitledState(NamedTuple):
    """The state and the title of a task."""

    id: int
    state: str
    title: str


class TaskRoot(NamedTuple):
    """The root of a tree."""

    root_id: int


class RootOfTask(NamedTuple):
    """A task and the root of its tree."""

    id: int
    root_id: int


class NeededWorker(NamedTuple):
    """The tree that a worker must serve, and the agent that it must work for (None for any)."""

    id: int
    root_id: int
    agent: str | None


class RootDue(NamedTuple):
    """A tree with a job that can be claimed, and the queue of that job."""

    root_id: int
    queue: str


class Attendance(NamedTuple):
    """When a worker last served a tree."""

    root_id: int
    at: str


class RunningClock(NamedTuple):
    """A task whose time runs while it waits; `at` is when a worker last served its tree."""

    id: int
    root_id: int
    at: str | None


class UnendedTask(NamedTuple):
    """A task that has not ended, and when it last changed."""

    id: int
    updated_at: str


class OwnedTasks(NamedTuple):
    """How many live tasks an agent owns, and the oldest of them."""

    owner: str
    id: int
    tasks: int


class TreeDocument(NamedTuple):
    """The document of a task of a tree."""

    doc: str


class Budget(NamedTuple):
    """What a tree has used or reserved."""

    tokens: int
    cost: float


class RootBudget(NamedTuple):
    """What the tree of a root has used or reserved."""

    id: int
    tokens: int
    cost: float


ROOTS = Query("roots", ("ids",), RootOfTask)
NEEDED_WORKERS = Query("needed_workers", ("ids",), NeededWorker)
ROOTS_IN_USE = Query("roots_in_use", ("ids",), TaskRoot)
ROOTS_NEEDED = Query("roots_needed", ("ids",), TaskRoot)
ROOTS_VIA = Query("roots_via", ("via",), TaskRoot)
ROOTS_DUE = Query("roots_due", ("now",), RootDue)
ATTENDED = Query("attended", ("ids",), Attendance)
CLOCKS = Query("clocks", BATCH, RunningClock)
CLOCKS_OF = Query("clocks_of", ("ids",), RunningClock)
UNENDED = Query("unended", ("ids",), UnendedTask)
OWNERS = Query("owners", (), OwnedTasks)
TREE = Query("tree", ("id",), TreeDocument)
BUDGET = Query("budget", ("id",), Budget)
BUDGETS = Query("budgets", BATCH, RootBudget)
HEAD = Query("head", ("id",), TaskHead)
COUNTS = Query("counts", (), StateCount)
ENDED = Query("ended", ("ids",), TaskState)
STATES = Query("states", ("ids",), TitledState)
RESULT = Query("result", ("key",), TaskNumber)
DEPENDENTS = Query("dependents", ("id",), TaskNumber)
ENDED_CHILDREN = Query("ended_children", ("id",), TaskNumber)
