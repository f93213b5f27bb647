"""Reports on how other tasks ended, as an agent reads them."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence

from remit.domain.delegation.result_envelope import refused_result, result_of
from remit.domain.prompts.headings import SUBTASK_ENDED, in_one_line, quoted
from remit.domain.records.serialize import dumps
from remit.domain.task.task import State, Task, Update
from remit.domain.text.truncation import beginning, beginning_marked, written_out

REPORTED = 6_000
"""The number of characters of another task's result and outputs that a report contains."""

ALL_REPORTED = 24_000
"""How many characters of results and outputs the reports of all prerequisites share.

The reports of subtasks that have not been read yet share as many.
"""

LEAST_REPORTED = 200
"""A report with less room for each of its texts contains only its first line."""

TITLED = 60
"""The number of characters of a title in such a line."""

_TITLE = re.compile(r'"(.*)"')
"""The title in the first line of a report."""

_ENDS: Mapping[str, str] = {
    "done": "done",
    "failed": "failed",
    "canceled": "canceled",
    "completed": "done",
    "timeout": "failed",
    "cancelled": "canceled",
}
"""The state of an ended task, by its word in a report; the last three are in older reports."""
_HEAD = re.compile(rf'Task (?P<id>\d+) ".*" \(.*\): (?P<status>{"|".join(_ENDS)})[^:]* after ')
"""The first line of a report up to the duration."""

MOST_REPORTS = 40
"""How many prerequisites are reported; further ones are only named."""

_QUOTE = re.compile(r"(?P<lines>(?:\n>[^\n]*)+)(?:\n\(Cut [^\n]*\))?")
"""A quoted text of a report, with the note of an earlier cut."""


def results_of(prerequisites: Sequence[Task]) -> list[str]:
    """Return the results that a task builds on, under a heading; empty if there are none."""
    if not prerequisites:
        return []
    reported, others = prerequisites[:MOST_REPORTS], prerequisites[MOST_REPORTS:]
    texts = sum(1 + bool(task.completion_outputs) for task in reported)
    room = min(REPORTED, ALL_REPORTED // texts)
    reports = [ended_report(prerequisite, room) for prerequisite in reported]
    if others:
        ids = ", ".join(task.id for task in others)
        call = written_out("task_output", task_id=others[0].id)
        reports.append(f"It also depends on the tasks {ids}. {call} returns the result of one.")
    return ["Results of the tasks that this one depends on (data):", *reports]


def shared_room(task: Task, ended: Container[str]) -> int:
    """Return how many characters the report of each subtask that has now ended may have.

    They share what the unread reports leave, or half of it while other subtasks have not ended.
    """
    unread = [len(update.content) for update in task.queued if update.type == "subtask"]
    left = max(0, ALL_REPORTED - sum(unread))
    awaited = [child for child in task.children if child.wait == "wake" and not child.settled]
    ending = sum(child.id in ended for child in awaited)
    share = left // 2 if len(awaited) > ending else left
    return share // max(1, ending)


def report_within(report: str, task_id: str, room: int) -> str:
    """Return a report of at most `room` characters; each cut names the call that reads the rest.

    Without room, the report is a short line.
    """
    if len(report) <= room:
        return report
    note = f"(Cut. {all_of_task(task_id)})"
    quotes = [quote["lines"] for quote in _QUOTE.finditer(report)]
    around = len(report) - sum(map(len, quotes)) + len(quotes) * len(f"\n{note}")
    characters = (room - around) // max(1, len(quotes))
    if characters >= LEAST_REPORTED:
        return with_short_quotes(report, characters, note)
    head = report.partition("\n")[0]
    return f"{_TITLE.sub(_short_title, head)}\n{note}"


def _short_title(title: re.Match[str]) -> str:
    return f'"{beginning_marked(title[1], TITLED, "…")}"'


def with_short_quotes(report: str, characters: int, note: str) -> str:
    """Cut the quoted texts of a report, each with a note."""

    def cut(quote: re.Match[str]) -> str:
        lines = quote["lines"]
        if len(lines) <= characters:
            return quote[0]
        return f"{beginning(lines, characters).rstrip()}\n{note}"

    return _QUOTE.sub(cut, report)


def ended_report(task: Task, room: int = REPORTED) -> str:
    """Return a report for another agent on how a task ended.

    Outputs and results of more than `room` characters are cut.
    """
    lines = [_head(task)]
    if task.completion_outputs:
        whole = all_of_task(task.id)
        lines += _section("Outputs:", dumps(task.completion_outputs), room, whole)
    result = result_of(task)
    offset = len(beginning(result, room))
    rest = f"{written_out('task_output', task_id=task.id, offset=offset)} returns the rest."
    heading = "Result:" if task.state is State.DONE else "Reason:"
    lines += _section(heading, result, room, rest)
    lines += _section("Result:", refused_result(task), room, all_of_task(task.id))
    return "\n".join(lines)


def _section(heading: str, text: str, room: int, how_to_read: str) -> list[str]:
    """Return a heading and the beginning of a text of another agent; no lines for no text."""
    if not text:
        return []
    return [heading, _beginning_quoted(beginning(text, room), text, how_to_read)]


def _head(task: Task) -> str:
    """Return which task it was, who worked on it, how it ended, and which tools were called."""
    whose = task.owner or "no owner"
    if task.rerun_of:
        whose = f"{whose}, replaces task {task.rerun_of}"
    state = task.state.value
    if task.reason == "timeout":
        state = f"{state} (time limit)"
    head = (
        f'Task {task.id} "{in_one_line(task.title)}" ({whose}): {state} after {task.duration:.1f} s'
    )
    uses = ", ".join(f"{item.tool} {item.count}" for item in task.tool_summary)
    return f"{head}; tools: {uses}." if uses else f"{head}."


def _beginning_quoted(shown: str, text: str, how_to_read: str) -> str:
    """Quote the beginning of another agent's text as data, with a note if it is not all of it."""
    if len(shown) == len(text):
        return quoted(text)
    size = f"{len(shown):,} of {len(text):,} characters"
    return f"{quoted(shown)}\n(Cut after {size}. {how_to_read})"


def all_of_task(task_id: str) -> str:
    """Return a hint on the call that reads the omitted part of a report."""
    return f"{written_out('task_output', task_id=task_id)} returns all of it."


def reports_on(update: Update, task_ids: Iterable[str]) -> bool:
    """Return True for the report on one of these tasks, as `ended_report` writes it."""
    if update.type != "subtask":
        return False
    return update.content.startswith(tuple(f'Task {task_id} "' for task_id in task_ids))


def reported_end(report: str) -> tuple[str, str]:
    """Return the id and the state of the task on whose end `ended_report` reports."""
    head = _HEAD.match(report)
    assert head is not None, "as ended_report writes it"
    return head["id"], _ENDS[head["status"]]


def subtask_ended(report: str) -> str:
    """Return the message about a subtask that ended."""
    return f"{SUBTASK_ENDED}\n{report}"
