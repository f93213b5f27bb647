"""Which jobs a task needs and when: its runs, its cron slots and its time limit."""

from datetime import datetime

from remit.domain.projection.follow_up_jobs import (
    CRON,
    LIMIT,
    Job,
    deadline,
    new_wait_cron,
    run_job,
    scheduled_start,
)
from remit.domain.records.serialize import instant
from remit.domain.task.task import Schedule, State, Task
from remit.ports import Agents, Clock


class JobPlans:
    """Plans jobs by the clock and by the time limits of agents."""

    def __init__(self, clock: Clock, agents: Agents) -> None:
        self._clock, self._agents = clock, agents

    def ready_job(self, task: Task) -> Job:
        """Return the job of a task that can run, at the time of its schedule."""
        return run_job(task, self.earliest_start(task, self._clock.now()))

    def slot_job(self, task: Task) -> Job | None:
        """Return the job for the next cron slot of a task; None if it does not wait for one."""
        cron = new_wait_cron(None, task)
        if cron is None:
            return None
        slot = self._clock.next_slot(cron, self._clock.now())
        return Job(key=CRON + task.id, at=instant(slot), root=int(task.root_id))

    def limit_job(self, task: Task) -> Job | None:
        """Return the job for the time limit of a task that waits, or is due to report."""
        if task.state is not State.WAITING and task.overdue is None:
            return None
        end = deadline(task, self.time_limit(task))
        if end is None:
            return None
        return Job(key=LIMIT + task.id, at=instant(end), root=int(task.root_id))

    def time_limit(self, task: Task) -> float | None:
        """Return the time limit of a task in seconds, from the task itself or its agent."""
        return task.limits.timeout_seconds or self._agents.seconds(task.owner)

    def earliest_start(self, task: Task, now: datetime) -> datetime | None:
        """Return when a task may run; None for at once.

        A task with a cron schedule that has never run waits for its first slot.
        """
        start = scheduled_start(task, now)
        schedule = task.schedule
        if schedule is None or schedule.cron is None or task.started_at is not None:
            return start
        if _has_own_slot(task, schedule):
            return start
        return self._clock.next_slot(schedule.cron, start or now)


def _has_own_slot(task: Task, schedule: Schedule) -> bool:
    """Return whether a task was created for one slot of a series; a missed slot runs at once."""
    return task.series_id is not None and schedule.not_before is not None
