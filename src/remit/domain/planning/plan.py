"""Decide what a command does to all tasks that it changes, without input or output."""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from remit.domain.decisions.context import Context, Events, task_of_run
from remit.domain.decisions.creation import cap_limits, drop_blank_texts
from remit.domain.decisions.decide import TaskCommand, decide
from remit.domain.decisions.evolve import fold
from remit.domain.decisions.run_results import files_to_claim
from remit.domain.decisions.runs import check_fence
from remit.domain.decisions.update_task import if_changed
from remit.domain.outputs.criteria import files_to_check
from remit.domain.outputs.required_outputs import FileQuery, Files, gaps, output_files, refusal
from remit.domain.planning.authority import OwnTerms, must_have_authority, must_not_set_own_terms
from remit.domain.planning.dependencies import (
    await_prerequisites,
    blocked_by,
    must_be_ready,
    release_dependents,
    resolve_dependencies,
)
from remit.domain.planning.downtime import without_downtime
from remit.domain.planning.lookups import (
    Answer,
    Changes,
    End,
    EndedChildren,
    Lookups,
    Plan,
    SeenFiles,
    TaskEnds,
    descendants,
    find_task,
    load_tasks,
    make_plan,
)
from remit.domain.planning.new_tasks import (
    create,
    create_guide,
    delegate,
    find_agent,
    hand_off,
    must_have_guides,
    rerun,
)
from remit.domain.planning.recurrence import continue_series, cron_of, live_of_series
from remit.domain.planning.usage_at_end import with_usage
from remit.domain.projection.follow_up_jobs import deadline, scheduled_start
from remit.domain.prompts.rejections import refused_claim
from remit.domain.prompts.reports import report_within, shared_room
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import agent_of, must_not_be_ended, waits_for_person
from remit.domain.task.task import TASK_ID, Schedule, State, Task
from remit.domain.text.counting import in_seconds
from remit.errors import Conflict, NotFound


def plan(command: cmd.Command, context: Context) -> Lookups[Plan]:
    """Decide a command. The result depends only on the command and the lookup results."""
    decided = yield from _authorize(_drop_blanks(command), context)
    decided = yield from continue_series(decided, context)
    decided = yield from with_usage(decided, command, context)
    return (yield from without_downtime(decided, context))


def _drop_blanks(command: cmd.Command) -> cmd.Command:
    """Return the command with blank texts removed."""
    if isinstance(command, cmd.Delegate):
        return replace(command, subtasks=tuple(map(drop_blank_texts, command.subtasks)))
    if isinstance(command, cmd.CreateTask | cmd.CreateSubtask | cmd.UpdateTask):
        return drop_blank_texts(command)
    return command


def _authorize(command: cmd.Command, context: Context) -> Lookups[Plan]:
    """Decide a command within the authority of the run, or of the agent, that gives it."""
    if context.run_id is not None:
        return (yield from _authorize_run(command, context, context.run_id))
    if isinstance(command, OwnTerms):
        yield from must_not_set_own_terms(command, context.actor)
    return (yield from _dispatch(command, context))


def _authorize_run(command: cmd.Command, context: Context, run_id: str) -> Lookups[Plan]:
    """Decide a command of a run; only for its own task does its fence apply to the decision."""
    own_task = yield from find_task(task_of_run(run_id), "run_id")
    check_fence(own_task, run_id)
    if isinstance(command, cmd.Operation):
        yield from must_have_authority(command, own_task)
    is_own = getattr(command, "task_id", None) in (own_task.id, own_task.uid)
    acting = replace(
        context,
        acting_task_id=own_task.id,
        via=own_task.via,
        run_id=run_id if is_own else None,
    )
    decided = yield from _dispatch(command, acting)
    return replace(decided, guards=decided.guards | {own_task.id})


def _dispatch(command: cmd.Command, context: Context) -> Lookups[Plan]:
    plan_command = PLANS.get(type(command), _change_named_task)
    return (yield from plan_command(command, context))


def _change_named_task(command: Any, context: Context) -> Lookups[Plan]:
    task = yield from find_task(command.task_id)
    return (yield from _change(task, command, context))


def _update_or_cancel(command: cmd.UpdateTask, context: Context) -> Lookups[Plan]:
    """Update a task. An update that only cancels does the same as cancel_task."""
    if command == cmd.UpdateTask(task_id=command.task_id, status="canceled"):
        return (yield from _cancel(command, context))
    return (yield from _change_named_task(command, context))


