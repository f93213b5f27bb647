"""Updates of a task in messages to its agent: what they say, and how to find them again."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from remit.domain.prompts.headings import HEADINGS, in_one_line, quoted, without_headings
from remit.domain.prompts.rejections import rejection_text
from remit.domain.prompts.reminders import EXPLICIT
from remit.domain.prompts.terms import listed_outputs, numbered_criteria
from remit.domain.records.serialize import dumps
from remit.domain.task.task import Task, Update, UpdateType

_NOT_COMPLETED = "[Not completed]"
"""The heading of a reminder that only says that complete_task must be called."""
_ANSWER = "[Answer to your question]"
"""The heading of the answer to a question that the agent did not wait for."""
_KINDS: Mapping[str, UpdateType] = {
    **{heading: kind for kind, heading in HEADINGS.items()},
    _NOT_COMPLETED: "steps",
    _ANSWER: "message",
    "[Task Update: Open Steps]": "steps",
    "[Task Update: Not Completed]": "steps",
}
"""The kind of update that each heading stands for; the last two are in older conversations."""
_LINES_OF_HEADINGS = tuple(f"{heading}\n" for heading in _KINDS)

_UPDATE = re.compile(rf"(?:\A|(?<=\n\n))(?=(?:{'|'.join(map(re.escape, _KINDS))})\n)")
"""The start of an update in a message."""

_LISTINGS: Mapping[UpdateType, Callable[[Task], list[str]]] = {
    "acceptance": numbered_criteria,
    "outputs": listed_outputs,
}
"""What the newest update of a kind shows: the current terms, if there are any."""
_TERM_NAMES: Mapping[UpdateType, str] = {
    "instructions": "instructions",
    "acceptance": "acceptance criteria",
    "outputs": "outputs",
}
"""The terms that an update can replace."""
_REMOVED = {
    "acceptance": "There are no acceptance criteria now.",
    "outputs": "No outputs are required now.",
}
"""The text of an update that removed all terms of a kind."""


def _no_lines(_: Task) -> list[str]:
    return []


def is_said(update: Update) -> bool:
    """Return True for a message or a report, which the task block does not show."""
    return update.type in ("message", "subtask")


def news(task: Task, updates: Sequence[Update]) -> str:
    """Return the updates since the agent's last turn, each under its heading."""
    blocks: list[str] = []
    for update, text in zip(updates, texts_of(task, updates), strict=True):
        heading = heading_of(update, text)
        blocks.append(f"{heading}\n{without_headings(text)}")
    return "\n\n".join(blocks)


def heading_of(update: Update, text: str) -> str:
    """Return the heading of an update with a text."""
    if update.question is not None:
        return _ANSWER
    if update.type == "steps" and text.startswith(EXPLICIT):
        return _NOT_COMPLETED
    return HEADINGS[update.type]


def tells_news(message: str) -> bool:
    """Return True for a message that contains updates."""
    return message.startswith(_LINES_OF_HEADINGS)


def updates_in(message: str) -> list[tuple[UpdateType, str]]:
    """Return the updates in a message, each with its heading."""
    return [
        (_KINDS[heading], block.rstrip("\n"))
        for block in _UPDATE.split(message)
        if (heading := block.partition("\n")[0]) in _KINDS
    ]


def kinds_in(message: str) -> set[UpdateType]:
    """Return the kinds of the updates in a message."""
    return {kind for kind, _ in updates_in(message)}


def outdates_statements(message: str) -> bool:
    """Return True for a message after which earlier texts of the agent are not its result."""
    return not kinds_in(message).isdisjoint({"instructions", "rejection"})


def only_reminds(message: str) -> bool:
    """Return True for a message that contains only reminders of open work."""
    return tells_news(message) and kinds_in(message) == {"steps"}


def texts_of(task: Task, updates: Sequence[Update]) -> list[str]:
    """Return the text of each update; the newest of its kind shows the current terms."""
    newest = newest_by_type(updates)
    return [_text_of(task, update, is_newest=newest[update.type] is update) for update in updates]


def newest_by_type(updates: Iterable[Update]) -> dict[UpdateType, Update]:
    """Return the newest update of each type."""
    return {update.type: update for update in updates}


def _text_of(task: Task, update: Update, *, is_newest: bool) -> str:
    if update.type == "rejection":
        return rejection_text(task, update, is_newest=is_newest)
    if update.type in _TERM_NAMES and not is_newest:
        return f"Replaced by a later update of the {_TERM_NAMES[update.type]}."
    if update.question is not None:
        return _question_and_answer(update.question, update.content)
    current = "\n".join(_LISTINGS.get(update.type, _no_lines)(task))
    return current or update.content or _REMOVED.get(update.type, "")


def _question_and_answer(question: str, told: str) -> str:
    """Return the text of `answer_told` with the question in its own line."""
    answer = told.removeprefix(_start_of_answer(question))
    return f"Question: {_quoted_question(question)}\nAnswer:{answer}"


def answer_returned(answer: str) -> str:
    """Return the answer to a question for which the agent waited."""
    return without_headings(f"The person answered: {answer}")


def answer_told(question: str, answer: str) -> str:
    """Return the answer to a question that the agent did not wait for."""
    start = _start_of_answer(question)
    if len(answer.splitlines()) < 2:
        return f"{start} {answer}"
    return f"{start}\n{quoted(answer)}"


def _start_of_answer(question: str) -> str:
    return f"Answer to {_quoted_question(question)}:"


def _quoted_question(question: str) -> str:
    return dumps(in_one_line(question))
