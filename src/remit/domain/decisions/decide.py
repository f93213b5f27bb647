"""Decide what a command does to one task: `decide(task, command, context) -> events`.

Raises an error that says why a command is refused. Commands that change several tasks (trees,
dependencies, successors) are in `planning.plan`, which calls `decide` for each task.
"""

from collections.abc import Mapping
from typing import Any

from remit.domain.decisions.completion import (
    claim,
    conclude,
    join_texts,
    report_gaps,
)
from remit.domain.decisions.context import (
    Context,
    Decision,
    Events,
    decided_by,
    other_claimer,
)
from remit.domain.decisions.creation import build_resource
from remit.domain.decisions.evolve import fold
from remit.domain.decisions.runs import RunCommand, abort, check_fence, decide_run, wake
from remit.domain.decisions.update_task import canceled, if_changed, update
from remit.domain.decisions.wait_state import awaited_own_question, has_own_question
from remit.domain.delegation.result_envelope import outputs_notice
from remit.domain.outputs.criteria import judge
from remit.domain.outputs.required_outputs import gaps
from remit.domain.prompts.claims import in_force
from remit.domain.prompts.todo_plan import moved_link
from remit.domain.prompts.update_messages import answer_told
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import agent_of, must_be_person, must_not_be_ended, must_own_or_create
from remit.domain.task.task import Criterion, Interaction, State, Step, Task, TaskId
from remit.domain.text.counting import counted
from remit.errors import Conflict, NotFound, invalid

SHOWN_ANSWER = 60
"""How many characters of a refused answer the error message quotes."""

LATE_SIGNALS = (
    cmd.AwaitTask
    | cmd.LoseRun
    | cmd.ExcludeDowntime
    | cmd.FireTimer
    | cmd.Tick
    | cmd.SettleSubtask
    | cmd.CheckCriteria
    | cmd.AbortTask
)
"""Signals that may arrive after the task has ended; they are then ignored."""


TaskCommand = (
    cmd.UpdateTask
    | cmd.CompleteTask
    | cmd.FailTask
    | cmd.WaiveCriterion
    | cmd.CancelTask
    | cmd.PauseTask
    | cmd.ResumeTask
    | cmd.RunTask
    | cmd.AssignTask
    | cmd.AttachTsg
    | cmd.UpdateSteps
    | cmd.UpdateStep
    | cmd.AddResource
    | cmd.RemoveResource
    | cmd.SendMessage
    | cmd.AskUser
    | cmd.Respond
    | cmd.NotifyUser
    | cmd.Signal
    | cmd.ExcludeDowntime
)
"""Commands that need the state of one task only."""


def decide(task: Task, command: TaskCommand, context: Context) -> Events:
    """Return the events that carry out a command on a task."""
    if task.state.terminal and isinstance(command, LATE_SIGNALS):
        return []
    events = _decide(task, command, context)
    if has_own_question(task):
        events += _wake_with_news(task, fold(task, events, context))
    return events


def _decide(task: Task, command: TaskCommand, context: Context) -> Events:
    check_fence(task, context.run_id)
    must_not_be_ended(task)
    if isinstance(command, RunCommand):
        return decide_run(task, command, context)
    return DECISIONS[type(command)](task, command, context)


def _wake_with_news(before: Task, after: Task) -> Events:
    """Wake a task that only waits for the answer to a question of remit itself if it has news.

    The event names the question, which it closes.
    """
    interaction_id = awaited_own_question(after)
    news = after.queued[len(before.queued) :]
    if interaction_id is None or not (news or after.children != before.children):
        return []
    is_message = any(update.type == "message" for update in news)
    return [ev.TaskWoken(ref=interaction_id, cause="message" if is_message else "update")]


def _refuse_if(is_wrong: bool, task: Task, what: str) -> None:
    """Refuse a command if the state of the task does not allow it."""
    if is_wrong:
        raise Conflict(
            f"Task {task.id} {what}.", details={"task_id": task.id, "state": task.state.value}
        )


def _must_be_active(task: Task, what: str) -> None:
    """Refuse a command that a draft cannot carry out."""
    if task.state is State.DRAFT:
        raise Conflict(
            f"Task {task.id} is a draft and cannot be {what}.",
            hint="Set its status to active first.",
            details={"state": "draft"},
        )


