"""Anthropic messages, with cache marks on the part that stays the same."""

from collections.abc import Callable, Iterator, Mapping
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, Unpack

from remit.adapters.models.refusals.endpoint_limits import NO_MEDIA, Known
from remit.adapters.models.refusals.message_forms import arrange
from remit.adapters.models.tool_schemas import call_id, tool_name
from remit.adapters.models.wires.anthropic_answer import PROVIDER, AnthropicAnswer
from remit.adapters.models.wires.http_gateway import (
    HttpGateway,
    Options,
    effort_object,
    json_or_none,
    without_refused,
)
from remit.adapters.models.wires.response import sent_arguments
from remit.domain.agents.media import PDF
from remit.domain.llm.messages import (
    Part,
    Request,
    TextPart,
    Thinking,
    ToolCall,
    ToolResult,
)

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
MAX_TOKENS = 16_000
"""Anthropic wants a limit in every request."""
CACHED = ',"cache_control":{"type":"ephemeral"}'

_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class AnthropicGateway(HttpGateway):
    """An endpoint that speaks Anthropic messages, over one session."""

    ANSWER: ClassVar = AnthropicAnswer
    MAX_TOKENS: ClassVar = MAX_TOKENS
    OPTIONAL: ClassVar = frozenset({"output_config", "thinking", "temperature", "tool_choice"})
    WORDS: ClassVar = {"output_config": ("output_config", "effort")}

    def __init__(self, api_key: str, base_url: str = BASE_URL, **options: Unpack[Options]) -> None:
        headers = {"x-api-key": api_key, "anthropic-version": VERSION}
        url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages"
        super().__init__(url, headers, api_key, _write_tool, **options)

    def _body(self, request: Request, known: Known) -> bytes:
        head = f'{{"model":{quote(request.model)}{self._encode_parameters(request, known)}'
        tools = self._encode_tools(request, known)
        # In the cache, tools come before the system text: one mark on that text covers both.
        system = ""
        if request.system:
            system = f',"system":[{{"type":"text","text":{quote(request.system)}{CACHED}}}]'
        # Turns always alternate here: of the learned limits, only refused media change them.
        _, messages = arrange(request, known & NO_MEDIA)
        turns = ",".join(_encode_turns(request._replace(messages=messages)))
        return f'{head}{tools}{system},"messages":[{turns}]}}'.encode("utf-8", "replace")

    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        settings = request.settings
        wanted: dict[str, str | None] = {
            "stream": _encode(self._stream),
            "max_tokens": str(self._output_limit(request)),
            "output_config": effort_object(request),
        }
        if settings.effort in ("medium", "high") and "thinking" not in known:
            wanted["thinking"] = '{"type":"adaptive"}'
        else:
            wanted["temperature"] = json_or_none(settings.temperature)
        wanted["stop_sequences"] = json_or_none(settings.stop)
        wanted["tool_choice"] = self._tool_choice(request)
        return without_refused(wanted, known)

    def _tool_choice(self, request: Request) -> str | None:
        """Return the limit on tool calls; None if there is none."""
        if not request.tools:
            return None
        if not request.may_call:
            return '{"type":"none"}'
        if not self._parallel:
            return '{"type":"auto","disable_parallel_tool_use":true}'
        return None


def _write_tool(name: str, description: str, schema: str) -> str:
    """Return a tool as JSON of its JSON texts."""
    return f'{{"name":{name},"description":{description},"input_schema":{schema}}}'


class _Turn:
    """The blocks of one side before the other side speaks.

    The first `staying` blocks are also in the next request.
    """

    __slots__ = ("blocks", "role", "staying")

    def __init__(self, role: str) -> None:
        self.role = role
        self.blocks: list[str] = []
        self.staying = 0

    def encode(self) -> str:
        """Return the turn as JSON."""
        return f'{{"role":"{self.role}","content":[{",".join(self.blocks)}]}}'

    def mark(self) -> None:
        """Mark the last staying block, up to which the provider caches the conversation."""
        last = self.staying - 1
        self.blocks[last] = f"{self.blocks[last][:-1]}{CACHED}}}"


def _encode_turns(request: Request) -> Iterator[str]:
    """Yield alternating turns of user and assistant, with cache marks."""
    turns = _alternate(request)
    # The next request finds all of this one at the last mark, and this one finds the previous
    # request at the mark before: the provider looks back from a mark, but not past the many results
    # of one turn.
    marked = [turn for turn in turns if turn.role == "user" and turn.staying]
    for turn in marked[-2:]:
        turn.mark()
    return map(_Turn.encode, turns)


def _alternate(request: Request) -> list[_Turn]:
    """Join messages to turns: tool results belong to the user, and neighbors become one."""
    turns: list[_Turn] = []
    stays = len(request.messages) - request.passing
    for number, message in enumerate(request.messages):
        blocks = [block for block in map(_encode_block, message.parts) if block]
        if not blocks:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role))
        turns[-1].blocks += blocks
        if number < stays:
            turns[-1].staying += len(blocks)
    return turns


def _encode_block(part: Part) -> str:
    """Return a part as JSON; empty if it is not sent."""
    return _BLOCKS[type(part)](part)


def _call_block(part: ToolCall) -> str:
    """Return an earlier call as JSON."""
    made, name = quote(call_id(part.call_id)), quote(tool_name(part.name))
    given = _encode(sent_arguments(part))
    return f'{{"type":"tool_use","id":{made},"name":{name},"input":{given}}}'


def _thinking_block(part: Thinking) -> str:
    """Return a thought as JSON; empty if it is one of another provider."""
    if part.provider != PROVIDER:
        return ""
    return _encode(part.data)


def _text_block(part: TextPart) -> str:
    """Return a text as JSON; empty if it is blank, which Anthropic refuses."""
    if not part.text.strip():
        return ""
    return f'{{"type":"text","text":{quote(part.text)}}}'


def _result_block(part: ToolResult) -> str:
    """Return a tool result as JSON."""
    answered, content = quote(call_id(part.call_id)), _result_content(part)
    named = f'"type":"tool_result","tool_use_id":{answered}'
    if part.is_error:
        return f'{{{named},"content":{content},"is_error":true}}'
    return f'{{{named},"content":{content}}}'


def _result_content(part: ToolResult) -> str:
    """Return the content of a result: its text, with its image or PDF."""
    if part.media is None:
        return quote(part.text)
    source = {"type": "base64", "media_type": part.media.type, "data": part.media.data}
    kind = "document" if part.media.type == PDF else "image"
    return _encode([{"type": "text", "text": part.text}, {"type": kind, "source": source}])


_BLOCKS: Mapping[type[Part], Callable[[Any], str]] = {
    TextPart: _text_block,
    ToolCall: _call_block,
    ToolResult: _result_block,
    Thinking: _thinking_block,
}
"""Writes each kind of part as JSON."""
