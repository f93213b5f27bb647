"""Tool calls that a model wrote as text instead of making them.

A message is suspected of being a call if all of this is true:

- It names a tool that this agent can call, in one of the forms of `written_forms`.
- Nothing follows the call but further calls, the marks that close them, or an invented result.
- The call is not quoted: in inline code, quotation marks, a quotation or a code block. A message
  that is nothing but one code block quotes nothing, and neither does a block that the agent
  announces ("Let me read the file first.").
- A call without a mark (JSON, a name before JSON, Python) stands alone, is announced, or follows a few words that do
  not introduce an example, which ends with a colon.
- The instructions do not ask for JSON with the same keys. A tool's name is a common word, so its
  arguments must be asked for too, or an example must show the name as a key.

A suspected agent gets one more turn that says how to call a tool, and how to send the text again
if it was the answer. If the next final message is suspected too, it is accepted if it has words
beside the call that do not announce it. So an honest answer costs one turn at worst, and a model
that writes nothing but calls never completes its task.

Everything here takes linear time: a model may repeat itself for megabytes.
"""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from remit.domain.written_forms import (
    MARK,
    Call,
    after,
    call_keys,
    json_calls,
    marked_call,
    named_calls,
    python_calls,
    starts_json,
    starts_named,
)

MAX_LEAD = 300
"""How many characters may stand before a call without a mark: more is an answer that quotes one."""
MAX_ANNOUNCED = 1_500
"""How many they may be if they are prose that ends by announcing what the agent does next."""
MAX_STARTS = 3
"""How many places are tried where a call without a mark may begin."""
MIN_WORDS = 5
"""How many words beside a call make a message an answer."""

_UNMARKED = re.compile(
    r"""(?mx)
    ^ (?: ```(?P<fence>json|tool_call|tool_code|python|py|) [ \t]*+ \n \s*+ )?
    (?P<call> (?= (?: \[\s*+ )?
      (?: \{\s*+["] | [A-Za-z_][\w-]{0,127}\s*+\{\s*+["}] | (?:print\()? (?:[a-z_]{1,20}\.)? [A-Za-z_][\w-]{0,127}\( )
    ) )
    """
)
"""Where a call without a mark may begin, alone or in a fence."""
_BETWEEN_BLOCKS = re.compile(
    r"""(?x)
    \n ``` [ \t]*+ \r?\n \s*+
    ``` (?:json|tool_call|tool_code|python|py|) [ \t]*+ \r?\n
    """
)
"""The end of a code block and the start of the next one: several calls may have a block each."""
_CALL_FENCES = ("tool_call", "tool_code")
"""Fences that are marks themselves: they quote nothing."""
_ANNOUNCED = re.compile(
    r"\b(?:I['\u2019]ll|I will|I['\u2019]m \w+ing|I am \w+ing|I need to|I should|I have to"
    r"|I want to|I must|I can now|[Ll]et me(?! know)|[Ll]et['\u2019]s|[Ll]et us|LET ME"
    r"|[Ii]ch (?:werde|lese|rufe|muss|will|schaue|suche)|[Ll]ass mich"
    r"|[Jj]e vais|[Jj]e dois|[Vv]oy a|[Vv]ou|[Dd]ebo)\b"
    r"|^\W{0,5}(?:(?:Now|First|Next|Then),? )?"
    r"(?:Calling|Reading|Checking|Using|Running|Searching|Listing|Looking|Opening|Fetching)\b"
    r"|\u6211\u6765|\u6211\u5c06|\u6211\u9700\u8981|\u6211\u4f1a|\u8ba9\u6211|\u8b93\u6211"
)
"""How a model says what it does next, in the languages that agents are mostly run in."""
_REPORT = re.compile(r"(?m)^[ \t]*+(?:#|\||[-*+] |\d{1,3}[.)] |```)")
"""What prose that leads to a call does not hold: headings, tables, lists and code."""
_SENTENCE = re.compile(r"(?:[^\n.!?:\u3002\uff01\uff1f]|[.!?:](?!\s|\Z))++")
_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|\w++")
_THOUGHT = re.compile(r"(?m)^[ \t]*+(?:\*\*)?Thought:[^\n]*+")
_RESULT = re.compile(
    r"""(?x)
    \s*+ (?: (?:\*\*)?Observation:
      | <(?:tool_response|tool_result|function_results?|tool_output)\b
    )
    """
)
"""How a result begins that a model has invented after its own call."""
_QUOTES = ('"', "'", "\u201c", "\u2018", "\u201e", "\u00ab")
_THINK, _THINK_END = "<think>", "</think>"


