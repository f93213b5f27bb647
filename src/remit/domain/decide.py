"""What a command does to one task: `decide(task, command, context) -> events`, or an error that says why not.

What reaches over several tasks (trees, dependencies, successors) is in `plan`, which uses this for each of them.
"""

from datetime import datetime
from typing import TypeVar, assert_never

from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.brief import answer_told
from remit.domain.check import judge
from remit.domain.create import criteria, resource, stands_for_instructions, title_of
from remit.domain.evolve import foreseen
from remit.domain.output import Files, gaps, usable
from remit.domain.policy import agent_of, must_answer_for, must_be_person, must_live
from remit.domain.record import record, replace
from remit.domain.run import RunCommand, abort, decide_run, fenced, wake
from remit.domain.todos import moved_link
from remit.domain.value import Interaction, State, Step, Task, TaskId
from remit.domain.verdict import NO_FILES, claim, conclude, tell_gaps
from remit.errors import Conflict, NotFound, invalid

V = TypeVar("V")
SHOWN_ANSWER = 60
"""How much of a refused answer is repeated."""
Events = list[ev.Event]

LATE = cmd.AwaitTask | cmd.LoseRun | cmd.ExcludeDowntime | cmd.FireTimer | cmd.Tick | cmd.SettleSubtask | cmd.CheckCriteria | cmd.AbortTask
"""Signals that may find the task already gone on, which is no error."""


@record
class Context:
    """Who asks, when, under which run's fence, and which files were looked for."""

    actor: str
    now: datetime
    run_id: str | None = None
    files: Files = NO_FILES
    acting_task_id: str | None = None
    """The task whose run gives the command, once `authority` has allowed it."""
    via: str | None = None
    """Through which surface a new tree is created, where that matters (`mcp`)."""


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
"""Every command that is decided by one task alone."""


def decide(task: Task, command: TaskCommand, context: Context) -> Events:
    """The events that carry out a command on a task."""
    if task.state.terminal and isinstance(command, LATE):
        return []
    fenced(task, context.run_id)
    must_live(task)
    if isinstance(command, RunCommand):
        return decide_run(task, command, context.actor, context.now, context.run_id, context.files)
    match command:
        case cmd.UpdateTask():
            return _update(task, command, context)
        case cmd.CompleteTask():
            return _complete(task, command, context)
        case cmd.FailTask(message=message):
            if context.acting_task_id is None:
                must_answer_for(context.actor, task, "fail it")
            return [ev.TaskFailed(reason="error", message=message)]
        case cmd.AbortTask():
            return abort(command, context.run_id)
        case cmd.WaiveCriterion():
            return _waive(task, command, context)
        case cmd.CheckCriteria():
            return _check(task, context)
        case cmd.CancelTask(message=message):
            return [ev.TaskCanceled(reason="user", message=message)]
        case cmd.PauseTask():
            _must_be_active(task, "paused")
            by_agent = agent_of(context.actor) is not None
            paused = ev.TaskPaused(by_agent=by_agent)
            return _refuse_if(task.state is State.PAUSED, task, "is already paused") or [paused]
        case cmd.ResumeTask():
            _refuse_if(task.state is not State.PAUSED, task, "is not paused")
            return [ev.TaskResumed(), *conclude(fold(task, [ev.TaskResumed()], context))]
        case cmd.AssignTask(subagent_session_id=session_id):
            return _assign(task, session_id)
        case cmd.AttachTsg(tsg_id=guide_id):
            return [] if guide_id in task.guides else [ev.GuideAttached(guide_id=guide_id)]
        case cmd.UpdateSteps(steps=steps):
            return _replan(task, steps)
        case cmd.UpdateStep():
            return _change_step(task, command)
        case cmd.AddResource(type=kind, value=value, label=label):
            return [ev.ResourceAdded(resource=resource(kind, value, label, "value"))]
        case cmd.RemoveResource(index=index):
            _must_index(task.id, "resource", index, len(task.resources))
            return [ev.ResourceRemoved(index=index)]
        case cmd.SendMessage(message=message):
            return [ev.MessageSent(update_id=update_id(task), message=message), *wake(task, "message")]
        case cmd.Respond():
            return _respond(task, command, context)
        case cmd.NotifyUser(message=message):
            _must_be_active(task, "heard")
            return [ev.UserNotified(notification_id=f"{task.id}-n{task.counts.notifications + 1}", message=message)]
        case cmd.ChangeSchedule(schedule=schedule):
            return [] if schedule == task.schedule else [ev.ScheduleChanged(schedule=schedule)]
        case _:
            assert_never(command)


def update_id(task: Task, ahead: int = 1) -> str:
    """The id of the task's next update."""
    return f"{task.id}-u{task.counts.updates + ahead}"


