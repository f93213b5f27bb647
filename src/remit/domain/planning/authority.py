"""What a run may change. Its task has the authority, not the name of its agent."""

from itertools import compress

from remit.domain.agents.agent import matching
from remit.domain.planning.lookups import Lookups, ancestors, find_task, live_parent
from remit.domain.task import commands as cmd
from remit.domain.task.policy import agent_of, is_person
from remit.domain.task.task import State, Task
from remit.domain.task.titles import stands_for_instructions
from remit.errors import Forbidden

OwnTaskCommand = cmd.AskUser | cmd.NotifyUser
"""Commands that a run may give for its own task only."""
OwnTerms = cmd.UpdateTask | cmd.SendMessage | cmd.PauseTask
"""Commands that can change what an agent is told to do, or keep it from doing it."""
TERMS = ("instructions", "description", "acceptance", "outputs", "limits")
"""The terms of a task, as fields of update_task; the tools of a task never change."""


def must_have_authority(command: cmd.Operation, own_task: Task) -> Lookups[None]:
    """Refuse a command of a run that goes beyond the authority of its task.

    A run may change its own task, its descendants and the tasks that it created. It may change
    the terms of descendants only. It may not pause its own task, start a task that a person
    holds, or work outside the budget of its own task.
    """
    if isinstance(command, cmd.CreateTask):
        yield from _must_have_no_budget(own_task)
    ref = getattr(command, "task_id", None)
    if ref is None:
        return
    if ref in (own_task.id, own_task.uid):
        _must_respect_own_task(command, own_task)
        return
    target = yield from find_task(ref)
    yield from _must_respect_other_task(command, target, own_task)


def _must_respect_own_task(command: cmd.Operation, own_task: Task) -> None:
    """Refuse a command of a run that its own task does not allow."""
    if isinstance(command, OwnTerms):
        _must_keep_own_terms(command, own_task)
    _must_not_override_person(command, own_task)


def _must_respect_other_task(command: cmd.Operation, target: Task, own_task: Task) -> Lookups[None]:
    """Refuse a command of a run that another task does not allow."""
    is_below = yield from _is_below(target, own_task)
    if isinstance(command, OwnTaskCommand):
        message = (
            f"A run can ask and notify people for its own task {own_task.id} only, not for task"
            f" {target.id}."
        )
        raise Forbidden(message, hint="Omit task_id.")
    if not is_below:
        _must_be_creator(target, own_task)
        _must_keep_terms(command, target)
    _must_not_override_person(command, target)
    if _makes_successor(command, target):
        yield from _must_stay_in_budget(target, own_task, is_below=is_below)


def _must_be_creator(target: Task, own_task: Task) -> None:
    """Refuse to change a task that is not below the run's task and was not created by it."""
    if target.creator_task_id == own_task.id:
        return
    message = (
        f"Task {target.id} is not yours to change: it is not below your task {own_task.id} and"
        " was not created by it."
    )
    hint = f"You can change your own task {own_task.id}, tasks below it, and tasks that it created."
    raise Forbidden(message, hint=hint)


def must_not_set_own_terms(command: OwnTerms, actor: str) -> Lookups[None]:
    """Refuse an agent outside a run that changes the terms of a task that it owns but did not
    create, or pauses the task.
    """
    agent = agent_of(actor)
    if agent is None:
        return
    target = yield from find_task(command.task_id)
    if target.owner != agent or target.created_by == actor:
        return
    if target.parent_id is not None:
        parent = yield from find_task(target.parent_id, "parent_id")
        if parent.owner == agent:
            return
    _must_keep_own_terms(command, target)


def _is_below(task: Task, own_task: Task) -> Lookups[bool]:
    """Return whether a task is a descendant of the run's own task."""
    if task.root_id != own_task.root_id:
        return False
    above = yield from ancestors(task)
    return own_task.id in [ancestor.id for ancestor in above]


def _must_keep_own_terms(command: OwnTerms, target: Task) -> None:
    """Refuse an agent that changes what its own task tells it to do, or pauses its own task."""
    if isinstance(command, cmd.SendMessage):
        raise Forbidden(
            f"An agent cannot send a message to its own task ({target.id}), because a message"
            " changes the instructions of the task.",
            hint="Keep notes in your answer or in your plan.",
        )
    if isinstance(command, cmd.PauseTask):
        raise Forbidden(
            f"An agent cannot pause its own task ({target.id}), because its caller would wait"
            " for it without a limit.",
            hint="If you need a person, use ask_user. If you cannot do the task, use fail_task.",
        )
    changed = _changed_terms(command, target) + _changed_creator_fields(command, target)
    if not changed:
        return
    hint = "If this must change, ask with ask_user."
    if "owner" in changed:
        hint = f"To have another agent do the work, use create_subtask. {hint}"
    raise Forbidden(
        f"An agent cannot change the {_join_names(changed)} of its own task ({target.id}): only"
        " the creator of a task can.",
        hint=hint,
    )


