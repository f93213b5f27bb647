"""Tool calls that a model wrote as text instead of making them.

A message is treated as a call if all of the following hold:

- It has one of the forms of `text_call_forms` and names a tool of the workspace. A mark, or JSON
  with a name and arguments, may also name a tool of another program, such as `read_file`.
- Nothing follows the call but further calls, the marks that close them, an invented result, or
  words that only announce something ("I will wait for the result.").
- The call is not quoted: in inline code, quotation marks, a quotation or a code block. A message
  that is nothing but one code block quotes nothing, and neither does a block that the agent
  announces ("Let me read the file first.").
- A call without a mark (JSON, a name before JSON, Python) stands alone, is announced, or follows a
  few words that do
  not introduce an example, which ends with a colon.
- JSON that follows prose on the same line begins a sentence ("Sure. {…}"), or its sentence
  announces it ("I will call Read: {…}"); it is not in a list or a table.
- A call in the form of Python that follows prose on the same line is announced by its sentence,
  which is the last one ("I will call complete_task(summary="Done").").
- The instructions do not ask for JSON with the same keys. A tool's name is a common word, so its
  arguments must be asked for too, or an example must show the name as a key.

A suspected agent gets one more turn that says how to call a tool, and how to send the text again if
it was the answer. If the next final message is suspected too, it is accepted if it has words beside
the call that do not announce it. If it is nothing but a call of complete_task that can be read, the
task is completed with its summary and outputs. If the agent has called tools before and sends the
same message again, without the tokens or tags of a call, that is its answer. So an honest answer
costs one turn at worst, and a model that only ever writes calls never completes its task.

Everything here takes linear time: a model may repeat itself for megabytes.
"""

import re
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from remit.domain.llm.harmony import without_channels
from remit.domain.llm.text_call_forms import (
    MARK,
    Call,
    after,
    bare_call,
    call_keys,
    json_calls,
    marked_call,
    named_calls,
    python_calls,
    starts_json,
    starts_named,
)
from remit.domain.llm.text_call_values import Tools

MAX_LEAD = 300
"""The maximum text before a call without a mark; longer text is an answer that quotes a call."""
MAX_ANNOUNCED = 1_500
"""The maximum if the text is prose that ends by announcing the next action."""
MAX_STARTS = 3
"""The maximum number of possible starts of an unmarked call that are tried."""
MIN_WORDS = 5
"""The number of words beside a call that make a message an answer."""
LEAST_STATED = 3
"""The number of words without an announcement that make a text a statement.

Fewer only acknowledge something.
"""

_UNMARKED = re.compile(r"""(?mx)
    ^ (?: ```(?P<fence>json|tool_call|tool_code|python|py|) [ \t]*+ \n \s*+ )?
    (?P<assigned> (?:[A-Za-z_]\w{0,39}[ ]?=[ ]?)?+ (?:await[ ])?+ )
    (?P<call> (?= (?: \[\s*+ )?
      (?: \{\s*+(?:["']|\w++\s*+:)
        | [A-Za-z_][\w-]{0,127}\s*+\{\s*+(?:["'}]|\w++\s*+:)
        | (?:print\()? (?:[a-z_]{1,20}\.)? [A-Za-z_][\w-]{0,127}\(
      )
    ) )
    """)
"""The possible start of an unmarked call, alone or in a fence."""
_INLINE = re.compile(r"""(?<=\S)[ \t]++(?P<call>(?:\[\s*+)?\{\s*+(?:["']|\w++\s*+:))""")
"""The possible start of a call in JSON after other words on its line."""
_INLINE_PYTHON = re.compile(r"(?<=\S)[ \t]++(?P<call>(?P<name>[A-Za-z_][\w-]{0,127})(?=\())")
"""The possible start of a call in the form of Python after other words on its line."""
_REST_OF_SENTENCE = re.compile(r"[^\n.!?]{0,200}+[.!?]*+")
_STOPS = (".", "!", "?", ":", "\u2026", "\u3002", "\uff01", "\uff1f", "\uff1a")
"""The end of a sentence before a call on the same line."""
_BETWEEN_BLOCKS = re.compile(r"""(?x)
    \n ``` [ \t]*+ \r?\n \s*+
    ``` (?:json|tool_call|tool_code|python|py|) [ \t]*+ \r?\n
    """)
