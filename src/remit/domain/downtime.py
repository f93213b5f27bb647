"""Time in which no worker was alive does not count toward the time of a task."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from remit.domain import event as ev
from remit.domain.decide import Context, fold
from remit.domain.need import Asking, Load, Plan, UnattendedSince
from remit.domain.record import replace
from remit.domain.run import exclude
from remit.domain.value import Task

Appended = ev.Event | ev.GuideCreated | ev.KeyClaimed
READS_THE_CLOCK = ev.RunLost | ev.DowntimeExcluded
"""Events that say themselves when the clock stopped."""


def unattended_since(task: Task, attended_at: datetime | None, now: datetime, lease: timedelta) -> datetime | None:
    """When the clock of a task began to run without a live worker; None if it does not."""
    if task.clock_since is None:
        return None
    since = task.clock_since if attended_at is None else max(task.clock_since, attended_at)
    return since if now - since > lease else None


def without_downtime(decided: Plan, context: Context) -> Asking[Plan]:
    """A plan that excludes downtime from every clock that it stops.

    A worker excludes it before its first heartbeat. A command may end a wait, or a lost run,
    before any worker is back.
    """
    acting = None if context.run_id is None else context.run_id.rpartition("-r")[0]
    changed = [stream for stream, events in decided.events.items() if stream != acting and _may_stop_clock(stream, events)]
    if not changed:
        return decided
    found: Mapping[str, Task | None] = yield Load(refs=tuple(changed))
    ticking = [task for task in found.values() if task is not None and task.clock_since is not None]
    if not ticking:
        return decided
    ids = tuple(task.id for task in ticking)
    unattended: Mapping[str, datetime] = yield UnattendedSince(task_ids=ids)
    stopped = {
        task.id: excluded
        for task in ticking
        if task.id in unattended and _stops_clock(task, decided, context) and (excluded := exclude(task, unattended[task.id], context.now))
    }
    if not stopped:
        return decided
    more = {stream: (*excluded, *decided.events[stream]) for stream, excluded in stopped.items()}
    return replace(decided, events={**decided.events, **more})


def _may_stop_clock(stream: str, events: Sequence[Appended]) -> bool:
    """True for a task that existed before, unless its events say when the clock stopped."""
    if not stream.isdigit() or isinstance(events[0], ev.TaskCreated):
        return False
    return not any(isinstance(event, READS_THE_CLOCK) for event in events)


def _stops_clock(task: Task, decided: Plan, context: Context) -> bool:
    happened = [event for event in decided.events[task.id] if isinstance(event, ev.Event)]
    return fold(task, happened, context).clock_since != task.clock_since