def _must_keep_terms(command: cmd.Operation, target: Task) -> None:
    """Refuse a run that changes the terms of a task that is not below its own."""
    if not isinstance(command, cmd.UpdateTask):
        return
    changed = _changed_terms(command, target)
    if not changed:
        return
    raise Forbidden(
        f"A run cannot change the {_join_names(changed)} of task {target.id}, which is not below"
        " its own task.",
        hint="Use send_message, or create a subtask with your own terms.",
    )


def _changed_terms(command: cmd.UpdateTask, target: Task) -> list[str]:
    """Return the terms that an update changes, including a title used as the instructions."""
    changes = {
        "title": _changes_title(command, target) and stands_for_instructions(target),
        **{name: getattr(command, name) is not None for name in TERMS},
        "`metadata.context`": _changes_context(command, target),
    }
    return list(compress(changes, changes.values()))


def _changed_creator_fields(command: cmd.UpdateTask, target: Task) -> list[str]:
    """Return the other changed fields that only the creator may set: title, owner, priority."""
    changes = {
        "title": _changes_title(command, target) and not stands_for_instructions(target),
        "owner": _changes_owner(command, target),
        "priority": command.priority not in (None, target.priority),
    }
    return list(compress(changes, changes.values()))


def _join_names(names: list[str]) -> str:
    """Join names as one phrase: `title`, or `title, owner and priority`."""
    *first, last = names
    if not first:
        return last
    return f"{', '.join(first)} and {last}"


def _changes_title(command: cmd.UpdateTask, target: Task) -> bool:
    return command.title not in (None, target.title)


def _changes_owner(command: cmd.UpdateTask, target: Task) -> bool:
    """Return whether an update names another agent, in any spelling of its id."""
    if command.owner is None:
        return False
    if target.owner is None:
        return True
    return matching(command.owner, {target.owner}) is None


def _changes_context(command: cmd.UpdateTask, target: Task) -> bool:
    """Return whether the context changes, which later runs read with their instructions."""
    if command.metadata is None:
        return False
    current = target.given_metadata
    return command.metadata.get("context") != current.get("context")


def _must_not_override_person(command: cmd.Operation, target: Task) -> None:
    """Refuse to start a task that a person paused or created as a draft."""
    match command:
        case cmd.ResumeTask() if _is_paused_by_person(target):
            message = f"A person paused task {target.id}, so only a person can resume it."
            raise Forbidden(message, hint="Ask a person with ask_user.")
        case cmd.UpdateTask(status="active") if _is_draft_of_person(target):
            message = f"A run cannot start task {target.id}: it is a draft that a person created."
            raise Forbidden(message, hint="Ask a person with ask_user.")
        case _:
            pass


def _is_paused_by_person(task: Task) -> bool:
    return task.state is State.PAUSED and not task.paused_by_agent


def _is_draft_of_person(task: Task) -> bool:
    return task.state is State.DRAFT and is_person(task.created_by)


def _makes_successor(command: cmd.Operation, target: Task) -> bool:
    """Return whether a command replaces a task by a new one with unused limits."""
    if isinstance(command, cmd.UpdateTask):
        return target.started_at is not None and _changes_owner(command, target)
    return isinstance(command, cmd.RerunTask)


def _must_stay_in_budget(target: Task, own_task: Task, *, is_below: bool) -> Lookups[None]:
    """Refuse a successor whose new tree would be outside the budget of the run's task."""
    parent = yield from live_parent(target)
    if is_below and parent is not None:
        return
    yield from _must_have_no_budget(own_task)


def _must_have_no_budget(own_task: Task) -> Lookups[None]:
    """Refuse a task in a new tree if the run's task or an ancestor has a token or cost limit."""
    above = own_task
    while above.limits.max_tokens is None and above.limits.max_cost is None:
        if above.parent_id is None:
            return
        above = yield from find_task(above.parent_id, "parent_id")
    raise Forbidden(
        "A task outside your tree would not count toward the budget of your task.",
        hint="Use create_subtask.",
    )