"""The end of a code block and the start of the next one: several calls may have a block each."""
_TILDES = re.compile(r"(?m)^~{3,}+")
"""The alternative form of a fence."""
_CALL_FENCES = ("tool_call", "tool_code")
"""Fences that are marks themselves and do not quote."""
_PYTHON_FENCES = ("python", "py")
_ANNOUNCED = re.compile(
    r"\b(?:I['\u2019]ll|I will|I['\u2019]m \w+ing|I am \w+ing|I need to|I should|I have to"
    r"|I want to|I must|I can now|[Ll]et me(?! know)|[Ll]et['\u2019]s|[Ll]et us|LET ME"
    r"|[Ii]ch (?:werde|lese|rufe|muss|will|schaue|suche)|[Ll]ass mich"
    r"|[Jj]e vais|[Jj]e dois|[Vv]oy a|[Vv]ou|[Dd]ebo)\b"
    r"|^\W{0,5}(?:(?:Now|First|Next|Then),? )?"
    r"(?:Waiting|Awaiting|Calling|Reading|Checking|Using|Running|Searching|Listing|Looking"
    r"|Opening|Fetching)\b"
    r"|\u6211\u6765|\u6211\u5c06|\u6211\u9700\u8981|\u6211\u4f1a|\u8ba9\u6211|\u8b93\u6211"
)
"""The words with which models announce their next action, in the most common languages."""
_REPORT = re.compile(r"(?m)^[ \t]*+(?:#|\||[-*+] |\d{1,3}[.)] |```)")
"""Headings, tables, lists and code, which do not occur in prose before a call."""
_SENTENCE = re.compile(r"(?:[^\n.!?:\u3002\uff01\uff1f]|[.!?:](?!\s|\Z))++")
_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|\w++")
_THOUGHT = re.compile(r"(?m)^[ \t]*+(?:\*\*)?Thought:[^\n]*+")
_RESULT = re.compile(r"""(?x)
    \s*+ (?: (?:\*\*)?Observation:
      | <(?:tool_response|tool_result|function_results?|tool_output)\b
    )
    """)
"""The start of a result that a model invented after its own call."""
_QUOTES = ('"', "'", "\u201c", "\u2018", "\u201e", "\u00ab")
_THOUGHTS = re.compile(r"(?s)\A\s*+<think>.*?</think>")


class Written(NamedTuple):
    """A call written as text: the tool, and whether other words make it an answer."""

    tool: str
    has_prose: bool


def written_call(text: str, offered: Collection[str], instructions: str = "") -> Written | None:
    """Return the call that a model wrote as text; None if the text is an answer."""
    text = _TILDES.sub("```", _without_thoughts(text).strip())
    text = _BETWEEN_BLOCKS.sub("\n", text)
    tools = Tools(offered)
    return (
        _find_marked(_only_block(text) or text, tools)
        or _find_unmarked(text, tools, instructions)
        or _find_inline_json(text, tools, instructions)
        or _find_inline_python(text, tools)
        or _find_bare(text, tools)
    )


def is_marked(text: str) -> bool:
    """Return True if a text has tokens or tags that open a call: the endpoint did not read them."""
    return MARK.search(text) is not None


def is_statement(text: str) -> bool:
    """Return True if a text says more than the next action of its agent."""
    return _count_words(_without_thoughts(text)) >= LEAST_STATED


def _without_thoughts(text: str) -> str:
    """Return a text without the thoughts that a gateway left at its start."""
    said = _THOUGHTS.sub("", text, count=1)
    if said != text:
        return said
    return without_channels(text)[1]


