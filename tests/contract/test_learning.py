"""Refusals of requests that are under way at the same time: each is judged by what it had sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remit.adapters.models.refusals.endpoint_limits import NO_SYSTEM, STRICT_TURNS
from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint, TimeSource
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.openai_responses import ResponsesGateway
from remit.domain.agents.media import Media
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import (
    Message,
    ModelSettings,
    Request,
    Tool,
    ToolCall,
    ToolResult,
    user,
)
from tests.agents.endpoint import Body, RuledServer
from tests.contract.library import library
from tests.dialects import DIALECTS, refusal
from tests.modelserver import Dialect, ModelServer, Reply, Say, Status

CROWD = 6
READ = Tool("Read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
ONE = (
    user("Read it."),
    Message("assistant", (ToolCall("call_one", "Read", {"path": "a"}),)),
    Message("tool", (ToolResult("call_one", "Read", "text of a"),)),
    user("<Task id=1>\n</Task>"),
)
ASK = Request("gpt-5", "Be brief.", ONE, (READ,), ModelSettings(effort="low"), passing=1)

XAI = {
    "code": "Client specified an invalid argument",
    "error": "Model grok-4-0709 does not support parameter reasoningEffort.",
}
PARAM = {"error": {"message": "Unsupported value.", "param": "reasoning_effort"}}
LOC = {"loc": ["body", "reasoning_effort"], "type": "extra_forbidden", "msg": "Extra inputs"}
GEMMA = {"error": {"message": "System role not supported"}}
ORDER = {"error": {"message": "Unexpected role 'user' after role 'tool'", "type": "order"}}


def has_effort(body: Body) -> bool:
    return "reasoning_effort" in body


def has_system(body: Body) -> bool:
    return bool(body["messages"][0]["role"] == "system")


def has_late_user(body: Body) -> bool:
    return bool(body["messages"][-1]["role"] == "user")


ORDERS = {
    "DeepSeek": (
        "deepseek-reasoner does not support successive user or assistant messages (messages[1] and"
        " messages[2] in your input). You should interleave the user/assistant messages in the"
        " message sequence."
    ),
    "Bedrock": (
        "A conversation must alternate between user and assistant roles. Make sure the conversation"
        " alternates between user and assistant roles and try again."
    ),
    "Perplexity": (
        "After the (optional) system message(s), user and assistant roles should be alternating."
    ),
    "Perplexity, newer": (
        "After the (optional) system message(s), user or tool message(s) should alternate with"
        " assistant message(s)."
    ),
    "Gemini": "Please ensure that multiturn requests alternate between user and model.",
    "Anthropic, older": (
        'messages: roles must alternate between "user" and "assistant", but found multiple "user"'
        " roles in a row"
    ),
}


@pytest.mark.parametrize("name", ORDERS)
async def test_strict_turns_are_learned_from_other_words(name: str) -> None:
    no = Status(400, {"error": {"message": ORDERS[name]}})

    async def rule(body: Body) -> Reply:
        return no if has_late_user(body) else Say(("Hello",))

    async with RuledServer(rule).running() as server, wire(server) as gateway:
        for _ in range(2):
            assert (await gateway.request(ASK)).text == "Hello"
        assert gateway.endpoint.refused(ASK.model) == {STRICT_TURNS}
    assert len(server.asked) == 3


REASONS: dict[str, tuple[Any, Status, str]] = {
    "xai": (has_effort, Status(400, XAI), "reasoning_effort"),
    "param": (has_effort, Status(400, PARAM), "reasoning_effort"),
    "mistral": (has_effort, Status(422, {"detail": [LOC]}), "reasoning_effort"),
    "gemma": (has_system, Status(400, GEMMA), NO_SYSTEM),
    "order": (has_late_user, Status(400, ORDER), STRICT_TURNS),
}


class Gate:
    """Holds requests back until a whole crowd has sent its first."""

    def __init__(self, crowd: int = CROWD) -> None:
        self._crowd, self._came = crowd, 0
        self._open = asyncio.Event()

    async def __call__(self) -> None:
        self._came += 1
        if self._came >= self._crowd:
            self._open.set()
        await self._open.wait()


@asynccontextmanager
async def wire(server: ModelServer) -> AsyncIterator[OpenAIChatGateway]:
    gateway = OpenAIChatGateway("key", server.url, endpoint=Endpoint("test"))
    try:
        yield gateway
    finally:
        await gateway.close()


@pytest.mark.parametrize("reason", REASONS)
async def test_requests_refused_at_once_for_one_reason_learn_one_lesson(reason: str) -> None:
    is_wrong, no, lesson = REASONS[reason]
    gate = Gate()

    async def rule(body: Body) -> Reply:
        await gate()
        return no if is_wrong(body) else Say(("Hello",))

    async with RuledServer(rule).running() as server, wire(server) as gateway:
        found = await asyncio.gather(*(gateway.request(ASK) for _ in range(CROWD)))
        assert gateway.endpoint.refused(ASK.model) == {lesson}
        asked = len(server.asked)
        await gateway.request(ASK)
        assert len(server.asked) == asked + 1
    assert [answer.text for answer in found] == ["Hello"] * CROWD
    assert asked == 2 * CROWD


async def test_requests_of_the_library_refused_at_once_learn_one_lesson() -> None:
    gate = Gate()
    no = Status(400, PARAM, {"Content-Type": "application/json"})

    async def rule(body: Body) -> Reply:
        await gate()
        return no if has_effort(body) else Say(("Hello",))

    async with RuledServer(rule).running() as server, library(server) as gateway:
        found = await asyncio.gather(*(gateway.request(ASK) for _ in range(CROWD)))
        assert gateway.endpoint.refused(ASK.model) == {"thinking"}
    assert [answer.text for answer in found] == ["Hello"] * CROWD


@pytest.mark.parametrize("name", sorted(set(DIALECTS) - {"anthropic", "responses"}))
async def test_a_crowd_learns_of_a_dialect_what_one_request_learns(name: str) -> None:
    async def alone(body: Body) -> Reply:
        return refusal(name, body) or Say(("Hello",))

    async with RuledServer(alone).running() as server, wire(server) as gateway:
        await gateway.request(ASK)
        expected = set(gateway.endpoint.refused(ASK.model))
    gate = Gate()

    async def crowded(body: Body) -> Reply:
        await gate()
        return refusal(name, body) or Say(("Hello",))

    async with RuledServer(crowded).running() as server, wire(server) as gateway:
        found = await asyncio.gather(*(gateway.request(ASK) for _ in range(CROWD)))
        assert gateway.endpoint.refused(ASK.model) == expected
    assert [answer.text for answer in found] == ["Hello"] * CROWD


async def test_requests_that_no_lesson_helps_all_fail_after_a_bounded_number() -> None:
    gate = Gate()

    async def rule(_body: Body) -> Reply:
        await gate()
        return Status(400, ORDER)

    async with RuledServer(rule).running() as server, wire(server) as gateway:
        asked = (gateway.request(ASK) for _ in range(CROWD))
        found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(failed, ModelFailed) for failed in found)
    assert len(server.asked) <= 3 * CROWD


UNRELATED = (
    "The prompt was filtered: 'json schema, thinking, temperature, max tokens and images'",
    "Prompt rejected by moderation: 'explain reasoning_effort and reasoning effort'",
    "messages[1].tool_calls[0].function.arguments: invalid, see the json schema docs",
    "Invalid 'messages[0].content': a control character near 'stream_options' and 'max_tokens'",
    "Unknown model m1. Models with reasoning effort: m2",
    "The image may contain content that is not allowed by our safety system.",
    "Request blocked by the guardrail 'files'",
)
"""Refusals of one conversation whose words are those of limits of an endpoint."""
OWN_WIRES: tuple[Any, ...] = (OpenAIChatGateway, AnthropicGateway, ResponsesGateway)
PICTURE = Media("image/png", "aGVsbG8=")
SHOWN = ASK._replace(
    messages=(
        *ONE[:2],
        Message("tool", (ToolResult("call_one", "Read", "A picture.", media=PICTURE),)),
        ONE[3],
    ),
    settings=ModelSettings(max_tokens=500, effort="low"),
)


async def no_time(_: float) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("said", UNRELATED)
@pytest.mark.parametrize("wire_of", OWN_WIRES)
async def test_a_refusal_that_no_other_form_helps_teaches_nothing(wire_of: Any, said: str) -> None:
    async with ModelServer(_dialect(wire_of)).running() as server:
        endpoint = Endpoint("test", ticks=TimeSource(sleep=no_time))
        gateway = wire_of("key", server.url, endpoint=endpoint)
        await gateway.request(SHOWN)
        server.replies = [Status(400, {"error": {"message": said}})]
        with pytest.raises(ModelFailed):
            await gateway.request(SHOWN)
        server.replies = [Say(("Hello",))]
        await gateway.request(SHOWN)
        await gateway.close()
    assert server.asked[-1].body == server.asked[0].body


def _dialect(wire_of: Any) -> Dialect:
    names: dict[Any, Dialect] = {AnthropicGateway: "anthropic", ResponsesGateway: "responses"}
    return names.get(wire_of, "openai")


async def test_what_helps_after_a_failure_of_the_endpoint_is_not_found_out_again() -> None:
    async with ModelServer("openai").running() as server:
        endpoint = Endpoint("test", ticks=TimeSource(sleep=no_time))
        gateway = OpenAIChatGateway("key", server.url, endpoint=endpoint)
        server.replies = [Status(400, PARAM), Status(503), Status(429), Say(("Hello",))]
        await gateway.request(ASK)
        await gateway.request(ASK)
        await gateway.close()
    assert [has_effort(asked.body) for asked in server.asked] == [True, *[False] * 4]


async def test_a_conversation_that_leaves_little_room_takes_the_limit_from_no_other() -> None:
    said = (
        "'max_tokens' is too large: 500. This model's maximum context length is 1000 tokens and"
        " your request has 600 input tokens (500 > 1000 - 600)."
    )
    limited = ASK._replace(settings=ModelSettings(max_tokens=500))
    async with ModelServer("openai").running() as server, wire(server) as gateway:
        server.replies = [Status(400, {"error": {"message": said}}), Say(("Hello",))]
        await gateway.request(limited)
        await gateway.request(limited)
    sent = [asked.body.get("max_tokens") for asked in server.asked]
    assert sent == [500, None, 500]
