"""OpenAI-compatible chat completions: the API of `LLM_BASE_URL`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, TypeGuard, Unpack

from remit.adapters.models.refusals.endpoint_limits import (
    EFFORT_WORDS,
    NO_NULLS,
    NO_THOUGHTS,
    SHORT_IDS,
    SIGNED_CALLS,
    STRICT_TURNS,
    Known,
    media_results,
)
from remit.adapters.models.refusals.message_forms import arrange, results_of
from remit.adapters.models.tool_schemas import call_id, tool_name
from remit.adapters.models.wires.http_gateway import (
    HttpGateway,
    Options,
    effort_of,
    json_or_none,
    openai_tool_parameters,
    without_refused,
)
from remit.adapters.models.wires.openai_chat_answer import DETAILS, EXTRA, PROVIDER, ChatAnswer
from remit.adapters.models.wires.response import sent_arguments
from remit.domain.agents.media import PDF, PDF_NAME
from remit.domain.llm.messages import Message, Part, Request, Thinking, ToolCall, ToolResult

BASE_URL = "https://api.openai.com/v1"
_NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The signature that Gemini accepts with calls of other models, which have none of its own."""
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class OpenAIChatGateway(HttpGateway):
    """An endpoint that speaks chat completions, over one session."""

    ANSWER: ClassVar = ChatAnswer
    OPTIONAL: ClassVar = frozenset(
        {
            "stream_options",
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "reasoning_effort",
            "tool_choice",
            "parallel_tool_calls",
        }
    )
    WORDS: ClassVar = {"reasoning_effort": EFFORT_WORDS}

    def __init__(
        self, api_key: str = "", base_url: str = BASE_URL, **options: Unpack[Options]
    ) -> None:
        url = f"{base_url.rstrip('/')}/chat/completions"
        super().__init__(url, bearer(api_key), api_key, _write_tool, **options)

    def _body(self, request: Request, known: Known) -> bytes:
        tools = self._encode_tools(request, known)
        messages = ",".join(_messages(request, known))
        head = f'{{"model":{quote(request.model)}{self._encode_parameters(request, known)}'
        return f'{head}{tools},"messages":[{messages}]}}'.encode("utf-8", "replace")

    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        settings = request.settings
        # Many endpoints do not know the name that newer models of OpenAI require.
        limit = "max_tokens"
        if limit in known:
            limit = "max_completion_tokens"
        stream_options = '{"include_usage":true}' if self._stream else None
        wanted: dict[str, str | None] = {
            "stream": _encode(self._stream),
            "stream_options": stream_options,
            limit: json_or_none(settings.max_tokens),
            "temperature": json_or_none(settings.temperature),
            "reasoning_effort": json_or_none(effort_of(request)),
            "stop": json_or_none(settings.stop),
        }
        wanted |= openai_tool_parameters(request, is_parallel=self._parallel)
        return without_refused(wanted, known)


def bearer(api_key: str) -> dict[str, str]:
    """Return the header with an API key; none without a key."""
    if not api_key:
        return {}
    return {"Authorization": f"Bearer {api_key}"}


def _write_tool(name: str, description: str, schema: str) -> str:
    """Return a tool as JSON of its JSON texts."""
    function = f'{{"name":{name},"description":{description},"parameters":{schema}}}'
    return f'{{"type":"function","function":{function}}}'


def _messages(request: Request, known: Collection[str]) -> Iterator[str]:
    """Yield the messages of a request as JSON, the system message first."""
    system, messages = arrange(request, known)
    if system:
        yield f'{{"role":"system","content":{quote(system)}}}'
    for message in messages:
        yield from _WRITERS[message.role](message, known)


def _user_message(message: Message, _known: Collection[str]) -> Iterator[str]:
    yield f'{{"role":"user","content":{quote(message.text)}}}'