def _cancel(command: cmd.CancelTask | cmd.UpdateTask, context: Context) -> Lookups[Plan]:
    """Cancel a task. For an ended task of a series, cancel the live one to stop the series."""
    task = yield from find_task(command.task_id)
    if task.state.terminal:
        live = yield from live_of_series(task)
        task = live or task
    return (yield from _change(task, command, context))


def _change(task: Task, command: TaskCommand, context: Context) -> Lookups[Plan]:
    """Decide a command on one task, with the other tasks that it reads or changes."""
    plan_change = CHANGES.get(type(command), _change_one)
    return (yield from plan_change(task, command, context))


def _change_one(task: Task, command: TaskCommand, context: Context) -> Lookups[Plan]:
    """Decide a command that reads no other task."""
    context = yield from _with_files(task, command, context)
    events = decide(task, command, context)
    return (yield from _with_canceled_descendants(task, {task.id: events}))


def _attach_guide(task: Task, command: cmd.AttachTsg, context: Context) -> Lookups[Plan]:
    """Attach a guide that exists."""
    yield from must_have_guides((command.tsg_id,))
    return (yield from _change_one(task, command, context))


def _update(task: Task, command: cmd.UpdateTask, context: Context) -> Lookups[Plan]:
    """Update a task; a new owner of a started task gets a successor instead."""
    must_not_be_ended(task)
    guards: frozenset[str] = frozenset()
    if (owner := if_changed(task.owner, command.owner)) is not None:
        command = replace(command, owner=(yield from find_agent(owner)))
    if command.depends_on is not None:
        depends_on, guards = yield from resolve_dependencies(command.depends_on, task)
        command = replace(command, depends_on=depends_on)
    is_by_agent = agent_of(context.actor) is not None  # a person may raise the limits of a subtask
    if is_by_agent and command.limits is not None and task.parent_id is not None:
        parent = yield from find_task(task.parent_id, "parent_id")
        command = replace(command, limits=cap_limits(command.limits, parent.limits))
        guards |= {parent.id}
    if task.started_at is not None and command.owner not in (None, task.owner):
        return (yield from hand_off(task, command, context))
    context = yield from _with_files(task, command, context)
    changes: Changes = {task.id: decide(task, command, context)}
    if task.awaited and command.depends_on:
        changes |= yield from await_prerequisites(command.depends_on, context)
    return (yield from _with_canceled_descendants(task, changes, guards))


def _await_task(task: Task, command: cmd.AwaitTask, context: Context) -> Lookups[Plan]:
    """Record that a caller waits for a task and for its prerequisites."""
    awaited = yield from await_prerequisites(task.depends_on, context)
    context = yield from _with_files(task, command, context)
    return make_plan(task.id, awaited | {task.id: decide(task, command, context)})


def _deliver(task: Task, command: cmd.DeliverUpdates, context: Context) -> Lookups[Plan]:
    """Deliver updates; a task that may not start yet is not assigned to a session."""
    if command.session_id is None:
        return (yield from _change_one(task, command, context))
    events = decide(task, command, context)
    is_new = task.state is State.PENDING and task.started_at is None
    if is_new and (yield from _must_wait(task, context)):
        return Plan(task_id=task.id, events={})
    return make_plan(task.id, {task.id: events})


def _must_wait(task: Task, context: Context) -> Lookups[bool]:
    """Return whether a scheduled start or a dependency still holds a task back."""
    if scheduled_start(task, context.now):
        return True
    return bool((yield from blocked_by(task)))


def _await_subtask(task: Task, command: cmd.AwaitSubtask, context: Context) -> Lookups[Plan]:
    """Wait for a subtask, unless it has ended; it must be unchanged at the commit."""
    child = yield from find_task(command.child_id, "child_id")
    events = decide(task, replace(command, child_id=child.id), context)
    if events and child.state.terminal:
        return Plan(task_id=task.id, events={})
    return make_plan(task.id, {task.id: events}, frozenset({child.id}))


