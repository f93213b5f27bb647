"""The values inside tool calls that models write as text: objects in JSON or loose JSON, and
keyword arguments in Python.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any, TypeGuard

_BRACKETS = re.compile(r"""(?xs)
    (?P<open>[(\[{]) | (?P<close>[)\]}])
    | \""" (?:[^"\\]|\\.|"(?!""))*+ (?:\""")?
    | " [^"\\]*+ (?:\\.[^"\\]*+)*+ "?
    | ' [^'\\]*+ (?:\\.[^'\\]*+)*+ '?
    """)
_LOOSE = re.compile(r"""(?xs)
    " [^"\\]*+ (?:\\.[^"\\]*+)*+ "?
    | ' (?P<single> [^'\\]*+ (?:\\.[^'\\]*+)*+ ) '?
    | (?P<comma> , (?= \s*+ [}\]] ) )
    | \b (?P<key> [A-Za-z_]\w*+ ) (?= \s*+ : )
    | \b (?P<literal> True | False | None ) \b
    """)
"""The tokens of loose JSON, in the style of Python or JavaScript, that strict JSON does not have.

Double quotes stay as they are.
"""
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_NAMES = ("name", "tool", "function", "tool_name", "action", "recipient_name")
_ARGUMENTS = frozenset({"arguments", "parameters", "args", "input", "tool_input", "action_input"})
_BESIDE = frozenset({*_NAMES, "type", "id", "call_id", "tool_call_id", "index"})
_WRAPPERS = ("tool_calls", "function_calls", "tool_uses", "function_call", "tool_call")
_BESIDE_WRAPPER = frozenset({"role", "content", "type", "thought", "reasoning"})


class Tools:
    """The names that calls may have: the offered tools, or any name."""

    def __init__(self, offered: Collection[str], *, is_every: bool = False) -> None:
        self.offered = frozenset(offered)
        self._by_case = {name.casefold(): name for name in offered}
        self._is_every = is_every

    def __contains__(self, name: str) -> bool:
        return self._is_every or name in self.offered

    def known(self, name: str) -> str:
        """Return the offered tool with this name, ignoring case; empty if there is none."""
        if name in self.offered:
            return name
        return self._by_case.get(name.casefold(), "")

    def called(self, name: str) -> str:
        """Return the tool that a call in JSON names; empty if this is not a tool.

        Tools of other programs have names in lower case (`read_file`). Other words may be data.
        """
        if known := self.known(name):
            return known
        if self._is_every or name[:1].islower():
            return name
        return ""

    def every(self) -> "Tools":
        """Return the same tools, accepting any name, because a mark identifies the call."""
        return Tools(self.offered, is_every=True)


def closing_bracket(text: str, start: int) -> int | None:
    """Return where the bracket that opens here is closed; None if the text ends first."""
    depth = 0
    for token in _BRACKETS.finditer(text, start):
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0:
            return token.end()
    return None


def decode(raw: str) -> Any:
    """Return the value of a text in JSON or loose JSON; None if it is broken.

    Its errors cost as much as it is long.
    """
    value = _load(raw)
    if value is not None:
        return value
    return _load(_LOOSE.sub(_make_strict, raw))


def called_names(value: Any, tools: Tools) -> list[str]:
    """Return the tools that a value calls; an empty name for each item that is not a call."""
    calls = chain.from_iterable(map(_unwrap, _items(value)))
    return [_called_name(call, tools) for call in calls]


def object_keys(value: Any, tool: str) -> frozenset[str]:
    """Return the keys of the objects in a value, and of the objects that they have under a tool's
    name.
    """
    keys: set[str] = set()
    for item in filter(_is_object, _items(value)):
        keys.update(item)
        arguments = item.get(tool)
        if _is_object(arguments):
            keys.update(arguments)
    return frozenset(keys)


def is_arguments_object(value: Any) -> bool:
    """Return True for an object that may contain the arguments of a call."""
    return _is_object(value) and _are_arguments(value)


def read_arguments(text: str, tool: str) -> dict[str, Any] | None:
    """Return the arguments of the only call in a text, in JSON or in the form of Python.

    None if they cannot be read, or if there are several calls.
    """
    if text.count(tool) != 1:
        return None
    start = text.index(tool) + len(tool)
    opening = start + len(text[start:]) - len(text[start:].lstrip())
    if text.startswith("(", opening):
        return _read_python(text[opening : closing_bracket(text, opening)])
    brace = text.find("{")
    if brace < 0:
        return None
    value = decode(text[brace : closing_bracket(text, brace)])
    if brace > start:
        return _object_or_none(value)
    return _find_arguments(value)