def _only_block(text: str) -> str:
    """Return the content of a code block that is the whole text; empty if it is not one."""
    if not text.startswith("```"):
        return ""
    inside = text.partition("\n")[2].rstrip().removesuffix("```").rstrip()
    if "\n```" in inside:
        return ""
    return inside


class _Quotation:
    """Tells whether positions in a text are quoted; positions must be given in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._seen = self._line = self._ticks = 0
        self._is_fenced = False

    def holds(self, position: int) -> bool:
        """Return True in a code block, inline code, a quoted line, and after a quotation mark."""
        self._advance(position)
        line = self._text[self._line : self._line + 20]
        return (
            self._is_fenced
            or self._ticks % 2 == 1
            or line.lstrip().startswith(">")
            or self._text.endswith(_QUOTES, 0, position)
        )

    def skip(self, position: int) -> None:
        """Skip a call, so that its quotation marks do not count."""
        line_break = self._text.rfind("\n", self._seen, position)
        if line_break >= 0:
            self._line, self._ticks = line_break + 1, 0
        self._seen = position

    def _advance(self, position: int) -> None:
        """Count the fences and backticks up to a position."""
        passed = self._text[self._seen : position]
        self._is_fenced ^= bool(passed.count("```") % 2)
        _, line_break, tail = passed.rpartition("\n")
        if line_break:
            self._line, self._ticks = position - len(tail), 0
        self._ticks += tail.replace("```", "").count("`")
        self._seen = position


class _MarkedCalls:
    """The marked calls of a text so far: the tool to name, and the words beside the calls."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._beside: list[str] = []
        self.tool = ""
        self.end = 0

    def add(self, name: str, start: int) -> None:
        """Add a call; if several follow each other without words, the first one is named."""
        between = self._text[self.end : start]
        self._beside.append(between)
        if not self.tool or between.strip():
            self.tool = name

    def written(self, *more: str) -> Written:
        """Return the calls with the words beside them."""
        return Written(self.tool, _has_prose([*self._beside, *more]))


def _find_marked(text: str, tools: Tools) -> Written | None:
    """Return the marked calls at the end of a text or before an invented result."""
    quotation = _Quotation(text)
    calls = _MarkedCalls(text)
    position = 0
    while mark := MARK.search(text, position):
        position = max(mark.end(), mark.start() + 1)
        if quotation.holds(mark.start()):
            continue
        call = marked_call(text, mark, tools)
        if not call.name:
            if call.end is None:  # the text ends within this bracket, as do all marks that follow
                return None
            position = max(position, call.end)
            continue
        calls.add(call.name, mark.start())
        if call.end is None:
            return calls.written()
        position = calls.end = after(text, max(position, call.end))
        quotation.skip(position)
        if _RESULT.match(text, position):
            return calls.written(_after_result(text, position))
    if calls.tool and _says_nothing(text[calls.end :]):
        return calls.written()
    return None


def _says_nothing(tail: str) -> bool:
    """Return True if the text after a call is empty or only an announcement."""
    said = tail.strip()
    if not said:
        return True
    return (
        len(tail) <= MAX_LEAD
        and "```" not in tail
        and _ANNOUNCED.search(said) is not None
        and not _count_words(said)
    )


def _after_result(text: str, position: int) -> str:
    """Return the last line after invented results; empty if it is another call."""
    if MARK.search(text, position):
        return ""
    return text[position:].rpartition("\n")[2]


def _find_unmarked(text: str, tools: Tools, instructions: str) -> Written | None:
    """Return a call without a mark that begins a line or a code block."""
    starts = islice(_unmarked_starts(text), MAX_STARTS)
    for match in filter(partial(_may_start_call, text), starts):
        lead = text[: match.start()]
        call = _read_unmarked(text, match, lead, tools)
        if call.name and _says_nothing(_tail(text, call).removeprefix("```")):
            return _unless_asked(text, match, call.name, instructions)
    return None


