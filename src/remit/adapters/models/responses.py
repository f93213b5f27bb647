"""OpenAI's Responses API: nothing is stored there, so thoughts come and go back encrypted."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, Unpack

from remit.adapters.models.answer import (
    DEFAULTS,
    Limits,
    Pieces,
    Priced,
    bad,
    counted,
    inner,
    sound,
    stopped,
    tokens,
    tool_calls,
)
from remit.adapters.models.dialect import BARE_SCHEMAS, Known, arranged, results_of
from remit.adapters.models.direct import DirectGateway, Options
from remit.adapters.models.http import Body, Http
from remit.adapters.models.offer import acceptable, bare, call_id, plain, tool_name
from remit.adapters.models.refusal import CutOff, told
from remit.adapters.models.static import Static
from remit.adapters.models.wire import BASE_URL
from remit.domain.media import PDF, PDF_NAME
from remit.domain.message import (
    Delta,
    Message,
    OnPart,
    Part,
    Request,
    Response,
    Stop,
    TextPart,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from remit.domain.model import storable

PROVIDER = "openai-responses"
ENCRYPTED = "reasoning.encrypted_content"

_KEPT = ("type", "summary", "content", "encrypted_content")
"""What of a thought goes back: where nothing is stored, ids mean nothing."""
_STATUS = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    "invalid_prompt": 400,
    "invalid_request": 400,
    "unsupported_": 400,
}
_STOPS: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}
_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "tool_call",
}
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ResponsesGateway(DirectGateway):
    """An endpoint that speaks OpenAI's Responses API, over one session."""

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
    WORDS: ClassVar = {"reasoning": ("reasoning effort",), "include": ("encrypted content",)}

    def __init__(self, api_key: str = "", base_url: str = BASE_URL, **options: Unpack[Options]) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # The last frames of a stream hold again all that came in pieces.
        limits = options.get("limits", DEFAULTS)
        options["limits"] = limits._replace(frame_bytes=2 * limits.message_bytes)
        super().__init__(f"{base_url.rstrip('/')}/responses", headers, api_key, **options)
        self._tools, self._bare_tools = (
            Static(partial(_tools, plain)),
            Static(partial(_tools, bare)),
        )

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
        tools = ""
        if request.tools:
            encode = self._bare_tools if BARE_SCHEMAS in known else self._tools
            tools = f',"tools":[{encode(request.tools)}]'
        said, messages = arranged(request, known)
        system = f',"instructions":{quote(said)}' if said else ""
        head = f'{{"model":{quote(request.model)}{self._encoded(request, known)}'
        given = ",".join(item for message in messages for item in _items(message))
        return f'{head}{tools}{system},"input":[{given}]}}'.encode("utf-8", "replace")

    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        settings = request.settings
        effort = None if settings.effort in (None, "none") else f'{{"effort":"{settings.effort}"}}'
        wanted: dict[str, str | None] = {
            "stream": _encode(self._stream),
            "store": "false",
            "include": f'["{ENCRYPTED}"]',
            "max_output_tokens": None if settings.max_tokens is None else str(settings.max_tokens),
            "temperature": None if settings.temperature is None else str(settings.temperature),
            "reasoning": effort,
            "tool_choice": '"none"' if request.tools and not request.may_call else None,
            "parallel_tool_calls": "false" if request.tools and not self._parallel else None,
        }
        return {name: value for name, value in wanted.items() if value is not None and name not in known}


def _tools(shape: Callable[[Mapping[str, Any]], dict[str, Any]], tools: tuple[Tool, ...]) -> str:
    return ",".join(_tool(tool, shape(tool.schema)) for tool in acceptable(tools))


def _tool(tool: Tool, schema: dict[str, Any]) -> str:
    # Strict schemas are closed: where a tool takes any object, a model could say nothing.
    name, description = quote(tool.name), quote(tool.description)
    return f'{{"type":"function","name":{name},"description":{description},"parameters":{_encode(schema)},"strict":false}}'


