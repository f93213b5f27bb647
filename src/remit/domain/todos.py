"""A list of TodoWrite as the plan of a task."""

from collections.abc import Sequence

from remit.domain.command import NewStep
from remit.domain.tool import Todo
from remit.domain.value import Step
from remit.errors import invalid

MAX_TITLE = 60


def plan_of(todos: Sequence[Todo], before: Sequence[Step]) -> tuple[NewStep, ...]:
    """The steps that a list stands for; an item that is the title of a step keeps its details."""
    steps = tuple(_step(index, todo, before) for index, todo in enumerate(todos))
    titles = [step.title for step in steps]
    if (index := moved_link(before, titles)) is not None:
        raise invalid(
            f"todos[{index}]",
            "is gone or renamed, but it is linked to a subtask",
            f"item {index} with the content {before[index].title!r}",
            task_id=before[index].task_id,
        )
    return steps


def moved_link(before: Sequence[Step], titles: Sequence[str]) -> int | None:
    """The first step with a subtask that would not keep its place and title; None if all do."""
    for index, step in enumerate(before):
        if step.task_id is not None and (index >= len(titles) or titles[index] != step.title):
            return index
    return None


def _step(index: int, todo: Todo, before: Sequence[Step]) -> NewStep:
    content = todo.content.strip()
    title = _title(content)
    details = _known_details(index, title, before) if title == content else content
    return NewStep(title=title, details=details, done=todo.status == "completed")


def _known_details(index: int, title: str, before: Sequence[Step]) -> str | None:
    """The details of the step with a title; of several, the one in this place comes first."""
    found = [step for step in (*before[index : index + 1], *before) if step.title == title]
    return found[0].details if found else None


def _title(content: str) -> str:
    """The first words of an item, as far as a title is long."""
    line, *more = content.split("\n", 1)
    if len(line) <= MAX_TITLE and not more:
        return line
    words = line[: MAX_TITLE - 1]
    is_cut = len(line) >= MAX_TITLE
    whole = words.rpartition(" ")[0] if is_cut else words
    return f"{(whole or words).rstrip()}…"
