"""Providers that go through the library: its errors, its silences and its thoughts, with its own models for tests."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import exceptions, messages
from pydantic_ai.models.function import DeltaThinkingPart, FunctionModel
from pydantic_ai.models.test import TestModel

from remit.adapters.models.answer import Limits
from remit.adapters.models.endpoint import Endpoint, Ticks
from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.domain.message import Delta, Message, ModelSettings, Request, Response, Thinking, ToolCall, ToolResult, user
from remit.domain.model import ModelFailed

ASK = Request("m", "", (user("Hi"),))


class Time:
    """A clock that only moves when somebody sleeps."""

    now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def ask(model: Any, request: Request = ASK, told: list[Delta] | None = None, **limits: Any) -> Response:
    time = Time()
    endpoint = Endpoint("test", ticks=Ticks(lambda: time.now, time.sleep))
    gateway = PydanticAiGateway("test", endpoint=endpoint, limits=Limits()._replace(**limits), model=lambda _name: model)
    answer = await gateway.request(request, on_part=None if told is None else told.append)
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
        (exceptions.ModelContextWindowExceededError("m", "long"), "context_too_long"),
        (exceptions.ModelRequestRejectedError("m", "no"), "rejected_request"),
        (exceptions.ModelTimeoutError("m", "late"), "no_first_byte"),
        (exceptions.ModelConnectionError("m", "gone"), "refused"),
        (exceptions.ModelOverloadedError("m", "busy"), "overloaded"),
        (exceptions.UnexpectedModelBehavior("odd"), "bad_response"),
        (RuntimeError("Bearer sk-abcdefghijklmnopqrst"), "bad_response"),
        (ImportError("Please install `groq`"), "rejected_request"),
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
    [({"first_byte_seconds": 0.02}, 0, "no_first_byte"), ({"idle_seconds": 0.02}, 1, "stalled"), ({"total_seconds": 0.02}, 1, "timed_out")],
)
async def test_silence_is_typed(limits: dict[str, Any], before: int, kind: str) -> None:
    async def stream(_messages: Any, _info: Any) -> AsyncIterator[str]:
        for _ in range(before):
            yield "Hello"
        await asyncio.Event().wait()

    with pytest.raises(ModelFailed) as failed:
        await ask(FunctionModel(stream_function=stream), **limits)
    assert (failed.value.kind, failed.value.started) == (kind, before == 1)


async def test_a_model_that_does_not_stream_is_asked_without() -> None:
    def no_stream(*_args: Any, **_named: Any) -> Any:
        raise NotImplementedError

    whole = type("Whole", (TestModel,), {"request_stream": no_stream})
    assert (await ask(whole(custom_output_text="Hello"))).text == "Hello"


async def test_a_conversation_reaches_the_library_as_it_knows_it() -> None:
    seen: list[Any] = []

    async def stream(given: Any, info: Any) -> AsyncIterator[Any]:
        seen.append((given, info.model_settings))
        yield {0: DeltaThinkingPart(content="hm", signature="s")}
        yield "Hello"

    told: list[Delta] = []
    first = await ask(FunctionModel(stream_function=stream), told=told)
    assert [delta.kind for delta in told] == ["thinking", "text"]
    assert isinstance(first.parts[0], Thinking)
    history = (
        user("Hi"),
        first.message,
        Message("assistant", (ToolCall("a", "Read", {"x": 1}), ToolCall("b", "Read", {}, "{", "no JSON"), Thinking("", "anthropic", {}))),
        Message("tool", (ToolResult("a", "Read", "1"), ToolResult("b", "Read", "2", is_error=True))),
    )
    await ask(FunctionModel(stream_function=stream), ASK._replace(messages=history, settings=ModelSettings(9, 0.5, "low", ("END",))))
    given, settings = seen[-1]
    parts = [part for message in given for part in message.parts]
    assert [part.args for part in parts if isinstance(part, messages.ToolCallPart)] == [{"x": 1}, {"invalid": "{"}]
    assert [part.outcome for part in parts if isinstance(part, messages.ToolReturnPart)] == ["success", "failed"]
    assert [part.signature for part in parts if isinstance(part, messages.ThinkingPart)] == ["s"]
    assert {name: settings[name] for name in ("max_tokens", "temperature", "stop_sequences")} == {
        "max_tokens": 9, "temperature": 0.5, "stop_sequences": ["END"]}  # fmt: skip


@pytest.mark.parametrize("limits", [{"tool_calls": 1}, {"message_bytes": 5}])
async def test_no_more_is_taken_than_allowed(limits: dict[str, Any]) -> None:
    from pydantic_ai.models.function import DeltaToolCall

    async def stream(_messages: Any, _info: Any) -> AsyncIterator[Any]:
        yield {0: DeltaToolCall(name="Read", json_args="{}", tool_call_id="a"), 1: DeltaToolCall(name="Read", json_args="{    }", tool_call_id="b")}

    with pytest.raises(ModelFailed, match="bad_response"):
        await ask(FunctionModel(stream_function=stream), **limits)
