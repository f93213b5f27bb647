"""Requests to models and their responses, independent of the provider.

These are named tuples, the cheapest immutable values: a conversation creates, stores and sends
thousands of them.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from remit.domain.agents.media import Media
from remit.domain.llm.failures import Retry
from remit.domain.task.task import Effort
from remit.errors import UnknownEvent

DELIMITER = "===== remit ====="
"""The line before remit's own text in a message, for endpoints that take no second message."""
_UNSEEN = (
    r"\x00-\x08\x0e-\x1b\x7f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e01ef"
)
INVISIBLE = rf"(?:\x1b\[[\d;]*+[A-Za-z]|\x1b\][^\x07\x1b\n]{{0,200}}+(?:\x07|\x1b\\)|[{_UNSEEN}])"
"""A pattern for an invisible character or a terminal escape."""


def spread(word: str) -> str:
    """Return a pattern for a word of lower-case letters, also in full width, that may be separated
    by invisible characters.
    """
    return rf"[{_UNSEEN}]*+".join(f"[{letter}{_full_width(letter)}]" for letter in word)


def _full_width(letter: str) -> str:
    return chr(ord(letter) - ord("a") + ord("\uff41"))


_GAP = rf"(?:[^\S\n]|{INVISIBLE})*+"
_SIGN = r"[=\uff1d]"
DELIMITER_LIKE = rf"{_SIGN}{{3,}}+{_GAP}{spread('remit')}{_GAP}{_SIGN}{{3,}}+"
"""A pattern for text that looks like the delimiter."""
_DELIMITER = re.compile(rf"(?<!{_SIGN}){DELIMITER_LIKE}", re.IGNORECASE)
"""Possessive, and only at the start of a row of signs: a file may contain a megabyte of them."""
_QUOTED_DELIMITER = "== (quoted) remit =="
_OPENED, _CLOSED = r"[<\uff1c]", r"[>\uff1e]"
_BLANK = rf"(?:\s|{INVISIBLE})"
_BLOCK_START = rf"{_OPENED}{_BLANK}*+{spread('task')}(?={_BLANK}++{spread('id')}\b)"
_BLOCK_END = rf"{_OPENED}{_BLANK}*+[/\uff0f]{_BLANK}*+{spread('task')}(?={_BLANK}*+{_CLOSED})"
BLOCK_LIKE = rf"(?:{_BLOCK_START}|{_BLOCK_END})"
"""A pattern for text that looks like the first or the last line of a task block."""
_BLOCK_LINE = re.compile(BLOCK_LIKE, re.IGNORECASE)
_FIRST_BLOCK_LINE = re.compile(_BLOCK_START, re.IGNORECASE)
_SIGNS = ("===", "\uff1d", "<", "\uff1c")
"""Every text that looks like the delimiter or a line of a task block contains one of these."""

Role = Literal["user", "assistant", "tool"]
Stop = Literal["end", "tool_calls", "length", "context_full", "paused", "refusal"]
UNFINISHED: tuple[Stop, ...] = ("length", "context_full", "paused")
"""Stop reasons of answers that the model would continue."""
CUT_OFF_CALL = (
    "Your answer was cut off at the limit of output tokens, before the arguments of this call were"
    " complete. Write less at once: split a long text into several calls."
)


class TextPart(NamedTuple):
    """A text."""

    text: str


class ToolCall(NamedTuple):
    """A tool call of the model.

    With `error`, the arguments are in `raw` and are not a JSON object.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    raw: str = ""
    error: str = ""
    provider: str = ""
    data: Mapping[str, Any] | None = None
    """What the provider sent with the call and expects back, such as a signature."""


class ToolResult(NamedTuple):
    """The result of a tool call."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    media: Media | None = None
    """An image or a PDF that the model is shown with the text."""


class Thinking(NamedTuple):
    """A thought of a model, in the form that its provider expects back in `data`."""

    text: str
    provider: str
    data: Mapping[str, Any]


Part = TextPart | ToolCall | ToolResult | Thinking


class Message(NamedTuple):
    """One message of a conversation; tool results are separate messages."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.parts)


class Tool(NamedTuple):
    """A tool that a model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ModelSettings(NamedTuple):
    """Settings of a request; the provider decides those that are not set."""

    max_tokens: int | None = None
    temperature: float | None = None
    effort: Effort | None = None
    stop: tuple[str, ...] = ()


DEFAULTS = ModelSettings()


class Request(NamedTuple):
    """Everything that a model call needs."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    settings: ModelSettings = DEFAULTS
    agent: str = ""
    """The agent that asks; failures are also counted per agent."""
    timeout_seconds: float | None = None
    """The time limit of the call, including waits and retries."""
    may_call: bool = True
    """False if no tool may be called; tools are still sent, as earlier messages refer to them."""
    passing: int = 0
    """The number of last messages that are not in the next request and need no caching."""


class Tokens(NamedTuple):
    """The tokens of a call; `input` includes cached tokens.

    `estimated` is True if the provider reported no plausible numbers.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    estimated: bool = False


