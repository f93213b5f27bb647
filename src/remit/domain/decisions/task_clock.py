"""The version, the event language and the clock of a task after an event."""

from datetime import datetime

from remit.domain.records.record import fields, replace
from remit.domain.task import events as ev
from remit.domain.task.task import State, Task


def stamp(task: Task, entry: ev.Entry) -> Task:
    """Update version, time and the task's clock.

    The clock runs during runs and while the task waits for subtasks only, never while it waits
    for a person.
    """
    since, spent = _read_clock(task, entry.event)
    if _clock_runs(task):
        since = since or entry.at
    elif since is not None:
        spent += _seconds_between(since, entry.at)
        since = None
    return replace(
        task,
        version=entry.version,
        updated_at=entry.at,
        clock_since=since,
        duration=spent,
        overdue=task.overdue if task.state is State.PENDING else None,
        language=max(task.language, event_language(entry.event)),
    )


def event_language(event: ev.Event | ev.GuideCreated | ev.KeyClaimed) -> int:
    """Return the language version of an event: for an older event type, that of the newest
    added field that it uses.
    """
    kind = type(event)
    added = ev.ADDED.get(kind)
    if added is None:
        return ev.SINCE.get(kind, 1)
    if isinstance(event, ev.TaskCreated) and event.tools.named is not None:
        return 3  # a nested field, which ADDED cannot name
    defaults = fields(kind)
    used = [added[name] for name in added if getattr(event, name) != defaults[name]]
    return max(used, default=1)


def _read_clock(task: Task, event: object) -> tuple[datetime | None, float]:
    """Return the start of the running clock and the seconds before it, without excluded time."""
    since, spent = task.clock_since, task.duration
    if since is None:
        return since, spent
    if isinstance(event, ev.RunLost) and event.last_seen_at is not None:
        return None, spent + _seconds_between(since, event.last_seen_at)
    if isinstance(event, ev.DowntimeExcluded) and event.until > since:
        return event.until, spent + _seconds_between(since, event.since)
    return since, spent


def _seconds_between(start: datetime, end: datetime) -> float:
    """Return the seconds from start to end; 0 if the end is earlier."""
    return max(0.0, (end - start).total_seconds())


def _clock_runs(task: Task) -> bool:
    if task.run is not None:
        return True
    if task.waits_for("user"):
        return False
    return task.state is State.RUNNING or _wait_counts(task)


def _wait_counts(task: Task) -> bool:
    """Return whether a task is in a wait that counts: one for open tool calls, or any that a
    caller waits for too.
    """
    is_awaited = task.awaited or _waits_only_for_calls(task)
    return is_awaited and task.state is State.WAITING and not task.held


def _waits_only_for_calls(task: Task) -> bool:
    """Return whether every item is a subtask or timer of an open tool call, at least one a
    subtask.
    """
    kinds = task.awaited_kinds
    is_for_calls = all(item.call_id is not None for item in task.waits_on)
    return is_for_calls and "subtask" in kinds and kinds <= {"subtask", "timer"}