def fold(task: Task, events: Events, context: Context) -> Task:
    """The task as it will be once the events are stored."""
    return foreseen(task, events, context.actor, context.now)


def _refuse_if(wrong: bool, task: Task, what: str) -> Events:
    if wrong:
        raise Conflict(f"Task {task.id} {what}.", details={"task_id": task.id, "state": task.state.value})
    return []


def _must_be_active(task: Task, what: str) -> None:
    if task.state is State.DRAFT:
        raise Conflict(f"Task {task.id} is a draft and cannot be {what}.", hint="Set its status to active first.", details={"state": "draft"})


def _must_index(task_id: TaskId, what: str, index: int, count: int) -> None:
    if index >= count:
        expected = f"0 to {count - 1}" if count else f"a task that has a {what}"
        raise invalid("index", f"is {index}, but task {task_id} has {count} {what}{'' if count == 1 else 's'}", expected)


def _update(task: Task, command: cmd.UpdateTask, context: Context) -> Events:
    if command.expected_version is not None and command.expected_version != task.version:
        raise Conflict(
            f"Task {task.id} is at version {task.version}, not {command.expected_version}.",
            hint="Read it again and repeat the change.",
            details={"version": task.version, "expected_version": command.expected_version},
        )
    events = [*_revise(task, command), *_reassign(task, command), *_redepend(task, command), *_instruct(task, command)]
    changed = fold(task, events, context)
    match command.status:
        case "active":
            return [*events, ev.TaskActivated()] if task.state is State.DRAFT else [*events, *conclude(changed)]
        case "done":
            authorized = context.acting_task_id is not None
            return [*events, *claim(changed, context.actor, context.now, run_id=context.run_id, authorized=authorized, files=context.files)]
        case "canceled":
            return [*events, ev.TaskCanceled(reason="user")]
        case None:
            return [*events, *conclude(changed)]
        case _:
            assert_never(command.status)


def _complete(task: Task, command: cmd.CompleteTask, context: Context) -> Events:
    """Claim completion; a run that hands over too little is refused like anybody else, but not for ever."""
    if context.run_id is not None and (found := gaps(task, command.outputs, context.files)):
        return tell_gaps(task, found, told=True)
    claimed = claim(
        task,
        context.actor,
        context.now,
        run_id=context.run_id,
        authorized=context.acting_task_id is not None,
        outputs=command.outputs,
        summary=command.summary,
        files=context.files,
    )
    unread = [update for update in task.queued if update.type != "subtask"]
    refused = context.run_id is not None and bool(unread)
    return _refuse_if(refused, task, "has an update that you have not read; it comes next") or claimed


def _revise(task: Task, command: cmd.UpdateTask) -> Events:
    labels = None if command.labels is None else tuple(dict.fromkeys(command.labels))
    revised = ev.TaskRevised(
        title=_new(task.title, command.title),
        description=_new(task.description, command.description),
        priority=_new(task.priority, command.priority),
        labels=_new(task.labels, labels),
        metadata=_new(task.metadata or {}, command.metadata),
        limits=_new(task.limits, command.limits),
    )
    return [] if revised == ev.TaskRevised() else [revised]


def _new(old: V, new: V | None) -> V | None:
    return None if new == old else new


def _reassign(task: Task, command: cmd.UpdateTask) -> Events:
    if command.owner is None or command.owner == task.owner:
        return []
    assert task.started_at is None, "a started task is handed off by plan"
    return [ev.TaskReassigned(owner=command.owner)]


def _redepend(task: Task, command: cmd.UpdateTask) -> Events:
    if command.depends_on is None or command.depends_on == task.depends_on:
        return []
    if task.started_at is not None:
        raise Conflict(f"Task {task.id} has started; its dependencies are fixed.", hint="Cancel it, or make a new task.")
    return [ev.DependenciesChanged(depends_on=command.depends_on)]


def _instruct(task: Task, command: cmd.UpdateTask) -> Events:
    """One update for each changed field that the agent must know of."""
    events: Events = []
    version = task.terms_version + 1
    instructions = _new_instructions(task, command)
    if instructions is not None and instructions != task.instructions:
        is_given = command.instructions is not None
        replaces_both = command.description is None and task.description == task.instructions
        gives_both = is_given and command.description == instructions
        derived = task.delegated and task.title == title_of(task.instructions)
        titled_by_it = command.title is None and derived
        title = title_of(instructions) if titled_by_it else command.title or task.title
        has_words = is_given or task.description_only
        updated = ev.InstructionsUpdated(
            update_id=update_id(task, len(events) + 1),
            instructions=instructions,
            description=instructions if replaces_both or gives_both else None,
            title=title if titled_by_it else None,
            terms_version=version,
            has_instructions=has_words and (stands_for_instructions(task) or title == instructions),
        )
        events.append(updated)
    if command.acceptance is not None and (acceptance := criteria(command.acceptance, task)) != task.acceptance:
        events.append(ev.AcceptanceUpdated(update_id=update_id(task, len(events) + 1), acceptance=acceptance, terms_version=version))
    if command.outputs is not None and command.outputs != task.outputs:
        usable(command.outputs)
        events.append(ev.OutputsUpdated(update_id=update_id(task, len(events) + 1), outputs=command.outputs, terms_version=version))
    return [*events, *wake(task, "update")] if events else []


