"""The jobs that a commit adds to the queue.

A task that can run has one job; a waiting task has none. Signals to other tasks are jobs too.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from remit.domain.records.serialize import instant, instant_or_none
from remit.domain.task import events as ev
from remit.domain.task.policy import waits_for_person
from remit.domain.task.task import State, Task

SIGNALS = "signals"
"""The queue of jobs that are not runs; they do not use a slot."""
AGENT = "agent/"
RUN, TELL, RELEASE, CHECK, TIMER, LIMIT, CRON, TICK = (
    "run/",
    "tell/",
    "release/",
    "check/",
    "timer/",
    "limit/",
    "cron/",
    "tick",
)
NEXT_TICK = "tick/next"
"""The job that schedules a tick if none is queued."""
MAX_DELAY_SECONDS = 60.0
REPORT_SHARE, REPORT_LEAST_SECONDS, REPORT_MOST_SECONDS = 0.1, 1.0, 30.0


class Job(NamedTuple):
    """Work to do once, not before `at`; the queue holds at most one job for each key."""

    key: str
    queue: str = SIGNALS
    priority: int = 0
    at: str | None = None
    if_needed_by_others: int | None = None
    """Queue the job only if another task depends on this one."""
    root: int = 0
    """The root of the job's tree; 0 for a tick, which belongs to no tree."""


def can_run(task: Task | None) -> bool:
    """Return whether a worker may run a task, apart from its dependencies."""
    return (
        task is not None
        and task.state is State.PENDING
        and task.owner is not None
        and task.session_id is None
    )


def run_job(task: Task, at: datetime | None = None) -> Job:
    """Return the job that runs a task."""
    priority = task.priority if task.overdue is None else 0  # its time to report is short
    return Job(
        key=RUN + task.id,
        queue=f"{AGENT}{task.owner}",
        priority=priority,
        at=instant_or_none(at),
        root=int(task.root_id),
    )


def signal_job(kind: str, task: Task) -> Job:
    """Return the signal of a kind (`tell/`, `check/` and so on) for a task."""
    return Job(key=kind + task.id, root=int(task.root_id))


def changes_run_job(before: Task | None, after: Task, events: Iterable[Any]) -> bool:
    """Return whether the job of a task must be updated."""
    can_run_now = can_run(after)
    if before is None or not can_run_now:
        return can_run(before) != can_run_now
    return (
        before.run is not None
        or not can_run(before)
        or _job_terms(before) != _job_terms(after)
        or ev.includes(events, (ev.TimerFired, ev.TaskWoken))
    )


def _job_terms(task: Task) -> tuple[object, ...]:
    """Return the fields of a task that its job depends on."""
    return task.priority, task.owner, task.schedule, task.depends_on


def scheduled_start(task: Task, now: datetime) -> datetime | None:
    """Return the scheduled start of a task if it is in the future, else None."""
    start = task.not_before
    return None if start is None or start <= now else start


def backoff(task: Task, events: Sequence[Any], now: datetime) -> datetime | None:
    """Return when to retry a run that failed, timed out or asked for a delay, else None.

    A lost run is retried without delay.
    """
    delay = max(map(partial(_delay, task), events), default=0.0)
    if not delay:
        return None
    return now + timedelta(seconds=min(delay, MAX_DELAY_SECONDS))


def _delay(task: Task, event: Any) -> float:
    """Return for how many seconds an event delays the next run of a task."""
    asked = getattr(event, "retry_seconds", None) or 0.0
    if isinstance(event, (ev.RunFailed, ev.RunTimedOut)):
        return max(asked, 2.0 ** (task.attempts - 1))
    return float(asked)


def new_wait_cron(before: Task | None, after: Task) -> str | None:
    """Return the cron expression of a task that starts to wait for a tick; None without one."""
    if after.schedule is None or not after.waits_for_tick:
        return None
    was_waiting = before is not None and before.wait is not None and before.run is None
    return None if was_waiting else after.schedule.cron


def dropped_timers(before: Task | None, after: Task) -> tuple[str, ...]:
    """Return the keys of timers that a task no longer waits for."""
    if before is None:
        return ()
    timers = [item for item in before.waits_on if item.kind == "timer"]
    return tuple(TIMER + timer.ref for timer in timers if timer not in after.waits_on)


def time_left(task: Task, seconds: float, now: datetime | None = None) -> float:
    """Return the seconds that a task has left, rounded to milliseconds.

    Without `now`, time since the clock started is not counted.
    """
    running = 0.0
    if now is not None and task.clock_since is not None:
        running = (now - task.clock_since).total_seconds()
    return max(0.0, round(seconds - task.duration - max(0.0, running), 3))


def report_seconds(seconds: float) -> float:
    """Return the seconds for the last report after the time of a task is up."""
    return min(max(seconds * REPORT_SHARE, REPORT_LEAST_SECONDS), REPORT_MOST_SECONDS)


def deadline(task: Task, seconds: float | None) -> datetime | None:
    """Return the deadline of a task that waits for subtasks or for a slot to report.

    Return None without a limit. A live run checks the clock itself.
    """
    if seconds is None:
        return None
    if task.overdue is not None:
        return _report_deadline(task, task.overdue, seconds)
    if task.state is not State.WAITING or task.clock_since is None:
        return None
    return task.clock_since + timedelta(seconds=time_left(task, seconds))


def _report_deadline(task: Task, overdue: datetime, seconds: float) -> datetime | None:
    """Return when the last report of a task must have started; None if it has time again."""
    if time_left(task, seconds):
        return None
    return overdue + timedelta(seconds=report_seconds(seconds))


def signal_jobs(before: Task | None, after: Task, events: Iterable[Any]) -> tuple[Job, ...]:
    """Return the signals that follow from events of a task: its timers, the check of its claim,
    and news for its parent and dependents when it ends or starts to wait for a person.
    """
    root = int(after.root_id)
    jobs = [
        Job(key=TIMER + event.timer_id, at=instant(event.due_at), root=root)
        for event in events
        if isinstance(event, ev.TimerSet)
    ]
    is_ended_now = _is_ended(after) and not _is_ended(before)
    if is_ended_now:
        jobs.append(Job(key=RELEASE + after.id, if_needed_by_others=int(after.id), root=root))
    if after.parent_id is not None and (is_ended_now or _changes_wait_for_person(before, after)):
        jobs.append(Job(key=TELL + after.parent_id, root=root))
    if _starts_clock(before, after):
        # Its subtasks may already have been waiting for a person.
        jobs.append(signal_job(TELL, after))
    if after.state is State.VERIFYING:
        jobs.append(signal_job(CHECK, after))
    return tuple(jobs)


def _is_ended(task: Task | None) -> bool:
    return task is not None and task.state.terminal


def _changes_wait_for_person(before: Task | None, after: Task) -> bool:
    """Return whether a task starts or stops to wait for a person."""
    waited_before = before is not None and waits_for_person(before)
    return waits_for_person(after) != waited_before


def _starts_clock(before: Task | None, after: Task) -> bool:
    """Return whether the clock of a waiting task starts now.

    Its subtasks must then be checked for waits for a person.
    """
    if before is None or after.state is not State.WAITING or after.clock_since is None:
        return False
    if before.run is None:
        return before.clock_since is None
    # The wait began with the final message of the run.
    return before.wait is None
