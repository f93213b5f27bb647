"""OpenAI-compatible chat completions: what `LLM_BASE_URL` names."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, ClassVar, Unpack, assert_never

from remit.adapters.models.answer import (
    Limits,
    Pieces,
    Priced,
    bad,
    counted,
    inner,
    is_complete,
    stopped,
    tokens,
    tool_calls,
    without_thoughts,
)
from remit.adapters.models.dialect import BARE_SCHEMAS, NO_THOUGHTS, SHORT_IDS, STRICT_TURNS, Known, arranged, results_of
from remit.adapters.models.direct import DirectGateway, Options
from remit.adapters.models.http import Body, Http
from remit.adapters.models.offer import acceptable, bare, call_id, plain, tool_name
from remit.adapters.models.refusal import CutOff, told
from remit.adapters.models.static import Static
from remit.domain.media import PDF, PDF_NAME
from remit.domain.message import Delta, Message, OnPart, Part, Request, Response, Stop, TextPart, Thinking, Tool, ToolCall, ToolResult
from remit.domain.model import ModelFailed, storable

BASE_URL = "https://api.openai.com/v1"
PROVIDER = "openai"
INLINE = "openai-inline"
"""Whose thoughts stood in the text of an answer; they are not sent back."""

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
    WORDS: ClassVar = {"reasoning_effort": ("reasoning_effort", "thinking")}

    def __init__(self, api_key: str = "", base_url: str = BASE_URL, **options: Unpack[Options]) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        super().__init__(f"{base_url.rstrip('/')}/chat/completions", headers, api_key, **options)
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
        complete = await self._http.post(body, answer, seconds)
        return answer.response(request, body.length, complete, self._price)

    def _body(self, request: Request, known: Known) -> bytes:
        tools = ""
        if request.tools:
            encode = self._bare_tools if BARE_SCHEMAS in known else self._tools
            tools = f',"tools":[{encode(request.tools)}]'
        messages = ",".join(_messages(request, known))
        head = f'{{"model":{quote(request.model)}{self._encoded(request, known)}'
        return f'{head}{tools},"messages":[{messages}]}}'.encode("utf-8", "replace")

    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        settings = request.settings
        # The one name that newer models of OpenAI take is unknown to many that are only like it.
        limit = "max_completion_tokens" if "max_tokens" in known else "max_tokens"
        wanted: dict[str, str | None] = {
            "stream": _encode(self._stream),
            "stream_options": '{"include_usage":true}' if self._stream else None,
            limit: None if settings.max_tokens is None else str(settings.max_tokens),
            "temperature": None if settings.temperature is None else str(settings.temperature),
            "reasoning_effort": None if settings.effort in (None, "none") else quote(settings.effort),
            "stop": _encode(settings.stop) if settings.stop else None,
            "tool_choice": '"none"' if request.tools and not request.may_call else None,
            "parallel_tool_calls": "false" if request.tools and not self._parallel else None,
        }
        return {name: value for name, value in wanted.items() if value is not None and name not in known}


def _tools(shape: Callable[[Mapping[str, Any]], dict[str, Any]], tools: tuple[Tool, ...]) -> str:
    return ",".join(
        f'{{"type":"function","function":{{"name":{quote(tool.name)},"description":{quote(tool.description)},"parameters":{_encode(shape(tool.schema))}}}}}'
        for tool in acceptable(tools)
    )


def _messages(request: Request, known: Collection[str]) -> Iterator[str]:
    system, messages = arranged(request, known)
    is_short, is_strict = SHORT_IDS in known, STRICT_TURNS in known
    if system:
        yield f'{{"role":"system","content":{quote(system)}}}'
    for message in messages:
        match message.role:
            case "assistant":
                yield _assistant(message, known)
            case "tool":
                for part, tail in results_of(message):
                    answered = quote(call_id(part.call_id, short=is_short))
                    content = _content(part, tail) if is_strict else quote(part.text)
                    yield f'{{"role":"tool","tool_call_id":{answered},"content":{content}}}'
                if not is_strict and (shown := _media(message)):
                    yield shown
            case "user":
                yield f'{{"role":"user","content":{quote(message.text)}}}'
            case _:
                assert_never(message.role)


def _media(message: Message) -> str:
    """Images and PDFs of results as a message of the user: messages of tools hold text alone."""
    results = [part for part in message.parts if type(part) is ToolResult and part.media is not None]
    content: list[dict[str, Any]] = []
    for part in results:
        content.append({"type": "text", "text": f"[Result of {part.name}: {part.text}]"})
        content.append(_shown(part))
    return _encode({"role": "user", "content": content}) if content else ""


def _content(part: ToolResult, tail: str) -> str:
    """A result with its image or PDF, where no message of the user may follow it."""
    if part.media is None:
        return quote(part.text)
    after = [{"type": "text", "text": tail}] if tail else []
    return _encode([{"type": "text", "text": part.text}, _shown(part), *after])


def _shown(part: ToolResult) -> dict[str, Any]:
    assert part.media is not None
    if part.media.type == PDF:
        return {"type": "file", "file": {"filename": PDF_NAME, "file_data": part.media.url}}
    return {"type": "image_url", "image_url": {"url": part.media.url}}


def _assistant(message: Message, known: Collection[str]) -> str:
    calls: list[str] = []
    thought = ""
    for part in message.parts:
        if type(part) is ToolCall:
            raw = _encode({"invalid": part.raw} if part.error else part.arguments)
            made = quote(call_id(part.call_id, short=SHORT_IDS in known))
            function = f'{{"name":{quote(tool_name(part.name))},"arguments":{quote(raw)}}}'
            calls.append(f'{{"id":{made},"type":"function","function":{function}}}')
        elif type(part) is Thinking and part.provider == PROVIDER and NO_THOUGHTS not in known:
            thought = f",{quote(part.data['field'])}:{quote(part.text)}"
    text = message.text
    content = quote(text) if text or not calls else "null"
    listed = f',"tool_calls":[{",".join(calls)}]' if calls else ""
    return f'{{"role":"assistant","content":{content}{thought}{listed}}}'


class _Answer:
    """What has come so far."""

    __slots__ = (
        "_at",
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
        self._calls: list[Pieces] = []
        self._at: dict[int, Pieces] = {}
        self._last: Pieces | None = None
        self._finish = self._model = ""
        self._usage: Any = None
        self._size = 0
        self.started = False

    def fold(self, frame: Any) -> None:
        """One frame of the stream."""
        if _is_error(frame):
            self._fail(frame)
        choices = frame.get("choices")
        if choices:
            self._choice(choices[0])
        if frame.get("usage"):
            self._usage = frame["usage"]
        if not self._model:
            self._model = frame.get("model") or ""

    def _fail(self, frame: Any) -> None:
        status = counted(frame.get("error") or frame, "code", "status") or 500
        status = status if 400 <= status < 600 else 500
        raise self._http.failure(status, told(frame), started=self.started)

    def _choice(self, choice: Any) -> None:
        if choice.get("error"):
            self._fail(choice)
        delta = choice.get("delta")
        if not delta and not self.started:
            delta = choice.get("message")  # some send a whole message as their only frame
        if delta:
            self._delta(delta)
        if choice.get("finish_reason"):
            self._finish = str(choice["finish_reason"])

    def _delta(self, delta: Any) -> None:
        if content := delta.get("content"):
            self._text(content)
        for call in delta.get("tool_calls") or ():
            self._call(call)
        for field in ("reasoning_content", "reasoning"):
            if field in delta and isinstance(delta[field], str) and delta[field]:
                self._think(field, delta[field])
                break

    def whole(self, document: Any) -> None:
        """The answer of an endpoint that does not stream."""
        choices: Any = document.get("choices")
        self.fold({**document, "choices": [{**choices[0], "delta": choices[0].get("message")}]} if choices else document)

    def response(self, request: Request, sent: int, complete: bool, price: Priced | None) -> Response:
        """The answer, once it is all there."""
        if not (self._finish or (complete and self.started)):
            what = "ended its answer in the middle" if self.started else "gave no answer"
            raise CutOff(f"{self._http.name} {what}", started=self.started)
        if self._finish == "error":
            raise ModelFailed("overloaded", f"{self._http.name} said that its answer ended in an error", started=self.started)
        parts: list[Part] = []
        if self._thoughts:
            parts.append(Thinking(storable("".join(self._thoughts)), PROVIDER, {"field": self._thought}))
        if self._texts:
            parts.extend(_said("".join(self._texts)))
        if self._calls:
            parts.extend(tool_calls(self._calls, request.messages))
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
        name, raw = inner(inner(call, "function"), "name"), inner(inner(call, "function"), "arguments")
        is_whole = raw is not None and not isinstance(raw, str)
        if is_whole:
            raw = _encode(raw)  # some endpoints send an object where text belongs
        pieces = self._pieces(call.get("index"), call.get("id"), (raw or "") if name else None)
        if call.get("id") and not pieces.call_id:
            pieces.call_id = storable(str(call["id"]))[:256]
        if name and not pieces.name:
            pieces.name = str(name)
        self._add(raw or name or "")
        if is_whole:
            pieces.raw.clear()
        if raw:
            pieces.raw.append(raw)
        if self._on_part:
            self._on_part(Delta("tool_call", raw or "", pieces.number, pieces.call_id, pieces.name))

    def _pieces(self, index: Any, call_id: Any, start: str | None) -> Pieces:
        """The call that a delta belongs to: by its index, or else the last unless a new one begins.

        Only a delta with a name begins one; `start` is the first piece of its arguments.
        """
        found = self._at.get(index) if isinstance(index, int) else self._last
        has_index = isinstance(index, int)
        if found is not None and start is not None:
            found = None if _is_another(found, call_id, start, has_index=has_index) else found
        if found is None:
            if len(self._calls) >= self._limits.tool_calls:
                raise bad(f"{self._http.name} asked for more than {self._limits.tool_calls} tools at once", started=self.started)
            found = Pieces(len(self._calls))
            self._calls.append(found)
        if isinstance(index, int):
            self._at[index] = found
        self._last = found
        return found

    def _add(self, text: Any) -> None:
        if type(text) is not str:
            raise TypeError("a piece of the answer is no text")
        self.started = True
        self._size += len(text)
        if self._size > self._limits.message_bytes:
            raise bad(f"{self._http.name} sent more than {self._limits.message_bytes:,} bytes", started=True)


def _is_another(pieces: Pieces, call_id: Any, start: str, *, has_index: bool) -> bool:
    """True if a delta with a name does not go on with a call.

    Some endpoints give every call the same index, or none, and some the same id.
    """
    if call_id and pieces.call_id and str(call_id)[:256] != pieces.call_id:
        return True
    if call_id:
        return start.startswith("{") and is_complete("".join(pieces.raw))
    return bool(pieces.name) and (not has_index or is_complete("".join(pieces.raw)))


def _is_error(frame: Any) -> bool:
    """True if a frame says what went wrong, in one of the usual shapes."""
    if frame.get("error") or frame.get("object") == "error":
        return True
    said = (frame.get(name) for name in ("message", "detail"))
    return "choices" not in frame and any(isinstance(text, str | list) for text in said)


def _said(text: str) -> Iterator[Part]:
    """The text of an answer, without the thoughts that some servers leave in it."""
    thought, said = without_thoughts(text)
    if thought:
        yield Thinking(storable(thought), INLINE, {})
    if said or not thought:
        yield TextPart(storable(said))