def _new_instructions(task: Task, command: cmd.UpdateTask) -> str | None:
    """The instructions that an update gives; a description or title gives them where it stands for them."""
    if command.instructions is not None:
        return command.instructions
    if task.description_only:
        return command.description
    return command.title if stands_for_instructions(task) else None


def _waive(task: Task, command: cmd.WaiveCriterion, context: Context) -> Events:
    must_be_person(context.actor, "waive a criterion")
    known = [criterion.id for criterion in task.acceptance]
    if command.criterion_id not in known:
        raise NotFound(f"Task {task.id} has no criterion {command.criterion_id!r}.", hint=f"It has: {', '.join(known) or 'none'}.")
    waived: Events = [ev.CriterionWaived(criterion_id=command.criterion_id, reason=command.reason)]
    return waived + conclude(fold(task, waived, context))


def _check(task: Task, context: Context) -> Events:
    """The verdicts of code and what follows from them; nothing for a claim that is held, decided or gone by now."""
    if task.state is not State.VERIFYING:
        return []
    checked: Events = []
    for criterion in task.acceptance:
        if not criterion.decided:
            verdict = judge(criterion.check, task, context.files)
            checked.append(ev.CriterionChecked(criterion_id=criterion.id, status=verdict.status, evidence=verdict.evidence))
    return checked + conclude(fold(task, checked, context))


def _assign(task: Task, session_id: str) -> Events:
    if session_id == task.session_id:
        return []
    by_session = task.state is State.RUNNING and task.run is None
    _refuse_if(task.run is not None, task, "is in flight and cannot be assigned")
    _refuse_if(task.state is not State.PENDING and not by_session, task, f"is {task.state.value}; only a pending task can be assigned")
    return [ev.TaskAssigned(session_id=session_id)]


def _replan(task: Task, steps: tuple[cmd.NewStep, ...]) -> Events:
    index = moved_link(task.steps, [step.title for step in steps])
    if index is not None:
        old = task.steps[index]
        raise invalid(
            f"steps[{index}]",
            "is gone or renamed, but it is linked to a subtask",
            f"step {index} with the title {old.title!r}",
            task_id=old.task_id,
        )
    links = [step.task_id for step in task.steps] + [None] * len(steps)
    plan = tuple(Step(title=step.title, details=step.details, done=step.done, task_id=link) for step, link in zip(steps, links, strict=False))
    return [] if plan == task.steps else [ev.StepsReplaced(steps=plan)]


def _change_step(task: Task, command: cmd.UpdateStep) -> Events:
    _must_index(task.id, "step", command.index, len(task.steps))
    step = task.steps[command.index]
    changed = ev.StepUpdated(
        index=command.index,
        title=_new(step.title, command.title),
        details=_new(step.details, command.details),
        done=_new(step.done, command.done),
    )
    return [] if changed == ev.StepUpdated(index=command.index) else [changed]


def _respond(task: Task, command: cmd.Respond, context: Context) -> Events:
    must_be_person(context.actor, "answer a question")
    question = next((item for item in task.questions if item.id == command.interaction_id), None)
    if question is None:
        raise Conflict(f"Interaction {command.interaction_id} is not open any more.", details={"interaction_id": command.interaction_id})
    answer = _accepted(question, command.answer)
    answered: Events = [ev.UserInteractionResponded(interaction_id=question.id, answer=answer)]
    if question.blocking and question.call_id is not None:
        return answered
    told = answer_told(question.question, answer)
    return [*answered, ev.MessageSent(update_id=update_id(task), message=told), *wake(replace(task, questions=()), "message")]


def _accepted(question: Interaction, answer: str) -> str:
    """The answer as the agent reads it: one of its options, unless it allows other answers.

    Upper and lower case and spaces may differ, if only one option can be meant.
    """
    if not question.options or question.allow_other or answer in question.options:
        return answer
    meant = {option for option in question.options if _loosely(option) == _loosely(answer)}
    if len(meant) == 1:
        return meant.pop()
    shown = answer if len(answer) <= SHOWN_ANSWER else f"{answer[:SHOWN_ANSWER]}…"
    options = ", ".join(repr(option) for option in question.options)
    raise invalid("answer", f"is {shown!r}, which is not an option of question {question.id}", f"one of {options}")


def _loosely(answer: str) -> str:
    """An answer without what people do not mind when they type one."""
    return " ".join(answer.split()).casefold()
