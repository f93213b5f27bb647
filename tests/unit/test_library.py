"""Providers that go through the library: its errors, its silences and its thoughts, with its own
models for tests.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import exceptions, messages
from pydantic_ai.models.function import DeltaThinkingPart, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.adapters.models.registry import ModelRegistry
from remit.adapters.models.wires.endpoint import Endpoint, TimeSource
from remit.adapters.models.wires.response import Limits
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import (
    Message,
    ModelSettings,
    Request,
    Response,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    plain,
    restore,
    user,
)
from remit.domain.llm.selection import Choices
from tests.modelserver import ModelServer

ASK = Request("m", "", (user("Hi"),))


class Time:
    """A clock that only moves when a caller sleeps."""

    now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def ask(model: Any, request: Request = ASK, **limits: Any) -> Response:
    time = Time()
    endpoint = Endpoint("test", ticks=TimeSource(lambda: time.now, time.sleep))
    gateway = PydanticAiGateway(
        "test", endpoint=endpoint, limits=Limits()._replace(**limits), model=lambda _name: model
    )
    answer = await gateway.request(request)
    await gateway.close()
    return answer


async def test_the_test_model_of_the_library_answers() -> None:
    answer = await ask(TestModel(custom_output_text="Hello"))
    assert (answer.text, answer.stop) == ("Hello", "end")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ModelRateLimitError("m", "slow down", retry_after=3.0), "rate_limited"),
        (exceptions.ModelQuotaExceededError("m", "no money"), "quota"),
        (exceptions.ModelAuthenticationError("m", "no"), "authentication"),
        (exceptions.ModelContextWindowExceededError("m", "long"), "context_overflow"),
        (exceptions.ModelRequestRejectedError("m", "no"), "rejected_request"),
        (exceptions.ModelTimeoutError("m", "late"), "no_first_byte"),
        (exceptions.ModelTimeoutError("m", "late", phase="read"), "no_first_byte"),
        (exceptions.ModelTimeoutError("m", "late", phase="connect"), "refused"),
        (exceptions.ModelConnectionError("m", "gone"), "refused"),
        (exceptions.ModelConnectionError("m", "gone", phase="read"), "bad_response"),
        (exceptions.ModelOverloadedError("m", "busy"), "overloaded"),
        (exceptions.ModelServerError("m", "broken"), "overloaded"),
        (exceptions.ModelHTTPError(413, "m"), "context_overflow"),
        (exceptions.ModelHTTPError(418, "m"), "rejected_request"),
        (exceptions.ModelAPIError("m", "odd", in_stream=True), "overloaded"),
        (exceptions.ModelAPIError("m", "Failed to decode"), "bad_response"),
        (ValueError("no number"), "bad_response"),
        (exceptions.UnexpectedModelBehavior("odd"), "bad_response"),
        (RuntimeError("Bearer sk-abcdefghijklmnopqrst"), "bad_response"),
        (ImportError("Please install `groq`"), "misconfigured"),
    ],
)
async def test_its_errors_are_typed(error: Exception, kind: str) -> None:
    async def stream(_messages: Any, _info: Any) -> AsyncIterator[str]:
        raise error
        yield ""

    with pytest.raises(ModelFailed) as failed:
        await ask(FunctionModel(stream_function=stream))
    assert failed.value.kind == kind
    assert "abcdefgh" not in str(failed.value)


@pytest.mark.parametrize(
    ("limits", "before", "kind"),
    [
        ({"first_byte_seconds": 0.02}, 0, "no_first_byte"),
        ({"idle_seconds": 0.02}, 1, "stalled"),
        ({"total_seconds": 0.02}, 1, "timed_out"),
    ],
)
async def test_silence_is_typed(limits: dict[str, Any], before: int, kind: str) -> None:
    async def stream(_messages: Any, _info: Any) -> AsyncIterator[str]:
        for _ in range(before):
            yield "Hello"
        await asyncio.Event().wait()

    with pytest.raises(ModelFailed) as failed:
        await ask(FunctionModel(stream_function=stream), **limits)
    assert (failed.value.kind, failed.value.started) == (kind, before == 1)


def no_stream(*_args: Any, **_named: Any) -> Any:
    raise NotImplementedError


async def test_a_model_that_does_not_stream_is_asked_without() -> None:
    whole = type("Whole", (TestModel,), {"request_stream": no_stream})
    assert (await ask(whole(custom_output_text="Hello"))).text == "Hello"


async def test_a_conversation_reaches_the_library_as_it_knows_it() -> None:
    seen: list[Any] = []

    async def stream(given: Any, info: Any) -> AsyncIterator[Any]:
        seen.append((given, info.model_settings))
        yield {0: DeltaThinkingPart(content="hm", signature="s")}
        yield "Hello"

    first = await ask(FunctionModel(stream_function=stream))
    assert isinstance(first.parts[0], Thinking)
    history = (
        user("Hi"),
        first.message,
        Message(
            "assistant",
            (
                ToolCall("a", "Read", {"x": 1}),
                ToolCall("b", "Read", {}, "{", "no JSON"),
                Thinking("", "anthropic", {}),
            ),
        ),
        Message(
            "tool", (ToolResult("a", "Read", "1"), ToolResult("b", "Read", "2", is_error=True))
        ),
    )
    await ask(
        FunctionModel(stream_function=stream),
        ASK._replace(messages=history, settings=ModelSettings(9, 0.5, "low", ("END",))),
    )
    given, settings = seen[-1]
    parts = [part for message in given for part in message.parts]
    assert [part.args for part in parts if isinstance(part, messages.ToolCallPart)] == [
        {"x": 1},
        {"invalid": "{"},
    ]
    assert [part.outcome for part in parts if isinstance(part, messages.ToolReturnPart)] == [
        "success",
        "failed",
    ]
    assert [part.signature for part in parts if isinstance(part, messages.ThinkingPart)] == ["s"]
    assert {name: settings[name] for name in ("max_tokens", "temperature", "stop_sequences")} == {
        "max_tokens": 9, "temperature": 0.5, "stop_sequences": ["END"]}  # fmt: skip


async def test_the_signature_of_a_call_goes_back_to_the_provider_that_sent_it() -> None:
    seen: list[Any] = []
    details = {"thought_signature": "SIGNED=="}

    def answer(given: Any, _info: Any) -> Any:
        seen.append(given)
        call = messages.ToolCallPart(
            "Read", {}, "a", provider_name="google", provider_details=details
        )
        return messages.ModelResponse(parts=[call])

    whole = type("Whole", (FunctionModel,), {"request_stream": no_stream})
    first = await ask(whole(answer))
    stored = restore(json.loads(json.dumps(plain(first.message))))
    history = (user("Hi"), stored, Message("tool", (ToolResult("a", "Read", "1"),)))
    await ask(whole(answer), ASK._replace(messages=history))
    parts = [part for message in seen[-1] for part in message.parts]
    (call,) = [part for part in parts if isinstance(part, messages.ToolCallPart)]
    assert (call.provider_name, call.provider_details) == ("google", details)


TWO = '{"path": "a"} {"path": "b"}'


@pytest.mark.parametrize(
    ("name", "raw", "found"),
    [
        ("ReadRead", TWO, [("Read", {"path": "a"}), ("Read", {"path": "b"})]),
        ("ReadGlob", TWO, [("Read", {"path": "a"}), ("Glob", {"path": "b"})]),
        ("ReadAll", TWO, [("ReadAll", {})]),
        ("ReadRead", '{"path": "a"}', [("ReadRead", {"path": "a"})]),
        ("Read", TWO, [("Read", {})]),
    ],
)
async def test_calls_that_the_library_joined_are_split(
    name: str, raw: str, found: list[tuple[str, dict[str, Any]]]
) -> None:
    """The library joins calls that an endpoint sends with one index."""
    from pydantic_ai.models.function import DeltaToolCall

    async def stream(_messages: Any, _info: Any) -> AsyncIterator[Any]:
        yield {0: DeltaToolCall(name=name, json_args=raw, tool_call_id="b")}

    tools = tuple(
        Tool(each, each, {"type": "object", "properties": {}}) for each in ("Read", "Glob")
    )
    answer = await ask(FunctionModel(stream_function=stream), ASK._replace(tools=tools))
    assert [(call.name, dict(call.arguments)) for call in answer.calls] == found
    assert len({call.call_id for call in answer.calls}) == len(found)


async def two_calls(_messages: Any, _info: Any) -> AsyncIterator[Any]:
    from pydantic_ai.models.function import DeltaToolCall

    yield {
        0: DeltaToolCall(name="Read", json_args="{}", tool_call_id="a"),
        1: DeltaToolCall(name="Read", json_args="{    }", tool_call_id="b"),
    }


async def test_an_answer_with_too_many_bytes_fails() -> None:
    with pytest.raises(ModelFailed, match="bad_response"):
        await ask(FunctionModel(stream_function=two_calls), message_bytes=5)


async def test_a_model_that_makes_too_many_calls_is_told() -> None:
    answer = await ask(FunctionModel(stream_function=two_calls), tool_calls=1)
    (call,) = answer.calls
    assert "No call was made" in call.error
    assert "tool_calls" in call.error


async def test_no_more_is_heard_than_allowed() -> None:
    """An answer that does not end is left at the limit, not when it has ended."""

    sent: list[int] = []

    async def stream(_messages: Any, _info: Any) -> AsyncIterator[str]:
        for number in range(1000):
            sent.append(number)
            yield "x" * 1000

    with pytest.raises(ModelFailed, match="bad_response"):
        await ask(FunctionModel(stream_function=stream), message_bytes=10_000)
    assert 10 < len(sent) < 20


async def test_a_stream_that_ends_before_the_answer_is_not_an_answer() -> None:
    """Neither why it ended nor how much it was is known: the end never came."""

    async def stream(_messages: Any, _info: Any) -> AsyncIterator[str]:
        yield "Half of it"

    class Cut(FunctionModel):
        @asynccontextmanager
        async def request_stream(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
            async with super().request_stream(*given, **named) as streamed:
                whole = streamed.get
                streamed.get = lambda: replace(whole(), usage=RequestUsage())  # type: ignore[method-assign]
                yield streamed

    with pytest.raises(ModelFailed) as failed:
        await ask(Cut(stream_function=stream))
    assert (failed.value.kind, failed.value.started) == ("bad_response", True)


@pytest.mark.parametrize(
    ("provider", "told"), [("nobody", "anthropic:NAME, .*, groq,"), ("ollama", "OLLAMA_BASE_URL")]
)
async def test_an_unusable_provider_is_reported_at_once(
    provider: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    chosen = ModelRegistry(Choices({}, {})).resolve(f"{provider}:m")
    with pytest.raises(ModelFailed, match=told) as failed:
        await chosen.gateway.request(ASK)
    assert failed.value.kind == "misconfigured"


async def test_a_task_may_name_a_model_of_any_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads the URL and the key from the provider's own variables."""
    async with ModelServer("openai").running() as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OLLAMA_API_KEY", "key-of-ollama")
        desk = ModelRegistry(Choices({}, {"openai": "key-of-openai"}))
        chosen = desk.resolve("ollama:qwen3:8b")
        answer = await chosen.gateway.request(ASK._replace(model=chosen.model))
        await desk.close()
    (asked,) = server.asked
    assert (answer.text, answer.model, asked.body["model"]) == ("Hello", "really", "qwen3:8b")
    assert asked.headers["authorization"] == "Bearer key-of-ollama"


def test_only_callers_of_a_provider_need_its_package() -> None:
    script = """
import asyncio, sys
sys.modules["openai"] = None
from remit.adapters.models.registry import ModelRegistry
from remit.domain.llm.selection import Choices
from remit.domain.llm.messages import Request, user
chosen = ModelRegistry(Choices({}, {})).resolve("ollama:m")
assert "pydantic_ai" not in sys.modules
try:
    asyncio.run(chosen.gateway.request(Request("m", "", (user("Hi"),))))
except Exception as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith("misconfigured: ollama: Please install the `openai` package")