def _complete(task: Task, command: cmd.CompleteTask, context: Context) -> Lookups[Plan]:
    """Claim completion. A refusal because of missing outputs is recorded, then raised."""
    context = yield from _with_files(task, command, context)
    events = decide(task, command, context)
    decided = make_plan(task.id, {task.id: events})
    if not any(isinstance(event, ev.AcceptanceRejected) and event.told for event in events):
        return decided
    found = gaps(task, command.outputs, context.files)
    refused = refusal(found)
    asked = replace(task, output_asks=task.output_asks + 1)
    refused.for_agent = refused_claim(asked, found, command.outputs)
    return replace(decided, refused=refused)


def _with_canceled_descendants(
    task: Task, changes: Changes, guards: frozenset[str] = frozenset()
) -> Lookups[Plan]:
    """Return the plan; if it cancels the task, it cancels all live descendants as well."""
    if ev.includes(changes[task.id], ev.TaskCanceled):
        everything = yield from descendants(task)
        changes |= {
            child.id: [ev.TaskCanceled(reason="parent")]
            for child in everything
            if not child.state.terminal
        }
    return make_plan(task.id, changes, guards)


def _start(task: Task, command: cmd.StartRun, context: Context) -> Lookups[Plan]:
    """Start a run."""
    events = decide(task, command, context)
    yield from must_be_ready(task, context, now=False)
    return make_plan(task.id, {task.id: events}, frozenset({task.id}))


def _run_now(task: Task, command: cmd.RunTask, context: Context) -> Lookups[Plan]:
    """Queue a run now, which drops a scheduled start."""
    events = decide(task, command, context)
    yield from must_be_ready(task, context, now=True)
    guards = frozenset({task.id})
    if task.not_before is not None:
        unscheduled = Schedule(cron=cron_of(task))
        events = [*events, ev.ScheduleChanged(schedule=unscheduled)]
    decided = make_plan(task.id, {task.id: events}, guards)
    if task.state is State.PENDING:
        return replace(decided, wakes=guards)
    return decided


def _with_files(task: Task, command: TaskCommand, context: Context) -> Lookups[Context]:
    """Look up the files that a claim submits or that its criteria check."""
    wanted = _files_needed(task, command)
    if not wanted:
        return context
    found: Files = yield SeenFiles(files=wanted)
    return replace(context, files=found)


def _files_needed(task: Task, command: TaskCommand) -> tuple[FileQuery, ...]:
    """Return the files that the decision of a command depends on."""
    match command:
        case cmd.CompleteTask(outputs=given) | cmd.FinishRun(outputs=given):
            return output_files(task, given)
        case cmd.UpdateTask(status="done", outputs=outputs):
            return output_files(task if outputs is None else replace(task, outputs=outputs), None)
        case cmd.AwaitTask():
            return files_to_claim(task)
        case cmd.CheckCriteria() if task.state is State.VERIFYING:
            return files_to_check(task)
        case _:
            return ()


def _settle_all(command: cmd.SettleSubtasks, context: Context) -> Lookups[Plan]:
    """Report all ended subtasks to their parent in one commit."""
    parent = yield from find_task(command.task_id)
    if parent.state.terminal:
        return Plan(task_id=parent.id, events={})
    ended: frozenset[str] = yield EndedChildren(task_id=parent.id)
    news = tuple(child.id for child in parent.children if child.holds and child.id in ended)
    ends: Mapping[str, End] = yield TaskEnds(ids=news)
    events = _settle_events(parent, ends, context)
    if any(item.ref not in ends for item in parent.waits_on):
        after = fold(parent, events, context)
        events += yield from _change_clock(after)
    return make_plan(parent.id, {parent.id: events})


def _settle_events(parent: Task, ends: Mapping[str, End], context: Context) -> Events:
    """Return the ends of subtasks as events of their parent."""
    events: Events = []
    reached, room = parent, shared_room(parent, ends)
    for child_id, end in ends.items():
        cut = end._replace(report=report_within(end.report, child_id, room))
        settled = decide(reached, _settle(parent.id, child_id, cut), context)
        reached = fold(reached, settled, context)
        events += settled
    return events


def _change_clock(task: Task) -> Lookups[Events]:
    """Stop or start the clock of a task, depending on what its subtasks wait for."""
    is_held = yield from _is_held(task)
    if is_held == task.held:
        return []
    return [ev.ClockStopped() if is_held else ev.ClockStarted()]