def _result_messages(message: Message, known: Collection[str]) -> Iterator[str]:
    """Yield a message per tool result, and one with the images and PDFs of all results.

    Where no message of the user may follow a result, the result has its image or PDF itself.
    """
    if STRICT_TURNS in known:
        for part, tail in results_of(message):
            yield _result_message(part, _content_with_media(part, tail), known)
        return
    for part, _ in results_of(message):
        yield _result_message(part, quote(part.text), known)
    if shown := media_results(message):
        yield _media_message(shown)


def _result_message(part: ToolResult, content: str, known: Collection[str]) -> str:
    """Return a tool result with this content as JSON."""
    answered = quote(call_id(part.call_id, short=SHORT_IDS in known))
    return f'{{"role":"tool","tool_call_id":{answered},"content":{content}}}'


def _media_message(results: list[ToolResult]) -> str:
    """Return images and PDFs of results as a message of the user: tool messages are text only."""
    content: list[dict[str, Any]] = []
    for part in results:
        content.append({"type": "text", "text": f"[Result of {part.name}: {part.text}]"})
        content.append(_media_item(part))
    return _encode({"role": "user", "content": content})


def _content_with_media(part: ToolResult, tail: str) -> str:
    """Return a result with its image or PDF, where no message of the user may follow it."""
    if part.media is None:
        return quote(part.text)
    content = [{"type": "text", "text": part.text}, _media_item(part)]
    if tail:
        content.append({"type": "text", "text": tail})
    return _encode(content)


def _media_item(part: ToolResult) -> dict[str, Any]:
    """Return the image or PDF of a result as a content item."""
    assert part.media is not None
    if part.media.type == PDF:
        return {"type": "file", "file": {"filename": PDF_NAME, "file_data": part.media.url}}
    return {"type": "image_url", "image_url": {"url": part.media.url}}


def _assistant_message(message: Message, known: Collection[str]) -> Iterator[str]:
    """Yield an earlier answer as JSON: text, thoughts and calls."""
    calls = [_call_item(part, known) for part in message.parts if type(part) is ToolCall]
    content, listed = quote(message.text), ""
    if calls:
        listed = f',"tool_calls":[{",".join(calls)}]'
        content = quote(message.text) if message.text or NO_NULLS in known else "null"
    thought = _thought_field(message, known)
    yield f'{{"role":"assistant","content":{content}{thought}{listed}}}'


def _thought_field(message: Message, known: Collection[str]) -> str:
    """Return the last thought of the endpoint as a member of its message, in the form in which it
    came; empty if there is none to send back.
    """
    if NO_THOUGHTS in known:
        return ""
    parts = reversed(message.parts)
    thought = next(filter(_is_own_thought, parts), None)
    if thought is None:
        return ""
    if DETAILS in thought.data:
        return f',"{DETAILS}":{_encode(thought.data[DETAILS])}'
    return f",{quote(thought.data['field'])}:{quote(thought.text)}"


def _is_own_thought(part: Part) -> TypeGuard[Thinking]:
    return type(part) is Thinking and part.provider == PROVIDER


def _call_item(call: ToolCall, known: Collection[str]) -> str:
    """Return an earlier call as JSON."""
    raw = quote(_encode(sent_arguments(call)))
    function = f'{{"name":{quote(tool_name(call.name))},"arguments":{raw}}}'
    made = quote(call_id(call.call_id, short=SHORT_IDS in known))
    extra = _extra_field(call, known)
    return f'{{"id":{made},"type":"function","function":{function}{extra}}}'


def _extra_field(call: ToolCall, known: Collection[str]) -> str:
    """Return what came with a call as a member of it; empty if nothing did."""
    if call.data and call.provider == PROVIDER and NO_THOUGHTS not in known:
        return f',"{EXTRA}":{_encode(call.data[EXTRA])}'
    if SIGNED_CALLS in known:
        return f',"{EXTRA}":{_encode(_NO_SIGNATURE)}'
    return ""


_WRITERS: Mapping[str, Callable[[Message, Collection[str]], Iterable[str]]] = {
    "assistant": _assistant_message,
    "tool": _result_messages,
    "user": _user_message,
}
"""Writes the messages of each role as JSON."""
