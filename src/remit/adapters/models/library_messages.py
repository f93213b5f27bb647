"""Messages, tools and tool calls between remit and pydantic-ai."""

from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from json import JSONDecoder
from typing import Any, assert_never

from remit.adapters.models.refusals.endpoint_limits import media_results
from remit.adapters.models.tool_schemas import acceptable, call_id, tool_name
from remit.adapters.models.wires.response import (
    PartialToolCall,
    argument_text,
    bad,
    sent_arguments,
    storable_json,
    text_of,
)
from remit.domain.llm.failures import storable
from remit.domain.llm.harmony import without_channels
from remit.domain.llm.messages import (
    Message,
    Part,
    TextPart,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)

PROVIDER = "pydantic_ai"

_THOUGHT_FIELDS = ("id", "signature", "provider_name", "provider_details")
_CALL_FIELDS = ("provider_name", "provider_details")
_decode = JSONDecoder().raw_decode


def to_library(message: Message, system: str, *, is_short: bool) -> Any:
    """Return a message in the form of the library; `is_short` is True for short ids of calls."""
    library = import_module("pydantic_ai.messages")
    if message.role == "assistant":
        said = (_answer_part(library, part, is_short=is_short) for part in message.parts)
        return library.ModelResponse(parts=[part for part in said if part is not None])
    parts = [_request_part(library, part, is_short=is_short) for part in message.parts]
    parts += [_media_part(library, part) for part in media_results(message)]
    return library.ModelRequest(parts=parts, instructions=system or None)


def tool_parameters(
    shape: Callable[[Mapping[str, Any]], dict[str, Any]],
    tools: tuple[Tool, ...],
) -> Any:
    """Return tools in the form of the library; `shape` makes a schema that the endpoint accepts."""
    definition = import_module("pydantic_ai.tools").ToolDefinition
    # Strict schemas are closed: a tool that accepts any object would get only empty ones.
    found = [
        definition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=shape(tool.schema),
            strict=False,
        )
        for tool in acceptable(tools)
    ]
    return import_module("pydantic_ai.models").ModelRequestParameters(function_tools=found)


class LibraryAnswer:
    """The parts of an answer of the library, its tool calls, and its size in characters."""

    def __init__(self, answer: Any, known_tools: Collection[str]) -> None:
        self.parts: list[Part] = []
        self.calls: list[PartialToolCall] = []
        self.size = 0
        library = import_module("pydantic_ai.messages")
        for part in answer.parts:
            if isinstance(part, library.TextPart):
                _, said = without_channels(part.content)
                self.parts.append(TextPart(storable(said)))
                self.size += len(part.content)
            elif isinstance(part, library.ThinkingPart):
                self.parts.append(_read_thought(part))
            elif isinstance(part, library.ToolCallPart):
                self._add_calls(part, known_tools)

    def _add_calls(self, part: Any, known_tools: Collection[str]) -> None:
        """Add the calls of a part and count their arguments."""
        for call in _read_calls(part, known_tools):
            self.calls.append(call)
            self.size += sum(map(len, call.raw))


class StreamWatch:
    """Limits the size of a stream, and records whether it contained anything."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self.heard = self.started = False

    def hear(self, event: Any) -> None:
        """Count the piece in an event of the library's stream."""
        self.heard = True
        piece = _piece_of(event)
        if piece is None:
            return
        self.started = True
        self._size += len(piece)
        if self._size > self._most:
            raise bad(f"the answer has more than {self._most:,} bytes", started=True)


def _piece_of(event: Any) -> str | None:
    """Return the piece of an answer in an event; None if it has none."""
    field = _EVENT_FIELDS.get(event.event_kind, "")
    part = getattr(event, field, None)
    if part is None:
        return None
    kind = getattr(part, "part_kind", None) or part.part_delta_kind
    if kind in ("tool-call", "tool_call"):
        return argument_text(_first_of(part, "args", "args_delta"))
    text: str = _first_of(part, "content", "content_delta")
    if text and kind in ("text", "thinking"):
        return text
    return None


