"""Tool calls that a model wrote as text instead of making them.

Every pattern here takes linear time: the text is a model's, which may repeat itself for megabytes.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, cast

MAX_LEAD = 300
"""How many characters may stand before a call without a mark: more is an answer that quotes one."""
MAX_ANNOUNCED = 1_500
"""How many they may be if they are prose that ends by saying what the agent does next."""
UNNAMED = "a tool"
"""What a call is named that ends before its name does."""
MAX_STARTS = 3
"""How many places are looked at where a call without a mark may begin."""

_MARKED = re.compile(
    r"""(?mx)
    ^[ \t]*+
    (?: <tool_call>\s*+ (?P<hermes> (?=\{) )
      | \[TOOL_CALLS\]\s*+ (?P<mistral> (?=[\[{]) )
      | \[TOOL_CALLS\]\s*+ (?P<devstral>[\w-]{1,128}) (?:\[ARGS\])? \s*+ \{
      | <\|python_(?:tag|start)\|>\s*+ (?P<llama> (?=[\[{\w]) )
      | <function=(?P<function>[\w-]{1,128})> (?= \s*+ (?:<parameter|</function>|\Z) )
      | (?:<(?:\w{1,9}:)?function_calls>\s*+)?
        <(?:\w{1,9}:)?invoke\s+name="(?P<invoke>[\w-]{1,128})">
        (?= \s*+ (?:<(?:\w{1,9}:)?parameter|</|\Z) )
    )
    """,
)
_TOKENS = re.compile(
    r"""(?mx)
    ^[ \t]*+
    (?: <tool_call>\s*+ (?P<glm>[\w-]{1,128}) \s*+ <arg_key>
      | (?:<\|tool_calls_section_begin\|>\s*+)? <\|tool_call_begin\|>
        \s*+ (?:functions\.)? (?P<kimi>[\w-]{1,128}) (?::\d{1,9})?
        \s*+ <\|tool_call_argument_begin\|>
      | (?:<\|start\|>assistant)? <\|channel\|> [^<\n]{0,40}?
        \bto=functions\.(?P<harmony>[\w-]{1,128})
      | <\uff5ctool▁calls?▁begin\uff5c> [^{\n]{0,60}? (?:function<\uff5ctool▁sep\uff5c>)?
        (?P<deepseek>[\w-]{1,128}) (?:<\uff5ctool▁sep\uff5c>|\s*+```json)
    )
    """
)
"""Calls between the special tokens of GLM, Kimi, gpt-oss and DeepSeek, which answers do not use."""
_UNMARKED = re.compile(
    r"""(?mx)
    ^ (?: ```(?P<fence>json|tool_call|tool_code|python|py|) [ \t]*+ \n \s*+ )?
    (?P<call> (?= (?: \[\s*+ )?
      (?: \{\s*+["] | (?:print\()? (?:[a-z_]{1,20}\.)? [A-Za-z_][\w-]{0,127}\( )
    ) )
    """
)
"""Where a call without a mark may begin, alone or in a fence."""
_PYTHONIC = re.compile(
    r"""(?x)
    (?P<print>print\()? (?:(?:default_api|functions|tools)\.)? (?P<name>[A-Za-z_][\w-]{0,127})
    (?:\.call)? (?= \( \s*+ (?: (?P<keyword>\w++\s*+=[^=]) | (?P<empty>\)) | (?P<cut>\w*+\Z) )? )
    """
)
_HEAD = re.compile(
    r"""(?x)
    [\[\s]*+ \{ \s*+
    (?: "type" \s*+ : \s*+ "function" \s*+ , \s*+ "function" \s*+ : \s*+ \{ \s*+ )?
    "(?:name|tool|function)" \s*+ : \s*+ "(?:functions\.)?(?P<name>[\w-]{1,128})"
    (?P<arguments> \s*+ , \s*+ "(?:arguments|parameters|args|input)" \s*+ : )?
    """
)
"""How a call in JSON begins."""
_BEFORE_NAME = re.compile(r'\s*+\{\s*+(?:"[a-z]{0,8}(?:"\s*+:?\s*+(?:"[\w.-]{0,128})?)?)?\Z')
"""A call in JSON that ends before its name does."""
_BRACKETS = re.compile(
    r"""(?xs)
    (?P<open>[(\[{]) | (?P<close>[)\]}])
    | \""" (?:[^"\\]|\\.|"(?!""))*+ (?:\""")?
    | " [^"\\]*+ (?:\\.[^"\\]*+)*+ "?
    | ' [^'\\]*+ (?:\\.[^'\\]*+)*+ '?
    """
)
_CLOSING = re.compile(
    r"[ \t\r\n;,]*+(?:</?(?:\w{1,9}:)?"
    r"(?:tool_call|function|parameter|invoke|tool_use|function_calls)[^<>]{0,80}(?:>|\Z)"
    r"|<\|[^|]{1,30}(?:\|>|\Z)|</?\w{0,20}\Z)?+"
)
_ANNOUNCED = re.compile(
    r"\b(?:I['\u2019]ll|I will|I['\u2019]m going to|I am going to|I need to|I should|I have to"
    r"|I want to|[Ll]et me|[Ll]et['\u2019]s|[Ll]et us|LET ME)\b"
)
"""How a model says what it does next."""
_REPORT = re.compile(r"(?m)^[ \t]*+(?:#|\||[-*+] |\d{1,3}[.)] |```)")
"""What prose that leads to a call does not hold: headings, tables, lists and code."""
_ARGUMENTS = frozenset({"arguments", "parameters", "args", "input"})
_BESIDE = frozenset({"name", "type", "id", "function", "tool"})
_decode = json.JSONDecoder(strict=False).raw_decode


class _Call(NamedTuple):
    """The name of a call, and where in the text it ends; a call that is cut off has no end."""

    name: str
    end: int | None


def written_call(text: str, offered: Collection[str]) -> str:
    """The tool that a text calls at its end, if it is one of those offered; else nothing.

    An answer that quotes a call in the middle, inside a code block or in a long text is an answer.
    """
    text = text.rstrip()
    found = _between_tokens(text) or _marked(text) or _unmarked(text, offered)
    return found if found in offered or found == UNNAMED else ""


def _outside_fences(pattern: re.Pattern[str], text: str, end: int) -> Iterator[re.Match[str]]:
    """The matches that do not stand in a code block."""
    seen = fences = 0
    for match in pattern.finditer(text, 0, end):
        fences += text.count("```", seen, match.start())
        seen = match.start()
        if fences % 2 == 0:
            yield match


def _between_tokens(text: str) -> str:
    match = next(_outside_fences(_TOKENS, text, len(text)), None)
    return next(str(name) for name in match.groups() if name) if match else ""


def _marked(text: str) -> str:
    match = next(_outside_fences(_MARKED, text, len(text)), None)
    if match is None:
        return ""
    if match["devstral"]:
        return str(match["devstral"])
    if match["function"]:
        return match["function"] if _is_last(text, match.end(), "</function>") else ""
    if match["invoke"]:
        return match["invoke"] if _is_last(text, match.end(), "</") else ""
    if _BEFORE_NAME.match(text, match.end()):
        return UNNAMED
    if match["llama"] is not None and text[match.end()] != "{":
        return _python_calls(text, match.end(), None)
    return _json_calls(text, match.end(), is_marked=True)


def _is_last(text: str, start: int, closing: str) -> bool:
    """True if a call in tags ends the text, or if the text ends inside of it."""
    return text.endswith(">") or text.find(closing, start) < 0


def _unmarked(text: str, offered: Collection[str]) -> str:
    starts = _outside_fences(_UNMARKED, text, MAX_ANNOUNCED + 200)
    for match in islice(starts, MAX_STARTS):
        if not _leads(text[: match.start()]):
            return ""
        found = _called(text, match, offered)
        if found:
            return found
    return ""


def _leads(lead: str) -> bool:
    """True if what stands before a call is short, or is prose that announces it."""
    if len(lead) <= MAX_LEAD:
        return True
    last = lead.rstrip().rpartition("\n\n")[2]
    return len(lead) <= MAX_ANNOUNCED and bool(_ANNOUNCED.search(last)) and not _REPORT.search(lead)


def _called(text: str, match: re.Match[str], offered: Collection[str]) -> str:
    start, fence = match.start("call"), match["fence"]
    if fence is not None and _is_closed_early(text, start):
        return ""
    if _starts_json(text, start):
        return "" if fence in ("python", "py") else _json_calls(text, start, is_marked=False)
    is_alone = not text[: match.start()].strip() or fence == "tool_code"
    known = frozenset(offered)
    return _python_calls(text, start, known, is_alone=is_alone, is_code=fence == "tool_code")


def _is_closed_early(text: str, start: int) -> bool:
    """True if something follows the code block in which a call begins."""
    closing = text.find("\n```", start)
    return closing >= 0 and closing + 4 < len(text)


def _starts_json(text: str, start: int) -> bool:
    return text[start : start + 80].lstrip("[ \t\r\n").startswith("{")


def _json_calls(text: str, start: int, *, is_marked: bool) -> str:
    """The name of the first of the calls in JSON that end a text."""
    first, position = "", start
    while text.startswith(("{", "["), position):
        call = _json_call(text, position, is_marked=is_marked)
        first = first or call.name
        if not call.name:
            return ""
        if call.end is None:
            return first
        position = _after(text, call.end)
    return first if _is_over(text, position) else ""


def _json_call(text: str, start: int, *, is_marked: bool) -> _Call:
    try:
        value, end = _decode(text, start)
    except (ValueError, RecursionError):
        return _broken_call(text, start, is_marked=is_marked)
    names = [_name(item) for item in _items(value)]
    return _Call(names[0] if names and all(names) else "", end)


def _broken_call(text: str, start: int, *, is_marked: bool) -> _Call:
    """A call that is not JSON: the text ends within it, or a mark says that it is one."""
    head, end = _HEAD.match(text, start), _end_of(text, start)
    is_call = is_marked or (end is None and head is not None and bool(head["arguments"]))
    return _Call(str(head["name"]) if head and is_call else "", end)


def _end_of(text: str, start: int) -> int | None:
    """Where the bracket that opens here is closed; None if the text ends before."""
    depth = 0
    for token in _BRACKETS.finditer(text, start):
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0:
            return token.end()
    return None


def _python_calls(
    text: str,
    start: int,
    offered: Collection[str] | None,
    *,
    is_alone: bool = True,
    is_code: bool = False,
) -> str:
    """The name of the first of the calls in the form of Python that end a text."""
    is_list = text.startswith("[", start)
    position = _after(text, start + is_list)
    first = ""
    while match := _PYTHONIC.match(text, position):
        has_arguments = match["keyword"] or match["cut"] is not None or is_code
        is_call = has_arguments or (is_alone and match["empty"])
        if not is_call or (offered is not None and match["name"] not in offered):
            return ""
        first = first or match["name"]
        end = _end_of(text, match.start("print") if match["print"] else match.end())
        if end is None:
            return first
        position = _after(text, end)
    closed = position + (is_list and text.startswith("]", position))
    return first if _is_over(text, _after(text, closed)) else ""


def _after(text: str, position: int) -> int:
    """Where something other than the marks that close a call and what separates calls begins."""
    while (match := _CLOSING.match(text, position)) and match.end() > position:
        position = match.end()
    return position


def _is_over(text: str, position: int) -> bool:
    """True if nothing but the end of a code block follows."""
    return text[position : position + 3] in ("", "```") and len(text) - position <= 3


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _name(item: Any) -> str:
    """The name of the tool that an object calls: it has a name, arguments, and nothing else."""
    if not isinstance(item, Mapping):
        return ""
    call = cast("Mapping[str, Any]", item)
    if isinstance(call.get("function"), Mapping) and call.keys() <= _BESIDE:
        return _name(call["function"])
    name = call.get("name") or call.get("tool") or call.get("function")
    given = [call[key] for key in call.keys() & _ARGUMENTS]
    is_call = len(given) == 1 and isinstance(given[0], Mapping | str) and call.keys() <= _BESIDE | _ARGUMENTS
    return name.removeprefix("functions.") if isinstance(name, str) and is_call else ""
