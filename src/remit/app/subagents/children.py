"""The subtasks that the calls of a conversation created."""

from collections.abc import Awaitable, Callable, Iterable

from remit.domain.planning.new_tasks import CALL
from remit.domain.task.task import Task

Load = Callable[[Iterable[str]], Awaitable[list[Task]]]
"""Loads tasks by their ids."""
ChildrenByCall = dict[str, dict[int, Task]]
"""The subtasks that a conversation created, by the key of the call and their position."""


async def children_by_call(parent: Task, load: Load) -> ChildrenByCall:
    """Return the subtasks that a conversation created, by call and position.

    A successor takes the position of the task that it replaces.
    """
    found: ChildrenByCall = {}
    for task in await load(child.id for child in parent.children):
        first = await _first_predecessor(task, load)
        name = first.idempotency_key or ""
        if name.startswith(CALL):
            key, _, place = name.removeprefix(CALL).rpartition("#")
            found.setdefault(key, {})[int(place)] = task
    return found


async def _first_predecessor(task: Task, load: Load) -> Task:
    """Return the task that a call created, to which this one is a successor, or the task itself.

    A task with an idempotency key of its own was created by a call.
    """
    first = task
    while first.rerun_of is not None and first.idempotency_key is None:
        (first,) = await load([first.rerun_of])
    return first
