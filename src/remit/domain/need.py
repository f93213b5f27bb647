"""What decisions over several tasks ask for, and the plan they come to.

A decision is a generator: it yields what it needs to know (`Load`, `Dependents`, …), is sent the answer, and returns a
`Plan`: the events of each stream, and the streams that must not have changed meanwhile.
"""

from collections.abc import Generator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeVar, cast

from remit.domain import event as ev
from remit.domain.brief import ended_report
from remit.domain.decide import Events
from remit.domain.output import Sought
from remit.domain.record import record
from remit.domain.value import State, Task, Tools
from remit.errors import InvalidParam, no_task


@record
class Load:
    """Tasks by id or uid; the answer maps each of them to its task, or to nothing."""

    refs: tuple[str, ...]


@record
class Dependents:
    """Every task that ever named one as a dependency; the commit checks that there are no more of them by then."""

    task_id: str


@record
class EndedChildren:
    """The subtasks of a task that have ended, by id."""

    task_id: str


@record
class KnownGuides:
    """Which of these guides exist."""

    ids: tuple[str, ...]


@record
class Ends:
    """How each of these tasks has ended; of thousands of them nothing else is worth holding."""

    ids: tuple[str, ...]


class End(NamedTuple):
    """How a task has ended."""

    state: State
    summary: str | None
    failure_reason: str | None
    report: str
    """What another agent is told of it."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """How this task has ended."""
        return cls(task.state, task.summary, task.failure_reason, ended_report(task))


@record
class KnownAgents:
    """Which agents exist."""


@record
class Granted:
    """The tools that an agent has under a grant."""

    agent_id: str
    tools: Tools


@record
class ClaimedKey:
    """What an idempotency key stands for, if anything."""

    stream: str


@record
class Answer:
    """What is known of a question that is not open any more."""

    interaction_id: str


@record
class SeenFiles:
    """What is seen of files of the workspace; nothing of what nobody could look for."""

    files: tuple[Sought, ...]


@record
class NextSlot:
    """The first instant of a calendar after another."""

    cron: str
    after: datetime


@record
class AtStart:
    """A task as it was when it started; nothing if it never did."""

    task_id: str


@record
class LiveOfSeries:
    """The task of a series that has not ended; nothing if all have."""

    series_id: str


@record
class UnattendedSince:
    """Since when the clock of each of these tasks has run without a live worker for its tree.

    Tasks whose tree has a live worker are left out.
    """

    task_ids: tuple[str, ...]


@record
class Fresh:
    """Ids for a new task; asked for last, so that a refused request uses none up."""


@record
class FreshMany:
    """Ids for several new tasks at once, in order."""

    count: int


Need = (
    Load
    | Dependents
    | EndedChildren
    | Ends
    | KnownGuides
    | KnownAgents
    | Granted
    | ClaimedKey
    | Answer
    | SeenFiles
    | NextSlot
    | AtStart
    | LiveOfSeries
    | UnattendedSince
    | Fresh
    | FreshMany
)


NO_ACTORS: Mapping[str, str] = {}


@record
class Plan:
    """The events of each stream, in the order they are appended.

    Nothing may have changed in `guards` meanwhile, and no more tasks may depend on those in `dependents` than it says.
    """

    task_id: str = ""
    events: Mapping[str, tuple[ev.Event | ev.GuideCreated | ev.KeyClaimed, ...]]
    guards: frozenset[str] = frozenset()
    dependents: tuple[tuple[str, int], ...] = ()
    wakes: frozenset[str] = frozenset()
    """Guarded tasks that can run from now on although nothing of them has changed."""
    actors: Mapping[str, str] = NO_ACTORS
    """Streams whose events have another actor than the caller."""
    refused: InvalidParam | None = None
    """What whoever asked is told once the events are stored: that it was refused is one of them."""


T = TypeVar("T")


Asking = Generator[Need, Any, T]


Changes = dict[str, Events]


def the_task(ref: str, field: str = "task_id") -> Asking[Task]:
    """The task that an id means, or the refusal that names the field it came in."""
    found = (yield Load(refs=(ref,)))[ref]
    if found is None:
        raise no_task(ref, field)
    return cast("Task", found)


def below(task: Task) -> Asking[list[Task]]:
    """Every task under one; what has moved to a successor is not under it any more."""
    reached: list[Task] = []
    edge = [task]
    while edge:
        parents = {child.id: parent.id for parent in edge for child in parent.children}
        found: Mapping[str, Task | None] = yield Load(refs=tuple(parents))
        edge = [child for child in found.values() if child is not None and child.parent_id == parents[child.id]]
        reached += edge
    return reached


def planned(task_id: str, changes: Mapping[str, Events], guards: frozenset[str] = frozenset()) -> Plan:
    """A plan of what changes; streams without events are left out."""
    return Plan(task_id=task_id, events={stream: tuple(events) for stream, events in changes.items() if events}, guards=guards)
