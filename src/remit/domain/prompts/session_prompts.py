"""The prompts of an outside session: its assignment, and each update with its task.

A session can work on several tasks, so its calls must name the task. Running agents read
`agent_prompts`.
"""

from collections.abc import Iterable, Sequence

from remit.domain.prompts.agent_prompts import first_message
from remit.domain.prompts.claims import claim_again
from remit.domain.prompts.headings import HEADINGS, in_one_line, without_headings
from remit.domain.prompts.rejections import unmet, unmet_now
from remit.domain.prompts.reports import results_of
from remit.domain.prompts.terms import handed_over, listed_criteria, listed_outputs
from remit.domain.prompts.update_messages import heading_of, is_said, newest_by_type, texts_of
from remit.domain.records.pick import pick
from remit.domain.task.task import Task, Update, UpdateType
from remit.domain.text.optional_lines import labeled, listed

_TERMS: frozenset[UpdateType] = frozenset({"instructions", "acceptance", "outputs"})
"""Updates that the assignment already includes."""


def assignment(task: Task, guides: Iterable[str], prerequisites: Sequence[Task]) -> str:
    """Return the assignment for the first request of a session.

    It includes earlier changes, so only the gaps of a rejected result, messages and ended subtasks
    follow it.
    """
    lines = [
        f"Instructions: {first_message(task)}",
        *listed("Acceptance Criteria", listed_criteria(task)),
        *listed_outputs(task),
        *handed_over(task, has_values=True),
        *labeled("Troubleshooting", in_one_line(", ".join(guides))),
        f"Task {task.id}. Finish with {claim_again(task)}.",
    ]
    body = without_headings("\n".join(lines))
    terms = f"[Task Assignment: {in_one_line(task.title)}]\n{body}"
    news = session_news(task, list(filter(is_said, task.queued)))
    parts = [terms, *results_of(prerequisites), _rejection(task), news]
    return "\n\n".join(filter(None, parts))


def in_assignment(task: Task) -> list[Update]:
    """Return the queued updates that the assignment includes."""
    newest = newest_by_type(task.queued)
    current = list(pick(newest, _TERMS).values())
    if unmet(task) and "rejection" in newest:
        current.append(newest["rejection"])
    return [update for update in task.queued if is_said(update) or update in current]


def session_news(task: Task, updates: Sequence[Update]) -> str:
    """Return the updates since the session's last request, each with its heading and task."""
    pairs = zip(updates, texts_of(task, updates), strict=True)
    blocks = [_block(task, heading_of(update, text), text) for update, text in pairs]
    if any(update.type in _TERMS for update in updates):
        blocks.append(f"Task {task.id}. Finish with {claim_again(task)}.")
    return "\n\n".join(blocks)


def _block(task: Task, heading: str, text: str) -> str:
    name = f'Task {task.id} "{in_one_line(task.title)}"'
    return f"{heading}\n{name}\n{without_headings(text)}"


def _rejection(task: Task) -> str:
    """Return why the last result was not accepted; empty if that no longer applies.

    An earlier session may have been told already.
    """
    reason = unmet_now(task)
    return _block(task, HEADINGS["rejection"], reason) if reason else ""
