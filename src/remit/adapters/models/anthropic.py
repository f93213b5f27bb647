"""Anthropic messages, with marks for its prompt cache on what stays the same."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, Unpack, assert_never

from remit.adapters.models.answer import Limits, Pieces, Priced, bad, counted, sound, stopped, tokens, tool_calls
from remit.adapters.models.dialect import BARE_SCHEMAS, NO_MEDIA, Known, arranged
from remit.adapters.models.direct import DirectGateway, Options
from remit.adapters.models.http import Body, Http
from remit.adapters.models.offer import acceptable, bare, call_id, plain, tool_name
from remit.adapters.models.refusal import CutOff, told
from remit.adapters.models.static import Static
from remit.domain.media import PDF
from remit.domain.message import Delta, OnPart, Part, Request, Response, Stop, TextPart, Thinking, Tool, ToolCall, ToolResult
from remit.domain.model import storable

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
PROVIDER = "anthropic"
MAX_TOKENS = 16_000
"""Anthropic wants a limit in every request."""
CACHED = ',"cache_control":{"type":"ephemeral"}'

_STOPS: dict[str, Stop] = {"tool_use": "tool_calls", "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class AnthropicGateway(DirectGateway):
    """An endpoint that speaks Anthropic messages, over one session."""

    MAX_TOKENS: ClassVar = MAX_TOKENS
    OPTIONAL: ClassVar = frozenset({"output_config", "thinking", "temperature", "tool_choice"})
    WORDS: ClassVar = {"output_config": ("output_config", "effort")}

    def __init__(self, api_key: str, base_url: str = BASE_URL, **options: Unpack[Options]) -> None:
        headers = {"x-api-key": api_key, "anthropic-version": VERSION}
        super().__init__(f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages", headers, api_key, **options)
        self._tools, self._bare_tools = Static(partial(_tools, plain)), Static(partial(_tools, bare))

    async def _send(
        self,
        request: Request,
        known: Known,
        on_part: OnPart | None,
        seconds: float | None,
    ) -> Response:
        body = Body(self._body(request, known))
        answer = _Answer(self._http, self._limits, on_part)
        await self._http.post(body, answer, seconds)
        return answer.response(request, body.length, self._price)

    def _body(self, request: Request, known: Known) -> bytes:
        head = f'{{"model":{quote(request.model)}{self._encoded(request, known)}'
        tools = ""
        if request.tools:
            encode = self._bare_tools if BARE_SCHEMAS in known else self._tools
            tools = f',"tools":[{encode(request.tools)}]'
        # Tools come before the system text in what is cached: one mark on that text covers both.
        system = f',"system":[{{"type":"text","text":{quote(request.system)}{CACHED}}}]' if request.system else ""
        # Turns alternate here in any case: of what is learned, only refused media change them.
        _, messages = arranged(request, known & {NO_MEDIA})
        turns = ",".join(_turns(request._replace(messages=messages)))
        return f'{head}{tools}{system},"messages":[{turns}]}}'.encode("utf-8", "replace")

    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        settings = request.settings
        thinks = settings.effort in ("medium", "high") and "thinking" not in known
        temperature = None if settings.temperature is None or thinks else str(settings.temperature)
        effort = None if settings.effort in (None, "none") else f'{{"effort":"{settings.effort}"}}'
        wanted: dict[str, str | None] = {
            "stream": _encode(self._stream),
            "max_tokens": str(self._wanted(request)),
            "output_config": effort,
            "thinking": '{"type":"adaptive"}' if thinks else None,
            "temperature": temperature,
            "stop_sequences": _encode(settings.stop) if settings.stop else None,
            "tool_choice": self._tool_choice(request),
        }
        return {name: value for name, value in wanted.items() if value is not None and name not in known}

    def _tool_choice(self, request: Request) -> str | None:
        if not request.tools or (request.may_call and self._parallel):
            return None
        if not request.may_call:
            return '{"type":"none"}'
        return '{"type":"auto","disable_parallel_tool_use":true}'


def _tools(shape: Callable[[Mapping[str, Any]], dict[str, Any]], tools: tuple[Tool, ...]) -> str:
    return ",".join(
        f'{{"name":{quote(tool.name)},"description":{quote(tool.description)},"input_schema":{_encode(shape(tool.schema))}}}'
        for tool in acceptable(tools)
    )


class _Turn:
    """What one side says before the other does; the first `staying` blocks of it come again in the next request."""

    __slots__ = ("blocks", "role", "staying")

    def __init__(self, role: str) -> None:
        self.role = role
        self.blocks: list[str] = []
        self.staying = 0


def _turns(request: Request) -> Iterator[str]:
    """Turns of user and assistant in alternation: results of tools are the user's, and neighbours become one."""
    turns: list[_Turn] = []
    stays = len(request.messages) - request.passing
    for number, message in enumerate(request.messages):
        blocks = [block for part in message.parts if (block := _block(part))]
        role = "assistant" if message.role == "assistant" else "user"
        if blocks and (not turns or turns[-1].role != role):
            turns.append(_Turn(role))
        if blocks:
            turns[-1].blocks += blocks
            turns[-1].staying += len(blocks) if number < stays else 0
    # The last mark is where the next request finds all of this one, the mark before it where the last request has left its own: the
    # provider looks back from a mark, but not past the many results of one turn.
    for turn in [turn for turn in turns if turn.role == "user" and turn.staying][-2:]:
        turn.blocks[turn.staying - 1] = f"{turn.blocks[turn.staying - 1][:-1]}{CACHED}}}"
    for turn in turns:
        yield f'{{"role":"{turn.role}","content":[{",".join(turn.blocks)}]}}'


