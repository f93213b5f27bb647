"""OpenAI-compatible chat completions: what `LLM_BASE_URL` names."""

from collections.abc import Collection, Iterator
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, Unpack, assert_never

from remit.adapters.models.answer import Limits, Pieces, Priced, bad, counted, inner, stopped, tokens, tool_calls
from remit.adapters.models.direct import DirectGateway, Options
from remit.adapters.models.http import Body, Http, told
from remit.adapters.models.static import Static
from remit.domain.message import Delta, Message, ModelSettings, OnPart, Part, Request, Response, Stop, TextPart, Thinking, Tool, ToolCall, ToolResult
from remit.domain.model import ModelFailed, storable

BASE_URL = "https://api.openai.com/v1"
PROVIDER = "openai"

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class WireGateway(DirectGateway):
    """An endpoint that speaks chat completions, over one session."""

    OPTIONAL: ClassVar = {name: (name,) for name in ("stream_options", "max_tokens", "temperature", "reasoning_effort", "tool_choice")}

    def __init__(self, api_key: str = "", base_url: str = BASE_URL, **options: Unpack[Options]) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        super().__init__(f"{base_url.rstrip('/')}/chat/completions", headers, api_key, **options)
        self._tools = Static(_tools)

    async def _send(self, request: Request, on_part: OnPart | None, seconds: float | None) -> Response:
        body = Body(self._body(request))
        answer = _Answer(self._http, self._limits, on_part)
        complete = await self._http.post(body, answer, seconds)
        return answer.response(request, body.length, complete, self._price)

    def _body(self, request: Request) -> bytes:
        refused = self._refused.get(request.model, ())
        head = f'{{"model":{quote(request.model)}{self._streaming(refused)}{_settings(request.settings, refused)}'
        tools = f',"tools":[{self._tools(request.tools)}]' if request.tools else ""
        if request.tools and not request.may_call and "tool_choice" not in refused:
            tools += ',"tool_choice":"none"'
        messages = ",".join(_messages(request))
        return f'{head}{tools},"messages":[{messages}]}}'.encode("utf-8", "replace")

    def _streaming(self, refused: Collection[str]) -> str:
        if not self._stream:
            return ',"stream":false'
        return ',"stream":true' if "stream_options" in refused else ',"stream":true,"stream_options":{"include_usage":true}'


def _settings(settings: ModelSettings, refused: Collection[str]) -> str:
    parts: list[str] = []
    if settings.max_tokens is not None:
        # The one name that newer models of OpenAI take is unknown to many that are only like it.
        parts.append(f',"{"max_completion_tokens" if "max_tokens" in refused else "max_tokens"}":{settings.max_tokens}')
    if settings.temperature is not None and "temperature" not in refused:
        parts.append(f',"temperature":{settings.temperature}')
    if settings.effort is not None and "reasoning_effort" not in refused:
        parts.append(f',"reasoning_effort":"{settings.effort}"')
    if settings.stop:
        parts.append(f',"stop":{_encode(settings.stop)}')
    return "".join(parts)


def _tools(tools: tuple[Tool, ...]) -> str:
    return ",".join(
        f'{{"type":"function","function":{{"name":{quote(tool.name)},"description":{quote(tool.description)},"parameters":{_encode(tool.schema)}}}}}'
        for tool in tools
    )


def _messages(request: Request) -> Iterator[str]:
    if request.system:
        yield f'{{"role":"system","content":{quote(request.system)}}}'
    for message in request.messages:
        match message.role:
            case "assistant":
                yield _assistant(message)
            case "tool":
                for part in message.parts:
                    if type(part) is ToolResult:
                        yield f'{{"role":"tool","tool_call_id":{quote(part.call_id)},"content":{quote(part.text)}}}'
            case "user":
                yield f'{{"role":"user","content":{quote(message.text)}}}'
            case _:
                assert_never(message.role)


def _assistant(message: Message) -> str:
    calls: list[str] = []
    thought = ""
    for part in message.parts:
        if type(part) is ToolCall:
            raw = _encode({"invalid": part.raw} if part.error else part.arguments)
            calls.append(f'{{"id":{quote(part.call_id)},"type":"function","function":{{"name":{quote(part.name)},"arguments":{quote(raw)}}}}}')
        elif type(part) is Thinking and part.provider == PROVIDER:
            thought = f",{quote(part.data['field'])}:{quote(part.text)}"
    text = message.text
    content = quote(text) if text or not calls else "null"
    listed = f',"tool_calls":[{",".join(calls)}]' if calls else ""
    return f'{{"role":"assistant","content":{content}{thought}{listed}}}'


