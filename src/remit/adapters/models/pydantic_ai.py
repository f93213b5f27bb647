"""Every other provider, through the model requests of pydantic-ai; the library is loaded when it is first asked."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from json import JSONEncoder
from typing import Any, ClassVar, assert_never

from remit.adapters.models.answer import DEFAULTS, Limits, Pieces, Priced, bad, counted, inner, sound, tokens, tool_calls
from remit.adapters.models.dialect import (
    BARE_SCHEMAS,
    LIMITS,
    NO_MEDIA,
    SHORT_IDS,
    STRICT_TURNS,
    Known,
    arranged,
)
from remit.adapters.models.endpoint import Endpoint
from remit.adapters.models.http import retry_after
from remit.adapters.models.learning import LearningGateway
from remit.adapters.models.offer import acceptable, bare, call_id, plain, tool_name
from remit.adapters.models.refusal import CutOff, Refusal, failure_kind, overflows
from remit.adapters.models.refusal import told as told_by
from remit.adapters.models.static import Static
from remit.domain.message import Delta, Message, OnPart, Part, Pause, Request, Response, Stop, TextPart, Thinking, Tokens, Tool, ToolCall, ToolResult
from remit.domain.model import FailureKind, ModelFailed, excerpt, storable
from remit.errors import invalid

LIBRARY = "pydantic_ai"
PROVIDER = "pydantic_ai"

_STOPS: dict[str, Stop] = {"length": "length", "content_filter": "refusal"}
_KINDS: tuple[tuple[str, FailureKind], ...] = (
    ("ModelRateLimitError", "rate_limited"),
    ("ModelQuotaExceededError", "quota"),
    ("ModelAuthenticationError", "authentication"),
    ("ModelContextWindowExceededError", "context_overflow"),
    ("ModelRequestRejectedError", "rejected_request"),
    ("ModelUnavailableError", "overloaded"),
    ("ModelServerError", "overloaded"),
    ("UserError", "rejected_request"),
    ("UnexpectedModelBehavior", "bad_response"),
)
"""The errors of the library that say what they mean, the special before the general."""
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class PydanticAiGateway(LearningGateway):
    """The models of one provider that the library knows."""

    OPTIONAL: ClassVar = frozenset(
        {
            "max_tokens",
            "temperature",
            "thinking",
            "tool_choice",
            "parallel_tool_calls",
        }
    )
    WORDS: ClassVar = {
        "thinking": ("thinking", "effort", "reasoning"),
        "max_tokens": tuple(sorted(LIMITS)),
    }

    def __init__(
        self,
        provider: str,
        *,
        limits: Limits = DEFAULTS,
        endpoint: Endpoint | None = None,
        price: Priced | None = None,
        model: Callable[[str], Any] | None = None,
        parallel_tool_calls: bool = True,
        strict_turns: bool = False,
    ) -> None:
        if find_spec(LIBRARY) is None:
            raise invalid("model", f"is of the provider {provider}, for which a library is missing", 'it installed: pip install "remit[providers]"')
        self._provider, self._limits, self._price = provider, limits, price
        super().__init__(endpoint or Endpoint(provider), strict_turns=strict_turns)
        self._infer = model or self._inferred
        self._models: dict[str, Any] = {}
        self._tools = Static(partial(_parameters, plain))
        self._bare_tools = Static(partial(_parameters, bare))
        self._parallel = parallel_tool_calls
        self._opened = AsyncExitStack()

    def __repr__(self) -> str:
        return f"PydanticAiGateway({self._provider})"

    async def request(self, request: Request, *, on_part: OnPart | None = None, pause: Pause | None = None) -> Response:
        """One answer; pieces of it go to `on_part` as they come."""
        attempt = partial(self._attempt, request, on_part, pause)
        return await self.endpoint.call(attempt, agent=request.agent, timeout_seconds=request.timeout_seconds, pause=pause)

    def cost(self, model: str, tokens: Tokens) -> float | None:
        """What a call costs by the price that is set or listed."""
        return self._price(model, tokens) if self._price else None

    async def close(self) -> None:
        """Close the connections of every model that was asked."""
        self._models.clear()
        await self._opened.aclose()

    def _sent(self, request: Request, known: Known) -> Iterable[str]:
        return self._settings(request, known)

    async def _send(
        self,
        request: Request,
        known: Known,
        on_part: OnPart | None,
        seconds: float | None,
    ) -> Response:
        told = _Told(on_part, self._limits.message_bytes)
        total = self._limits.total_seconds if seconds is None else min(seconds, self._limits.total_seconds)
        scope = asyncio.timeout(total)
        try:
            async with scope:
                answer = await self._ask(request, known, told)
        except ModelFailed:
            raise
        except TimeoutError as error:
            if scope.expired():
                raise ModelFailed("timed_out", f"{self._provider} was not done within the time allowed", started=told.started) from error
            raise ModelFailed(_silence(told.heard), f"{self._provider} said nothing for too long", started=told.started) from error
        except Exception as error:  # noqa: BLE001 - whatever a provider's own library raises
            raise self._failure(error, told) from None  # its text may hold a key
        return self._response(request, answer)

    async def _ask(self, request: Request, known: Known, told: "_Told") -> Any:
        direct = import_module("pydantic_ai.direct")
        model = await self._model(request.model)
        tools = self._bare_tools if BARE_SCHEMAS in known else self._tools
        given = {
            "model_settings": self._settings(request, known),
            "model_request_parameters": tools(request.tools),
        }
        if STRICT_TURNS in known:
            known |= {NO_MEDIA}  # the library sends images and PDFs in a message of the user
        system, arranged_messages = arranged(request, known)
        is_short = SHORT_IDS in known
        messages = [_message(message, system, is_short=is_short) for message in arranged_messages]
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
                    text = f"{self._provider} stopped before the end of its answer"
                    raise CutOff(text, started=told.started)
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

    def _settings(self, request: Request, known: Known) -> dict[str, Any]:
        settings = request.settings
        asked: dict[str, Any] = {
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "stop_sequences": list(settings.stop) or None,
            "thinking": None if settings.effort == "none" else settings.effort,
            "tool_choice": None if request.may_call or not request.tools else "none",
            "parallel_tool_calls": None if self._parallel or not request.tools else False,
            "max_retries": 0,  # trying again is the endpoint's business, which knows of all callers
        }
        return {name: value for name, value in asked.items() if value is not None and name not in known}

    def _failure(self, error: Exception, told: "_Told") -> ModelFailed:
        kind = _kind(error, told.heard)
        if kind == "rejected_request" and "api key" in str(error).lower().replace("_", " "):
            kind = "authentication"
        wait = retry_after(getattr(error, "headers", None) or {})
        if wait is None:
            wait = getattr(error, "retry_after", None)
        status, body = getattr(error, "status_code", None), getattr(error, "body", None)
        if isinstance(status, int) and body:
            said = told_by(body)
            text = f"{self._provider} answered {status}: {excerpt(said.message)}"
            return Refusal(status, said, text, retry_after=wait, started=told.started, kind=kind)
        text = f"{self._provider}: {excerpt(str(error)) or type(error).__name__}"
        return ModelFailed(kind, text, retry_after=wait, started=told.started)

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
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    if isinstance(error, library.ModelAPIError) and overflows(status or 500, str(error)):
        return "context_overflow"
    if status in (403, 404):  # the library tells them apart from other refusals by the status alone
        return failure_kind(status, str(error))
    for name, meant in _KINDS:
        if isinstance(error, getattr(library, name)):
            return meant
    if isinstance(error, library.ModelAPIError):
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


def _message(message: Message, system: str, *, is_short: bool) -> Any:
    library = import_module("pydantic_ai.messages")
    if message.role == "assistant":
        said = (_said(library, part, is_short=is_short) for part in message.parts)
        return library.ModelResponse(parts=[part for part in said if part])
    parts = [_told(library, part, is_short=is_short) for part in message.parts]
    parts += [_shown(library, part) for part in message.parts if isinstance(part, ToolResult) and part.media is not None]
    return library.ModelRequest(parts=parts, instructions=system or None)


def _shown(library: Any, part: ToolResult) -> Any:
    """The image or PDF of a result, as a part of the user."""
    assert part.media is not None
    binary = library.BinaryContent(data=b64decode(part.media.data), media_type=part.media.type)
    return library.UserPromptPart(content=[f"[Result of {part.name}: {part.text}]", binary])


def _told(library: Any, part: Part, *, is_short: bool) -> Any:
    if isinstance(part, ToolResult):
        return library.ToolReturnPart(
            tool_name=tool_name(part.name),
            content=part.text,
            tool_call_id=call_id(part.call_id, short=is_short),
            outcome="failed" if part.is_error else "success",
        )
    assert isinstance(part, TextPart), "only words and results are said to a model"
    return library.UserPromptPart(content=part.text)


def _said(library: Any, part: Part, *, is_short: bool) -> Any:
    match part:
        case ToolCall():
            given = {"invalid": part.raw} if part.error else dict(part.arguments)
            made = call_id(part.call_id, short=is_short)
            return library.ToolCallPart(tool_name=tool_name(part.name), args=given, tool_call_id=made)
        case Thinking():
            return library.ThinkingPart(content=part.text, **part.data) if part.provider == PROVIDER else None
        case TextPart() | ToolResult():
            return library.TextPart(content=part.text)
        case _:
            assert_never(part)


def _parameters(
    shape: Callable[[Mapping[str, Any]], dict[str, Any]],
    tools: tuple[Tool, ...],
) -> Any:
    definition = import_module("pydantic_ai.tools").ToolDefinition
    # Strict schemas are closed: where a tool takes any object, a model could say nothing any more.
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