def _block(part: Part) -> str:
    match part:
        case TextPart():
            return f'{{"type":"text","text":{quote(part.text)}}}' if part.text and not part.text.isspace() else ""
        case ToolCall():
            given = {"invalid": part.raw} if part.error else part.arguments
            made, name = quote(call_id(part.call_id)), quote(tool_name(part.name))
            return f'{{"type":"tool_use","id":{made},"name":{name},"input":{_encode(given)}}}'
        case ToolResult():
            wrong = ',"is_error":true' if part.is_error else ""
            return f'{{"type":"tool_result","tool_use_id":{quote(call_id(part.call_id))},"content":{_result(part)}{wrong}}}'
        case Thinking():
            return _encode(part.data) if part.provider == PROVIDER else ""
        case _:
            assert_never(part)


def _result(part: ToolResult) -> str:
    if part.media is None:
        return quote(part.text)
    source = {"type": "base64", "media_type": part.media.type, "data": part.media.data}
    kind = "document" if part.media.type == PDF else "image"
    return _encode([{"type": "text", "text": part.text}, {"type": kind, "source": source}])


class _Block:
    """A block that is still coming."""

    __slots__ = ("pieces", "start", "texts")

    def __init__(self, start: dict[str, Any], pieces: Pieces) -> None:
        self.start, self.pieces = start, pieces
        self.texts: list[str] = []


