"""What update_task decides: changed fields, changed terms, and a new status."""

import hashlib
from typing import TypeVar, assert_never

from remit.domain.decisions.completion import claim, withdraw_claim
from remit.domain.decisions.context import Context, Events, other_claimer
from remit.domain.decisions.creation import build_criteria
from remit.domain.decisions.evolve import fold
from remit.domain.decisions.runs import wake
from remit.domain.outputs.required_outputs import validate_outputs
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import State, Task
from remit.domain.task.titles import stands_for_instructions, title_of
from remit.errors import Conflict

V = TypeVar("V")
OWN_CANCEL = "Canceled by its own agent."


def update(task: Task, command: cmd.UpdateTask, context: Context) -> Events:
    """Change the fields of a task, then its status."""
    _must_have_version(task, command.expected_version)
    command = _without_echoes(task, command)
    events = [
        *_revise(task, command),
        *_reassign(task, command),
        *_change_dependencies(task, command),
        *_update_terms(task, command),
    ]
    match command.status:
        case "active" if task.state is State.DRAFT:
            return [*events, ev.TaskActivated()]
        case "done":
            return events + _claim_as_is(fold(task, events, context), context)
        case "canceled":
            return [*events, canceled(task, None, context)]
        case "active" | None:
            return events
        case _:
            assert_never(command.status)


def _without_echoes(task: Task, command: cmd.UpdateTask) -> cmd.UpdateTask:
    """Drop texts that a client only sends back as it read them.

    A read returns one text for all that were not given; sent back, it is still not given.
    """
    title = command.title if _gives_title(task, command) else None
    description, instructions = command.description, command.instructions
    if not _has_own_description(task):
        description = None if _was_read_before(task, description) else description
    if _has_no_instructions(task):
        instructions = if_changed(task.instructions, instructions)
    return replace(command, title=title, description=description, instructions=instructions)


def _was_read_before(task: Task, description: str | None) -> bool:
    """Return whether a description is the one that reads return, or returned before a change.

    An earlier one counts only if it does not become the instructions again.
    """
    if description in (None, task.description):
        return True
    if _has_no_instructions(task):
        return False
    return _text_hash(description) in task.earlier_descriptions


def _has_no_instructions(task: Task) -> bool:
    """Return whether another text, the description or the title, serves as the instructions."""
    return task.description_only or stands_for_instructions(task)