def _items(message: Message) -> Iterator[str]:
    if message.role == "tool":
        for result, tail in results_of(message):
            yield _result(result, tail)
        return
    for part in message.parts:
        match part:
            case TextPart():
                if part.text:
                    yield f'{{"role":"{message.role}","content":{quote(part.text)}}}'
            case ToolCall():
                made, name = quote(call_id(part.call_id)), quote(tool_name(part.name))
                raw = quote(_encode({"invalid": part.raw} if part.error else part.arguments))
                yield f'{{"type":"function_call","call_id":{made},"name":{name},"arguments":{raw}}}'
            case Thinking():
                if part.provider == PROVIDER and part.data.get("encrypted_content"):
                    yield _encode(part.data)
            case ToolResult():
                raise AssertionError("results have messages of their own")


def _result(part: ToolResult, tail: str) -> str:
    answered, output = quote(call_id(part.call_id)), _output(part, tail)
    return f'{{"type":"function_call_output","call_id":{answered},"output":{output}}}'


def _output(part: ToolResult, tail: str) -> str:
    """What a tool gave back, with its image or PDF and the text of remit after it."""
    if part.media is None:
        return quote(part.text)
    text = {"type": "input_text", "text": part.text}
    shown = {"type": "input_image", "image_url": part.media.url}
    if part.media.type == PDF:
        shown = {"type": "input_file", "filename": PDF_NAME, "file_data": part.media.url}
    after = [{"type": "input_text", "text": tail}] if tail else []
    return _encode([text, shown, *after])


class _Answer:
    """What has come so far."""

    __slots__ = (
        "_calls",
        "_end",
        "_http",
        "_items",
        "_limits",
        "_on_part",
        "_pieces",
        "_size",
        "started",
    )

    def __init__(self, http: Http, limits: Limits, on_part: OnPart | None) -> None:
        self._http, self._limits, self._on_part = http, limits, on_part
        self._items: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, tuple[str, str]] = {}
        self._pieces: dict[int, list[str]] = {}
        self._end: dict[str, Any] | None = None
        self._size = 0
        self.started = False

    def fold(self, frame: Any) -> None:
        """One event of the stream; kinds that are not known yet are passed over."""
        kind = frame.get("type")
        if kind in _DELTAS:
            self._delta(_DELTAS[kind], frame)
        elif kind == "response.output_item.added":
            self._begin(frame["output_index"], frame["item"])
        elif kind == "response.output_item.done":
            self._keep(frame["output_index"], frame["item"])
        elif kind in ("response.completed", "response.incomplete"):
            self._finish(frame["response"])
        elif kind in ("response.failed", "error") or frame.get("error"):
            self._fail(frame.get("response") or frame)

    def whole(self, document: Any) -> None:
        """The answer of an endpoint that does not stream."""
        if document.get("error"):
            self._fail(document)
        if not isinstance(document.get("output"), list):
            raise TypeError("an answer has no output")
        for index, item in enumerate(document["output"]):
            self._begin(index, item)
            for kind, text in _texts(item):
                self._delta(kind, {"delta": text, "output_index": index})
        self._finish(document)

    def response(self, request: Request, sent: int, price: Priced | None) -> Response:
        """The answer, once it is all there."""
        if self._end is None:
            what = "ended its answer in the middle" if self.started else "gave no answer"
            raise CutOff(f"{self._http.name} {what}", started=self.started)
        items = [self._items[index] for index in sorted(self._items)]
        calls = iter(tool_calls((_pieces(item) for item in items if _is(item, "function_call")), request.messages))
        parts: list[Part] = []
        for item in items:
            if _is(item, "function_call"):
                parts.append(next(calls))
            elif _is(item, "reasoning"):
                parts.append(_thinking(item))
            elif text := "".join(text for _, text in _texts(item)):
                parts.append(TextPart(storable(text)))
        used = self._used(sent)
        model = storable(str(self._end.get("model") or ""))[:256] or request.model
        stop = stopped(self._stop(items), any(_is(item, "function_call") for item in items))
        return Response(tuple(parts), stop, used, model, price(model, used) if price else None)

    def _stop(self, items: list[dict[str, Any]]) -> Stop:
        why = inner(self._end, "incomplete_details")
        is_refused = any(_is(piece, "refusal") for item in items for piece in item.get("content") or ())
        return "refusal" if is_refused else _STOPS.get(str(inner(why, "reason") or ""), "end")

    def _used(self, sent: int) -> Any:
        usage = inner(self._end, "usage")
        cached = counted(inner(usage, "input_tokens_details"), "cached_tokens")
        given = counted(usage, "input_tokens"), counted(usage, "output_tokens")
        return tokens(*given, cached, sent, self._size)

    def _begin(self, index: int, item: dict[str, Any]) -> None:
        if len(self._items) >= 4 * self._limits.tool_calls:
            raise bad(
                f"{self._http.name} sent more than {4 * self._limits.tool_calls} items",
                started=self.started,
            )
        self._items[index] = item
        if _is(item, "function_call"):
            self._calls[index] = (
                storable(str(item.get("call_id") or ""))[:256],
                str(item.get("name") or ""),
            )
            if len(self._calls) > self._limits.tool_calls:
                raise bad(
                    f"{self._http.name} asked for more than {self._limits.tool_calls} tools at once",
                    started=self.started,
                )
            self._add(self._calls[index][1])

    def _keep(self, index: int, item: dict[str, Any]) -> None:
        """Keep an item that is complete; it holds again what came in pieces."""
        if index not in self._items:
            self._begin(index, item)
        self._items[index] = item
        self._pieces.pop(index, None)
        self._add(str(item.get("encrypted_content") or ""))

    def _finish(self, response: dict[str, Any]) -> None:
        """Keep the end; what it lists replaces all that came in pieces."""
        output = response.get("output") or ()
        for index, item in enumerate(output):
            if index not in self._items:
                self._begin(index, item)
        if len(output) >= len(self._items):
            self._items = dict(enumerate(output))
            self._pieces = {}
        for index, pieces in self._pieces.items():
            self._items[index] = _filled(self._items[index], "".join(pieces))
        self._end = response

    def _fail(self, document: Any) -> None:
        said = told(document if document.get("error") else {"error": document})
        status = next((status for code, status in _STATUS.items() if code in said.kind), 500)
        raise self._http.failure(status, said, started=self.started)

    def _delta(self, kind: Any, frame: Any) -> None:
        self._add(frame["delta"])
        index = frame.get("output_index")
        if kind != "thinking" and index in self._items:
            self._pieces.setdefault(index, []).append(frame["delta"])
        if self._on_part and kind == "tool_call":
            self._on_part(Delta(kind, frame["delta"], index, *self._calls[index]))
        elif self._on_part:
            self._on_part(Delta(kind, frame["delta"]))

    def _add(self, text: Any) -> None:
        if type(text) is not str:
            raise TypeError("a piece of the answer is no text")
        self.started = self.started or bool(text)
        self._size += len(text)
        if self._size > self._limits.message_bytes:
            raise bad(
                f"{self._http.name} sent more than {self._limits.message_bytes:,} bytes",
                started=True,
            )


