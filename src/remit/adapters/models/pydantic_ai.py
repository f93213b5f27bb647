"""Every other provider, through the model requests of pydantic-ai; the library is loaded when it is first asked."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from json import JSONEncoder
from typing import Any, assert_never

from remit.adapters.models.answer import DEFAULTS, Limits, Pieces, Priced, bad, counted, inner, sound, tokens, tool_calls
from remit.adapters.models.endpoint import Endpoint
from remit.adapters.models.http import failure_kind, retry_after
from remit.domain.message import Delta, Message, OnPart, Part, Pause, Request, Response, Stop, TextPart, Thinking, Tokens, ToolCall, ToolResult
from remit.domain.model import FailureKind, ModelFailed, excerpt, storable
from remit.errors import invalid

LIBRARY = "pydantic_ai"
PROVIDER = "pydantic_ai"

_STOPS: dict[str, Stop] = {"length": "length", "content_filter": "refusal"}
_KINDS: tuple[tuple[str, FailureKind], ...] = (
    ("ModelRateLimitError", "rate_limited"),
    ("ModelQuotaExceededError", "quota"),
    ("ModelAuthenticationError", "authentication"),
    ("ModelContextWindowExceededError", "context_too_long"),
    ("ModelRequestRejectedError", "rejected_request"),
    ("ModelUnavailableError", "overloaded"),
    ("ModelServerError", "overloaded"),
    ("UserError", "rejected_request"),
    ("UnexpectedModelBehavior", "bad_response"),
)
"""The errors of the library that say what they mean, the special before the general."""
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class PydanticAiGateway:
    """The models of one provider that the library knows."""

    def __init__(
        self,
        provider: str,
        *,
        limits: Limits = DEFAULTS,
        endpoint: Endpoint | None = None,
        price: Priced | None = None,
        model: Callable[[str], Any] | None = None,
    ) -> None:
        if find_spec(LIBRARY) is None:
            raise invalid("model", f"is of the provider {provider}, for which a library is missing", 'it installed: pip install "remit[providers]"')
        self._provider, self._limits, self._price = provider, limits, price
        self.endpoint = endpoint or Endpoint(provider)
        self._infer = model or self._inferred
        self._models: dict[str, Any] = {}
        self._opened = AsyncExitStack()

    def __repr__(self) -> str:
        return f"PydanticAiGateway({self._provider})"

    async def request(self, request: Request, *, on_part: OnPart | None = None, pause: Pause | None = None) -> Response:
        """One answer; pieces of it go to `on_part` as they come."""
        attempt = partial(self._attempt, request, on_part)
        return await self.endpoint.call(attempt, agent=request.agent, timeout_seconds=request.timeout_seconds, pause=pause)

    def cost(self, model: str, tokens: Tokens) -> float | None:
        """What a call costs by the price that is set or listed."""
        return self._price(model, tokens) if self._price else None

    async def close(self) -> None:
        """Close the connections of every model that was asked."""
        self._models.clear()
        await self._opened.aclose()

    async def _attempt(self, request: Request, on_part: OnPart | None, seconds: float | None) -> Response:
        told = _Told(on_part, self._limits.message_bytes)
        total = self._limits.total_seconds if seconds is None else min(seconds, self._limits.total_seconds)
        scope = asyncio.timeout(total)
        try:
            async with scope:
                answer = await self._ask(request, told)
        except ModelFailed:
            raise
        except TimeoutError as error:
            if scope.expired():
                raise ModelFailed("timed_out", f"{self._provider} was not done within the time allowed", started=told.started) from error
            raise ModelFailed(_silence(told.heard), f"{self._provider} said nothing for too long", started=told.started) from error
        except Exception as error:  # noqa: BLE001 - whatever a provider's own library raises
            raise self._failure(error, told) from None  # its text may hold a key
        return self._response(request, answer)

    async def _ask(self, request: Request, told: "_Told") -> Any:
        direct = import_module("pydantic_ai.direct")
        model = await self._model(request.model)
        given = {"model_settings": _settings(request), "model_request_parameters": _parameters(request)}
        messages = [_message(message, request.system) for message in request.messages]
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._limits.first_byte_seconds):  # some wait for the first byte here already
                    stream = await stack.enter_async_context(direct.model_request_stream(model, messages, **given))
                events = aiter(stream)
                while True:
                    try:
                        async with asyncio.timeout(self._limits.idle_seconds if told.heard else self._limits.first_byte_seconds):
                            event = await anext(events)
                    except StopAsyncIteration:
                        break
                    told.hear(event)
                answer = stream.get()
                if _cut(answer):
                    raise bad(f"{self._provider} stopped before the end of its answer", started=told.started)
                return answer
        except NotImplementedError:  # a provider without streams
            return await direct.model_request(model, messages, **given)

    async def _model(self, name: str) -> Any:
        """A model of the library, whose connections are ours to close."""
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = self._infer(name)
            await self._opened.enter_async_context(model)
        return model

    def _inferred(self, name: str) -> Any:
        try:
            return import_module("pydantic_ai.models").infer_model(f"{self._provider}:{name}")
        except ValueError as error:  # no provider of that name
            raise ModelFailed("rejected_request", f"{self._provider}: {excerpt(str(error))}") from None

    def _failure(self, error: Exception, told: "_Told") -> ModelFailed:
        kind = _kind(error, told.heard)
        if kind == "rejected_request" and "api key" in str(error).lower().replace("_", " "):
            kind = "authentication"
        wait = retry_after(getattr(error, "headers", None) or {})
        text = f"{self._provider}: {excerpt(str(error)) or type(error).__name__}"
        return ModelFailed(kind, text, retry_after=getattr(error, "retry_after", None) if wait is None else wait, started=told.started)

    def _response(self, request: Request, answer: Any) -> Response:
        library = import_module("pydantic_ai.messages")
        parts: list[Part] = []
        pieces: list[Pieces] = []
        size = 0
        for part in answer.parts:
            if isinstance(part, library.TextPart):
                parts.append(TextPart(storable(part.content)))
                size += len(part.content)
            elif isinstance(part, library.ThinkingPart):
                data = {name: getattr(part, name) for name in ("id", "signature", "provider_name", "provider_details")}
                parts.append(Thinking(storable(part.content), PROVIDER, sound(data)))
            elif isinstance(part, library.ToolCallPart):
                pieces.append(_pieces(part, len(pieces)))
                size += sum(map(len, pieces[-1].raw))
        if size > self._limits.message_bytes:
            raise bad(f"{self._provider} sent more than {self._limits.message_bytes:,} bytes")
        if len(pieces) > self._limits.tool_calls:
            raise bad(f"{self._provider} asked for more than {self._limits.tool_calls} tools at once")
        if not (parts or pieces):
            raise bad(f"{self._provider} gave no answer")
        parts.extend(tool_calls(pieces, request.messages))
        stop = "tool_calls" if pieces else _STOPS.get(answer.finish_reason or "", "end")
        used = _tokens(answer.usage, request, size)
        model = answer.model_name or request.model
        return Response(tuple(parts), stop, used, model, self._cost(model, used, answer.usage))

    def _cost(self, model: str, used: Tokens, usage: Any) -> float | None:
        cost = self.cost(model, used)
        known = getattr(usage, "cost", None)
        return float(known) if cost is None and known is not None else cost


def _kind(error: Exception, heard: bool) -> FailureKind:
    """What an error of the library means; most that come from a wire say so, the rest have a status or were made of nonsense."""
    library = import_module("pydantic_ai.exceptions")
    if isinstance(error, library.ModelConnectionError):
        return _lost(library, error, heard)
    for name, meant in _KINDS:
        if isinstance(error, getattr(library, name)):
            return meant
    if isinstance(error, library.ModelAPIError):
        status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
        if isinstance(status, int):
            return failure_kind(status, str(error))
        return "overloaded" if getattr(error, "in_stream", False) else "bad_response"
    return "rejected_request" if isinstance(error, ImportError) else "bad_response"


def _lost(library: Any, error: Any, heard: bool) -> FailureKind:
    if error.phase not in ("read", "write"):
        return "no_first_byte" if isinstance(error, library.ModelTimeoutError) and error.phase is None else "refused"
    return _silence(heard) if isinstance(error, library.ModelTimeoutError) else "bad_response"


def _silence(heard: bool) -> FailureKind:
    return "stalled" if heard else "no_first_byte"


def _cut(answer: Any) -> bool:
    """True if a stream ended before the answer did: nothing says why it ended, and nothing was counted, which both come last.

    Some providers leave out one of the two, which the library makes up for; so it takes both to tell.
    """
    said = inner(answer.provider_details, "finish_reason") or answer.finish_reason not in (None, "stop")
    return answer.state != "complete" or not (said or answer.usage.output_tokens)


class _Told:
    """Passes on what comes, no more than is allowed, and remembers whether anything did."""

    def __init__(self, on_part: OnPart | None, most: int) -> None:
        self._on_part, self._most = on_part, most
        self._size = 0
        self._calls: dict[int, tuple[str, str]] = {}
        self.heard = self.started = False

    def hear(self, event: Any) -> None:
        """An event of the library's stream."""
        self.heard = True
        delta = self._delta(event)
        if delta is not None:
            self.started = True
            self._size += len(delta.text)
            if self._size > self._most:
                raise bad(f"the answer has more than {self._most:,} bytes", started=True)
            if self._on_part:
                self._on_part(delta)

    def _delta(self, event: Any) -> Delta | None:
        part = getattr(event, "part", None) if event.event_kind == "part_start" else getattr(event, "delta", None)
        if part is None or event.event_kind not in ("part_start", "part_delta"):
            return None
        kind = getattr(part, "part_kind", None) or part.part_delta_kind
        text = getattr(part, "content", None) or getattr(part, "content_delta", None) or ""
        if kind in ("text", "thinking"):
            return Delta(kind, text) if text else None
        if kind not in ("tool-call", "tool_call"):
            return None
        call_id, name = self._calls.get(event.index, ("", ""))
        name = getattr(part, "tool_name", None) or name + (getattr(part, "tool_name_delta", None) or "")
        call_id = getattr(part, "tool_call_id", None) or call_id
        self._calls[event.index] = call_id, name
        raw = getattr(part, "args", None) or getattr(part, "args_delta", None) or ""
        return Delta("tool_call", raw if isinstance(raw, str) else _encode(raw), event.index, call_id, name)