def _text_hash(text: str) -> str:
    """Return a short hash by which an earlier text is recognized."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _gives_title(task: Task, command: cmd.UpdateTask) -> bool:
    """Return whether the update gives a title; an unchanged one with the description is an echo."""
    return command.title != task.title or command.description != task.description


def canceled(task: Task, message: str | None, context: Context) -> ev.TaskCanceled:
    """Cancel a task; without a message, a cancellation by its own run says so."""
    is_own = context.acting_task_id == task.id
    return ev.TaskCanceled(reason="user", message=message or (OWN_CANCEL if is_own else None))


def _must_have_version(task: Task, expected: int | None) -> None:
    """Refuse an update that was made for another version of the task."""
    if expected is None or expected == task.version:
        return
    raise Conflict(
        f"Task {task.id} is at version {task.version}, not {expected}.",
        hint="Read the task again and repeat the change.",
        details={"version": task.version, "expected_version": expected},
    )


def _claim_as_is(task: Task, context: Context) -> Events:
    """Claim completion with the outputs and the summary that the task already has."""
    return claim(
        task,
        context,
        run_id=context.run_id,
        authorized=context.acting_task_id is not None,
        by=other_claimer(task, context),
    )


def _revise(task: Task, command: cmd.UpdateTask) -> Events:
    """Return the changed fields that are not terms of the task."""
    labels = command.labels
    if labels is not None:
        labels = tuple(dict.fromkeys(labels))
    revised = ev.TaskRevised(
        title=_new_or_shown_again(task, command.title),
        description=if_changed(task.description, command.description),
        priority=if_changed(task.priority, command.priority),
        labels=if_changed(task.labels, labels),
        metadata=if_changed(task.given_metadata, command.metadata),
        limits=if_changed(task.limits, command.limits),
        has_description=not task.has_description and _repeats_instructions(task, command),
        has_instructions=_titles_like_instructions(task, command),
    )
    return [] if revised == ev.TaskRevised() else [revised]


def _new_or_shown_again(task: Task, title: str | None) -> str | None:
    """Return a given title if it changes, or if the old one was outdated and is given again."""
    return title if task.title_outdated else if_changed(task.title, title)


def _repeats_instructions(task: Task, command: cmd.UpdateTask) -> bool:
    """Return whether the new description equals the instructions, which do not change."""
    is_same_text = command.description == task.instructions
    return is_same_text and not task.description_only and _keeps_instructions(task, command)


def _titles_like_instructions(task: Task, command: cmd.UpdateTask) -> bool:
    """Return whether the title becomes equal to instructions that were given."""
    is_new = if_changed(task.title, command.title) is not None
    is_same_text = is_new and command.title == task.instructions
    return is_same_text and not task.has_instructions and _keeps_instructions(task, command)


def _keeps_instructions(task: Task, command: cmd.UpdateTask) -> bool:
    """Return whether an update does not change the instructions."""
    return if_changed(task.instructions, _new_instructions(task, command)) is None


def if_changed(old: V, new: V | None) -> V | None:
    """Return the new value of a field; None if the update does not change it."""
    return None if new == old else new


def _reassign(task: Task, command: cmd.UpdateTask) -> Events:
    """Give a task that has not started to another owner."""
    owner = if_changed(task.owner, command.owner)
    if owner is None:
        return []
    assert task.started_at is None, "planning hands off a started task"
    return [ev.TaskReassigned(owner=owner)]


def _change_dependencies(task: Task, command: cmd.UpdateTask) -> Events:
    """Change the dependencies of a task that has not started."""
    depends_on = if_changed(task.depends_on, command.depends_on)
    if depends_on is None:
        return []
    if task.started_at is not None:
        raise Conflict(
            f"Task {task.id} has started; its dependencies can no longer change.",
            hint="Cancel it, or create a new task.",
        )
    return [ev.DependenciesChanged(depends_on=depends_on)]


def _update_terms(task: Task, command: cmd.UpdateTask) -> Events:
    """Queue an update for each changed term (instructions, acceptance, outputs) and withdraw a
    pending claim.
    """
    events: Events = []
    events += _update_instructions(task, command)
    events += _update_acceptance(task, command, len(events) + 1)
    events += _update_outputs(task, command, len(events) + 1)
    if not events:
        return []
    return [*events, *wake(task, "update"), *withdraw_claim(task)]


def _update_acceptance(task: Task, command: cmd.UpdateTask, ahead: int) -> Events:
    """Return the update of the criteria if they change; `ahead` numbers it."""
    if command.acceptance is None:
        return []
    acceptance = build_criteria(command.acceptance, task.acceptance, task.counts.criteria)
    if acceptance == task.acceptance:
        return []
    updated = ev.AcceptanceUpdated(
        update_id=task.update_id(ahead),
        acceptance=acceptance,
        terms_version=task.terms_version + 1,
    )
    return [updated]


def _update_outputs(task: Task, command: cmd.UpdateTask, ahead: int) -> Events:
    """Return the update of the required outputs if they change; `ahead` numbers it."""
    outputs = if_changed(task.outputs, command.outputs)
    if outputs is None:
        return []
    updated = ev.OutputsUpdated(
        update_id=task.update_id(ahead),
        outputs=validate_outputs(outputs),
        terms_version=task.terms_version + 1,
    )
    return [updated]


def _update_instructions(task: Task, command: cmd.UpdateTask) -> Events:
    """Return the update of the instructions if they change, with title and description."""
    instructions = if_changed(task.instructions, _new_instructions(task, command))
    if instructions is None:
        return []
    is_description = _serves_as_instructions(task, command)
    title = None if is_description else _title_after(task, command, instructions)
    has_text = command.instructions is not None or is_description
    shown_title = title or command.title or task.title
    is_like_title = stands_for_instructions(task) or shown_title == instructions
    updated = ev.InstructionsUpdated(
        update_id=task.update_id(),
        instructions=instructions,
        description=_new_description(task, command, instructions),
        title=title,
        terms_version=task.terms_version + 1,
        has_description=_gives_description(task, command, instructions),
        has_instructions=has_text and is_like_title,
        description_only=is_description and not task.description_only,
        replaced_hash=None if _has_own_description(task) else _text_hash(task.instructions),
    )
    return [updated]


def _serves_as_instructions(task: Task, command: cmd.UpdateTask) -> bool:
    """Return whether a new description becomes the instructions, because none were given."""
    has_none = _has_no_instructions(task)
    is_new = if_changed(task.description, command.description) is not None
    return has_none and is_new and command.instructions is None


def _title_after(task: Task, command: cmd.UpdateTask, instructions: str) -> str | None:
    """Return the title if it is still valid with the new instructions, or derived from them.

    An agent that has started has read a title without instructions as its instructions, which the
    new ones replace.
    """
    if command.title is not None:
        return command.title
    if stands_for_instructions(task):
        return None if task.started_at else task.title
    is_derived = task.delegated and task.title == title_of(task.instructions)
    return title_of(instructions) if is_derived else None


def _new_description(task: Task, command: cmd.UpdateTask, instructions: str) -> str | None:
    """Return the new instructions if they are the description too, else None."""
    if command.description is None:
        return None if _has_own_description(task) else instructions
    return instructions if _describes_anew(command, instructions) else None


def _gives_description(task: Task, command: cmd.UpdateTask, instructions: str) -> bool:
    """Return whether a description equal to the new instructions is given or kept."""
    if command.description is not None:
        return _describes_anew(command, instructions)
    return _has_own_description(task) and task.description == instructions


def _describes_anew(command: cmd.UpdateTask, instructions: str) -> bool:
    """Return whether the update gives both texts, and they are equal."""
    return command.instructions is not None and command.description == instructions


def _has_own_description(task: Task) -> bool:
    """Return whether the description was given, so that new instructions do not replace it."""
    return task.has_description or task.description != task.instructions


def _new_instructions(task: Task, command: cmd.UpdateTask) -> str | None:
    """Return the new instructions of an update; None if it gives none.

    A new description or title counts if it takes the place of the instructions.
    """
    if command.instructions is not None:
        return command.instructions
    if _serves_as_instructions(task, command):
        return command.description
    if stands_for_instructions(task) and not task.description_only:
        return command.title
    return None