def _load(raw: str) -> Any:
    """Return a JSON value; None if the text is not JSON."""
    try:
        return json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None


def _make_strict(token: re.Match[str]) -> str:
    """Return a token of loose JSON as strict JSON."""
    if token["single"] is not None:
        text = token["single"].replace("\\'", "'").replace('\\"', '"')
        return '"' + text.replace('"', '\\"') + '"'
    if token["key"]:
        return f'"{token["key"]}"'
    if token["comma"]:
        return ""
    return _LITERALS.get(token[0], token[0])


def _items(value: Any) -> Iterator[Any]:
    """Yield the items of a list, or a single value."""
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _unwrap(item: Any) -> Iterator[Any]:
    """Yield the calls in a wrapper such as `tool_calls`, or the item itself."""
    wrapper = _wrapper_of(item)
    if wrapper is not None and item.keys() <= _BESIDE_WRAPPER | {wrapper}:
        return _items(item[wrapper])
    return iter((item,))


def _wrapper_of(item: Any) -> str | None:
    """Return the key under which an object wraps calls; None if it does not."""
    if not _is_object(item):
        return None
    return next((key for key in _WRAPPERS if key in item), None)


def _called_name(call: Any, tools: Tools) -> str:
    """Return the tool that an object calls: it has only a name and arguments."""
    if not _is_object(call):
        return ""
    if _is_object(call.get("function")) and call.keys() <= _BESIDE:
        return _called_name(call["function"], tools)
    if len(call) == 1:
        return _only_key(call, tools)
    return _named_tool(call, tools)


def _named_tool(call: dict[str, Any], tools: Tools) -> str:
    """Return the tool that one field of an object names, with its arguments in another."""
    name = next(filter(None, map(call.get, _NAMES)), None)
    if not isinstance(name, str) or not _has_one_argument_field(call):
        return ""
    tool = name.removeprefix("functions.")
    is_call = tool in tools or tools.known(tool) != "" or _is_certain_call(call)
    return tool if is_call else ""


def _only_key(call: dict[str, Any], tools: Tools) -> str:
    """Return the tool that is the only key of an object, with its arguments as the value."""
    ((name, arguments),) = call.items()
    if name in tools and is_arguments_object(arguments):
        return name
    return ""


def _has_one_argument_field(call: dict[str, Any]) -> bool:
    """Return True if the fields of an object are those of a call, with one field for the
    arguments.
    """
    given = call.keys() & _ARGUMENTS
    if len(given) != 1 or not call.keys() <= _BESIDE | _ARGUMENTS:
        return False
    return _are_arguments(call[given.pop()])


def _is_certain_call(call: dict[str, Any]) -> bool:
    """Return True if an object is a call by its shape; an action with parameters may be data."""
    value = _argument_field(call)
    return "action" not in call and _is_object(value) and bool(value)


def _argument_field(call: dict[str, Any]) -> Any:
    """Return the value of the first field for arguments; some models write JSON inside a string."""
    value = next((value for name, value in call.items() if name in _ARGUMENTS), None)
    return decode(value) if isinstance(value, str) else value


def _are_arguments(value: Any) -> bool:
    """Return True for the arguments of a call, as an object or as JSON text, but not for a
    schema.
    """
    if _is_object(value):
        is_schema = "properties" in value and value.get("type") == "object"
        return not is_schema
    return isinstance(value, str)


def _read_python(raw: str) -> dict[str, Any] | None:
    """Return keyword arguments with literal values, or a single object."""
    try:
        call = ast.parse(f"call{raw}", mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        return _literal_arguments(call)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _literal_arguments(call: ast.Call) -> dict[str, Any] | None:
    """Return the literal arguments of a call: keywords, or a single object."""
    given = list(map(ast.literal_eval, call.args))
    if not given:
        named = ((item.arg, ast.literal_eval(item.value)) for item in call.keywords if item.arg)
        return dict(named)
    if len(given) > 1 or call.keywords:
        return None
    return _object_or_none(given[0])


def _find_arguments(value: Any) -> dict[str, Any] | None:
    """Return the arguments beside the name in an object, or inside a wrapper."""
    if not _is_object(value):
        return None
    for key in (*_WRAPPERS, "function"):
        inner = list(_items(value.get(key)))
        if len(inner) == 1 and _is_object(inner[0]):
            return _find_arguments(inner[0])
    return _object_or_none(_argument_field(value))


def _object_or_none(value: Any) -> dict[str, Any] | None:
    if _is_object(value):
        return value
    return None


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
