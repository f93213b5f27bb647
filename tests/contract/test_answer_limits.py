"""A maximum of output tokens that an endpoint names is learned once and sent from then on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remit.adapters.models.anthropic import MAX_TOKENS, AnthropicGateway
from remit.adapters.models.endpoint import Endpoint
from remit.adapters.models.responses import ResponsesGateway
from remit.adapters.models.wire import WireGateway
from remit.domain.message import ModelSettings, Request, user
from remit.domain.model import ModelFailed
from tests.modelserver import Dialect, ModelServer, Say, Status

ANTHROPIC = "max_tokens: 16000 > 4096, which is the maximum allowed number of output tokens for claude-3"
ASK = Request("m", "Be brief.", (user("Go."),))
LONG = ASK._replace(settings=ModelSettings(max_tokens=16_000))
KINDS: dict[Dialect, Any] = {
    "openai": WireGateway,
    "responses": ResponsesGateway,
    "anthropic": AnthropicGateway,
}


def no(said: str) -> Status:
    return Status(400, {"error": {"type": "invalid_request_error", "message": said}})


@asynccontextmanager
async def served(dialect: Dialect, *replies: Any) -> AsyncIterator[tuple[ModelServer, Any]]:
    async with ModelServer(dialect).running() as server:
        server.replies = list(replies)
        gateway = KINDS[dialect]("key", server.url, endpoint=Endpoint("test"))
        yield server, gateway
        await gateway.close()


def limits(server: ModelServer) -> list[Any]:
    names = ("max_tokens", "max_output_tokens", "max_completion_tokens")
    return [next((asked.body[name] for name in names if name in asked.body), None) for asked in server.asked]


async def test_anthropic_is_sent_the_maximum_that_it_names() -> None:
    async with served("anthropic", no(ANTHROPIC), Say(("Hello",))) as (server, gateway):
        for request in (ASK, LONG, ASK._replace(settings=ModelSettings(max_tokens=100))):
            assert (await gateway.request(request)).text == "Hello"
        await gateway.request(ASK._replace(model="another"))
    assert limits(server) == [MAX_TOKENS, 4096, 4096, 100, MAX_TOKENS]


@pytest.mark.parametrize("dialect", ["openai", "responses"])
@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 16000. This model supports at most 4096 completion tokens, whereas you provided 16000.",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 4096]",
        "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less than the `context_window` for this model",
        "max_output_tokens: 16,000 > 4,096, which is the maximum allowed number of output tokens",
    ],
)
async def test_a_maximum_is_learned_from_other_words(dialect: Dialect, said: str) -> None:
    async with served(dialect, no(said), Say(("Hello",))) as (server, gateway):
        for request in (LONG, LONG, ASK):
            assert (await gateway.request(request)).text == "Hello"
    assert limits(server) == [16_000, 4096, 4096, None]


async def test_requests_refused_at_once_for_their_limit_all_go_on() -> None:
    refused = [no(ANTHROPIC)] * 4
    async with served("anthropic", *refused, Say(("Hello",))) as (server, gateway):
        found = await asyncio.gather(*(gateway.request(ASK) for _ in range(4)))
    assert [answer.text for answer in found] == ["Hello"] * 4
    assert limits(server)[4:] == [4096] * 4


async def test_a_maximum_that_moves_is_followed_once() -> None:
    lower = "max_tokens: 4096 > 4095, which is the maximum allowed number of output tokens for m"
    async with served("anthropic", no(ANTHROPIC), no(lower)) as (server, gateway):
        with pytest.raises(ModelFailed, match="4095"):
            await gateway.request(ASK)
    assert limits(server) == [MAX_TOKENS, 4096]


@pytest.mark.parametrize("most", ["0", "20000", "9" * 400])
async def test_a_maximum_that_does_not_lower_the_limit_is_not_learned(most: str) -> None:
    said = f"max_tokens: 16000 > {most}, which is the maximum allowed number of output tokens"
    async with served("anthropic", no(said)) as (server, gateway):
        with pytest.raises(ModelFailed):
            await gateway.request(ASK)
    assert limits(server) == [MAX_TOKENS]