class Response(NamedTuple):
    """The answer of a model, with the name of the model."""

    parts: tuple[Part, ...]
    stop: Stop
    tokens: Tokens
    model: str
    cost: float | None = None
    """In US dollars; None if the price is unknown."""
    reason: str = ""
    """The reason of the endpoint for a refusal, in its own words."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.parts if type(part) is ToolCall)

    @property
    def message(self) -> Message:
        """The answer as the next message of the conversation."""
        return Message("assistant", self.parts)


def explain_cut_calls(response: Response) -> Response:
    """Return a response whose unusable calls say that the limit of output tokens cut them off."""
    if response.stop != "length":
        return response
    return response._replace(parts=tuple(map(_explain_cut_call, response.parts)))


def _explain_cut_call(part: Part) -> Part:
    if type(part) is not ToolCall or not part.error:
        return part
    return part._replace(error=CUT_OFF_CALL)


class Pause(Protocol):
    """Waits before a model is asked again; may return early.

    If it raises, the model must not be asked.
    """

    def __call__(self, waiting: Awaitable[None], retry: Retry | None = None, /) -> Awaitable[None]:
        """Wait; `retry` tells why the model is asked again."""
        ...


def text_of(parts: tuple[Part, ...]) -> str:
    """Join the text parts."""
    return "\n\n".join([part.text for part in parts if type(part) is TextPart])


def user(*texts: str) -> Message:
    """Return a user message with each text as its own part."""
    return Message("user", tuple(map(TextPart, texts)))


def without_delimiters(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages in which no text can pass for remit's delimiter, and no text of a person can
    open a task block.

    Results of tools keep their tags: files of other programs contain them, and agents edit such
    files as they read them.
    """
    return tuple(map(_without_delimiter, messages))


def _without_delimiter(message: Message) -> Message:
    if message.role == "assistant" or not any(map(_may_hold_delimiter, message.parts)):
        return message
    return message._replace(parts=tuple(map(_quote_delimiter, message.parts)))


def _may_hold_delimiter(part: Part) -> bool:
    """Return True for a text with signs of the delimiter or of a task block."""
    if not isinstance(part, TextPart | ToolResult):
        return False
    return any(sign in part.text for sign in _SIGNS)


def _quote_delimiter(part: Part) -> Part:
    if isinstance(part, ToolResult):
        return part._replace(text=_DELIMITER.sub(_QUOTED_DELIMITER, part.text))
    if isinstance(part, TextPart):
        text = _DELIMITER.sub(_QUOTED_DELIMITER, part.text)
        return part._replace(text=_FIRST_BLOCK_LINE.sub(_quote_tag, text))
    return part


def inside_block(text: str) -> str:
    """Return a text in which nothing can pass for the delimiter or end the task block around it."""
    return _BLOCK_LINE.sub(_quote_tag, _DELIMITER.sub(_QUOTED_DELIMITER, text))


def _quote_tag(tag: re.Match[str]) -> str:
    return f"{tag[0][0]}(quoted) {tag[0][1:]}"


def plain(message: Message) -> dict[str, Any]:
    """Return a message in its stored form."""
    return {"role": message.role, "parts": [_WRITERS[type(part)](part) for part in message.parts]}


def restore(raw: Mapping[str, Any]) -> Message:
    """Return a stored message; raise `UnknownEvent` for an unknown format."""
    try:
        return Message(raw["role"], tuple([_READERS[part["type"]](part) for part in raw["parts"]]))
    except (KeyError, TypeError) as error:
        raise UnknownEvent(
            f"A message has a shape this version does not know: {error}", hint="Upgrade remit."
        ) from error


def _plain_text(part: TextPart) -> dict[str, Any]:
    """Return a text in its stored form."""
    return {"type": "text", "text": part.text}


def _plain_call(call: ToolCall) -> dict[str, Any]:
    """Return a tool call in its stored form."""
    stored: dict[str, Any] = {
        "type": "tool_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    }
    if call.error:
        stored |= {"raw": call.raw, "error": call.error}
    if call.data:
        stored |= {"provider": call.provider, "data": call.data}
    return stored


def _plain_result(result: ToolResult) -> dict[str, Any]:
    """Return a tool result in its stored form."""
    stored: dict[str, Any] = {
        "type": "tool_result",
        "call_id": result.call_id,
        "name": result.name,
        "text": result.text,
    }
    if result.is_error:
        stored["is_error"] = True
    return stored


def _plain_thinking(thought: Thinking) -> dict[str, Any]:
    """Return a thought in its stored form."""
    return {
        "type": "thinking",
        "text": thought.text,
        "provider": thought.provider,
        "data": thought.data,
    }


_WRITERS: dict[type[Any], Callable[[Any], dict[str, Any]]] = {
    TextPart: _plain_text,
    ToolCall: _plain_call,
    ToolResult: _plain_result,
    Thinking: _plain_thinking,
}
_READERS: dict[str, Callable[[Mapping[str, Any]], Part]] = {
    "text": lambda raw: TextPart(raw["text"]),
    "tool_call": lambda raw: ToolCall(
        raw["call_id"],
        raw["name"],
        raw["arguments"],
        raw.get("raw", ""),
        raw.get("error", ""),
        raw.get("provider", ""),
        raw.get("data"),
    ),
    "tool_result": lambda raw: ToolResult(
        raw["call_id"], raw["name"], raw["text"], raw.get("is_error", False)
    ),
    "thinking": lambda raw: Thinking(raw["text"], raw["provider"], raw["data"]),
}