def _may_start_call(text: str, match: re.Match[str]) -> bool:
    """Return True if the place of a possible call does not show that it is an example or a
    program.
    """
    lead = text[: match.start()]
    return (
        _can_lead(lead, is_quoted=_is_quoted(text, match))
        and not _is_closed_early(text, match)
        and not _is_program(text, match)
    )


def _tail(text: str, call: Call) -> str:
    """Return the text after a call; empty if the text ends within the call."""
    if call.end is None:
        return ""
    return text[call.end :]


def _unless_asked(text: str, match: re.Match[str], tool: str, instructions: str) -> Written | None:
    """Return a call without a mark; None if the instructions ask for its JSON."""
    if _is_asked(text, match.start("call"), tool, instructions):
        return None
    return Written(tool, _has_prose([text[: match.start()]]))


def _find_inline_json(text: str, tools: Tools, instructions: str) -> Written | None:
    """Return a JSON call at the end of a text, after prose on the same line."""
    quotation = _Quotation(text)
    for match in islice(_INLINE.finditer(text, 0, MAX_ANNOUNCED + 200), MAX_STARTS):
        start, lead = match.start("call"), text[: match.start()]
        is_announced = _last_sentence_announces(lead)
        if quotation.holds(start) or not _can_lead_inline(lead, is_announced=is_announced):
            continue
        call = json_calls(text, start, tools, is_marked=False)
        if not call.name or not _says_nothing(_tail(text, call).lstrip(" .")):
            continue
        if is_announced or call.name not in call_keys(text, start, call.name):
            return _unless_asked(text, match, call.name, instructions)
    return None


def _find_inline_python(text: str, tools: Tools) -> Written | None:
    """Return a Python-style call that the last sentence of a text announces."""
    quotation = _Quotation(text)
    for match in islice(_inline_python_starts(text, tools), MAX_STARTS):
        start, lead = match.start("call"), text[: match.start()]
        is_led = not _REPORT.search(lead) and _last_sentence_announces(lead)
        if quotation.holds(start) or not is_led:
            continue
        call = python_calls(text, start, tools, may_be_positional=True)
        after_sentence = _REST_OF_SENTENCE.sub("", _tail(text, call), count=1)
        if call.name and _says_nothing(after_sentence):
            return Written(call.name, _has_prose([lead]))
    return None


def _find_bare(text: str, tools: Tools) -> Written | None:
    """Return the call if the message is only JSON after a tool name in another notation."""
    call = bare_call(text, tools)
    tail = _tail(text, call)
    if call.name and after(tail, 0) == len(tail):
        return Written(call.name, has_prose=False)
    return None


def _inline_python_starts(text: str, tools: Tools) -> Iterator[re.Match[str]]:
    """Return where a Python-style call of a tool may begin within a line."""
    found = _INLINE_PYTHON.finditer(text, 0, MAX_ANNOUNCED + 200)
    return (match for match in found if match["name"] in tools)


def _can_lead_inline(lead: str, *, is_announced: bool) -> bool:
    """Return True if prose can precede a call on the same line: it ends a sentence or
    announces it.
    """
    if _REPORT.search(lead):
        return False
    if lead.rstrip("*_ \t").endswith(_STOPS):
        return _can_lead(lead, is_quoted=False)
    return is_announced and len(lead) <= MAX_ANNOUNCED


def _last_sentence_announces(lead: str) -> bool:
    """Return True if the last sentence of a text announces the next action."""
    sentences = [found for found in _SENTENCE.findall(lead) if found.strip("*_ \t")]
    last = next(reversed(sentences), "")
    return _ANNOUNCED.search(last.strip()) is not None


