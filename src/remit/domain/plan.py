"""What a command does to all the tasks it touches, decided without any input or output."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.authority import OwnTerms, must_have_authority, must_not_set_own_terms
from remit.domain.brief import refused_claim
from remit.domain.check import sought
from remit.domain.counting import in_seconds
from remit.domain.create import within, without_blanks
from remit.domain.decide import Context, TaskCommand, decide, fold
from remit.domain.depend import await_prerequisites, blocked_by, dependencies, early, must_be_ready, release
from remit.domain.downtime import without_downtime
from remit.domain.due import ends_at
from remit.domain.grow import create, create_guide, delegate, hand_off, must_be_guides, rerun, the_agent
from remit.domain.need import Answer, Asking, Changes, End, EndedChildren, Ends, Load, Plan, SeenFiles, below, planned, the_task
from remit.domain.output import Files, gaps, handed_files, refusal
from remit.domain.policy import agent_of, must_live, waits_for_person
from remit.domain.record import replace
from remit.domain.run import fenced
from remit.domain.series import continued, live_of_series
from remit.domain.value import TASK_ID, State, Task
from remit.errors import Conflict, NotFound


def plan(command: cmd.Command, context: Context) -> Asking[Plan]:
    """Decide a command; the answers to what it yields make it a pure function."""
    decided = yield from _authorized(_cleaned(command), context)
    decided = yield from continued(decided, context)
    return (yield from without_downtime(decided, context))


def _cleaned(command: cmd.Command) -> cmd.Command:
    """A command without texts that have no words."""
    match command:
        case cmd.CreateTask() | cmd.CreateSubtask() | cmd.UpdateTask():
            return without_blanks(command)
        case cmd.Delegate(subtasks=subtasks):
            return replace(command, subtasks=tuple(without_blanks(subtask) for subtask in subtasks))
        case _:
            return command


def _authorized(command: cmd.Command, context: Context) -> Asking[Plan]:
    if context.run_id is None:
        if isinstance(command, OwnTerms):
            yield from must_not_set_own_terms(command, context.actor)
        return (yield from _decided(command, context))
    mine = yield from the_task(context.run_id.rpartition("-r")[0], "run_id")
    fenced(mine, context.run_id)
    if isinstance(command, cmd.Operation):
        yield from must_have_authority(command, mine)
    about = getattr(command, "task_id", None) in (mine.id, mine.uid)
    context = replace(context, acting_task_id=mine.id, via=mine.via)
    decided = yield from _decided(command, context if about else replace(context, run_id=None))
    return replace(decided, guards=decided.guards | {mine.id})


def _decided(command: cmd.Command, context: Context) -> Asking[Plan]:
    match command:
        case cmd.CreateGuide():
            return (yield from create_guide(command))
        case cmd.CreateTask() | cmd.CreateSubtask():
            return (yield from create(command, context))
        case cmd.RerunTask():
            return (yield from rerun(command))
        case cmd.Respond():
            return (yield from _respond(command, context))
        case cmd.Delegate():
            return (yield from delegate(command, context))
        case cmd.SettleSubtasks():
            return (yield from _settle_all(command, context))
        case cmd.EndTime():
            return (yield from _end_time(command, context))
        case cmd.ReleaseDependents():
            return (yield from release(command, context))
        case cmd.CancelTask():
            return (yield from _cancel(command, context))
        case cmd.UpdateTask() if _only_cancels(command):
            return (yield from _cancel(command, context))
        case _:
            task = yield from the_task(command.task_id)
            return (yield from _change(task, command, context))


def _only_cancels(command: cmd.UpdateTask) -> bool:
    """True for an update that says the same as cancel_task."""
    return command == cmd.UpdateTask(task_id=command.task_id, status="canceled")


def _cancel(command: cmd.CancelTask | cmd.UpdateTask, context: Context) -> Asking[Plan]:
    """Cancel a task; an ended task of a series stands for the one that is still to be done, so that the series stops."""
    task = yield from the_task(command.task_id)
    live = (yield from live_of_series(task)) if task.state.terminal else None
    return (yield from _change(live or task, command, context))


def _change(task: Task, command: TaskCommand, context: Context) -> Asking[Plan]:
    guards: frozenset[str] = frozenset()
    match command:
        case cmd.UpdateTask(owner=owner, depends_on=asked):
            must_live(task)
            if owner is not None and owner != task.owner:
                owner = yield from the_agent(owner)
                command = replace(command, owner=owner)
            handed = owner is not None and owner != task.owner
            if asked is not None:
                depends_on, guards = yield from dependencies(asked, task)
                command = replace(command, depends_on=depends_on)
            if command.limits is not None and task.parent_id is not None and agent_of(context.actor) is not None:
                # An agent gives a subtask no more afterwards than it could have given at first; a person may.
                parent = yield from the_task(task.parent_id, "parent_id")
                command, guards = replace(command, limits=within(command.limits, parent.limits)), guards | {parent.id}
            if handed and task.started_at is not None:
                return (yield from hand_off(task, command, context))
        case cmd.AwaitTask():
            awaited = yield from await_prerequisites(task.depends_on, context)
            return planned(task.id, awaited | {task.id: decide(task, command, context)})
        case cmd.AttachTsg(tsg_id=guide_id):
            yield from must_be_guides((guide_id,))
        case cmd.StartRun() | cmd.RunTask():
            events = decide(task, command, context)
            yield from must_be_ready(task, context, now=isinstance(command, cmd.RunTask))
            if isinstance(command, cmd.RunTask) and task.schedule is not None and task.schedule.not_before is not None:
                events = [*events, ev.ScheduleChanged(schedule=replace(task.schedule, not_before=None))]
            now = isinstance(command, cmd.RunTask) and task.state is State.PENDING
            return replace(planned(task.id, {task.id: events}, frozenset({task.id})), wakes=frozenset({task.id}) if now else frozenset())
        case cmd.DeliverUpdates(session_id=str()) if task.state is State.PENDING and task.started_at is None:
            if early(task, context) or (yield from blocked_by(task)):
                decide(task, command, context)
                return Plan(task_id=task.id, events={})
        case cmd.AwaitSubtask(child_id=ref):
            child = yield from the_task(ref, "child_id")
            command = replace(command, child_id=child.id)
            guards = frozenset({child.id})
            if decide(task, command, context) and child.state.terminal:
                return Plan(task_id=task.id, events={})
        case _:
            pass
    context = yield from _with_files(task, command, context)
    changes: Changes = {task.id: decide(task, command, context)}
    if task.awaited and isinstance(command, cmd.UpdateTask) and command.depends_on:
        changes |= yield from await_prerequisites(command.depends_on, context)
    if isinstance(command, cmd.CompleteTask) and any(isinstance(event, ev.AcceptanceRejected) and event.told for event in changes[task.id]):
        found = gaps(task, command.outputs, context.files)
        refused = refusal(found)
        refused.for_agent = refused_claim(task, found)
        return replace(planned(task.id, changes), refused=refused)
    if _canceled(changes[task.id]):
        everything = yield from below(task)
        changes |= {child.id: [ev.TaskCanceled(reason="parent")] for child in everything if not child.state.terminal}
    return planned(task.id, changes, guards)


def _with_files(task: Task, command: TaskCommand, context: Context) -> Asking[Context]:
    """Have the files looked for that a claim of completion hands over, or that its criteria are about."""
    match command:
        case cmd.CompleteTask(outputs=given) | cmd.FinishRun(outputs=given):
            wanted = handed_files(task, given)
        case cmd.UpdateTask(status="done", outputs=outputs):
            wanted = handed_files(task if outputs is None else replace(task, outputs=outputs), None)
        case cmd.CheckCriteria() if task.state is State.VERIFYING:
            wanted = sought(task)
        case _:
            return context
    if not wanted:
        return context
    found: Files = yield SeenFiles(files=wanted)
    return replace(context, files=found)


def _canceled(events: Iterable[object]) -> bool:
    return any(isinstance(event, ev.TaskCanceled) for event in events)


def _settle_all(command: cmd.SettleSubtasks, context: Context) -> Asking[Plan]:
    """What a parent learns of its ended subtasks, all at once: a thousand that end together are a few commits, not a thousand."""
    parent = yield from the_task(command.task_id)
    if parent.state.terminal:
        return Plan(task_id=parent.id, events={})
    ended: frozenset[str] = yield EndedChildren(task_id=parent.id)
    news = tuple(child.id for child in parent.children if child.settled is None and child.wait != "none" and child.id in ended)
    ends: Mapping[str, End] = yield Ends(ids=news)
    told: list[ev.Event] = []
    updates = 0
    for child_id, end in ends.items():
        settled = decide(parent, _settled(parent.id, child_id, end, updates + 1), context)
        updates += sum(isinstance(event, ev.SubtaskSettled) and event.update_id is not None for event in settled)
        told += settled
    if parent.wait is not None and any(item.ref not in ends for item in parent.wait.on):
        after = fold(parent, told, context)
        held = yield from _is_held(after)
        if held != after.held:
            told.append(ev.ClockStopped() if held else ev.ClockStarted())
    return planned(parent.id, {parent.id: told})


def _is_held(task: Task) -> Asking[bool]:
    """True if a task waits for subtasks alone, and all of them for a person; the first that does not is enough to know."""
    if task.wait is None or not all(item.kind == "subtask" for item in task.wait.on):
        return False
    for item in task.wait.on:
        child = yield from the_task(item.ref)
        if not waits_for_person(child):
            return False
    return True


def _end_time(command: cmd.EndTime, context: Context) -> Asking[Plan]:
    """A task that waits for subtasks may report when its time is up, and fails; what they do goes on, within limits of their own."""
    task = yield from the_task(command.task_id)
    end = ends_at(task, command.seconds)
    if end is None or end > context.now:
        return Plan(task_id=task.id, events={})
    if command.report and task.overdue is None:
        assert task.wait is not None, "it waits"
        return planned(task.id, {task.id: [ev.TimerFired(ref=task.wait.on[0].ref, cause="timeout")]})
    abort = cmd.AbortTask(task_id=task.id, reason="timeout", message=f"The time limit of {in_seconds(command.seconds)} is reached.")
    return planned(task.id, {task.id: decide(task, abort, context)})


def _settled(parent_id: str, child_id: str, end: End, ahead: int) -> cmd.SettleSubtask:
    return cmd.SettleSubtask(
        task_id=parent_id,
        child_id=child_id,
        state=cast("Any", end.state.value),
        summary=end.summary,
        failure_reason=end.failure_reason,
        report=end.report,
        ahead=ahead,
    )


def _respond(command: cmd.Respond, context: Context) -> Asking[Plan]:
    task_id = command.interaction_id.partition("-q")[0]
    task = (yield Load(refs=(task_id,)))[task_id] if re.fullmatch(TASK_ID, task_id) else None
    answer: Mapping[str, Any] | None = None if task is None else (yield Answer(interaction_id=command.interaction_id))
    if task is None or answer is None:
        raise NotFound(f"There is no interaction {command.interaction_id}.", hint="list_interactions shows the open ones.")
    if answer["status"] != "open":
        told = f"was answered by {answer['answered_by']}" if answer["status"] == "answered" else "was closed when its task ended"
        raise Conflict(f"Interaction {command.interaction_id} {told}.", details=dict(answer))
    return (yield from _change(task, command, context))
