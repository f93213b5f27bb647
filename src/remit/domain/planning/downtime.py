"""Exclude the time without a live worker from the clock of a task."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from remit.domain.decisions.context import Context
from remit.domain.decisions.runs import exclude_downtime
from remit.domain.planning.lookups import Lookups, Plan, UnattendedSince, fold_plan, load_tasks
from remit.domain.records.record import replace
from remit.domain.task import events as ev
from remit.domain.task.task import Task

Appended = ev.Event | ev.GuideCreated | ev.KeyClaimed
CLOCK_EVENTS = (ev.RunLost, ev.DowntimeExcluded)
"""Events that already say when the clock stopped."""


def unattended_since(
    task: Task,
    attended_at: datetime | None,
    now: datetime,
    lease: timedelta,
    *,
    is_served: bool,
) -> datetime | None:
    """Return since when the clock of a task runs without a live worker; None if it does not.

    If no worker serves its tree, the time since the last one counts as downtime, however short. A
    clock that began after the last heartbeat belongs to a worker that is about to send one.
    """
    since = task.clock_since
    if since is None:
        return None
    if attended_at is not None and attended_at >= since:
        if not is_served:
            return attended_at
        since = attended_at
    return since if now - since > lease else None


def without_downtime(decided: Plan, context: Context) -> Lookups[Plan]:
    """Return the plan with downtime excluded from every clock that it stops.

    A worker excludes downtime before its first heartbeat. A command can end a wait or a lost run
    earlier than that.
    """
    found = yield from load_tasks(_streams_that_may_stop(decided, context))
    ticking = {task.id: task for task in found if task.clock_since is not None}
    if not ticking:
        return decided
    unattended: Mapping[str, datetime] = yield UnattendedSince(task_ids=tuple(ticking))
    events = dict(decided.events)
    for task_id, task in ticking.items():
        if task_id in unattended and _stops_clock(task, decided, context):
            excluded = exclude_downtime(task, unattended[task_id], context.now)
            events[task_id] = (*excluded, *decided.events[task_id])
    return replace(decided, events=events)


def _streams_that_may_stop(decided: Plan, context: Context) -> tuple[str, ...]:
    """Return the changed tasks whose clock may stop, except the one of the acting run."""
    acting = context.run_task_id
    return tuple(
        stream
        for stream, events in decided.events.items()
        if stream != acting and _may_stop_clock(stream, events)
    )


def _may_stop_clock(stream: str, events: Sequence[Appended]) -> bool:
    """Return whether events can stop the clock of an existing task without saying when."""
    return (
        stream.isdigit()
        and not isinstance(events[0], ev.TaskCreated)
        and not ev.includes(events, CLOCK_EVENTS)
    )


def _stops_clock(task: Task, decided: Plan, context: Context) -> bool:
    return fold_plan(task, decided, context).clock_since != task.clock_since
