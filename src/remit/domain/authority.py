"""What a run may change: authority belongs to its task, never to the name of its agent."""

from remit.domain import command as cmd
from remit.domain.agent import matching
from remit.domain.create import stands_for_instructions
from remit.domain.need import Asking, the_task
from remit.domain.policy import agent_of, is_person
from remit.domain.value import State, Task
from remit.errors import Forbidden

OwnTaskCommand = cmd.AskUser | cmd.NotifyUser
"""Commands that a run gives for its own task alone."""
OwnTerms = cmd.UpdateTask | cmd.SendMessage
"""Commands that can change what an agent is told to do."""
TERMS = ("instructions", "description", "acceptance", "outputs", "limits")
"""What a task is held to, as fields of update_task; the tools of a task never change."""


def must_have_authority(command: cmd.Operation, mine: Task) -> Asking[None]:
    """Refuse a command of a run on a task that is not its own, not below it, and not created by it.

    A run never changes the terms of its own task, or of any task that is not below it.
    It starts no work that a person holds, and none outside the budget of its own task.
    """
    if isinstance(command, cmd.CreateTask):
        yield from _must_have_no_budget(mine)
    ref = getattr(command, "task_id", None)
    if ref is None:
        return
    target = mine if ref in (mine.id, mine.uid) else (yield from the_task(ref))
    is_own = target.id == mine.id
    is_below = not is_own and (yield from _is_below(target, mine))
    if not is_own and isinstance(command, OwnTaskCommand):
        message = f"A run asks and notifies people for its own task {mine.id} alone, not for task {target.id}."
        raise Forbidden(message, hint="Leave task_id out.")
    if not is_own and not is_below and target.creator_task_id != mine.id:
        message = f"Task {target.id} is not yours to change: it is not below your task {mine.id} and was not created by it."
        raise Forbidden(message, hint=f"You can change your own task {mine.id}, tasks below it, and tasks that it created.")
    if isinstance(command, OwnTerms) and not is_below:
        _must_keep_terms(command, target, is_own=is_own)
    _must_leave_to_person(command, target)
    if not is_own and _makes_successor(command, target):
        yield from _must_stay_in_budget(target, mine, is_below=is_below)


def must_not_set_own_terms(command: OwnTerms, actor: str) -> Asking[None]:
    """Refuse an agent outside of a run that changes the terms of a task which it works on and did not create."""
    agent = agent_of(actor)
    if agent is None:
        return
    target = yield from the_task(command.task_id)
    if target.owner != agent or target.created_by == actor:
        return
    parent = (yield from the_task(target.parent_id, "parent_id")) if target.parent_id is not None else None
    if parent is None or parent.owner != agent:
        _must_keep_terms(command, target, is_own=True)


def _is_below(task: Task, mine: Task) -> Asking[bool]:
    """True for a subtask of a task, a subtask of its subtask, and so on."""
    if task.root_id != mine.root_id:
        return False
    while task.parent_id is not None and task.depth > mine.depth:
        if task.parent_id == mine.id:
            return True
        task = yield from the_task(task.parent_id, "parent_id")
    return False


def _must_keep_terms(command: OwnTerms, target: Task, *, is_own: bool) -> None:
    if isinstance(command, cmd.SendMessage):
        if is_own:
            raise Forbidden(
                f"An agent cannot send a message to its own task {target.id}: it would read its own words as a change of its instructions.",
                hint="Note what you want to remember in your answer or in your plan.",
            )
        return
    changed = _changed_terms(command, target)
    if is_own:
        changed += _changed_standing(command, target)
    if not changed:
        return
    named = _joined(changed)
    if is_own:
        message = f"An agent cannot change the {named} of its own task {target.id}: only the giver of a task can."
        other = "To have another agent do the work, use create_subtask. " if "owner" in changed else ""
        raise Forbidden(message, hint=f"{other}To get this changed, ask a person with ask_user.")
    message = f"A run cannot change the {named} of task {target.id}, which is not below its own task."
    raise Forbidden(message, hint="Use send_message, or create_subtask for work whose terms you set.")


def _changed_terms(command: cmd.UpdateTask, target: Task) -> list[str]:
    """The terms that an update changes; a title that stands for the instructions is one."""
    changed = [name for name in TERMS if getattr(command, name) is not None]
    if _changes_title(command, target) and stands_for_instructions(target):
        changed = ["title", *changed]
    return [*changed, "metadata.context"] if _changes_context(command, target) else changed


def _changed_standing(command: cmd.UpdateTask, target: Task) -> list[str]:
    """What else only the giver of a task sets: its name, who works on it, and how urgent it is."""
    changed: list[str] = []
    if _changes_title(command, target) and not stands_for_instructions(target):
        changed.append("title")
    if _changes_owner(command, target):
        changed.append("owner")
    if command.priority not in (None, target.priority):
        changed.append("priority")
    return changed


def _joined(names: list[str]) -> str:
    """Names as one phrase: `title`, or `title, owner and priority`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _changes_title(command: cmd.UpdateTask, target: Task) -> bool:
    return command.title not in (None, target.title)


def _changes_owner(command: cmd.UpdateTask, target: Task) -> bool:
    if command.owner is None or target.owner is None:
        return command.owner is not None
    return matching(command.owner, {target.owner}) is None


def _changes_context(command: cmd.UpdateTask, target: Task) -> bool:
    """True if the context changes, which later runs of the task read with their instructions."""
    if command.metadata is None:
        return False
    return command.metadata.get("context") != (target.metadata or {}).get("context")


def _must_leave_to_person(command: cmd.Operation, target: Task) -> None:
    """Refuse to start what a person holds: a task that a person paused, or made as a draft."""
    is_held = target.state is State.PAUSED and not target.paused_by_agent
    if isinstance(command, cmd.ResumeTask) and is_held:
        message = f"A person paused task {target.id}, so only a person can resume it."
        raise Forbidden(message, hint="Ask a person with ask_user.")
    is_activated = isinstance(command, cmd.UpdateTask) and command.status == "active"
    is_draft = target.state is State.DRAFT and is_person(target.created_by)
    if is_activated and is_draft:
        message = f"A run cannot start task {target.id}: task {target.id} is a draft of a person."
        raise Forbidden(message, hint="Ask a person with ask_user.")


def _makes_successor(command: cmd.Operation, target: Task) -> bool:
    """True for a command that puts a new task with unused limits in the place of another."""
    if isinstance(command, cmd.RerunTask):
        return True
    is_started = target.started_at is not None
    return isinstance(command, cmd.UpdateTask) and is_started and _changes_owner(command, target)


def _must_stay_in_budget(target: Task, mine: Task, *, is_below: bool) -> Asking[None]:
    """Refuse a successor that would be the root of a tree outside the budget of a run's task."""
    if is_below and target.parent_id is not None:
        parent = yield from the_task(target.parent_id, "parent_id")
        if not parent.state.terminal:
            return
    yield from _must_have_no_budget(mine)


def _must_have_no_budget(mine: Task) -> Asking[None]:
    """Refuse a task beside a run's own if the tokens or the money of that task, or of one above it, are limited."""
    above = mine
    while above.limits.max_tokens is None and above.limits.max_cost is None:
        if above.parent_id is None:
            return
        above = yield from the_task(above.parent_id, "parent_id")
    raise Forbidden("A task beside yours would be outside the budget that yours has.", hint="Use create_subtask.")
