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
