"""Drafts the commit of a plan: its sealed events, and the jobs that follow from them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from remit.app.writing.job_plans import JobPlans
from remit.app.writing.task_cache import Seen, TaskCache, seen_task
from remit.app.writing.unit_draft import UnitDraft, seal_events
from remit.domain.decisions.context import Context
from remit.domain.planning.dependencies import is_met
from remit.domain.planning.lookups import Plan
from remit.domain.projection.follow_up_jobs import (
    LIMIT,
    RUN,
    Job,
    backoff,
    can_run,
    changes_run_job,
    dropped_timers,
    new_wait_cron,
    run_job,
    signal_jobs,
)
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task.task import Task, prerequisites
from remit.ports import Clock


class Drafter:
    """Drafts commits."""

    def __init__(self, clock: Clock, cache: TaskCache, jobs: JobPlans) -> None:
        self._clock, self._cache, self._jobs = clock, cache, jobs

    async def draft(
        self, command: cmd.Command, decided: Plan, context: Context, seen: Seen
    ) -> UnitDraft:
        """Seal the events of a plan, and add the jobs that follow."""
        draft = UnitDraft()
        guarded = sorted(decided.guards - decided.events.keys())
        draft.guard(seen[stream].task for stream in guarded)
        for stream, events in decided.events.items():
            by = context
            if stream in decided.actors:
                by = replace(context, actor=decided.actors[stream])
            draft.add(seal_events(stream, events, seen.get(stream), by, self._clock))
        for stream, loaded in draft.tasks.items():
            before = seen_task(seen, stream)
            events = decided.events[stream]
            self._add_signals(before, loaded.task, events, draft)
            await self._add_run_job(before, loaded.task, events, context, seen, draft)
        for stream in sorted(decided.wakes):
            draft.jobs.append(self._wake_job(command, seen[stream].task, context.now))
        return draft

    def _add_signals(
        self,
        before: Task | None,
        after: Task,
        events: Sequence[Any],
        draft: UnitDraft,
    ) -> None:
        """Add and drop the signals, timers, cron slots and time limits of a changed task."""
        draft.jobs += signal_jobs(before, after, events)
        draft.drops += dropped_timers(before, after)
        if new_wait_cron(before, after) is not None:
            slot = self._jobs.slot_job(after)
            draft.jobs += filter(None, [slot])
        self._add_limit(before, after, draft)

    def _add_limit(self, before: Task | None, after: Task, draft: UnitDraft) -> None:
        """Add the time limit of a task if it has changed; drop it if it no longer has one."""
        limit = self._jobs.limit_job(after)
        old_limit = None if before is None else self._jobs.limit_job(before)
        if limit == old_limit:
            return
        if limit is not None:
            draft.jobs.append(limit)
        else:
            draft.drops.append(LIMIT + after.id)

    async def _add_run_job(
        self,
        before: Task | None,
        after: Task,
        events: Sequence[Any],
        context: Context,
        seen: Seen,
        draft: UnitDraft,
    ) -> None:
        """Add the run of a task that can run now or later; drop it if the task no longer can."""
        if not changes_run_job(before, after, events):
            return
        if await self._is_ready(after, seen, draft):
            retry_at = backoff(after, events, context.now)
            start = retry_at or self._jobs.earliest_start(after, context.now)
            draft.jobs.append(run_job(after, start))
        elif after.run is None:
            draft.drops.append(RUN + after.id)

    async def _is_ready(self, task: Task, seen: Seen, draft: UnitDraft) -> bool:
        """Return whether a task can run and its dependencies are met."""
        if not can_run(task):
            return False
        if task.started_at is not None or not task.depends_on:
            return True
        return await self._dependencies_are_met(task, seen, draft)

    async def _dependencies_are_met(self, task: Task, seen: Seen, draft: UnitDraft) -> bool:
        """Return whether the dependencies of a task are met.

        The commit fails if the tasks that it depends on change before it.
        """
        needed = await self._cache.load(prerequisites(task.depends_on), seen)
        others = filter(None, needed.values())
        draft.guard(other for other in others if other.id not in draft.tasks)
        return all(is_met(item, needed[item.task_id]) for item in task.depends_on)

    def _wake_job(self, command: cmd.Command, task: Task, now: datetime) -> Job:
        """Return the job of a task that can run from now on; run_task ignores its schedule."""
        if isinstance(command, cmd.RunTask):
            return run_job(task, None)
        return run_job(task, self._jobs.earliest_start(task, now))
