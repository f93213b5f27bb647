"""What a task waits for: add items to its wait, satisfy them, and set the state that follows."""

from remit.domain.records.record import replace
from remit.domain.task import events as ev
from remit.domain.task.policy import ENGINE_ACTOR
from remit.domain.task.task import State, Task, Wait, WaitFor, WaitKind


def move_to(task: Task, state: State) -> Task:
    """Change the state; for a paused task, change the state to resume in."""
    if task.state is State.PAUSED:
        return replace(task, paused_from=state)
    return replace(task, state=state)


def is_waiting(task: Task) -> bool:
    """Return whether a task waits, or will wait once it is resumed."""
    return State.WAITING in (task.state, task.paused_from)


def wait_or_queue(task: Task) -> Task:
    """Set the state of a task without a run: waiting if it has a wait, else pending."""
    if task.wait:
        return move_to(task, State.WAITING)
    return replace(move_to(task, State.PENDING), wait=None)


def add_wait(task: Task, item: WaitFor, entry: ev.Entry) -> Task:
    """Make a task wait for one more item."""
    if task.wait is None:
        return replace(task, wait=Wait(on=(item,), since=entry.at))
    return replace(task, wait=replace(task.wait, on=(*task.wait.on, item)))


def satisfy_wait(task: Task, kind: WaitKind, ref: str) -> Task:
    """Remove one item from the wait; end the wait unless an answer is still outstanding.

    The wait of a live run also keeps items that need no answer: the run has not yielded yet.
    """
    if task.wait is None:
        return task
    wait = replace(task.wait, on=_remaining_items(task.wait, kind, ref))
    if not wait.holds and is_waiting(task):
        return replace(move_to(task, State.PENDING), wait=None)
    is_kept = wait.on and (wait.holds or task.state is not State.VERIFYING)
    return replace(task, wait=wait if is_kept else None)


def redirect_wait(wait: Wait | None, old_child: str | None, new_child: str) -> Wait | None:
    """Return a wait that waits for the new subtask instead of the one it replaces."""
    if wait is None or old_child is None:
        return wait
    items = (
        replace(item, ref=new_child) if item.names("subtask", old_child) else item
        for item in wait.on
    )
    return replace(wait, on=tuple(items))


def has_own_question(task: Task) -> bool:
    """Return whether remit itself has asked a person how the task should continue."""
    return bool(_own_questions(task))


def _own_questions(task: Task) -> list[str]:
    return [question.id for question in task.questions if question.asked_by == ENGINE_ACTOR]


def awaited_own_question(task: Task) -> str | None:
    """Return the id of remit's own question if the task waits for its answer, else None."""
    if not is_waiting(task):
        return None
    own = _own_questions(task)
    if any(item.ref not in own for item in task.waits_on):
        return None
    return own[0]


def close_question(task: Task, interaction_id: str) -> Task:
    """Close a question, and end the wait for it."""
    questions = tuple(question for question in task.questions if question.id != interaction_id)
    return satisfy_wait(replace(task, questions=questions), "user", interaction_id)


def _remaining_items(wait: Wait, kind: WaitKind, ref: str) -> tuple[WaitFor, ...]:
    """Return the remaining items of a wait.

    A timer ends every item of its tool call, and is removed with the call's last other item.
    """
    left = tuple(item for item in wait.on if not item.names(kind, ref))
    ended = {item.call_id for item in wait.on if item.names(kind, ref)}
    if kind != "timer":
        ended -= {item.call_id for item in left if item.kind != "timer"}
    ended.discard(None)
    return tuple(item for item in left if item.call_id not in ended)