_EVENT_FIELDS = {"part_start": "part", "part_delta": "delta"}
"""The field with the piece of an answer, by the kind of event."""


def _first_of(part: Any, *names: str) -> Any:
    """Return the first of these attributes that is set; empty if none is."""
    values = (getattr(part, name, None) for name in names)
    return next(filter(None, values), "")


def _answer_part(library: Any, part: Part, *, is_short: bool) -> Any:
    """Return a part of an earlier answer in the form of the library; None if it is not sent."""
    match part:
        case ToolCall():
            own: Mapping[str, Any] = {}
            if part.data and part.provider == PROVIDER:
                own = part.data
            return library.ToolCallPart(
                tool_name=tool_name(part.name),
                args=dict(sent_arguments(part)),
                tool_call_id=call_id(part.call_id, short=is_short),
                **own,
            )
        case Thinking():
            if part.provider != PROVIDER:
                return None
            return library.ThinkingPart(content=part.text, **part.data)
        case TextPart() | ToolResult():
            return library.TextPart(content=part.text)
        case _:
            assert_never(part)


def _request_part(library: Any, part: Part, *, is_short: bool) -> Any:
    """Return a text or a tool result in the form of the library."""
    if isinstance(part, ToolResult):
        outcome = "failed" if part.is_error else "success"
        return library.ToolReturnPart(
            tool_name=tool_name(part.name),
            content=part.text,
            tool_call_id=call_id(part.call_id, short=is_short),
            outcome=outcome,
        )
    assert isinstance(part, TextPart), "only text and results are sent to a model"
    return library.UserPromptPart(content=part.text)


def _media_part(library: Any, part: ToolResult) -> Any:
    """Return the image or PDF of a result, as a part of the user."""
    assert part.media is not None
    binary = library.BinaryContent(data=b64decode(part.media.data), media_type=part.media.type)
    return library.UserPromptPart(content=[f"[Result of {part.name}: {part.text}]", binary])


def _read_thought(part: Any) -> Thinking:
    """Return a thought with the fields that are sent back."""
    data = {name: getattr(part, name) for name in _THOUGHT_FIELDS}
    return Thinking(storable(part.content), PROVIDER, storable_json(data))


def _read_calls(part: Any, known: Collection[str]) -> list[PartialToolCall]:
    """Return the calls of a part: the library joins calls that an endpoint sends with one index."""
    calls: list[PartialToolCall] = []
    for name, arguments in _split_calls(str(part.tool_name), argument_text(part.args), known):
        call = PartialToolCall()
        call.name, call.raw = name, [arguments]
        calls.append(call)
    calls[-1].call_id = text_of(part.tool_call_id)  # the library keeps the last
    if part.provider_details:
        data = {name: getattr(part, name) for name in _CALL_FIELDS}
        calls[0].provider, calls[0].data = PROVIDER, storable_json(data)
    return calls


def _split_calls(name: str, text: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield names and arguments of calls that were joined, or the call as it is."""
    if name in known:
        yield name, text
        return
    objects = _split_objects(text)
    if names := _split_names(name, known, len(objects)):
        yield from zip(names, objects, strict=True)
    else:
        yield name, text


def _split_objects(text: str) -> list[str]:
    """Return the JSON objects that a text consists of; none if it has anything else."""
    found: list[str] = []
    while text := text.strip():
        end = _object_end(text)
        if not end:
            return []
        found.append(text[:end])
        text = text[end:]
    return found


def _object_end(text: str) -> int:
    """Return the end of the JSON object at the start of a text; 0 if there is none."""
    if not text.startswith("{"):
        return 0
    try:
        return _decode(text)[1]
    except (ValueError, RecursionError):
        return 0


def _split_names(joined: str, known: Collection[str], count: int) -> list[str]:
    """Split a string of joined tool names; return them only if there are exactly `count`."""
    if count == 1:
        if joined in known:
            return [joined]
        return []
    for name in filter(joined.startswith, filter(None, known)):
        rest = _split_names(joined.removeprefix(name), known, count - 1)
        if rest:
            return [name, *rest]
    return []
