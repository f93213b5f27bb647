"""The lookups and the plan of a decision about several tasks.

A decision is a generator. It yields lookups (`Load`, `Dependents`, …), receives their results, and
returns a `Plan`: the events of each stream, and the streams that must be unchanged at the commit.
"""

from collections.abc import Generator, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeVar, cast

from remit.domain.decisions.context import Context, Events
from remit.domain.decisions.evolve import fold
from remit.domain.outputs.required_outputs import FileQuery
from remit.domain.prompts.reports import ended_report
from remit.domain.records.record import record
from remit.domain.task import events as ev
from remit.domain.task.task import State, Task, Tools
from remit.errors import InvalidParam, no_task


@record
class Load:
    """Look up tasks by id or uid; the result maps each reference to its task or to None."""

    refs: tuple[str, ...]


@record
class Dependents:
    """Look up all tasks that ever depended on a task; the commit fails if there are more then."""

    task_id: str


@record
class EndedChildren:
    """Look up the ids of the ended subtasks of a task."""

    task_id: str


@record
class KnownGuides:
    """Look up which of these guides exist."""

    ids: tuple[str, ...]


@record
class TaskEnds:
    """Look up only how each task ended, to save memory if there are thousands."""

    ids: tuple[str, ...]


class End(NamedTuple):
    """How a task ended."""

    state: State
    summary: str | None
    failure_reason: str | None
    report: str
    """The report for another agent."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return how this task ended."""
        return cls(task.state, task.summary, task.failure_reason, ended_report(task))


@record
class KnownAgents:
    """Look up the ids of all agents."""


@record
class Granted:
    """Look up the tools that an agent has under a grant."""

    agent_id: str
    tools: Tools


@record
class KnownTools:
    """Look up the names of all tools that this process knows."""


@record
class ClaimedKey:
    """Look up the KeyClaimed event of an idempotency key; None if the key is unused."""

    stream: str


@record
class Answer:
    """Look up the status and answer of a question; None if it does not exist."""

    interaction_id: str


@record
class SeenFiles:
    """Look up files of the workspace; the result omits files that could not be checked."""

    files: tuple[FileQuery, ...]


@record
class NextSlot:
    """Look up the first time of a cron expression after an instant."""

    cron: str
    after: datetime


@record
class TaskAtStart:
    """Look up a task as it was when it started; None if it never started."""

    task_id: str


@record
class LiveOfSeries:
    """Look up the task of a series that has not ended; None if all have ended."""

    series_id: str


@record
class UnattendedSince:
    """Look up since when the clocks of tasks run without a live worker for their tree.

    The result omits tasks whose tree has a live worker.
    """

    task_ids: tuple[str, ...]


@record
class UsageInStore:
    """Look up the `StoredUsage` of tasks."""

    task_ids: tuple[str, ...]


@record
class NewTaskIds:
    """Allocate ids for a new task; yielded last, so that a refused request uses none."""


@record
class ManyTaskIds:
    """Allocate ids for several new tasks, in order."""

    count: int


Lookup = (
    Load
    | Dependents
    | EndedChildren
    | TaskEnds
    | KnownGuides
    | KnownAgents
    | Granted
    | KnownTools
    | ClaimedKey
    | Answer
    | SeenFiles
    | NextSlot
    | TaskAtStart
    | LiveOfSeries
    | UnattendedSince
    | UsageInStore
    | NewTaskIds
    | ManyTaskIds
)


NO_ACTORS: Mapping[str, str] = {}


@record
class Plan:
    """The events of each stream, in the order in which they are appended.

    At the commit, the streams in `guards` must be unchanged, and the tasks in `dependents` must
    not have more dependents than stated.
    """

    task_id: str = ""
    events: Mapping[str, tuple[ev.Event | ev.GuideCreated | ev.KeyClaimed, ...]]
    guards: frozenset[str] = frozenset()
    dependents: tuple[tuple[str, int], ...] = ()
    wakes: frozenset[str] = frozenset()
    """Guarded tasks that can run now although they have no new events."""
    actors: Mapping[str, str] = NO_ACTORS
    """The actors of streams whose events are not by the caller."""
    refused: InvalidParam | None = None
    """The error for the caller, raised after the events are stored, which record the refusal."""


T = TypeVar("T")


Lookups = Generator[Lookup, Any, T]


Changes = dict[str, Events]


def find_task(ref: str, field: str = "task_id") -> Lookups[Task]:
    """Return the task with an id or uid; the error for an unknown one names the field."""
    found = (yield Load(refs=(ref,)))[ref]
    if found is None:
        raise no_task(ref, field)
    return cast("Task", found)


def load_tasks(refs: Iterable[str]) -> Lookups[list[Task]]:
    """Return the tasks with these ids, without unknown ones."""
    wanted = tuple(refs)
    if not wanted:
        return []
    found: Mapping[str, Task | None] = yield Load(refs=wanted)
    return list(filter(None, found.values()))


def live_parent(task: Task) -> Lookups[Task | None]:
    """Return the parent of a task; None if it has none, or an ended one."""
    if task.parent_id is None:
        return None
    parent = yield from find_task(task.parent_id, "parent_id")
    return None if parent.state.terminal else parent


def ancestors(task: Task) -> Lookups[list[Task]]:
    """Return all ancestors of a task, its parent first."""
    above: list[Task] = []
    while task.parent_id is not None:
        task = yield from find_task(task.parent_id, "parent_id")
        above.append(task)
    return above


def descendants(task: Task) -> Lookups[list[Task]]:
    """Return all descendants of a task, without those that moved to a successor."""
    reached: list[Task] = []
    edge = [task]
    while edge:
        parents = {child.id: parent.id for parent in edge for child in parent.children}
        found = yield from load_tasks(parents)
        edge = [child for child in found if child.parent_id == parents[child.id]]
        reached += edge
    return reached


def streams_with(decided: Plan, kinds: tuple[type[Any], ...]) -> list[str]:
    """Return the streams of a plan that get an event of one of these types."""
    return [stream for stream, events in decided.events.items() if ev.includes(events, kinds)]


def fold_plan(task: Task, decided: Plan, context: Context) -> Task:
    """Return a task as it will be once the events of a plan are stored."""
    happened = [event for event in decided.events[task.id] if isinstance(event, ev.Event)]
    return fold(task, happened, context)


def make_plan(
    task_id: str, changes: Mapping[str, Events], guards: frozenset[str] = frozenset()
) -> Plan:
    """Return a plan with these changes, without streams that have no events."""
    return Plan(
        task_id=task_id,
        events={stream: tuple(events) for stream, events in changes.items() if events},
        guards=guards,
    )