class Written(NamedTuple):
    """A call as text: the tool, and True if other words make the message an answer if repeated."""

    tool: str
    has_prose: bool


def written_call(text: str, offered: Collection[str], instructions: str = "") -> Written | None:
    """The call that a text makes instead of its model; None if the text is an answer."""
    text = _BETWEEN_BLOCKS.sub("\n", _without_thoughts(text).strip())
    known = frozenset(offered)
    block = _only_block(text)
    found = _marked(block or text, known)
    return found or _unmarked(text, known, instructions)


def _without_thoughts(text: str) -> str:
    """A text after the thoughts at its start, where a gateway has left them in it."""
    is_thought = text.lstrip().startswith(_THINK)
    return text.partition(_THINK_END)[2] if is_thought and _THINK_END in text else text


def _only_block(text: str) -> str:
    """What is in the code block that is the whole text; empty if it is not one block."""
    if not text.startswith("```"):
        return ""
    inside = text.partition("\n")[2].rstrip().removesuffix("```").rstrip()
    return "" if "\n```" in inside else inside


class _Quotation:
    """Tells whether places in a text are quoted; it is asked about them in their order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._seen = self._line = self._ticks = 0
        self._is_fenced = False

    def holds(self, position: int) -> bool:
        """True in a code block, inline code, a quoted line, and after a quotation mark."""
        passed = self._text[self._seen : position]
        self._is_fenced ^= bool(passed.count("```") % 2)
        _, line_break, tail = passed.rpartition("\n")
        if line_break:
            self._line, self._ticks = position - len(tail), 0
        self._ticks += tail.replace("```", "").count("`")
        self._seen = position
        is_quoted_line = self._text[self._line : self._line + 20].lstrip().startswith(">")
        is_quoted = position > 0 and self._text[position - 1] in _QUOTES
        return self._is_fenced or self._ticks % 2 == 1 or is_quoted_line or is_quoted

    def skip(self, position: int) -> None:
        """Leave out a call, whose own quotation marks do not count."""
        line_break = self._text.rfind("\n", self._seen, position)
        if line_break >= 0:
            self._line, self._ticks = line_break + 1, 0
        self._seen = position


def _marked(text: str, offered: frozenset[str]) -> Written | None:
    """The calls with marks that end a text, or that are followed by an invented result."""
    quotation = _Quotation(text)
    beside: list[str] = []
    tool, seen, position = "", 0, 0
    while mark := MARK.search(text, position):
        position = max(mark.end(), mark.start() + 1)
        if quotation.holds(mark.start()):
            continue
        call = marked_call(text, mark, offered)
        if call.name:
            between = text[seen : mark.start()]
            beside.append(between)
            tool = tool if tool and not between.strip() else call.name
        if call.end is None:  # the text ends within this bracket, and so do all marks that follow
            return Written(tool, _has_prose(beside)) if call.name else None
        position = max(position, call.end)
        if not call.name:
            continue
        position = seen = after(text, position)
        quotation.skip(position)
        if _RESULT.match(text, position):
            return Written(tool, _has_prose([*beside, _after_result(text, position)]))
    is_last = bool(tool) and not text[seen:].strip()
    return Written(tool, _has_prose(beside)) if is_last else None


def _after_result(text: str, position: int) -> str:
    """The last line after results that a model has invented; empty if it calls again."""
    has_calls = MARK.search(text, position) is not None
    return "" if has_calls else text[position:].rpartition("\n")[2]


def _unmarked(text: str, offered: frozenset[str], instructions: str) -> Written | None:
    for match in islice(_starts(text), MAX_STARTS):
        start, lead = match.start("call"), text[: match.start()]
        is_led = _leads(lead, is_quoted=_is_quoted(text, match))
        if not is_led or _is_closed_early(text, match):
            continue
        call = _called(text, match, lead, offered)
        is_end = call.end is None or text[call.end :] in ("", "```")
        if call.name not in offered or not is_end:
            continue
        return None if _is_asked(text, start, call.name, instructions) else Written(call.name, _has_prose([lead]))
    return None


def _starts(text: str) -> Iterator[re.Match[str]]:
    """Where a call without a mark may begin, outside of code blocks that begin before."""
    seen = fences = 0
    for match in _UNMARKED.finditer(text, 0, MAX_ANNOUNCED + 200):
        fences += text.count("```", seen, match.start())
        seen = match.start()
        if fences % 2 == 0:
            yield match


def _is_quoted(text: str, match: re.Match[str]) -> bool:
    """True for a code block that is closed and does not say that it is a call."""
    fence = match["fence"]
    is_code = fence is not None and fence not in _CALL_FENCES
    return is_code and text.find("```", match.start("call")) >= 0


def _is_closed_early(text: str, match: re.Match[str]) -> bool:
    """True if something follows the code block in which a call begins."""
    closing = text.find("\n```", match.start("call")) if match["fence"] is not None else -1
    return closing >= 0 and closing + 4 < len(text)


def _leads(lead: str, *, is_quoted: bool) -> bool:
    """True if what stands before a call can lead to it: it announces it, or does not explain it."""
    if not lead.strip():
        return True
    is_short = len(lead) <= MAX_LEAD
    is_prose = len(lead) <= MAX_ANNOUNCED and not _REPORT.search(lead)
    if (is_short or is_prose) and _is_announced(lead):
        return True
    return is_short and not is_quoted and not lead.rstrip().endswith((":", "\uff1a"))


def _is_announced(lead: str) -> bool:
    return bool(_ANNOUNCED.search(lead.rstrip().rpartition("\n\n")[2]))


def _called(text: str, match: re.Match[str], lead: str, offered: frozenset[str]) -> Call:
    start, fence = match.start("call"), match["fence"]
    if starts_json(text, start):
        is_code = fence in ("python", "py")
        return Call("", start) if is_code else json_calls(text, start, offered, is_marked=False)
    if starts_named(text, start):
        return named_calls(text, start, offered)
    is_code = fence == "tool_code"
    may_be_positional = is_code or not lead.strip() or _is_announced(lead)
    return python_calls(text, start, offered, may_be_positional=may_be_positional, is_code=is_code)


def _is_asked(text: str, start: int, tool: str, instructions: str) -> bool:
    """True if instructions ask for the JSON of a call, by its keys or by an example."""
    if not starts_json(text, start) and not starts_named(text, start):
        return False
    has_example = f'"{tool}":' in instructions
    return has_example or _asks_for(instructions, call_keys(text, start, tool))


def _asks_for(instructions: str, keys: frozenset[str]) -> bool:
    """True if instructions ask for JSON with these keys."""
    words = frozenset(_WORD.findall(instructions))
    return bool(keys) and keys <= words and "json" in instructions.lower()


def _has_prose(pieces: Collection[str]) -> bool:
    """True if a text has words that are not code, thoughts or an announcement."""
    return sum(_words(piece) for piece in pieces) >= MIN_WORDS


def _words(piece: str) -> int:
    prose = " ".join(_THOUGHT.sub("", piece).split("```")[::2])
    sentences = [found[0] for found in _SENTENCE.finditer(prose)]
    said = [sentence for sentence in sentences if not _ANNOUNCED.search(sentence.strip())]
    return sum(1 for sentence in said for _ in _WORD.finditer(sentence))
