"""The forms in which models write tool calls as text: JSON, Python, tags, special tokens, ReAct.

Every function here reads forward from one position and returns how far it read, so that callers
take linear time: a model may repeat itself for megabytes.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from remit.domain.llm.text_call_values import (
    Tools,
    called_names,
    closing_bracket,
    decode,
    is_arguments_object,
    object_keys,
)

UNNAMED = "a tool"
"""The name of a call that is cut off before its name ends."""

_OPENING = r"""
    (?: <(?:\w{1,9}:)?(?:tool_calls?|tools|tool_use|function_calls?|functioncall|TOOLCALL
        |start_function_call|tool_code|execute_tool)>
      | <\|(?:tool_calls?|tool_call_start|tool_calls_section_begin|tool_call_begin
        |python_tag|python_start|START_ACTION|action_start|plugin|tools_prefix|channel|start)\|>
      | <\|tool_call>
      | <\uff5ctool▁calls?▁begin\uff5c> | <\uff5cDSML\uff5c(?:function|tool)_calls>
      | \[(?:TOOL_CALLS|TOOL_REQUEST)\]
      | (?<![\w.])functools(?=\[)
    )
"""
_NAMING = "(?:invoke|tool|tool_call|tool_use|function|function_call)"
"""The tags that name a tool in an attribute."""
MARK = re.compile(rf"""(?x)
    (?: (?!<\|(?:channel|start)\|>) {_OPENING} \s*+ )++
    | (?= assistant(?:commentary|analysis) \s*+ to=functions\. )
    | (?m:^)[ \t]*+ (?= [A-Za-z_][\w-]{{0,127}}(?:\[CALL_ID\]\w{{0,64}})?\[ARGS\] )
    | (?= <function= | <(?:\w{{1,9}}:|\uff5cDSML\uff5c)?{_NAMING}[ ] | <\|(?:channel|start)\|> )
    | (?m:^)[ \t]*+ (?= <[A-Za-z_][\w-]{{0,127}}>\s*+<[A-Za-z_] )
    | (?m:^)[ \t]*+ (?P<react>(?:\*\*)?(?:Action|(?:Tool|Function)(?:[ ][Cc]all)?):(?:\*\*)?) \s*+
    """)
"""The start of a marked call: tokens or tags that open it, or none if the call has its own."""
_TAG = re.compile(rf"""(?x)
    (?: <function=(?P<function>[\w-]{{1,128}})>
      | <(?P<tag>(?:\w{{1,9}}:|\uff5cDSML\uff5c)?{_NAMING})
        \s++name=["'](?P<named>[\w-]{{1,128}})["']>
    ) (?= \s*+ (?:<|\{{|\Z) )
    """)
_ARGS = re.compile(r"(?P<name>[\w-]{1,128})(?:\[CALL_ID\]\w{0,64})?\[ARGS\]\s*+(?=\{)")
"""A call of Mistral without the token that opens it."""
_XML_TOOLS = frozenset(
    {
        "read_file",
        "write_to_file",
        "replace_in_file",
        "apply_diff",
        "insert_content",
        "search_and_replace",
        "list_files",
        "search_files",
        "list_code_definition_names",
        "codebase_search",
        "execute_command",
        "browser_action",
        "use_mcp_tool",
    }
)
"""The tools of Cline and Roo Code, which models call with an element of their name."""
_ELEMENT = re.compile(r"<([A-Za-z_][\w-]{0,127})>(?=\s*+<)")
_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?[^<\n]{0,40}?(?:<\|channel\|>)?[^<\n]{0,40}?"
    r"\bto=functions\.(?P<name>[\w-]{1,128})"
)
_TOKENS = re.compile(r"""(?x)
    (?:function<\uff5ctool▁sep\uff5c>|functions\.|call:)? (?P<name>[\w-]{1,128}) (?::\d{1,9})?
    (?: \s*+ (?P<glm><arg_key>|</tool_call>)
      | \s*+ (?P<kimi><\|tool_call_argument_begin\|>)
      | (?P<deepseek><\uff5ctool▁sep\uff5c>|\s*+```json)
      | (?:\[CALL_ID\]\w{0,64})?(?:\[ARGS\])? \s*+ (?=\{)
    )
    """)
"""A call whose name and arguments are between special tokens."""
_ENDS = {
    "glm": "</tool_call>",
    "kimi": "<|tool_call_end|>",
    "deepseek": "<\uff5ctool▁call▁end\uff5c>",
}
_INPUT = r"(?:\*\*)?(?:Action\ Input|Input|Arguments|Parameters):(?:\*\*)?"
_REACT = re.compile(rf"""(?x)
    (?P<tick>`?)(?P<name>[\w-]{{1,128}})(?P=tick) [ \t]*+ \n \s*+
    (?: (?:{_INPUT}\s*+)?+ (?:```\w{{0,20}}\s*+)?+ (?=\{{)
      | {_INPUT} [ \t]*+ (?P<input>[^\n]*+)
    )
    """)
_NAME_ELEMENT = re.compile(r"<(?P<tag>(?:tool_)?name)>\s*+(?P<name>[\w-]{1,128})\s*+</(?P=tag)>")
_BARE = re.compile(r"""(?x)
    (?: (?:assistant)?(?:commentary|analysis)?\s*+ to=functions\.(?P<harmony>[\w-]{1,128})
        [^{\n]{0,40}+
      | (?: >>>all \n [^>]{0,300}+ )? >>>(?P<functionary>[\w-]{1,128}) \s*+
      | call:(?P<call>[\w-]{1,128}) \s*+
      | (?:Calling|Using)\ (?:the\ )?tool\ `?(?P<said>[\w-]{1,128})`?\ with(?:\ arguments)?:?\s*+
      | \*\*(?P<bold>[\w-]{1,128})\*\*\s*+(?:```\w{0,20}\s*+)?+
    ) (?=\{)
    """)
"""The start of a message that is nothing but a call: a name in other words before JSON."""
_FENCE = re.compile(r"```\w{0,20}\s*+")
_FENCE_END = re.compile(r"\s*+```")
_PYTHONIC = re.compile(r"""(?x)
    (?:[A-Za-z_]\w{0,39}[ ]?=[ ]?)?+ (?:await[ ])?+
    (?P<print>print\()? (?:(?:default_api|functions|tools)\.)? (?P<name>[A-Za-z_][\w-]{0,127})
    (?:\.call)?
    (?= \( \s*+ (?: (?P<keyword>\w++\s*+=[^=]) | (?P<cut>\w*+\Z) | (?P<empty>\))
                  | (?P<positional>["'\[{\d]|(?:True|False|None)\b) )? )
    """)
_NAMED = re.compile(r"""(?P<name>[A-Za-z_][\w-]{0,127})\s*+(?=\{\s*+(?:["'}]|\w++\s*+:))""")
"""The name of a tool before its arguments in JSON, without a mark."""
_HEAD = re.compile(r"""(?x)
    [\[\s]*+ \{ \s*+
    (?: ["']?(?:tool_calls|function_calls|tool_uses|function_call|tool_call)["']?
        \s*+ : [\[\s]*+ \{ \s*+ )?
    (?: ["']?(?:id|type|call_id|tool_call_id)["']?
        \s*+ : \s*+ ["'][\w-]{0,128}["'] \s*+ , \s*+ ){0,3}
    (?: ["']?function["']? \s*+ : \s*+ \{ \s*+ )?
    ["']?(?:name|tool|function|tool_name|action|recipient_name)["']?
    \s*+ : \s*+ ["'](?:functions\.)?(?P<name>[\w-]{1,128})["']
    (?P<arguments>
      \s*+ , \s*+ ["']?(?:arguments|parameters|args|input|tool_input|action_input)["']? \s*+ : )?
    """)
"""The start of a call in JSON."""
_BEFORE_NAME = re.compile(
    r"""\s*+\{\s*+(?:["'][a-z]{0,8}(?:["']\s*+:?\s*+(?:["'][\w.-]{0,128})?)?)?\Z"""
)
"""A call in JSON that ends before its name does."""
_CLOSING = re.compile(rf"""(?x)
    [ \t\r\n;,]*+
    (?: (?!{_OPENING} | <function= | <(?:\w{{1,9}}:|\uff5cDSML\uff5c)?{_NAMING}\s )
        (?: </?(?:\w{{1,9}}:|\uff5cDSML\uff5c)?
            (?:tool_call|tools|function|parameter|invoke|tool_use|tool_code|execute_tool|TOOLCALL)
            [^<>]{{0,80}} (?:>|\Z)
          | <end_function_call> | \[END_TOOL_REQUEST\]
          | <\|? [^|<>\n]{{1,30}} (?:\|>|\Z)
          | <\uff5c [^\uff5c\n]{{1,30}} (?:\uff5c>|\Z)
          | </?\w{{0,20}}\Z
        ) )?+
    """)


class Call(NamedTuple):
    """The name of a call, empty if it is none, and its end; None if the text ends first."""

    name: str
    end: int | None


def marked_call(text: str, mark: re.Match[str], tools: Tools) -> Call:
    """Return the call after a mark; without a name, its end is where the search continues."""
    call = _call_after_mark(text, mark, tools)
    name = tools.known(call.name) or call.name
    return Call(name, call.end)


def starts_json(text: str, start: int) -> bool:
    """Return True if an object or a list of objects starts here."""
    return text[start : start + 80].lstrip("[ \t\r\n").startswith("{")


def json_calls(text: str, start: int, tools: Tools, *, is_marked: bool) -> Call:
    """Return the JSON calls that start here: the name of the first, the end of all."""
    read = partial(_json_call, text, tools=tools, is_marked=is_marked)
    return _consecutive_calls(text, start, read)


def starts_named(text: str, start: int) -> bool:
    """Return True if a name and an object start here."""
    return _NAMED.match(text, start) is not None


def named_calls(text: str, start: int, tools: Tools) -> Call:
    """Return the calls of a name and an object that start here: first name, last end."""
    return _consecutive_calls(text, start, partial(_named_call, text, tools=tools))


def python_calls(
    text: str,
    start: int,
    tools: Tools,
    *,
    may_be_positional: bool,
    is_code: bool = False,
) -> Call:
    """Return the Python-style calls that start here: the name of the first, the end of all."""
    is_list = text.startswith("[", start)
    first_start = after(text, start + is_list)
    read = partial(
        _python_call,
        text,
        tools=tools,
        may_be_positional=may_be_positional,
        is_code=is_code,
    )
    calls = _consecutive_calls(text, first_start, read)
    if calls == Call("", first_start):
        return Call("", start + 1)
    if is_list and calls.name and calls.end and text.startswith("]", calls.end):
        return Call(calls.name, after(text, calls.end + 1))
    return calls


def bare_call(text: str, tools: Tools) -> Call:
    """Return the call of a message that begins with the name of a tool and its arguments."""
    match = _BARE.match(text)
    if match is None:
        return Call("", 0)
    name = tools.known(_harmony_name(next(filter(None, match.groups())), tools))
    return Call(name, _after_fence(text, closing_bracket(text, match.end())))


def after(text: str, position: int) -> int:
    """Return the position after closing marks and separators of calls."""
    while (match := _CLOSING.match(text, position)) and match.end() > position:
        position = match.end()
    return position


def call_keys(text: str, start: int, tool: str) -> frozenset[str]:
    """Return the keys of the objects that begin here; with those of the arguments under a tool's
    name.
    """
    name = _NAMED.match(text, start)
    if name is None:
        return _keys_of_object(text, start, tool)
    return _keys_of_object(text, name.end(), tool) | {tool}


def _keys_of_object(text: str, start: int, tool: str) -> frozenset[str]:
    value = decode(text[start : closing_bracket(text, start)])
    return object_keys(value, tool)


def _call_after_mark(text: str, mark: re.Match[str], tools: Tools) -> Call:
    """Return the call after a mark, in whichever form it has."""
    start = mark.end()
    if mark["react"]:
        return _react_call(text, start, tools)
    call = _call_in_own_tag(text, start, tools)
    if call is not None:
        return call
    if not mark[0].strip():
        return Call("", start + 1)
    return _call_after_opening(text, start, tools)


def _call_in_own_tag(text: str, start: int, tools: Tools) -> Call | None:
    """Return a call whose tag or token names the tool; None if there is no such tag."""
    if tag := _TAG.match(text, start):
        return _tagged_call(text, tag, tools)
    element = _ELEMENT.match(text, start)
    if element and (element[1] in tools.offered or element[1] in _XML_TOOLS):
        return _call_until(text, element[1], element.end(), f"</{element[1]}>")
    if text.startswith(("<|channel|>", "<|start|>", "assistant"), start):
        return _harmony_call(text, start, tools)
    if named := _ARGS.match(text, start):
        return _call_in_tokens(text, named)
    return None


def _call_after_opening(text: str, start: int, tools: Tools) -> Call:
    """Return the call after tokens or tags that open it: JSON, special tokens or Python."""
    if _BEFORE_NAME.match(text, start):
        return Call(UNNAMED, None)
    if starts_json(text, start):
        return json_calls(text, start, tools.every(), is_marked=True)
    if tokens := _TOKENS.match(text, start):
        return _call_in_tokens(text, tokens)
    if element := _NAME_ELEMENT.match(text, start):
        return Call(tools.every().called(element["name"]), text.rfind(">") + 1)
    return python_calls(text, start, tools.every(), may_be_positional=True)


def _tagged_call(text: str, tag: re.Match[str], tools: Tools) -> Call:
    """Return a call in tags; of those that name a tool, only `invoke` is not a common word of
    XML.
    """
    if tag["function"]:
        return _call_until(text, tag["function"], tag.end(), "</function>")
    if not tag["tag"].endswith("invoke") and not tools.known(tag["named"]):
        return Call("", tag.end())
    return _call_until(text, tag["named"], tag.end(), f"</{tag['tag']}>")


def _call_until(text: str, name: str, start: int, closing: str) -> Call:
    """Return a call that ends with a closing mark."""
    found = text.find(closing, start)
    if found < 0:
        return Call(name, None)
    return Call(name, found + len(closing))


def _harmony_call(text: str, start: int, tools: Tools) -> Call:
    """Return a call in the format of OpenAI's open models."""
    head = _HARMONY.match(text, start)
    if head is None:
        return Call("", start + 1)
    name = _harmony_name(head["name"], tools)
    opening = text.find("{", head.end(), head.end() + 100)
    if opening < 0:
        return Call(name, head.end())
    return Call(name, closing_bracket(text, opening))


def _harmony_name(name: str, tools: Tools) -> str:
    """Return the name of a tool without the format of its arguments, which may be glued to it."""
    if tools.known(name):
        return name
    return name.removesuffix("json")


def _call_in_tokens(text: str, tokens: re.Match[str]) -> Call:
    """Return a call between special tokens, up to the token that ends it."""
    if text.startswith("{", tokens.end()):
        return Call(tokens["name"], closing_bracket(text, tokens.end()))
    start = tokens.end()
    form = next((name for name in _ENDS if tokens[name]), "")
    if form == "glm":  # the match includes the first argument, or the end
        start = tokens.start("glm")
    return _call_until(text, tokens["name"], start, _ENDS.get(form, ""))


def _react_call(text: str, start: int, tools: Tools) -> Call:
    """Return a call in the form of ReAct: JSON, a name with its input, or Python."""
    if fence := _FENCE.match(text, start):
        call = json_calls(text, fence.end(), tools, is_marked=False)
        return Call(call.name, _after_fence(text, call.end))
    if starts_json(text, start):
        return json_calls(text, start, tools, is_marked=False)
    step = _REACT.match(text, start)
    if step is None:
        return python_calls(text, start, tools, may_be_positional=True)
    name = tools.known(step["name"])
    if step["input"] is not None:
        return Call(name, step.end())
    return Call(name, _after_fence(text, closing_bracket(text, step.end())))


def _after_fence(text: str, end: int | None) -> int | None:
    """Return the end of a code block that is closed after its content."""
    closing = None if end is None else _FENCE_END.match(text, end)
    return end if closing is None else closing.end()


def _consecutive_calls(text: str, start: int, read: Callable[[int], Call | None]) -> Call:
    """Return the calls that follow each other from here: the name of the first, the end of all.

    `read` returns the call at a position; None if no call can start there, and a call without a
    name if what starts there is not a call.
    """
    first, position = "", start
    while (call := read(position)) is not None:
        if not call.name:
            return call
        first = first or call.name
        if call.end is None:
            return Call(first, None)
        position = after(text, call.end)
    return Call(first, position)


def _json_call(text: str, start: int, *, tools: Tools, is_marked: bool) -> Call | None:
    """Return a JSON call; a broken one counts if the text ends in it or a mark opened it."""
    if not text.startswith(("{", "["), start):
        return None
    end = closing_bracket(text, start)
    if end is not None:
        value = decode(text[start:end])
        if value is not None:
            return Call(_first_called(value, tools), end)
    head = _HEAD.match(text, start)
    if head is None:
        return Call("", end)
    is_cut_off = end is None and bool(head["arguments"])
    if is_marked or is_cut_off:
        return Call(tools.called(head["name"]), end)
    return Call("", end)


def _first_called(value: Any, tools: Tools) -> str:
    """Return the first tool that a value calls; empty if any of its items is not a call."""
    names = called_names(value, tools)
    if not all(names):
        return ""
    called = list(map(tools.called, names))
    return next(filter(None, called), "")


def _named_call(text: str, start: int, *, tools: Tools) -> Call | None:
    """Return a call that is a name before its arguments in JSON."""
    match = _NAMED.match(text, start)
    if match is None:
        return None
    end = closing_bracket(text, match.end())
    is_call = end is None or is_arguments_object(decode(text[match.end() : end]))
    if match["name"] not in tools or not is_call:
        return Call("", start + 1)
    return Call(match["name"], end)


def _python_call(
    text: str,
    start: int,
    *,
    tools: Tools,
    may_be_positional: bool,
    is_code: bool,
) -> Call | None:
    """Return a call in the form of Python."""
    match = _PYTHONIC.match(text, start)
    if match is None:
        return None
    is_call = is_code or _has_arguments(match, may_be_positional=may_be_positional)
    if not is_call or match["name"] not in tools:
        return Call("", start + 1)
    opening = match.end()
    if match["print"]:
        opening = match.start("print")
    return Call(match["name"], closing_bracket(text, opening))


def _has_arguments(match: re.Match[str], *, may_be_positional: bool) -> bool:
    """Return True if the text after a name is the start of arguments in Python."""
    is_complete = may_be_positional and bool(match["empty"] or match["positional"])
    return is_complete or bool(match["keyword"]) or match["cut"] is not None
