"""What an outside session is told: its assignment, and each update with the task that it belongs to.

A session can work on several tasks, and its calls must name the task. A running agent reads `brief`.
"""

from collections.abc import Iterable, Sequence

from remit.domain.brief import (
    claim_again,
    criterion_text,
    failed_criteria,
    first_message,
    handed_over,
    heading_of,
    in_one_line,
    is_said,
    output_schemas,
    results_of,
    said_in,
    unmet,
    without_headings,
)
from remit.domain.create import current_title
from remit.domain.policy import outline
from remit.domain.value import Task, Update, UpdateType

_TERMS: frozenset[UpdateType] = frozenset({"instructions", "acceptance", "outputs"})
"""The updates that the assignment makes unnecessary."""


def assignment(task: Task, guides: Iterable[str], prerequisites: Sequence[Task]) -> str:
    """What an outside session is told with its first request.

    Changes made before are part of it, so only the gaps of a rejected result, messages and ended subtasks follow it.
    """
    lines = [f"Instructions: {first_message(task)}"]
    lines += ["Acceptance Criteria:", *_criteria(task)] if task.acceptance else []
    lines += [*_outputs(task), *handed_over(task)]
    titles = in_one_line(", ".join(guides))
    lines += [f"Troubleshooting: {titles}"] if titles else []
    lines += [f"Task {task.id}. Finish with {claim_again(task)}."]
    said = session_news(task, [update for update in task.queued if is_said(update)])
    body = without_headings("\n".join(lines))
    told = f"[Task Assignment: {in_one_line(task.title)}]\n{body}"
    return "\n\n".join([told, *results_of(prerequisites), *_rejection(task), *([said] if said else [])])


def in_assignment(task: Task) -> list[Update]:
    """The queued updates whose text the assignment has: what was said, the newest terms, and a rejection that still counts."""
    newest = {update.type: update for update in task.queued}
    current = [update for update in newest.values() if update.type in _TERMS or (update.type == "rejection" and unmet(task))]
    return [update for update in task.queued if is_said(update) or update in current]


def session_news(task: Task, updates: Sequence[Update]) -> str:
    """What has changed since the session last heard, each under its heading and the name of its task."""
    newest = {update.type: update for update in updates}
    texts = [_terms(task, update) if newest[update.type] is update else said_in(update) for update in updates]
    told = zip(updates, texts, strict=True)
    return "\n\n".join(_told(task, update.type, text) for update, text in told)


def _told(task: Task, kind: UpdateType, text: str) -> str:
    name = f'Task {task.id} "{in_one_line(current_title(task))}"'
    return f"{heading_of(kind)}\n{name}\n{without_headings(text)}"


def _rejection(task: Task) -> list[str]:
    """Why the last result was not accepted, if that still counts; a session before may have been told already."""
    failing = unmet(task)
    return [_told(task, "rejection", failed_criteria(task, failing))] if failing else []


def _terms(task: Task, update: Update) -> str:
    """The text of the newest update of its kind: criteria with their checks, and which outputs are optional."""
    if update.type == "acceptance" and task.acceptance:
        return "\n".join(_criteria(task))
    if update.type == "outputs" and task.outputs:
        return "\n".join(_outputs(task))
    return said_in(update)


def _criteria(task: Task) -> list[str]:
    return [f"- [ ] {criterion_text(criterion)}" for criterion in task.acceptance]


def _outputs(task: Task) -> list[str]:
    """The outputs, first those that must be handed over, and their schemas."""
    required = outline(output for output in task.outputs if output.required)
    optional = outline(output for output in task.outputs if not output.required)
    lines = [f"Required Outputs: {required}"] if required else []
    lines += [f"Optional Outputs: {optional}"] if optional else []
    return [*lines, *output_schemas(task)]
