"""Converts a TodoWrite list to the plan of a task."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from remit.domain.agents.tools import Todo
from remit.domain.records.pick import pick
from remit.domain.task.commands import NewStep
from remit.domain.task.task import Step
from remit.errors import invalid

MAX_TITLE = 60


TODO_FIELDS = frozenset({"content", "status", "activeForm"})


def without_unknown_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of TodoWrite without fields of items that it does not know.

    Models send the `id` and `priority` that the same tool of other programs takes.
    """
    todos: Any = arguments.get("todos")
    if not isinstance(todos, list):
        return dict(arguments)
    items: Any = cast("Any", todos)
    return {**arguments, "todos": list(map(_known_fields, items))}


def _known_fields(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    return pick(cast("Mapping[str, Any]", item), TODO_FIELDS)


def plan_of(todos: Sequence[Todo], before: Sequence[Step]) -> tuple[NewStep, ...]:
    """Return the steps of a list; an item with the title of a step keeps its details."""
    steps = tuple(_step(index, todo, before) for index, todo in enumerate(todos))
    if (index := moved_link(before, steps)) is not None:
        raise invalid(
            f"todos[{index}]",
            "was removed or renamed, but it is linked to a subtask",
            f"item {index} with the content {before[index].title!r}",
            task_id=before[index].task_id,
        )
    return steps


def moved_link(before: Sequence[Step], steps: Sequence[NewStep]) -> int | None:
    """Return the first step with a subtask that would lose its place or title; else None."""
    title_at = {index: step.title for index, step in enumerate(steps)}
    moved = (
        index
        for index, step in enumerate(before)
        if step.task_id is not None and title_at.get(index) != step.title
    )
    return next(moved, None)


def _step(index: int, todo: Todo, before: Sequence[Step]) -> NewStep:
    content = todo.content.strip()
    title = _title(content)
    details = _known_details(index, title, before) if title == content else content
    return NewStep(title=title, details=details, done=todo.status == "completed")


def _known_details(index: int, title: str, before: Sequence[Step]) -> str | None:
    """Return the details of the step with a title, preferring the one at this position."""
    steps = (*before[index : index + 1], *before)
    return next((step.details for step in steps if step.title == title), None)


def _title(content: str) -> str:
    """Return the first words of an item, cut to the length of a title."""
    line, *more = content.split("\n", 1)
    if len(line) <= MAX_TITLE and not more:
        return line
    words = line[: MAX_TITLE - 1]
    if len(line) >= MAX_TITLE:
        words = words.rpartition(" ")[0] or words
    return f"{words.rstrip()}…"