def _is(item: Any, kind: str) -> bool:
    return bool(inner(item, "type") == kind)


def _texts(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of an item, each with the kind of piece that it is."""
    if _is(item, "function_call"):
        yield "tool_call", _raw(item)
    for field, kind in (("content", "text"), ("summary", "thinking")):
        for piece in item.get(field) or ():
            text = piece.get("text") or piece.get("refusal")
            if isinstance(text, str):
                yield "thinking" if _is(item, "reasoning") else kind, text


def _filled(item: dict[str, Any], text: str) -> dict[str, Any]:
    """An item whose pieces came, and which was never said to be complete."""
    if _is(item, "function_call"):
        return {**item, "arguments": text}
    return {**item, "content": [{"type": "output_text", "text": text}]}


def _raw(item: dict[str, Any]) -> str:
    """The arguments of a call as text; some endpoints send an object."""
    given = item.get("arguments") or ""
    return given if isinstance(given, str) else _encode(given)


def _thinking(item: dict[str, Any]) -> Thinking:
    text = "".join(text for _, text in _texts(item))
    return Thinking(storable(text), PROVIDER, sound({name: item[name] for name in _KEPT if name in item}))


def _pieces(item: dict[str, Any]) -> Pieces:
    pieces = Pieces(0)
    pieces.call_id = storable(str(item.get("call_id") or ""))[:256]
    pieces.name, pieces.raw = str(item.get("name") or ""), [_raw(item)]
    return pieces