def _unmarked_starts(text: str) -> Iterator[re.Match[str]]:
    """Yield possible starts of unmarked calls outside of earlier code blocks."""
    seen = fences = 0
    for match in _UNMARKED.finditer(text, 0, MAX_ANNOUNCED + 200):
        fences += text.count("```", seen, match.start())
        seen = match.start()
        if fences % 2 == 0:
            yield match


def _is_quoted(text: str, match: re.Match[str]) -> bool:
    """Return True for a closed code block that is not labeled as a call."""
    fence = match["fence"]
    is_unlabeled = fence is not None and fence not in _CALL_FENCES
    return is_unlabeled and text.find("```", match.start("call")) >= 0


def _is_closed_early(text: str, match: re.Match[str]) -> bool:
    """Return True if an answer follows the code block in which a call begins."""
    if match["fence"] is None:
        return False
    closing = text.find("\n```", match.start("call"))
    return closing >= 0 and not _says_nothing(text[closing + 4 :])


def _is_program(text: str, match: re.Match[str]) -> bool:
    """Return True for an assignment in a Python code block, and for a block of data."""
    if not match["assigned"]:
        return False
    return match["fence"] in _PYTHON_FENCES or _is_json_form(text, match.start("call"))


def _can_lead(lead: str, *, is_quoted: bool) -> bool:
    """Return True if the text before a call can lead to it: it announces or does not explain it."""
    if not lead.strip():
        return True
    is_long = len(lead) > MAX_LEAD
    if _is_announced(lead):
        return not is_long or _is_prose(lead)
    explains = lead.rstrip().endswith((":", "\uff1a"))
    return not (is_long or is_quoted or explains)


def _is_prose(lead: str) -> bool:
    """Return True for a text of moderate length without headings, lists, tables and code."""
    return len(lead) <= MAX_ANNOUNCED and not _REPORT.search(lead)


def _is_announced(lead: str) -> bool:
    """Return True if the last paragraph of a text announces the next action."""
    last = lead.rstrip().rpartition("\n\n")[2]
    return _ANNOUNCED.search(last) is not None


def _read_unmarked(text: str, match: re.Match[str], lead: str, tools: Tools) -> Call:
    """Return the call without a mark that starts at a match, in JSON or in Python."""
    start, fence = match.start("call"), match["fence"]
    if starts_json(text, start):
        if fence in _PYTHON_FENCES:
            return Call("", start)
        return json_calls(text, start, tools, is_marked=False)
    if starts_named(text, start):
        return named_calls(text, start, tools)
    is_code = fence == "tool_code"
    may_be_positional = is_code or not lead.strip() or _is_announced(lead)
    return python_calls(text, start, tools, may_be_positional=may_be_positional, is_code=is_code)


def _is_asked(text: str, start: int, tool: str, instructions: str) -> bool:
    """Return True if instructions ask for the JSON of a call, by its keys or by an example."""
    if not _is_json_form(text, start):
        return False
    has_example = f'"{tool}":' in instructions
    return has_example or _asks_for(instructions, call_keys(text, start, tool))


def _is_json_form(text: str, start: int) -> bool:
    """Return True if JSON starts here, alone or after a name."""
    return starts_json(text, start) or starts_named(text, start)


def _asks_for(instructions: str, keys: frozenset[str]) -> bool:
    """Return True if instructions ask for JSON with these keys."""
    return (
        bool(keys)
        and "json" in instructions.lower()
        and keys <= frozenset(_WORD.findall(instructions))
    )


def _has_prose(pieces: Collection[str]) -> bool:
    """Return True if a text has words that are not code, thoughts or an announcement."""
    return sum(map(_count_words, pieces)) >= MIN_WORDS


def _count_words(piece: str) -> int:
    """Count the words outside of code, thoughts and sentences that announce something."""
    prose = " ".join(_THOUGHT.sub("", piece).split("```")[::2])
    said = (found for found in _SENTENCE.findall(prose) if not _ANNOUNCED.search(found.strip()))
    return len(_WORD.findall("\n".join(said)))