def _must_have_index(task_id: TaskId, what: str, index: int, count: int) -> None:
    """Refuse the index of a part that the task does not have."""
    if index < count:
        return
    expected = f"0 to {count - 1}" if count else f"a task that has a {what}"
    raise invalid(
        "index",
        f"is {index}, but task {task_id} has {counted(count, what)}",
        expected,
    )


def _fail(task: Task, command: cmd.FailTask, context: Context) -> Events:
    """Fail a task for its owner, its creator, or a run with authority over it."""
    if context.acting_task_id is None:
        must_own_or_create(context.actor, task, "fail it")
    return [ev.TaskFailed(reason="error", message=command.message)]


def _abort(_: Task, command: cmd.AbortTask, context: Context) -> Events:
    return abort(command, context.run_id)


def _pause(task: Task, _: cmd.PauseTask, context: Context) -> Events:
    """Pause an active task, and record whether an agent pauses it."""
    _must_be_active(task, "paused")
    _refuse_if(task.state is State.PAUSED, task, "is already paused")
    by_agent = agent_of(context.actor) is not None
    return [ev.TaskPaused(by_agent=by_agent)]


def _resume(task: Task, _: cmd.ResumeTask, context: Context) -> Events:
    """Resume a task, and conclude a claim whose checks ended while it was paused."""
    _refuse_if(task.state is not State.PAUSED, task, "is not paused")
    resumed: Events = [ev.TaskResumed()]
    return resumed + conclude(fold(task, resumed, context))


def _notify(task: Task, command: cmd.NotifyUser, _: Context) -> Events:
    """Notify people for a task that is not a draft."""
    _must_be_active(task, "used to notify people")
    notification_id = f"{task.id}-n{task.counts.notifications + 1}"
    return [ev.UserNotified(notification_id=notification_id, message=command.message)]


def _send_message(task: Task, command: cmd.SendMessage, _: Context) -> Events:
    """Queue a message for the agent, and wake a task that waits without need of an answer."""
    sent = ev.MessageSent(update_id=task.update_id(), message=command.message)
    return [sent, *wake(task, "message")]


def _attach_guide(task: Task, command: cmd.AttachTsg, _: Context) -> Events:
    """Attach a guide; return no events if it is attached already."""
    if command.tsg_id in task.guides:
        return []
    return [ev.GuideAttached(guide_id=command.tsg_id)]


def _add_resource(_: Task, command: cmd.AddResource, __: Context) -> Events:
    """Add a resource as the last one."""
    resource = build_resource(command.type, command.value, command.label, "value")
    return [ev.ResourceAdded(resource=resource)]


def _remove_resource(task: Task, command: cmd.RemoveResource, _: Context) -> Events:
    """Remove the resource at an index."""
    _must_have_index(task.id, "resource", command.index, len(task.resources))
    return [ev.ResourceRemoved(index=command.index)]


def _change_schedule(task: Task, command: cmd.ChangeSchedule, _: Context) -> Events:
    """Replace the schedule; return no events if it does not change."""
    if command.schedule == task.schedule:
        return []
    return [ev.ScheduleChanged(schedule=command.schedule)]


def _cancel(task: Task, command: cmd.CancelTask, context: Context) -> Events:
    return [canceled(task, command.message, context)]


_UNREAD = (
    "Not done: the task was updated and you have not read the update. It follows. Then call"
    " complete_task again."
)
_UNREAD_BY_OTHER = "Not done: the task was updated and its agent has not read the update."
"""Why a run cannot complete a task, its own or another one."""


def _complete(task: Task, command: cmd.CompleteTask, context: Context) -> Events:
    """Claim completion. A run with missing outputs is refused, and fails its task after a few
    refusals.
    """
    by_run = context.run_id is not None
    if by_run and (found := gaps(task, command.outputs, context.files)):
        return report_gaps(task, found, outputs=command.outputs, told=True)
    claimed = claim(
        task,
        context,
        run_id=context.run_id,
        authorized=context.acting_task_id is not None,
        by=other_claimer(task, context),
        outputs=command.outputs,
        summary=_summary(task, command, context),
    )
    if by_run and any(update.type != "subtask" for update in task.queued):
        raise Conflict(_UNREAD if context.run_task_id == task.id else _UNREAD_BY_OTHER)
    return claimed


