"""What is said to a model and what it answers, in words of no provider.

These are named tuples: a conversation makes, stores and sends thousands of them, and nothing else that cannot be changed is as cheap.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, assert_never

from remit.domain.media import Media
from remit.domain.value import Effort
from remit.errors import UnknownEvent

DELIMITER = "===== remit ====="
"""The line after which a message goes on with text of remit's own, where an endpoint takes no second message."""
_DELIMITER = re.compile(r"(?<!=)={3,}+([^\S\n]*+remit[^\S\n]*+)={3,}+", re.IGNORECASE)
"""Possessive, and only where a row of signs begins: a file may hold a megabyte of them."""

Role = Literal["user", "assistant", "tool"]
Stop = Literal["end", "tool_calls", "length", "refusal"]


class TextPart(NamedTuple):
    """Words."""

    text: str


class ToolCall(NamedTuple):
    """A tool that the model wants to be used; with `error`, what it wrote as arguments is in `raw` and is no JSON object."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    raw: str = ""
    error: str = ""


class ToolResult(NamedTuple):
    """What a tool gave back."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    media: Media | None = None
    """An image or a PDF that the model is shown with the text."""


class Thinking(NamedTuple):
    """What a model thought, as its provider wants to get it back; `data` is nobody else's business."""

    text: str
    provider: str
    data: Mapping[str, Any]


Part = TextPart | ToolCall | ToolResult | Thinking


class Message(NamedTuple):
    """One turn of a conversation; results of tools have a message of their own."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Its words alone."""
        return text_of(self.parts)


class Tool(NamedTuple):
    """A tool that a model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ModelSettings(NamedTuple):
    """How a model is asked to answer; what is not set is left to the provider."""

    max_tokens: int | None = None
    temperature: float | None = None
    effort: Effort | None = None
    stop: tuple[str, ...] = ()


DEFAULTS = ModelSettings()


class Request(NamedTuple):
    """Everything that one call of a model needs."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    settings: ModelSettings = DEFAULTS
    agent: str = ""
    """Who asks: failures are counted for each agent too."""
    timeout_seconds: float | None = None
    """What the call may take, waiting and further tries included."""
    may_call: bool = True
    """False where no tool may be called; they are sent all the same, as what was said before speaks of them."""
    passing: int = 0
    """How many of its last messages the next request will not hold again: a cache need not keep them."""


class Tokens(NamedTuple):
    """What a call used; `input` counts cached tokens too, and `estimated` says that the provider told nothing that can be true."""

    input: int = 0
    output: int = 0
    cached: int = 0
    estimated: bool = False


class Response(NamedTuple):
    """What a model answered, and which one it was."""

    parts: tuple[Part, ...]
    stop: Stop
    tokens: Tokens
    model: str
    cost: float | None = None
    """In US dollars, where a price is known."""

    @property
    def text(self) -> str:
        """Its words alone."""
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools it wants to be used, in order."""
        return tuple(part for part in self.parts if type(part) is ToolCall)

    @property
    def message(self) -> Message:
        """The answer as the next turn of the conversation."""
        return Message("assistant", self.parts)


class Delta(NamedTuple):
    """A piece of an answer that is still coming; `number` tells the tool calls of one answer apart."""

    kind: Literal["text", "thinking", "tool_call"]
    text: str
    number: int = 0
    call_id: str = ""
    name: str = ""


OnPart = Callable[[Delta], None]
Pause = Callable[[Awaitable[None]], Awaitable[None]]
"""Waits as it is told to before a model is asked again, or less; an error from it means that it must not be asked."""


def text_of(parts: tuple[Part, ...]) -> str:
    """The words among parts."""
    texts = [part.text for part in parts if type(part) is TextPart]
    return texts[0] if len(texts) == 1 else "\n\n".join(texts)


def user(text: str) -> Message:
    """Words for the model."""
    return Message("user", (TextPart(text),))


def without_delimiters(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same, in which nothing that was said or read can pass for the line that only remit writes."""
    return tuple(_without_delimiter(message) for message in messages)


def _without_delimiter(message: Message) -> Message:
    texts = [part.text for part in message.parts if isinstance(part, TextPart | ToolResult)]
    if message.role == "assistant" or not any("===" in text for text in texts):
        return message
    return message._replace(parts=tuple(_quoted(part) for part in message.parts))


def _quoted(part: Part) -> Part:
    if not isinstance(part, TextPart | ToolResult):
        return part
    return part._replace(text=_DELIMITER.sub(r"== (quoted)\1==", part.text))


def plain(message: Message) -> dict[str, Any]:
    """A message as it is stored."""
    return {"role": message.role, "parts": [_plain_part(part) for part in message.parts]}


def restore(raw: Mapping[str, Any]) -> Message:
    """A message that was stored; UnknownEvent where its shape is not one this version knows."""
    try:
        return Message(raw["role"], tuple([_READERS[part["type"]](part) for part in raw["parts"]]))
    except (KeyError, TypeError) as error:
        raise UnknownEvent(f"A message has a shape this version does not know: {error}", hint="Upgrade remit.") from error


def _plain_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ToolCall():
            broken = {"raw": part.raw, "error": part.error} if part.error else {}
            return {"type": "tool_call", "call_id": part.call_id, "name": part.name, "arguments": part.arguments, **broken}
        case ToolResult():
            wrong = {"is_error": True} if part.is_error else {}
            return {"type": "tool_result", "call_id": part.call_id, "name": part.name, "text": part.text, **wrong}
        case Thinking():
            return {"type": "thinking", "text": part.text, "provider": part.provider, "data": part.data}
        case _:
            assert_never(part)


_READERS: dict[str, Callable[[Mapping[str, Any]], Part]] = {
    "text": lambda raw: TextPart(raw["text"]),
    "tool_call": lambda raw: ToolCall(raw["call_id"], raw["name"], raw["arguments"], raw.get("raw", ""), raw.get("error", "")),
    "tool_result": lambda raw: ToolResult(raw["call_id"], raw["name"], raw["text"], raw.get("is_error", False)),
    "thinking": lambda raw: Thinking(raw["text"], raw["provider"], raw["data"]),
}