class _Answer:
    """What has come so far."""

    __slots__ = ("_blocks", "_calls", "_http", "_input", "_limits", "_model", "_on_part", "_output", "_size", "_stop", "_stopped", "started")

    def __init__(self, http: Http, limits: Limits, on_part: OnPart | None) -> None:
        self._http, self._limits, self._on_part = http, limits, on_part
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._stop = self._model = ""
        self._stopped = False
        self._input: Any = None
        self._output: int | None = None
        self._size = 0
        self.started = False

    def fold(self, frame: Any) -> None:
        """One event of the stream; kinds that are not known yet are passed over."""
        match frame.get("type"):
            case "content_block_delta":
                self._delta(self._blocks[frame["index"]], frame["delta"])
            case "content_block_start":
                self._start(frame["index"], frame["content_block"])
            case "message_start":
                self._model, self._input = frame["message"].get("model") or "", frame["message"].get("usage")
            case "message_delta":
                self._stop = str(frame["delta"].get("stop_reason") or "")
                self._input = self._input or frame.get("usage")
                self._output = counted(frame.get("usage"), "output_tokens")
            case "message_stop":
                self._stopped = True
            case "error":
                said = told(frame)
                raise self._http.failure(_STATUS.get(said.kind.strip(), 500), said, started=self.started)
            case _:
                pass

    def whole(self, document: Any) -> None:
        """The answer of an endpoint that does not stream."""
        if document.get("type") == "error":
            self.fold(document)
        self.fold({"type": "message_start", "message": document})
        for index, block in enumerate(document["content"]):
            self._start(index, block)
        self.fold({"type": "message_delta", "delta": document, "usage": document.get("usage")})
        self._stopped = True

    def response(self, request: Request, sent: int, price: Priced | None) -> Response:
        """The answer, once it is all there."""
        if not (self._stop or self._stopped):
            what = "ended its answer in the middle" if self.started else "gave no answer"
            raise CutOff(f"{self._http.name} {what}", started=self.started)
        called = [block for block in self._blocks.values() if block.start["type"] == "tool_use"]
        calls = iter(tool_calls((block.pieces for block in called), request.messages))
        parts: list[Part] = []
        for block in self._blocks.values():
            match block.start["type"]:
                case "text":
                    parts.append(TextPart(storable("".join(block.texts))))
                case "tool_use":
                    parts.append(next(calls))
                case "thinking" | "redacted_thinking":
                    text = storable("".join(block.texts))
                    given = {**sound(block.start), "thinking": text} if block.start["type"] == "thinking" else sound(block.start)
                    parts.append(Thinking(text, PROVIDER, given))
                case _:
                    pass
        used = self._tokens(sent)
        model = storable(str(self._model))[:256] or request.model
        stop = stopped(_STOPS.get(self._stop, "end"), self._calls > 0)
        return Response(tuple(parts), stop, used, model, price(model, used) if price else None)

    def _tokens(self, sent: int) -> Any:
        """Anthropic counts what was cached apart; here it is part of the input."""
        fresh = counted(self._input, "input_tokens")
        read, written = (counted(self._input, name) or 0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
        return tokens(None if fresh is None else fresh + read + written, self._output, read, sent, self._size)

    def _start(self, index: int, start: dict[str, Any]) -> None:
        pieces = Pieces(index)
        if start["type"] == "tool_use":
            self._calls += 1
            if self._calls > self._limits.tool_calls:
                raise bad(f"{self._http.name} asked for more than {self._limits.tool_calls} tools at once", started=self.started)
            pieces.call_id, pieces.name = storable(str(start.get("id") or ""))[:256], str(start.get("name") or "")
            self._add(pieces.name)
            if self._on_part:
                self._on_part(Delta("tool_call", "", index, pieces.call_id, pieces.name))
        if len(self._blocks) >= 4 * self._limits.tool_calls:
            raise bad(f"{self._http.name} sent more than {4 * self._limits.tool_calls} blocks", started=self.started)
        block = self._blocks[index] = _Block(dict(start), pieces)
        for field, kind in (("text", "text_delta"), ("thinking", "thinking_delta")):
            if start.get(field):
                self._delta(block, {"type": kind, field: start[field]})
        if start.get("input"):
            whole = _encode(start["input"])
            self._delta(block, {"type": "input_json_delta", "partial_json": whole})

    def _delta(self, block: _Block, delta: dict[str, Any]) -> None:
        match delta.get("type"):
            case "text_delta":
                self._say("text", block, delta["text"])
            case "thinking_delta":
                self._say("thinking", block, delta["thinking"])
            case "signature_delta":
                block.start["signature"] = block.start.get("signature", "") + delta["signature"]
                self._add(delta["signature"])
            case "input_json_delta":
                raw = delta["partial_json"]
                self._add(raw)
                block.pieces.raw.append(raw)
                if self._on_part:
                    self._on_part(Delta("tool_call", raw, block.pieces.number, block.pieces.call_id, block.pieces.name))
            case _:
                pass

    def _say(self, kind: Any, block: _Block, text: str) -> None:
        self._add(text)
        block.texts.append(text)
        if self._on_part:
            self._on_part(Delta(kind, text))

    def _add(self, text: Any) -> None:
        if type(text) is not str:
            raise TypeError("a piece of the answer is no text")
        self.started = True
        self._size += len(text)
        if self._size > self._limits.message_bytes:
            raise bad(f"{self._http.name} sent more than {self._limits.message_bytes:,} bytes", started=True)
