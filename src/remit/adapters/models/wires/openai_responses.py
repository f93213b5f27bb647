"""OpenAI's Responses API: nothing is stored there, so thoughts come and go back encrypted."""

from collections.abc import Callable, Iterator, Mapping
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, Unpack

from remit.adapters.models.refusals.endpoint_limits import EFFORT_WORDS, Known
from remit.adapters.models.refusals.message_forms import arrange, results_of
from remit.adapters.models.tool_schemas import call_id, tool_name
from remit.adapters.models.wires.http_gateway import (
    HttpGateway,
    Options,
    effort_object,
    json_or_none,
    openai_tool_parameters,
    without_refused,
)
from remit.adapters.models.wires.openai_chat import BASE_URL, bearer
from remit.adapters.models.wires.openai_responses_answer import PROVIDER, ResponsesAnswer
from remit.adapters.models.wires.response import DEFAULTS, sent_arguments
from remit.domain.agents.media import PDF, PDF_NAME
from remit.domain.llm.messages import (
    Message,
    Part,
    Request,
    TextPart,
    Thinking,
    ToolCall,
    ToolResult,
)

ENCRYPTED = "reasoning.encrypted_content"
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ResponsesGateway(HttpGateway):
    """An endpoint that speaks OpenAI's Responses API, over one session."""

    ANSWER: ClassVar = ResponsesAnswer
    OPTIONAL: ClassVar = frozenset(
        {
            "max_output_tokens",
            "temperature",
            "reasoning",
            "include",
            "tool_choice",
            "parallel_tool_calls",
        }
    )
    WORDS: ClassVar = {"reasoning": EFFORT_WORDS, "include": ("encrypted content",)}

    def __init__(
        self, api_key: str = "", base_url: str = BASE_URL, **options: Unpack[Options]
    ) -> None:
        # The last frames of a stream repeat all earlier pieces.
        limits = options.get("limits", DEFAULTS)
        options["limits"] = limits._replace(frame_bytes=2 * limits.message_bytes)
        url = f"{base_url.rstrip('/')}/responses"
        super().__init__(url, bearer(api_key), api_key, _write_tool, **options)

    def _body(self, request: Request, known: Known) -> bytes:
        instructions, messages = arrange(request, known)
        system = ""
        if instructions:
            system = f',"instructions":{quote(instructions)}'
        tools = self._encode_tools(request, known)
        head = f'{{"model":{quote(request.model)}{self._encode_parameters(request, known)}'
        items = ",".join(item for message in messages for item in _items(message))
        return f'{head}{tools}{system},"input":[{items}]}}'.encode("utf-8", "replace")

    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        settings = request.settings
        wanted: dict[str, str | None] = {
            "stream": _encode(self._stream),
            "store": "false",
            "include": f'["{ENCRYPTED}"]',
            "max_output_tokens": json_or_none(settings.max_tokens),
            "temperature": json_or_none(settings.temperature),
            "reasoning": effort_object(request),
        }
        wanted |= openai_tool_parameters(request, is_parallel=self._parallel)
        return without_refused(wanted, known)


def _write_tool(name: str, description: str, schema: str) -> str:
    # Strict schemas are closed: a tool that accepts any object would get only empty ones.
    named = f'"type":"function","name":{name},"description":{description}'
    return f'{{{named},"parameters":{schema},"strict":false}}'


def _items(message: Message) -> Iterator[str]:
    """Yield the items of a message as JSON."""
    if message.role == "tool":
        yield from (_result_item(result, tail) for result, tail in results_of(message))
        return
    items = (_ITEMS[type(part)](part, message.role) for part in message.parts)
    yield from filter(None, items)


def _text_item(part: TextPart, role: str) -> str:
    """Return a text as JSON; empty if there is none."""
    if not part.text:
        return ""
    return f'{{"role":"{role}","content":{quote(part.text)}}}'


def _thought_item(part: Thinking, _role: str) -> str:
    """Return a thought as JSON; empty if only another endpoint can read it."""
    if part.provider != PROVIDER or not part.data.get("encrypted_content"):
        return ""
    return _encode(part.data)


def _call_item(call: ToolCall, _role: str) -> str:
    """Return an earlier call as JSON."""
    made, name = quote(call_id(call.call_id)), quote(tool_name(call.name))
    raw = quote(_encode(sent_arguments(call)))
    return f'{{"type":"function_call","call_id":{made},"name":{name},"arguments":{raw}}}'


def _result_item(part: ToolResult, tail: str) -> str:
    """Return a tool result as JSON."""
    answered, output = quote(call_id(part.call_id)), _output(part, tail)
    return f'{{"type":"function_call_output","call_id":{answered},"output":{output}}}'


def _output(part: ToolResult, tail: str) -> str:
    """Return the result of a tool, with its image or PDF and the text of remit after it."""
    if part.media is None:
        return quote(part.text)
    media = {"type": "input_image", "image_url": part.media.url}
    if part.media.type == PDF:
        media = {"type": "input_file", "filename": PDF_NAME, "file_data": part.media.url}
    content = [{"type": "input_text", "text": part.text}, media]
    if tail:
        content.append({"type": "input_text", "text": tail})
    return _encode(content)


_ITEMS: Mapping[type[Part], Callable[[Any, str], str]] = {
    TextPart: _text_item,
    ToolCall: _call_item,
    Thinking: _thought_item,
}
"""Writes each kind of part as JSON; results have messages of their own."""
