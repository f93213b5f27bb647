"""What has to happen next because of what just happened: the jobs that a commit puts into the queue.

A task that can run has one job, a task that waits has none. What another task must merely learn of is a job too.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from remit.domain import event as ev
from remit.domain.policy import waits_for_person
from remit.domain.value import State, Task
from remit.domain.wire import instant

SIGNALS = "signals"
"""The queue of jobs that are no runs; it needs no slot."""
AGENT = "agent/"
RUN, TELL, RELEASE, CHECK, TIMER, LIMIT, CRON, TICK = "run/", "tell/", "release/", "check/", "timer/", "limit/", "cron/", "tick"
NEXT_TICK = "tick/next"
"""The job that plans a tick where none is queued."""
MAX_DELAY_SECONDS = 60.0
REPORT_SHARE, REPORT_LEAST_SECONDS, REPORT_MOST_SECONDS = 0.1, 1.0, 30.0


class Job(NamedTuple):
    """Something to do, once, not before an instant; while one with its key is queued there is no second."""

    key: str
    queue: str = SIGNALS
    priority: int = 0
    at: str | None = None
    if_needed_by_others: int | None = None
    """Put it only if some task depends on this one."""
    root: int = 0
    """The root of the tree that it is about; 0 for the tick, which is about none."""


def can_run(task: Task | None) -> bool:
    """True for a task that a worker may pick up, whatever it depends on."""
    return task is not None and task.state is State.PENDING and task.owner is not None and task.session_id is None


def run_job(task: Task, at: datetime | None = None) -> Job:
    """The job that activates a task."""
    priority = task.priority if task.overdue is None else 0  # it has not long to report
    return Job(
        key=RUN + task.id,
        queue=f"{AGENT}{task.owner}",
        priority=priority,
        at=instant(at) if at else None,
        root=int(task.root_id),
    )


def signal_job(kind: str, task: Task) -> Job:
    """The signal of a kind (`tell/`, `check/` and so on) that is about a task."""
    return Job(key=kind + task.id, root=int(task.root_id))


def changes_run(before: Task | None, after: Task, events: Iterable[Any]) -> bool:
    """True if a task's own job must be looked at again."""
    if can_run(after) != can_run(before):
        return True
    if not can_run(after) or before is None:
        return False
    if before.run is not None:
        return True
    moved = (before.priority, before.owner, before.schedule, before.depends_on) != (after.priority, after.owner, after.schedule, after.depends_on)
    return moved or any(isinstance(event, ev.TimerFired) for event in events)


def earliest(task: Task, now: datetime) -> datetime | None:
    """When a task may run again: not before its schedule says so, and later each time a run has failed."""
    if task.schedule is not None and task.schedule.not_before is not None and task.schedule.not_before > now:
        return task.schedule.not_before
    return None


def backoff(task: Task, events: Sequence[Any], now: datetime) -> datetime | None:
    """How long a task rests after a run that failed by itself, or was told when to come back; a lost worker is not its fault."""
    told = max((event.retry_seconds or 0.0 for event in events if isinstance(event, (ev.RunFailed, ev.RunReleased))), default=0.0)
    if any(isinstance(event, (ev.RunFailed, ev.RunTimedOut)) for event in events):
        told = max(told, 2.0 ** (task.attempts - 1))
    return now + timedelta(seconds=min(told, MAX_DELAY_SECONDS)) if told else None


def waits_for_slot(before: Task | None, after: Task) -> str | None:
    """The cron expression by which a task that has just begun to wait for its turn will get it, if it has one of its own."""
    ticked = before is not None and before.wait is not None and before.run is None
    return after.schedule.cron if after.waits_for_tick and not ticked and after.schedule is not None else None


def silenced(before: Task | None, after: Task) -> tuple[str, ...]:
    """The timers that a task does not wait for any more."""
    if before is None or before.wait is None or before.wait is after.wait:
        return ()
    kept = after.wait.on if after.wait else ()
    return tuple(TIMER + item.ref for item in before.wait.on if item.kind == "timer" and item not in kept)


def time_left(task: Task, seconds: float, now: datetime | None = None) -> float:
    """How much of its time a task has left, as far as its clock was read, or now; a thousandth of a second is nothing."""
    running = (now - task.clock_since).total_seconds() if now is not None and task.clock_since is not None else 0.0
    return max(0.0, round(seconds - task.duration - max(0.0, running), 3))


def report_seconds(seconds: float) -> float:
    """How long the last report may take, and may be waited for, once the time of a task is up."""
    return min(max(seconds * REPORT_SHARE, REPORT_LEAST_SECONDS), REPORT_MOST_SECONDS)


def ends_at(task: Task, seconds: float | None) -> datetime | None:
    """When the time of a task is up that waits for subtasks, or then for a slot to report; a live run looks at the clock itself."""
    if seconds is None:
        return None
    if task.overdue is not None:
        return None if time_left(task, seconds) else task.overdue + timedelta(seconds=report_seconds(seconds))
    if task.state is not State.WAITING or task.clock_since is None:
        return None
    return task.clock_since + timedelta(seconds=time_left(task, seconds))


def others(before: Task | None, after: Task, events: Iterable[Any]) -> tuple[Job, ...]:
    """Whom to tell: the parent and the dependents of a task that ended; the parent, too, of one that a person holds up; the timers it set; and
    that its claim must be checked.
    """
    root = int(after.root_id)
    timers = [event for event in events if isinstance(event, ev.TimerSet)]
    jobs = [Job(key=TIMER + timer.timer_id, at=instant(timer.due_at), root=root) for timer in timers]
    if after.state.terminal and not (before is not None and before.state.terminal):
        jobs.append(Job(key=RELEASE + after.id, if_needed_by_others=int(after.id), root=root))
        if after.parent_id is not None:
            jobs.append(Job(key=TELL + after.parent_id, root=root))
    elif after.parent_id is not None and waits_for_person(after) != (before is not None and waits_for_person(before)):
        jobs.append(Job(key=TELL + after.parent_id, root=root))
    if before is not None and _begins_to_count(before, after):
        jobs.append(signal_job(TELL, after))  # the subtasks it waits for may have been waiting for a person before it did
    if after.state is State.VERIFYING:
        jobs.append(signal_job(CHECK, after))
    return tuple(jobs)


def _begins_to_count(before: Task, after: Task) -> bool:
    """True if the clock of a waiting task starts now, so that its subtasks must be checked for waits for a person."""
    if after.state is not State.WAITING or after.clock_since is None:
        return False
    resumed = before.run is None and before.clock_since is None
    final = before.run is not None and before.wait is None  # the wait began with the final message of the run
    return resumed or final