def _message(message: Message, system: str) -> Any:
    library = import_module("pydantic_ai.messages")
    if message.role == "assistant":
        return library.ModelResponse(parts=[said for part in message.parts if (said := _said(library, part))])
    return library.ModelRequest(parts=[_told(library, part) for part in message.parts], instructions=system or None)


def _told(library: Any, part: Part) -> Any:
    if isinstance(part, ToolResult):
        outcome = "failed" if part.is_error else "success"
        return library.ToolReturnPart(tool_name=part.name, content=part.text, tool_call_id=part.call_id, outcome=outcome)
    assert isinstance(part, TextPart), "only words and results are said to a model"
    return library.UserPromptPart(content=part.text)


def _said(library: Any, part: Part) -> Any:
    match part:
        case ToolCall():
            given = {"invalid": part.raw} if part.error else dict(part.arguments)
            return library.ToolCallPart(tool_name=part.name, args=given, tool_call_id=part.call_id)
        case Thinking():
            return library.ThinkingPart(content=part.text, **part.data) if part.provider == PROVIDER else None
        case TextPart() | ToolResult():
            return library.TextPart(content=part.text)
        case _:
            assert_never(part)


def _settings(request: Request) -> dict[str, Any]:
    settings = request.settings
    asked: dict[str, Any] = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "stop_sequences": list(settings.stop) or None,
        "thinking": False if settings.effort == "none" else settings.effort,
        "tool_choice": None if request.may_call or not request.tools else "none",
        "max_retries": 0,  # trying again is the endpoint's business, which knows of all callers
    }
    return {name: value for name, value in asked.items() if value is not None}


def _parameters(request: Request) -> Any:
    definition = import_module("pydantic_ai.tools").ToolDefinition
    # Strict schemas are closed: where a tool takes any object, a model could say nothing any more.
    tools = [
        definition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema), strict=False) for tool in request.tools
    ]
    return import_module("pydantic_ai.models").ModelRequestParameters(function_tools=tools)


def _pieces(part: Any, number: int) -> Pieces:
    pieces = Pieces(number)
    pieces.call_id, pieces.name = str(part.tool_call_id or ""), str(part.tool_name)
    raw = part.args
    pieces.raw = [raw if isinstance(raw, str) else _encode(raw) if isinstance(raw, Mapping) else ""]
    return pieces


def _tokens(usage: Any, request: Request, size: int) -> Tokens:
    given = {name: getattr(usage, name, None) for name in ("input_tokens", "output_tokens", "cache_read_tokens")}
    sent = counted(given, "input_tokens") or None  # the library says nought where the provider said nothing
    received = counted(given, "output_tokens") or None
    return tokens(sent, received, counted(given, "cache_read_tokens"), sum(len(message.text) for message in request.messages), size)
