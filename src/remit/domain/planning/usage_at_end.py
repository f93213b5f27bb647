"""Record the usage of a run that others end together with its task."""

from collections.abc import Mapping

from remit.domain.decisions.context import Context
from remit.domain.decisions.runs import RunCommand
from remit.domain.planning.lookups import Lookups, Plan, UsageInStore, load_tasks, streams_with
from remit.domain.projection.stored_usage import StoredUsage, as_counts, uncounted
from remit.domain.records.pick import beyond, by_id
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Task, Usage, by_tool

ENDS = (ev.CompletionClaimed, ev.TaskFailed, ev.TaskCanceled)
"""Events that end a live run together with the work on its task."""
REPORTED = RunCommand | cmd.AbortTask | cmd.CompleteTask
"""Commands before or with which a run reports the usage of its own task."""


def with_usage(decided: Plan, command: cmd.Command, context: Context) -> Lookups[Plan]:
    """Return the plan with the usage of every run that it ends from outside.

    Such a run can write nothing more, so its usage is read from what it has stored. The same is
    true of a lost run that no other run follows.
    """
    reported = context.run_task_id if isinstance(command, REPORTED) else None
    ended = beyond(streams_with(decided, ENDS), (reported,))
    found = yield from load_tasks(ended)
    tasks = by_id(filter(_may_lack_usage, found))
    if not tasks:
        return decided
    stored: Mapping[str, StoredUsage] = yield UsageInStore(task_ids=tuple(tasks))
    events = dict(decided.events)
    for task_id, task in tasks.items():
        settled = _settle(task, stored[task_id])
        events[task_id] = (*settled, *decided.events[task_id])
    return replace(decided, events=events)


def _may_lack_usage(task: Task) -> bool:
    """Return whether a task has a live run, or had one that was perhaps lost."""
    return task.run is not None or task.attempts > 0


def _settle(task: Task, stored: StoredUsage) -> list[ev.BudgetSettled]:
    """Return the event for the stored usage that a task has not recorded, if there is any."""
    usage = stored.usage.beyond(task.usage)
    tools = as_counts(uncounted(by_tool(stored.tools), task.tool_summary))
    if (usage, tools) == (Usage(), ()):
        return []
    run_id = task.run_id or f"{task.id}-r{task.counts.runs:06d}"
    return [ev.BudgetSettled(run_id=run_id, usage=usage, tool_summary=tools)]