def _summary(task: Task, command: cmd.CompleteTask, context: Context) -> str | None:
    """Return the summary of a claim. For the task's own run, add it to the unclaimed answer."""
    is_own = context.run_id is not None and context.acting_task_id in (None, task.id)
    if not is_own:
        return command.summary
    if command.summary is None:
        return _replacement_summary(task, command)
    return join_texts(task.answer, command.summary)


def _replacement_summary(task: Task, command: cmd.CompleteTask) -> str | None:
    """Return a summary for a claim without one after a claim that was not accepted.

    The refused result is kept, unless the claim hands over outputs, the agent has sent a final
    message since, or the instructions have changed.
    """
    if task.summary is None:
        return None
    if task.unclaimed_message is not None:
        return task.unclaimed_message
    if not command.outputs and task.refused_summary is not None:
        return None
    outputs = {**task.provided, **(command.outputs or {})}
    return outputs_notice(outputs) or None


def _waive(task: Task, command: cmd.WaiveCriterion, context: Context) -> Events:
    """Waive a criterion for a person, and conclude a claim that only it kept open."""
    must_be_person(context.actor, "waive a criterion")
    known = [criterion.id for criterion in task.acceptance]
    if command.criterion_id not in known:
        available = ", ".join(known) or "none"
        raise NotFound(
            f"Task {task.id} has no criterion {command.criterion_id!r}.",
            hint=f"Available: {available}.",
        )
    waived: Events = [ev.CriterionWaived(criterion_id=command.criterion_id, reason=command.reason)]
    after = fold(task, waived, context)
    concluded = conclude(after)
    if ev.includes(concluded, (ev.TaskCompleted, ev.TaskFailed)):
        return waived + concluded
    waived += _tell_session_of_waiver(task, after)
    return waived + conclude(fold(task, waived, context))


def _tell_session_of_waiver(task: Task, after: Task) -> Events:
    """Queue the criteria that still apply for a session that was told the waived one.

    A running agent reads them in its task block.
    """
    if task.session_id is None or not task.briefed or in_force(task) == in_force(after):
        return []
    updated = ev.AcceptanceUpdated(
        update_id=task.update_id(),
        acceptance=after.acceptance,
        terms_version=task.terms_version + 1,
    )
    return [updated]


def _check(task: Task, _: cmd.CheckCriteria, context: Context) -> Events:
    """Check the undecided criteria of a claimed task by code, and conclude.

    Return no events if the task is not being verified.
    """
    if task.state is not State.VERIFYING:
        return []
    checked: Events = [
        _check_criterion(item, task, context) for item in task.acceptance if not item.decided
    ]
    return checked + conclude(fold(task, checked, context))


def _check_criterion(criterion: Criterion, task: Task, context: Context) -> ev.CriterionChecked:
    """Return the verdict of the check of one criterion."""
    verdict = judge(criterion.check, task, context.files)
    return ev.CriterionChecked(
        criterion_id=criterion.id, status=verdict.status, evidence=verdict.evidence
    )


def _assign(task: Task, command: cmd.AssignTask, _: Context) -> Events:
    """Assign a task to a session; another session may give up a task that it works on."""
    session_id = command.subagent_session_id
    if session_id == task.session_id:
        return []
    _refuse_if(task.run is not None, task, "is in flight and cannot be assigned")
    # Without a run, another session works on a running task.
    _refuse_if(
        task.state not in (State.PENDING, State.RUNNING),
        task,
        f"is {task.state.value}; only a pending task can be assigned",
    )
    return [ev.TaskAssigned(session_id=session_id)]


def _replan(task: Task, command: cmd.UpdateSteps, _: Context) -> Events:
    """Replace the plan; steps that are linked to subtasks keep their place and their link."""
    steps = command.steps
    _must_keep_links(task, steps)
    links = [step.task_id for step in task.steps] + [None] * len(steps)
    plan = tuple(
        Step(title=step.title, details=step.details, done=step.done, task_id=link)
        for step, link in zip(steps, links, strict=False)
    )
    return [] if plan == task.steps else [ev.StepsReplaced(steps=plan)]


