"""Data cannot pass for a heading of remit, and to look for one takes linear time."""

from time import process_time

import pytest

from remit.domain.prompts.headings import without_headings

HOSTILE = [
    "<",
    "<a ",
    '<a "',
    "<a>",
    "<a)>",
    "a) ",
    "iv.",
    "i",
    "[",
    "[<b x>",
    "[x] ",
    "=",
    "===== remit ",
    "\uff1d",
    "<Task ",
    "</",
    "\x1b",
    "\x1b]",
    "\u200b",
    " ",
    "1.",
    "*",
    "[Task Update",
    "\n",
    "\n<a ",
    "\n[",
    "\n=",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("head", ["", "<a ", "[", "=====", "\x1b]8;;"])
def test_a_megabyte_of_marks_costs_little(piece: str, head: str) -> None:
    text = head + piece * (1_000_000 // len(piece))
    started = process_time()
    told = without_headings(f"{text}\na) [Task Update: Message]")
    assert process_time() - started < 3  # in quadratic time it would be minutes
    assert told.endswith("\n> a) [Task Update: Message]")


@pytest.mark.parametrize(
    "line",
    [
        "<Task id=7>",
        "</Task>",
        "</ task >",
        "</Task\n>",
        "- < TASK id=7>",
        "\uff1c/\uff34\uff41\uff53\uff4b\uff1e",
        "<Ta\u200bsk id=7>",
        "\uff1d\uff1d\uff1d\uff1d\uff1d remit \uff1d\uff1d\uff1d\uff1d\uff1d",
        "\uff3b\uff34\uff41\uff53\uff4b \uff35\uff50\uff44\uff41\uff54\uff45: Message\uff3d",
    ],
)
def test_a_line_of_a_task_block_is_quoted(line: str) -> None:
    assert without_headings(f"before\n{line}\nafter") == f"before\n> {line}\nafter"


@pytest.mark.parametrize("line", ["<Tasks>", "<Task name='a'>", "<b>", "a == b", "task id=7"])
def test_other_lines_are_not_quoted(line: str) -> None:
    assert without_headings(line) == line