def _is_held(task: Task) -> Lookups[bool]:
    """Return whether a task waits for subtasks only, all of which wait for a person."""
    if task.awaited_kinds != {"subtask"}:
        return False
    for item in task.waits_on:
        child = yield from find_task(item.ref)
        if not waits_for_person(child):
            return False
    return True


def _end_time(command: cmd.EndTime, context: Context) -> Lookups[Plan]:
    """End a task whose time is up while it waits for subtasks; it may report before it fails.

    The subtasks continue within their own limits.
    """
    task = yield from find_task(command.task_id)
    end = deadline(task, command.seconds)
    if end is None or end > context.now:
        return Plan(task_id=task.id, events={})
    if command.report and task.overdue is None:
        woken = ev.TaskWoken(ref=task.waits_on[0].ref, cause="timeout")
        return make_plan(task.id, {task.id: [woken]})
    abort = cmd.AbortTask(
        task_id=task.id,
        reason="timeout",
        message=f"The time limit of {in_seconds(command.seconds)} is reached.",
    )
    return make_plan(task.id, {task.id: decide(task, abort, context)})


def _settle(parent_id: str, child_id: str, end: End) -> cmd.SettleSubtask:
    """Return the command that reports the end of a subtask to its parent."""
    return cmd.SettleSubtask(
        task_id=parent_id,
        child_id=child_id,
        state=cast("Any", end.state.value),
        summary=end.summary,
        failure_reason=end.failure_reason,
        report=end.report,
    )


def _respond(command: cmd.Respond, context: Context) -> Lookups[Plan]:
    """Answer an open question of a task."""
    interaction_id = command.interaction_id
    task = yield from _asking_task(interaction_id)
    answer: Mapping[str, Any] | None = yield Answer(interaction_id=interaction_id)
    if answer is None:
        raise _no_interaction(interaction_id)
    _must_be_open(interaction_id, answer, task)
    return (yield from _change(task, command, context))


def _asking_task(interaction_id: str) -> Lookups[Task]:
    """Return the task that asked a question, as the id of the question names it."""
    task_id = interaction_id.partition("-q")[0]
    found: list[Task] = []
    if re.fullmatch(TASK_ID, task_id):
        found = yield from load_tasks([task_id])
    if not found:
        raise _no_interaction(interaction_id)
    return found[0]


def _no_interaction(interaction_id: str) -> NotFound:
    return NotFound(
        f"There is no interaction {interaction_id}.",
        hint="See the open ones with list_interactions.",
    )


def _must_be_open(interaction_id: str, answer: Mapping[str, Any], task: Task) -> None:
    """Refuse the answer to a question that was answered or closed."""
    if answer["status"] == "open":
        return
    end, hint = "was closed without an answer, because its task was updated or ended", ""
    if answer["status"] == "answered":
        end = f"was answered by {answer['answered_by']}"
    elif not task.state.terminal:
        end = "was closed without an answer, because its task was updated"
        hint = f"Use send_message to tell the agent of task {task.id} more."
    raise Conflict(f"Interaction {interaction_id} {end}.", hint=hint, details=dict(answer))


PLANS: Mapping[type[Any], Callable[[Any, Context], Lookups[Plan]]] = {
    cmd.CreateGuide: create_guide,
    cmd.CreateTask: create,
    cmd.CreateDelegated: create,
    cmd.CreateCached: create,
    cmd.CreateSubtask: create,
    cmd.CreateCachedSubtask: create,
    cmd.RerunTask: rerun,
    cmd.Respond: _respond,
    cmd.Delegate: delegate,
    cmd.SettleSubtasks: _settle_all,
    cmd.EndTime: _end_time,
    cmd.ReleaseDependents: release_dependents,
    cmd.CancelTask: _cancel,
    cmd.UpdateTask: _update_or_cancel,
}
"""How commands are planned that do not only change the task that they name, by type."""

CHANGES: Mapping[type[Any], Callable[[Task, Any, Context], Lookups[Plan]]] = {
    cmd.UpdateTask: _update,
    cmd.AwaitTask: _await_task,
    cmd.StartRun: _start,
    cmd.RunTask: _run_now,
    cmd.DeliverUpdates: _deliver,
    cmd.AwaitSubtask: _await_subtask,
    cmd.CompleteTask: _complete,
    cmd.AttachTsg: _attach_guide,
}
"""How commands on one task are planned that read or change other tasks, by type."""
