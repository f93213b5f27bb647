"""Every other provider, through the model requests of pydantic-ai.

The library is loaded when it is first asked.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from remit.adapters.models.encoded_tools import EncodedTools
from remit.adapters.models.library_failures import (
    failure_of,
    setup_failure,
    silence_kind,
    unknown_provider,
)
from remit.adapters.models.library_messages import (
    LibraryAnswer,
    StreamWatch,
    to_library,
    tool_parameters,
)
from remit.adapters.models.refusals.endpoint_limits import (
    BARE_SCHEMAS,
    EFFORT_WORDS,
    LIMITS,
    NO_MEDIA,
    SHORT_IDS,
    STRICT_TURNS,
    Known,
)
from remit.adapters.models.refusals.learning import LearningGateway
from remit.adapters.models.refusals.message_forms import arrange
from remit.adapters.models.refusals.refusal import CutOff, TooManyCalls
from remit.adapters.models.tool_schemas import bare_schema, plain_schema
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.http_gateway import effort_of, tool_limits, without_refused
from remit.adapters.models.wires.partial_answer import correct_stop, with_reason
from remit.adapters.models.wires.response import (
    DEFAULTS,
    Limits,
    Priced,
    bad,
    count_tokens,
    get_field,
    read_count,
    text_of,
    tool_calls,
)
from remit.adapters.models.wires.stop_reasons import knows, read_stop
from remit.domain.llm.failures import ModelFailed, storable
from remit.domain.llm.messages import Request, Response, TextPart, Tokens
from remit.errors import invalid

LIBRARY = "pydantic_ai"

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens")


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
        "thinking": (*EFFORT_WORDS, "effort", "reasoning"),
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
            raise invalid(
                "model",
                f"needs the library of the provider {provider}, which is not installed",
                'the extra package: pip install "remit[providers]"',
            )
        self._provider, self._limits = provider, limits
        super().__init__(endpoint or Endpoint(provider), price, strict_turns=strict_turns)
        self._infer = model or self._infer_model
        self._models: dict[str, Any] = {}
        self._tools = EncodedTools(partial(tool_parameters, plain_schema))
        self._bare_tools = EncodedTools(partial(tool_parameters, bare_schema))
        self._parallel = parallel_tool_calls
        self._opened = AsyncExitStack()

    def __repr__(self) -> str:
        return f"PydanticAiGateway({self._provider})"

    async def close(self) -> None:
        """Close the connections of every model that was asked."""
        self._models.clear()
        await self._opened.aclose()

    def _parameter_names(self, request: Request, known: Known) -> Iterable[str]:
        return self._settings(request, known)

    async def _send(
        self,
        request: Request,
        known: Known,
        seconds: float,
    ) -> Response:
        """Send a request once, within its time limit."""
        watch = StreamWatch(self._limits.message_bytes)
        scope = asyncio.timeout(min(seconds, self._limits.total_seconds))
        try:
            async with scope:
                answer = await self._ask(request, known, watch)
        except ModelFailed:
            raise
        except TimeoutError as error:
            raise self._timeout_failure(watch, is_total=scope.expired()) from error
        except Exception as error:  # noqa: BLE001 - whatever a provider's own library raises
            raise failure_of(
                error, self._provider, has_heard=watch.heard, has_started=watch.started
            ) from None  # its text may contain a key
        return self._make_response(request, answer)

    def _timeout_failure(self, watch: StreamWatch, *, is_total: bool) -> ModelFailed:
        """Return the failure of a call that took too long, in total or without a sign of life."""
        if is_total:
            text = f"{self._provider} did not finish within the time allowed"
            return ModelFailed("timed_out", text, started=watch.started)
        kind = silence_kind(has_heard=watch.heard)
        text = f"{self._provider} sent nothing for too long"
        return ModelFailed(kind, text, started=watch.started)

    async def _ask(self, request: Request, known: Known, watch: StreamWatch) -> Any:
        """Return the answer of the library to a request."""
        direct = import_module("pydantic_ai.direct")
        model = await self._model(request.model)
        tools = self._tools
        if BARE_SCHEMAS in known:
            tools = self._bare_tools
        given = {
            "model_settings": self._settings(request, known),
            "model_request_parameters": tools(request.tools),
        }
        messages = _library_messages(request, known)
        try:
            async with AsyncExitStack() as stack:
                # Some providers wait for the first byte here.
                async with asyncio.timeout(self._limits.first_byte_seconds):
                    stream = await stack.enter_async_context(
                        direct.model_request_stream(model, messages, **given)
                    )
                await self._follow(aiter(stream), watch)
                answer = stream.get()
                if _is_cut_off(answer):
                    text = f"{self._provider} stopped before the end of its answer"
                    raise CutOff(text, started=watch.started)
                return answer
        except NotImplementedError:  # a provider without streams
            return await direct.model_request(model, messages, **given)

    async def _follow(self, events: AsyncIterator[Any], watch: StreamWatch) -> None:
        """Pass on all events of a stream; raise TimeoutError if one takes too long."""
        seconds = self._limits.first_byte_seconds
        with suppress(StopAsyncIteration):
            while True:
                async with asyncio.timeout(seconds):
                    event = await anext(events)
                watch.hear(event)
                seconds = self._limits.idle_seconds

    async def _model(self, name: str) -> Any:
        """Return a model of the library; we close its connections."""
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = self._infer(name)
            await self._opened.enter_async_context(model)
        return model

    def _infer_model(self, name: str) -> Any:
        """Return a model of the provider; raise if it is unknown, or its library or key missing."""
        models = import_module("pydantic_ai.models")
        try:
            with suppress(ImportError):  # the library says below which package to install
                import_module("pydantic_ai.providers").infer_provider_class(self._provider)
        except ValueError:
            raise unknown_provider(self._provider) from None
        try:
            return models.infer_model(f"{self._provider}:{name}")
        except (ValueError, ImportError, RuntimeError) as error:
            raise setup_failure(self._provider, error) from None

    def _settings(self, request: Request, known: Known) -> dict[str, Any]:
        """Return the settings of a request that are set and were not refused."""
        settings = request.settings
        wanted: dict[str, Any] = {
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "stop_sequences": list(settings.stop) or None,
            "thinking": effort_of(request),
            "max_retries": 0,  # the endpoint retries: it knows all callers
        }
        wanted |= tool_limits(request, is_parallel=self._parallel)
        return without_refused(wanted, known)

    def _make_response(self, request: Request, answer: Any) -> Response:
        """Return an answer of the library; raise if it is empty or exceeds a limit."""
        found = LibraryAnswer(answer, {tool.name for tool in request.tools})
        self._check_limits(found)
        reason, has_parts = _stop_reason(answer), bool(found.parts or found.calls)
        said = read_stop(reason, self._provider, started=has_parts)
        if not has_parts and said in ("end", "tool_calls"):
            raise bad(f"{self._provider} gave no answer")
        parts = (*found.parts, *tool_calls(found.calls, request.messages))
        if refusal := text_of(get_field(answer.provider_details, "refusal")):
            parts = (*parts, TextPart(storable(refusal)))
        stop = correct_stop(said, has_calls=bool(found.calls))
        used = _count_tokens(answer.usage, request, found.size)
        model = answer.model_name or request.model
        cost = self._cost(model, used, answer.usage)
        return with_reason(Response(parts, stop, used, model, cost), reason)

    def _check_limits(self, answer: LibraryAnswer) -> None:
        """Raise if an answer is too long or has too many calls."""
        limits = self._limits
        if answer.size > limits.message_bytes:
            raise bad(f"{self._provider} sent more than {limits.message_bytes:,} bytes")
        if len(answer.calls) > limits.tool_calls:
            raise TooManyCalls(self._provider, limits.tool_calls, answer.calls[0].name)

    def _cost(self, model: str, used: Tokens, usage: Any) -> float | None:
        """Return the cost by the price that is set, or else as the provider reports it."""
        cost = self.cost(model, used)
        reported = getattr(usage, "cost", None)
        if cost is None and reported is not None:
            return float(reported)
        return cost


def _library_messages(request: Request, known: Known) -> list[Any]:
    """Return the messages of a request in the form of the library."""
    if STRICT_TURNS in known:
        known |= NO_MEDIA  # the library sends images and PDFs in a message of the user
    system, messages = arrange(request, known)
    is_short = SHORT_IDS in known
    return [to_library(message, system, is_short=is_short) for message in messages]


def _is_cut_off(answer: Any) -> bool:
    """Return True if a stream ended before the answer did: it has neither a stop reason nor token
    counts, which both come last.

    Some providers omit one of the two, which the library compensates for, so both must be missing.
    """
    if answer.state != "complete":
        return True
    if get_field(answer.provider_details, "finish_reason") or answer.usage.output_tokens:
        return False
    return answer.finish_reason in (None, "stop")


def _count_tokens(usage: Any, request: Request, size: int) -> Tokens:
    """Return the tokens of a call, as reported or estimated."""
    given = {name: getattr(usage, name, None) for name in _COUNTS}
    # The library reports 0 if the provider reported no count.
    sent = read_count(given, "input_tokens") or None
    received = read_count(given, "output_tokens") or None
    cached = read_count(given, "cache_read_tokens")
    body = sum(len(message.text) for message in request.messages)
    return count_tokens(sent, received, cached, body, size)


def _stop_reason(answer: Any) -> str:
    """Return why an answer of the library ended: in the word of its provider, if it is known."""
    said = text_of(get_field(answer.provider_details, "finish_reason"))
    if knows(said):
        return said
    return text_of(answer.finish_reason) or said
