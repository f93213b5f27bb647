"""Titles of tasks, given or derived from the instructions."""

from remit.domain.task.task import Task
from remit.domain.text.truncation import shortened

TITLE_CHARACTERS = 80
"""The maximum length of a derived title."""


def title_of(text: str) -> str:
    """Derive a title from a text: its beginning, in one line."""
    return shortened(" ".join(text.split()), TITLE_CHARACTERS)


def current_title(task: Task) -> str:
    """Return the title; if it was derived from old instructions, derive it again."""
    return title_of(task.instructions) if task.title_outdated else task.title


def stands_for_instructions(task: Task) -> bool:
    """Return whether no instructions were given, so that the title serves as them."""
    return task.title == task.instructions and not task.has_instructions
