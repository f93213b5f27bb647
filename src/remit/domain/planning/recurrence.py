"""Recurring tasks: when one ends, the task for the next slot is created, until one is canceled."""

from datetime import datetime

from remit.domain.decisions.context import Context
from remit.domain.decisions.creation import NewIds, successor_event
from remit.domain.planning.lookups import (
    LiveOfSeries,
    Lookups,
    NewTaskIds,
    NextSlot,
    Plan,
    TaskAtStart,
    fold_plan,
    load_tasks,
)
from remit.domain.records.record import replace
from remit.domain.task import events as ev
from remit.domain.task.task import Schedule, State, Step, Task

SCHEDULER = "system:scheduler"
"""The actor that creates the next task of a series."""


def recurs(task: Task) -> bool:
    """Return whether a task belongs to a series: it has a cron expression and no parent."""
    return cron_of(task) is not None and task.parent_id is None


def cron_of(task: Task) -> str | None:
    """Return the cron expression of a task, or None."""
    return task.schedule.cron if task.schedule is not None else None


def must_have_slot(schedule: Schedule | None, now: datetime) -> Lookups[None]:
    """Refuse a cron expression that is invalid or never occurs: its lookup fails."""
    if schedule is not None and schedule.cron is not None:
        yield NextSlot(cron=schedule.cron, after=now)


def series_of(task: Task) -> str:
    """Return the id of a series, which is the id of its first task."""
    return task.series_id or task.id


def live_of_series(task: Task) -> Lookups[Task | None]:
    """Return the live task of an ended task's series; None if the series does not continue."""
    if not recurs(task):
        return None
    live: Task | None = yield LiveOfSeries(series_id=series_of(task))
    return live


def continue_series(decided: Plan, context: Context) -> Lookups[Plan]:
    """Add the next task of each series whose current task the plan ends."""
    ended = [stream for stream, events in decided.events.items() if any(map(_continues, events))]
    tasks = filter(_is_activated_series, (yield from load_tasks(ended)))
    events, actors = dict(decided.events), dict(decided.actors)
    for task in tasks:
        after = fold_plan(task, decided, context)
        made = yield from _create_next(after, context.now)
        events[made.id] = (made,)
        actors[made.id] = SCHEDULER
    return replace(decided, events=events, actors=actors)


def _is_activated_series(task: Task) -> bool:
    """Return whether a task of a series has been activated; drafts do not recur."""
    return recurs(task) and task.state is not State.DRAFT


def _continues(event: object) -> bool:
    """Return whether a series continues after an event.

    It does not after a failed dependency, which would fail every later task as well.
    """
    if isinstance(event, ev.TaskFailed):
        return event.reason != "dependency"
    return isinstance(event, ev.TaskCompleted)


def _create_next(task: Task, now: datetime) -> Lookups[ev.TaskCreated]:
    """Create the task for the first slot after `now` and after the slot of the ended task."""
    assert task.schedule is not None
    assert task.schedule.cron is not None
    cron, own_slot = task.schedule.cron, task.schedule.not_before
    slot: datetime = yield NextSlot(
        cron=cron, after=now if own_slot is None else max(now, own_slot)
    )
    started: Task | None = yield TaskAtStart(task_id=task.id)
    ids: NewIds = yield NewTaskIds()
    return next_task_event(task, started or task, ids, Schedule(not_before=slot, cron=cron))


def next_task_event(task: Task, planned: Task, ids: NewIds, schedule: Schedule) -> ev.TaskCreated:
    """Return the event that creates the next task of a series.

    It has the current terms of `task`, and the steps and resources that `planned` started with.
    """
    return replace(
        successor_event(task, ids, task.owner, None),
        root_id=ids.id,
        steps=tuple(Step(title=step.title, details=step.details) for step in planned.steps),
        resources=planned.resources,
        schedule=schedule,
        series_id=series_of(task),
        created_by=task.created_by,
        awaited=False,
    )