class _Answer:
    """What has come so far."""

    __slots__ = (
        "_calls",
        "_finish",
        "_http",
        "_last",
        "_limits",
        "_model",
        "_on_part",
        "_size",
        "_texts",
        "_thought",
        "_thoughts",
        "_usage",
        "started",
    )

    def __init__(self, http: Http, limits: Limits, on_part: OnPart | None) -> None:
        self._http, self._limits, self._on_part = http, limits, on_part
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought = ""
        self._calls: dict[int, Pieces] = {}
        self._last: Pieces | None = None
        self._finish = self._model = ""
        self._usage: Any = None
        self._size = 0
        self.started = False

    def fold(self, frame: Any) -> None:
        """One frame of the stream."""
        choices = frame.get("choices")
        if choices:
            choice = choices[0]
            delta = choice.get("delta")
            if delta:
                if content := delta.get("content"):
                    self._text(content)
                if calls := delta.get("tool_calls"):
                    for call in calls:
                        self._call(call)
                for field in ("reasoning_content", "reasoning"):
                    if field in delta and isinstance(delta[field], str) and delta[field]:
                        self._think(field, delta[field])
                        break
            if choice.get("finish_reason"):
                self._finish = str(choice["finish_reason"])
        elif frame.get("error"):
            kind, message = told(frame)
            status = counted(frame["error"], "code", "status") or 500
            raise self._http.failure(status if 400 <= status < 600 else 500, kind, message, started=self.started)
        if frame.get("usage"):
            self._usage = frame["usage"]
        if not self._model:
            self._model = frame.get("model") or ""

    def whole(self, document: Any) -> None:
        """The answer of an endpoint that does not stream."""
        choices: Any = document.get("choices")
        self.fold({**document, "choices": [{**choices[0], "delta": choices[0].get("message")}]} if choices else document)

    def response(self, request: Request, sent: int, complete: bool, price: Priced | None) -> Response:
        """The answer, once it is all there."""
        if not (self._finish or (complete and self.started)):
            raise bad(
                f"{self._http.name} ended its answer in the middle" if self.started else f"{self._http.name} gave no answer", started=self.started
            )
        if self._finish == "error":
            raise ModelFailed("overloaded", f"{self._http.name} said that its answer ended in an error", started=self.started)
        parts: list[Part] = []
        if self._thoughts:
            parts.append(Thinking(storable("".join(self._thoughts)), PROVIDER, {"field": self._thought}))
        if self._texts:
            parts.append(TextPart(storable("".join(self._texts))))
        if self._calls:
            parts.extend(tool_calls(self._calls.values(), request.messages))
        usage = self._usage
        used = tokens(
            counted(usage, "prompt_tokens", "input_tokens"),
            counted(usage, "completion_tokens", "output_tokens"),
            counted(inner(usage, "prompt_tokens_details"), "cached_tokens"),
            sent,
            self._size,
        )
        model = storable(str(self._model))[:256] or request.model
        stop = stopped(_STOPS.get(self._finish, "end"), bool(self._calls))
        return Response(tuple(parts), stop, used, model, price(model, used) if price else None)

    def _text(self, content: Any) -> None:
        if not isinstance(content, str):
            content = "".join(piece["text"] for piece in content if piece.get("type") == "text")
        self._add(content)
        self._texts.append(content)
        if self._on_part:
            self._on_part(Delta("text", content))

    def _think(self, field: str, text: str) -> None:
        self._add(text)
        self._thought = field
        self._thoughts.append(text)
        if self._on_part:
            self._on_part(Delta("thinking", text))

    def _call(self, call: Any) -> None:
        index: Any = call.get("index")
        name, raw = inner(inner(call, "function"), "name"), inner(inner(call, "function"), "arguments")
        pieces = self._pieces(index, call.get("id"), bool(name))
        if call.get("id") and not pieces.call_id:
            pieces.call_id = storable(str(call["id"]))[:256]
        if name and not pieces.name:
            pieces.name = str(name)
        if raw is not None and not isinstance(raw, str):
            raw = _encode(raw)  # some endpoints send an object where text belongs
        self._add(raw or name or "")
        if raw:
            pieces.raw.append(raw)
        if self._on_part:
            self._on_part(Delta("tool_call", raw or "", pieces.number, pieces.call_id, pieces.name))

    def _pieces(self, index: Any, call_id: Any, named: bool) -> Pieces:
        """The call that a delta belongs to: by its index, or, without one, the last unless a new one begins."""
        if not isinstance(index, int):
            last = self._last
            begins = last is None or (call_id and call_id != last.call_id) or (named and last.name and not call_id)
            index = len(self._calls) if last is None or begins else last.number
        found = self._calls.get(index)
        if found is None:
            if len(self._calls) >= self._limits.tool_calls:
                raise bad(f"{self._http.name} asked for more than {self._limits.tool_calls} tools at once", started=self.started)
            found = self._calls[index] = Pieces(index)
        self._last = found
        return found

    def _add(self, text: Any) -> None:
        if type(text) is not str:
            raise TypeError("a piece of the answer is no text")
        self.started = True
        self._size += len(text)
        if self._size > self._limits.message_bytes:
            raise bad(f"{self._http.name} sent more than {self._limits.message_bytes:,} bytes", started=True)
