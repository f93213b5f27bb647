"""The forms in which models write tool calls as text: JSON, Python, tags, special tokens, ReAct.

Every function here reads forward from one place and says how far it read, so that a caller who
goes on from there takes linear time: a model may repeat itself for megabytes.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, TypeGuard

UNNAMED = "a tool"
"""The name of a call that is cut off before its name ends."""

_OPENING = r"""
    (?: <(?:\w{1,9}:)?(?:tool_calls?|function_calls?|functioncall|TOOLCALL|start_function_call)>
      | <\|(?:tool_calls?|tool_call_start|tool_calls_section_begin|tool_call_begin
        |python_tag|python_start|START_ACTION|action_start|plugin|channel|start)\|>
      | <\|tool_call>
      | <\uff5ctool▁calls?▁begin\uff5c> | <\uff5cDSML\uff5c(?:function|tool)_calls>
      | \[TOOL_CALLS\]
      | (?<![\w.])functools(?=\[)
    )
"""
MARK = re.compile(
    rf"""(?x)
    (?: (?!<\|(?:channel|start)\|>) {_OPENING} \s*+ )++
    | (?= <function= | <(?:\w{{1,9}}:|\uff5cDSML\uff5c)?invoke[ ] | <\|(?:channel|start)\|> )
    | (?m:^)[ \t]*+ (?= <[A-Za-z_][\w-]{{0,127}}>\s*+<[A-Za-z_] )
    | (?m:^)[ \t]*+ (?P<react>(?:\*\*)?Action:(?:\*\*)?) \s*+
    """
)
"""Where a call with a mark begins: tokens or tags that open it, or none if the call has its own."""
_TAG = re.compile(
    r"""(?x)
    (?: <function=(?P<function>[\w-]{1,128})>
      | <(?P<space>\w{1,9}:|\uff5cDSML\uff5c)?invoke\s++name="(?P<invoke>[\w-]{1,128})">
    ) (?= \s*+ (?:<|\{|\Z) )
    """
)
_ELEMENT = re.compile(r"<([A-Za-z_][\w-]{0,127})>(?=\s*+<)")
_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?[^<\n]{0,40}?(?:<\|channel\|>)?[^<\n]{0,40}?"
    r"\bto=functions\.(?P<name>[\w-]{1,128})"
)
_TOKENS = re.compile(
    r"""(?x)
    (?:function<\uff5ctool▁sep\uff5c>|functions\.|call:)? (?P<name>[\w-]{1,128}) (?::\d{1,9})?
    (?: \s*+ (?P<glm><arg_key>|</tool_call>)
      | \s*+ (?P<kimi><\|tool_call_argument_begin\|>)
      | (?P<deepseek><\uff5ctool▁sep\uff5c>|\s*+```json)
      | (?:\[CALL_ID\]\w{0,64})?(?:\[ARGS\])? \s*+ (?=\{)
    )
    """
)
"""A call whose name and arguments stand between special tokens."""
_ENDS = {
    "glm": "</tool_call>",
    "kimi": "<|tool_call_end|>",
    "deepseek": "<\uff5ctool▁call▁end\uff5c>",
}
_REACT = re.compile(
    r"""(?x)
    (?P<name>[\w-]{1,128}) [ \t]*+ \n \s*+
    (?:\*\*)?Action\ Input:(?:\*\*)? [ \t]*+ (?P<input>[^\n]*+)
    """
)
_FENCE = re.compile(r"```\w{0,20}\s*+")
_PYTHONIC = re.compile(
    r"""(?x)
    (?P<print>print\()? (?:(?:default_api|functions|tools)\.)? (?P<name>[A-Za-z_][\w-]{0,127})
    (?:\.call)?
    (?= \( \s*+ (?: (?P<keyword>\w++\s*+=[^=]) | (?P<cut>\w*+\Z) | (?P<empty>\))
                  | (?P<positional>["'\[{\d]|(?:True|False|None)\b) )? )
    """
)
_NAMED = re.compile(r"(?P<name>[A-Za-z_][\w-]{0,127})\s*+(?=\{\s*+[\"}])")
"""The name of a tool before its arguments in JSON, without a mark."""
_HEAD = re.compile(
    r"""(?x)
    [\[\s]*+ \{ \s*+
    (?: "(?:tool_calls|function_calls|tool_uses|function_call|tool_call)"
        \s*+ : [\[\s]*+ \{ \s*+ )?
    (?: "(?:id|type|call_id|tool_call_id)" \s*+ : \s*+ "[\w-]{0,128}" \s*+ , \s*+ ){0,3}
    (?: "function" \s*+ : \s*+ \{ \s*+ )?
    "(?:name|tool|function|tool_name|action|recipient_name)"
    \s*+ : \s*+ "(?:functions\.)?(?P<name>[\w-]{1,128})"
    (?P<arguments>
      \s*+ , \s*+ "(?:arguments|parameters|args|input|tool_input|action_input)" \s*+ : )?
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
    rf"""(?x)
    [ \t\r\n;,]*+
    (?: (?!{_OPENING})
        (?: </?(?:\w{{1,9}}:|\uff5cDSML\uff5c)?
            (?:tool_call|function|parameter|invoke|tool_use|TOOLCALL) [^<>]{{0,80}} (?:>|\Z)
          | <end_function_call>
          | <\|? [^|<>\n]{{1,30}} (?:\|>|\Z)
          | <\uff5c [^\uff5c\n]{{1,30}} (?:\uff5c>|\Z)
          | </?\w{{0,20}}\Z
        ) )?+
    """
)
_NAMES = ("name", "tool", "function", "tool_name", "action", "recipient_name")
_ARGUMENTS = frozenset({"arguments", "parameters", "args", "input", "tool_input", "action_input"})
_BESIDE = frozenset({*_NAMES, "type", "id", "call_id", "tool_call_id", "index"})
_WRAPPERS = ("tool_calls", "function_calls", "tool_uses", "function_call", "tool_call")
_BESIDE_WRAPPER = frozenset({"role", "content", "type", "thought", "reasoning"})


class Call(NamedTuple):
    """The name of a call, empty if it is none, and where it ends: None if the text ends first."""

    name: str
    end: int | None


def marked_call(text: str, mark: re.Match[str], offered: Collection[str]) -> Call:
    """The call that a mark opens; without a name, the end is where the search goes on."""
    call = _after_mark(text, mark, offered)
    is_offered = call.name in offered or call.name == UNNAMED
    return call if is_offered else Call("", call.end)


def _after_mark(text: str, mark: re.Match[str], offered: Collection[str]) -> Call:
    start = mark.end()
    if mark["react"]:
        return _react_call(text, start, offered)
    if tag := _TAG.match(text, start):
        return _tagged_call(text, tag)
    element = _ELEMENT.match(text, start)
    if element and element[1] in offered:
        return _ending_with(text, element[1], element.end(), f"</{element[1]}>")
    if text.startswith(("<|channel|>", "<|start|>"), start):
        return _harmony_call(text, start)
    if not mark[0].strip():
        return Call("", start + 1)
    if _BEFORE_NAME.match(text, start):
        return Call(UNNAMED, None)
    if starts_json(text, start):
        return json_calls(text, start, offered, is_marked=True)
    if tokens := _TOKENS.match(text, start):
        return _call_in_tokens(text, tokens)
    return python_calls(text, start, offered, may_be_positional=True)


def _tagged_call(text: str, tag: re.Match[str]) -> Call:
    if tag["function"]:
        return _ending_with(text, tag["function"], tag.end(), "</function>")
    return _ending_with(text, tag["invoke"], tag.end(), f"</{tag['space'] or ''}invoke>")


def _ending_with(text: str, name: str, start: int, closing: str) -> Call:
    found = text.find(closing, start)
    return Call(name, found + len(closing) if found >= 0 else None)


def _harmony_call(text: str, start: int) -> Call:
    head = _HARMONY.match(text, start)
    if head is None:
        return Call("", start + 1)
    opening = text.find("{", head.end(), head.end() + 100)
    return Call(head["name"], _end_of(text, opening) if opening >= 0 else head.end())


def _call_in_tokens(text: str, tokens: re.Match[str]) -> Call:
    if text.startswith("{", tokens.end()):
        return Call(tokens["name"], _end_of(text, tokens.end()))
    form = next(form for form in _ENDS if tokens[form])
    start = tokens.start(form) if form == "glm" else tokens.end()
    return _ending_with(text, tokens["name"], start, _ENDS[form])


def _react_call(text: str, start: int, offered: Collection[str]) -> Call:
    if fence := _FENCE.match(text, start):
        call = json_calls(text, fence.end(), offered, is_marked=False)
        is_closed = call.end is not None and text.startswith("```", call.end)
        return Call(call.name, call.end + 3) if call.end is not None and is_closed else call
    if starts_json(text, start):
        return json_calls(text, start, offered, is_marked=False)
    step = _REACT.match(text, start)
    if step is None:
        return python_calls(text, start, offered, may_be_positional=True)
    is_json = step["input"].startswith("{")
    return Call(step["name"], _end_of(text, step.start("input")) if is_json else step.end())


def starts_json(text: str, start: int) -> bool:
    """True if an object, or a list of objects, begins here."""
    return text[start : start + 80].lstrip("[ \t\r\n").startswith("{")


def json_calls(text: str, start: int, offered: Collection[str], *, is_marked: bool) -> Call:
    """The calls in JSON that begin here: the name of the first, the end of all."""
    first, position = "", start
    while text.startswith(("{", "["), position):
        call = _json_call(text, position, offered, is_marked=is_marked)
        first = first or call.name
        if not call.name or call.end is None:
            return Call(first if call.name else "", call.end)
        position = after(text, call.end)
    return Call(first, position)


def _json_call(text: str, start: int, offered: Collection[str], *, is_marked: bool) -> Call:
    """A call in JSON; one that is broken counts if the text ends within it or a mark opened it."""
    end = _end_of(text, start)
    value = None if end is None else _decoded(text[start:end])
    if value is not None:
        names = _names(value, offered)
        return Call(names[0] if names and all(names) else "", end)
    head = _HEAD.match(text, start)
    is_call = is_marked or (end is None and head is not None and bool(head["arguments"]))
    return Call(str(head["name"]) if head and is_call else "", end)


def _decoded(raw: str) -> Any:
    """The value of a JSON text; None if it is broken. Its errors cost as much as it is long."""
    try:
        return json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None


def _end_of(text: str, start: int) -> int | None:
    """Where the bracket that opens here is closed; None if the text ends before."""
    depth = 0
    for token in _BRACKETS.finditer(text, start):
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0:
            return token.end()
    return None


def starts_named(text: str, start: int) -> bool:
    """True if a name and an object begin here."""
    return _NAMED.match(text, start) is not None


def named_calls(text: str, start: int, offered: Collection[str]) -> Call:
    """The calls that begin here as a name before an object: the first name, the end of all."""
    first, position = "", start
    while match := _NAMED.match(text, position):
        end = _end_of(text, match.end())
        is_call = end is None or _is_arguments_object(_decoded(text[match.end() : end]))
        if match["name"] not in offered or not is_call:
            return Call("", position + 1)
        first = first or match["name"]
        if end is None:
            return Call(first, None)
        position = after(text, end)
    return Call(first, position)


def python_calls(
    text: str,
    start: int,
    offered: Collection[str],
    *,
    may_be_positional: bool,
    is_code: bool = False,
) -> Call:
    """The calls in the form of Python that begin here: the name of the first, the end of all."""
    is_list = text.startswith("[", start)
    position = after(text, start + is_list)
    first = ""
    while match := _PYTHONIC.match(text, position):
        without_keyword = match["empty"] or match["positional"]
        has_arguments = match["keyword"] or match["cut"] is not None or is_code
        is_call = has_arguments or (may_be_positional and without_keyword)
        if not is_call or match["name"] not in offered:
            return Call("", position + 1)
        first = first or match["name"]
        end = _end_of(text, match.start("print") if match["print"] else match.end())
        if end is None:
            return Call(first, None)
        position = after(text, end)
    if is_list and text.startswith("]", position):
        position = after(text, position + 1)
    return Call(first, position if first else start + 1)


def after(text: str, position: int) -> int:
    """Where something other than the marks that close a call and what separates calls begins."""
    while (match := _CLOSING.match(text, position)) and match.end() > position:
        position = match.end()
    return position


def call_keys(text: str, start: int, tool: str) -> frozenset[str]:
    """The keys of the objects that begin here; with those of the arguments under a tool's name."""
    match = _NAMED.match(text, start)
    opening = match.end() if match else start
    value = _decoded(text[opening : _end_of(text, opening)])
    objects = [item for item in _items(value) if _is_object(item)]
    inner = [item[tool] for item in objects if _is_object(item.get(tool))]
    keys = frozenset(key for item in (*objects, *inner) for key in item)
    return keys | {tool} if match else keys


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _names(value: Any, offered: Collection[str]) -> list[str]:
    """The tools that a value calls; an empty name for each item that is no call."""
    return [name for item in _items(value) for name in _names_of(item, offered)]


def _names_of(item: Any, offered: Collection[str]) -> list[str]:
    wrapper = next((key for key in _WRAPPERS if _is_object(item) and key in item), None)
    if wrapper is not None and item.keys() <= _BESIDE_WRAPPER | {wrapper}:
        return [_name(inner, offered) for inner in _items(item[wrapper])]
    return [_name(item, offered)]


def _name(call: Any, offered: Collection[str]) -> str:
    """The name of the tool that an object calls: it has a name, arguments, and nothing else."""
    if not _is_object(call):
        return ""
    if _is_object(call.get("function")) and call.keys() <= _BESIDE:
        return _name(call["function"], offered)
    if len(call) == 1:
        return _only_key(call, offered)
    name = next((call[key] for key in _NAMES if call.get(key)), None)
    given = [call[key] for key in call.keys() & _ARGUMENTS]
    is_call = len(given) == 1 and call.keys() <= _BESIDE | _ARGUMENTS and _are_arguments(given[0])
    return name.removeprefix("functions.") if isinstance(name, str) and is_call else ""


def _only_key(call: dict[str, Any], offered: Collection[str]) -> str:
    """The tool that is the only key of an object, with its arguments as the value."""
    ((name, arguments),) = call.items()
    return name if name in offered and _is_arguments_object(arguments) else ""


def _is_arguments_object(value: Any) -> bool:
    return _is_object(value) and _are_arguments(value)


def _are_arguments(value: Any) -> bool:
    """True for the arguments of a call, as an object or as its text; a schema describes a tool."""
    if _is_object(value):
        return not ("properties" in value and value.get("type") == "object")
    return isinstance(value, str)


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
