"""The headings of remit in messages to agents, and how other texts are kept from looking like them.

Texts of people, files and other agents are data. Quoted, they cannot pass for a message of remit.
"""

import re
from collections.abc import Mapping

from remit.domain.llm.messages import BLOCK_LIKE, DELIMITER_LIKE, INVISIBLE, spread
from remit.domain.task.task import UpdateType

SUBTASK_ENDED = "[Subtask ended]"
"""The heading of the report of a subtask that woke its parent."""

HEADINGS: Mapping[UpdateType, str] = {
    "instructions": "[Task Update: Instructions Modified]",
    "acceptance": "[Task Update: Acceptance Modified]",
    "outputs": "[Task Update: Outputs Modified]",
    "message": "[Task Update: Message]",
    "steps": "[Open steps]",
    "rejection": "[Not accepted yet]",
    "subtask": SUBTASK_ENDED,
}

_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_SPACE = rf"(?:[^\S{_BREAKS}]|{INVISIBLE})"
_TAG = rf"""</?[a-z](?:"[^"{_BREAKS}]*+"|'[^'{_BREAKS}]*+'|[^<>"'{_BREAKS}])*+>"""
_LABEL = r"(?:[^\W\d_]|[ivxlcdm]{1,8})(?=[^\w\s\[\uff3b])|\d++|[\u2160-\u2188\u2460-\u24ff]"
"""The number of a list item: a letter or a Roman numeral before a mark, or digits."""
_SIGNS = r"\[\uff3b=\uff1d<\uff1c\x1b"
_MARK = rf"(?:{_SPACE}++|{_TAG}|{_LABEL}|[^\w\s{_SIGNS}]++|[{_SIGNS}])"
_HEADING_WORDS = "|".join(
    rf"{_SPACE}++".join(map(spread, words.split()))
    for words in (
        "task update",
        "task assignment",
        "not accepted yet",
        "subtask ended",
        "answer to your question",
    )
)
_PROMPT_WORDS = "|".join(
    rf"{_SPACE}++".join(map(spread, words.split()))
    for words in (
        "continue",
        "cut off",
        "no tool called",
        "open steps",
        "not completed",
        "last turn",
    )
)
"""Whole headings of remit; a line can begin with a link such as `[continue reading](…)`."""
_WORDS = rf"(?:(?:{_HEADING_WORDS})\b|(?:{_PROMPT_WORDS}){_MARK}{{0,6}}?[\]\uff3d])"
_HEADING = rf"(?:[\[\uff3b]{_MARK}{{0,6}}+{_WORDS}|{DELIMITER_LIKE}|{BLOCK_LIKE})"
_HEADING_LIKE = re.compile(
    rf"(?:\A|(?<=[{_BREAKS}]))(?={_SPACE}*+(?!>)(?:(?!{_HEADING}){_MARK}){{0,20}}+{_HEADING})",
    re.IGNORECASE,
)
"""The start of a line that looks like a heading of remit, the delimiter or a task block.

Possessive, so that a line is read a fixed number of times: a file may contain a megabyte of marks.
"""


def in_one_line(text: str) -> str:
    """Join a text to one line, so that no line of it can look like a heading of remit."""
    return " ".join(text.split())


def quoted(text: str) -> str:
    """Quote every line, so that none can look like a heading of remit."""
    return "\n".join(map(quoted_line, text.splitlines()))


def quoted_line(line: str) -> str:
    """Quote a line, so that it cannot look like a heading of remit."""
    return f"> {line}"


def without_headings(text: str) -> str:
    """Quote the lines that look like a heading of remit; leave all others unchanged."""
    return _HEADING_LIKE.sub("> ", text)