def _must_keep_links(task: Task, steps: tuple[cmd.NewStep, ...]) -> None:
    """Refuse a plan that moves, renames or removes a step that is linked to a subtask."""
    index = moved_link(task.steps, steps)
    if index is None:
        return
    old = task.steps[index]
    raise invalid(
        f"steps[{index}]",
        "was removed or renamed, but it is linked to a subtask",
        f"step {index} with the title {old.title!r}",
        task_id=old.task_id,
    )


def _change_step(task: Task, command: cmd.UpdateStep, _: Context) -> Events:
    """Change one step of the plan; return no events if nothing changes."""
    _must_have_index(task.id, "step", command.index, len(task.steps))
    step = task.steps[command.index]
    changed = ev.StepUpdated(
        index=command.index,
        title=if_changed(step.title, command.title),
        details=if_changed(step.details, command.details),
        done=if_changed(step.done, command.done),
    )
    return [] if changed == ev.StepUpdated(index=command.index) else [changed]


def _respond(task: Task, command: cmd.Respond, context: Context) -> Events:
    """Answer a question; a question without an open tool call gets the answer as a message."""
    must_be_person(context.actor, "answer a question")
    question = _open_question(task, command.interaction_id)
    answer = _match_option(question, command.answer)
    answered = ev.UserInteractionResponded(interaction_id=question.id, answer=answer)
    if question.blocking and question.call_id is not None:
        return [answered]
    told = ev.MessageSent(
        update_id=task.update_id(),
        message=answer_told(question.question, answer),
        question=question.question,
    )
    return [
        answered,
        told,
        *wake(replace(task, questions=()), "message"),
    ]


def _open_question(task: Task, interaction_id: str) -> Interaction:
    """Return an open question; refuse one that was answered or closed."""
    for question in task.questions:
        if question.id == interaction_id:
            return question
    raise Conflict(
        f"Interaction {interaction_id} is no longer open.",
        details={"interaction_id": interaction_id},
    )


def _match_option(question: Interaction, answer: str) -> str:
    """Return the answer for the agent: an option, unless the question allows other answers.

    The match ignores case and extra spaces if exactly one option matches.
    """
    if not question.options or question.allow_other or answer in question.options:
        return answer
    sought = _normalize(answer)
    matches = {option for option in question.options if _normalize(option) == sought}
    if len(matches) == 1:
        return matches.pop()
    shown = answer
    if len(answer) > SHOWN_ANSWER:
        shown = f"{answer[:SHOWN_ANSWER]}…"
    options = ", ".join(map(repr, question.options))
    raise invalid(
        "answer",
        f"is {shown!r}, which is not an option of question {question.id}",
        f"one of {options}",
    )


def _normalize(answer: str) -> str:
    """Collapse spaces and ignore case."""
    return " ".join(answer.split()).casefold()


DECISIONS: Mapping[type[Any], Decision] = dict(
    [
        decided_by(cmd.UpdateTask, update),
        decided_by(cmd.CompleteTask, _complete),
        decided_by(cmd.FailTask, _fail),
        decided_by(cmd.AbortTask, _abort),
        decided_by(cmd.WaiveCriterion, _waive),
        decided_by(cmd.CheckCriteria, _check),
        decided_by(cmd.CancelTask, _cancel),
        decided_by(cmd.PauseTask, _pause),
        decided_by(cmd.ResumeTask, _resume),
        decided_by(cmd.AssignTask, _assign),
        decided_by(cmd.AttachTsg, _attach_guide),
        decided_by(cmd.UpdateSteps, _replan),
        decided_by(cmd.UpdateStep, _change_step),
        decided_by(cmd.AddResource, _add_resource),
        decided_by(cmd.RemoveResource, _remove_resource),
        decided_by(cmd.SendMessage, _send_message),
        decided_by(cmd.Respond, _respond),
        decided_by(cmd.NotifyUser, _notify),
        decided_by(cmd.ChangeSchedule, _change_schedule),
    ]
)
"""What each command decides that is not in `runs`."""
