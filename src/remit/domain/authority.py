"""What a run may change: authority belongs to its task, never to the name of its agent."""

from remit.domain import command as cmd
from remit.domain.need import Asking, the_task
from remit.domain.policy import agent_of
from remit.domain.value import Task
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
    """
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
    changed = [name for name in TERMS if getattr(command, name) is not None]
    changed += ["metadata.context"] if _changes_context(command, target) else []
    if not changed:
        return
    if is_own:
        message = f"An agent cannot change {', '.join(changed)} of its own task {target.id}: they are the terms that its work is held to."
        raise Forbidden(message, hint="Ask a person with ask_user.")
    message = f"A run cannot change {', '.join(changed)} of task {target.id}, which is not below its own task."
    raise Forbidden(message, hint="Use send_message, or create_subtask for work whose terms you set.")


def _changes_context(command: cmd.UpdateTask, target: Task) -> bool:
    """True if the context changes, which later runs of the task read with their instructions."""
    if command.metadata is None:
        return False
    return command.metadata.get("context") != (target.metadata or {}).get("context")
