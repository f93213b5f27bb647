"""Tasks with a calendar recur: the end of one creates that of the next slot, until one is canceled."""

from datetime import datetime

from remit.domain import event as ev
from remit.domain.create import NewIds, successor
from remit.domain.decide import Context, fold
from remit.domain.need import Asking, AtStart, Fresh, LiveOfSeries, Load, NextSlot, Plan
from remit.domain.record import replace
from remit.domain.value import Schedule, State, Step, Task

SCHEDULER = "system:scheduler"
"""Who creates the next task of a series."""


def recurs(task: Task) -> bool:
    """True for a task of a series: it has a calendar and no parent."""
    return cron_of(task) is not None and task.parent_id is None


def cron_of(task: Task) -> str | None:
    """The calendar of a task, if it has one of its own."""
    return task.schedule.cron if task.schedule is not None else None


def series_of(task: Task) -> str:
    """The id of a series: that of its first task."""
    return task.series_id or task.id


def live_of_series(task: Task) -> Asking[Task | None]:
    """The task of the series of an ended task that is still to be done, if the series continues."""
    if not recurs(task):
        return None
    live: Task | None = yield LiveOfSeries(series_id=series_of(task))
    return live


def continued(decided: Plan, context: Context) -> Asking[Plan]:
    """A plan with the next task of each series of which a task ends by it, in the same commit."""
    ended = [stream for stream, events in decided.events.items() if any(_continues(event) for event in events)]
    if not ended:
        return decided
    found: dict[str, Task | None] = yield Load(refs=tuple(ended))
    tasks = [task for task in found.values() if task is not None and _has_begun(task)]
    events, actors = dict(decided.events), dict(decided.actors)
    for task in tasks:
        happened = [event for event in decided.events[task.id] if isinstance(event, ev.Event)]
        made = yield from _next(fold(task, happened, context), context.now)
        events[made.id] = (made,)
        actors[made.id] = SCHEDULER
    return replace(decided, events=events, actors=actors) if tasks else decided


def _has_begun(task: Task) -> bool:
    """True for a task of a series, unless it is a draft: what was never activated does not recur."""
    return recurs(task) and task.state is not State.DRAFT


def _continues(event: object) -> bool:
    """True for an end after which a series continues.

    A dependency that failed would fail every later task as well.
    """
    if isinstance(event, ev.TaskFailed):
        return event.reason != "dependency"
    return isinstance(event, ev.TaskCompleted)


def _next(task: Task, now: datetime) -> Asking[ev.TaskCreated]:
    """The task of the first slot after this moment, and after the slot of the task that has ended."""
    assert task.schedule is not None
    assert task.schedule.cron is not None
    cron, own_slot = task.schedule.cron, task.schedule.not_before
    slot: datetime = yield NextSlot(cron=cron, after=now if own_slot is None else max(now, own_slot))
    started: Task | None = yield AtStart(task_id=task.id)
    ids: NewIds = yield Fresh()
    return next_task(task, started or task, ids, Schedule(not_before=slot, cron=cron))


def next_task(task: Task, planned: Task, ids: NewIds, schedule: Schedule) -> ev.TaskCreated:
    """The event that creates it: with the terms in force, and the plan and resources of the last start."""
    return replace(
        successor(task, ids, task.owner, None),
        root_id=ids.id,
        steps=tuple(Step(title=step.title, details=step.details) for step in planned.steps),
        resources=planned.resources,
        schedule=schedule,
        series_id=series_of(task),
        created_by=task.created_by,
        awaited=False,
    )
