"""The subtasks that the calls of a conversation created."""

from collections.abc import Awaitable, Callable, Iterable

from remit.domain.planning.new_tasks import CALL
from remit.domain.task.task import Task

Load = Callable[[Iterable[str]], Awaitable[list[Task]]]
"""Loads tasks by their ids."""


async def children_by_call(parent: Task, load: Load) -> dict[str, dict[int, Task]]:
    """Return the subtasks that a conversation created, by call and position.

    A successor takes the position of the task that it replaces.
    """
    found: dict[str, dict[int, Task]] = {}
    for task in await load(child.id for child in parent.children):
        first = task
        while first.rerun_of is not None and first.idempotency_key is None:
            (first,) = await load([first.rerun_of])
        name = first.idempotency_key or ""
        if name.startswith(CALL):
            key, _, place = name.removeprefix(CALL).rpartition("#")
            found.setdefault(key, {})[int(place)] = task
    return found
