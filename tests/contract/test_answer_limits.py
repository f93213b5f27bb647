"""A maximum of output tokens that an endpoint names is learned once and sent from then on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remit.adapters.models.wires.anthropic import MAX_TOKENS, AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.openai_responses import ResponsesGateway
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import ModelSettings, Request, user
from tests.contract.library import library
from tests.contract.refusals import AT_MOST
from tests.modelserver import Dialect, ModelServer, Say, Status

ANTHROPIC = (
    "max_tokens: 16000 > 4096, which is the maximum allowed number of output tokens for claude-3"
)
ASK = Request("m", "Be brief.", (user("Go."),))
LONG = ASK._replace(settings=ModelSettings(max_tokens=16_000))
KINDS: dict[Dialect, Any] = {
    "openai": OpenAIChatGateway,
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
    return [
        next((asked.body[name] for name in names if name in asked.body), None)
        for asked in server.asked
    ]


async def test_anthropic_is_sent_the_maximum_that_it_names() -> None:
    async with served("anthropic", no(ANTHROPIC), Say(("Hello",))) as (server, gateway):
        for request in (ASK, LONG, ASK._replace(settings=ModelSettings(max_tokens=100))):
            assert (await gateway.request(request)).text == "Hello"
        await gateway.request(ASK._replace(model="another"))
    assert limits(server) == [MAX_TOKENS, 4096, 4096, 100, MAX_TOKENS]


BEDROCK = (
    "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum"
    " tokens value that is lower than 4096."
)
GEMINI = (
    "Unable to submit request because it has a maxOutputTokens value of 16000 but the supported"
    " range is from 1 (inclusive) to 4097 (exclusive). Update the value and try again."
)
RAW = {"raw": json.dumps({"error": {"message": AT_MOST}}), "provider_name": "OpenAI"}
LOC = {"loc": ["body", "max_tokens"], "msg": "Input should be less than or equal to 4096"}
WORDINGS: dict[str, Any] = {
    "OpenAI": AT_MOST,
    "OpenAI, validated": (
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 4096, but got 16000"
        " instead."
    ),
    "DeepSeek": "Invalid max_tokens value, the valid range of max_tokens is [1, 4096]",
    "DashScope": (
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 4096]"
    ),
    "Groq": (
        "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is"
        " less than the `context_window` for this model"
    ),
    "Groq, older": "max_tokens for `llama-3.1-8b-instant` must be less than or equal to 4096",
    "Anthropic": (
        "max_output_tokens: 16,000 > 4,096, which is the maximum allowed number of output tokens"
    ),
    "Bedrock": {"message": BEDROCK},
    "Bedrock, as its SDK says it": {"Error": {"Code": "ValidationException", "Message": BEDROCK}},
    "Bedrock, by schema": (
        "Malformed input request: #/inferenceConfig/maxTokens: 16000 is not less or equal to 4096,"
        " please reformat your input."
    ),
    "Bedrock, Titan": (
        "Malformed input request: #/textGenerationConfig/maxTokenCount: 16000 is not less or equal"
        " to 4096"
    ),
    "Gemini": [{"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}],
    "LiteLLM": f"litellm.BadRequestError: VertexAIException BadRequestError - {GEMINI}",
    "LiteLLM, Bedrock": f"litellm.BadRequestError: BedrockException - {BEDROCK}",
    "Mistral": {"object": "error", "message": {"detail": [LOC]}, "type": "invalid_request_error"},
    "Cohere": (
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output for"
        " this model - received 16000."
    ),
    "Fireworks": "Requests with max_tokens > 4096 must have stream=true",
    "Ollama Cloud": (
        "max_tokens (16000) exceeds model's maximum output tokens (4096) for model"
        " deepseek-v4-flash:0731"
    ),
    "xAI": {
        "code": "Client specified an invalid argument",
        "error": "max_completion_tokens must be between 1 and 4096.",
    },
    "OpenRouter": {"error": {"message": "Provider returned error", "code": 400, "metadata": RAW}},
    "in the parameter": {"error": {"message": "Param Incorrect", "param": AT_MOST, "code": "400"}},
    "vLLM behind a proxy": "max_tokens must be at most 4096, got 16000.",
}


@pytest.mark.parametrize("dialect", ["openai", "responses"])
@pytest.mark.parametrize("name", WORDINGS)
async def test_a_maximum_is_learned_from_other_words(dialect: Dialect, name: str) -> None:
    said = WORDINGS[name]
    refused = no(said) if isinstance(said, str) else Status(400, said)
    async with served(dialect, refused, Say(("Hello",))) as (server, gateway):
        for request in (LONG, LONG, ASK):
            assert (await gateway.request(request)).text == "Hello"
    assert limits(server) == [16_000, 4096, 4096, None]


@pytest.mark.parametrize("name", WORDINGS)
async def test_a_maximum_is_learned_through_the_library(name: str) -> None:
    said = WORDINGS[name]
    refused = no(said) if isinstance(said, str) else Status(400, said)
    async with ModelServer("openai").running() as server, library(server) as gateway:
        server.replies = [refused, Say(("Hello",))]
        for request in (LONG, LONG, ASK):
            assert (await gateway.request(request)).text == "Hello"
    assert limits(server) == [16_000, 4096, 4096, None]


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (
            402,
            (
                "This request requires more credits, or fewer max_tokens. You requested up to 16000"
                " tokens, but can only afford 4096."
            ),
            "quota",
        ),
        (
            400,
            (
                "input length and `max_tokens` exceed context limit: 3240 + 16000 > 4096, decrease"
                " input length"
            ),
            "context_overflow",
        ),
        (
            400,
            (
                "This model's maximum context length is 4096 tokens. However, you requested 16000"
                " tokens."
            ),
            "context_overflow",
        ),
        (400, "max_tokens must be greater than thinking.budget_tokens", "rejected_request"),
    ],
)
async def test_other_words_about_tokens_name_no_maximum(status: int, said: str, kind: str) -> None:
    async with served("openai", *[Status(status, {"error": {"message": said}})] * 9) as (
        _,
        gateway,
    ):
        with pytest.raises(ModelFailed) as failed:
            await gateway.request(LONG)
        assert failed.value.kind == kind
        assert gateway.endpoint.output_limit("m") is None


@pytest.mark.parametrize(
    "said",
    [
        "max_total_tokens (33009) must be less than or equal to max_seq_len (32768).",
        "Prompt (5000) tokens + max_tokens (16000) > max_seq_len (8192)",
    ],
)
async def test_a_limit_beyond_the_rest_of_the_context_is_left_out(said: str) -> None:
    async with served("openai", no(said), Say(("Hello",))) as (server, gateway):
        for request in (LONG, LONG):
            assert (await gateway.request(request)).text == "Hello"
    assert limits(server) == [16_000, None, 16_000]


async def test_a_limit_beyond_the_whole_context_of_a_server_is_left_out() -> None:
    said = (
        "max_tokens=16000 cannot be greater than max_model_len=max_total_tokens=4096. Please"
        " request fewer output tokens."
    )
    async with served("openai", no(said), Say(("Hello",))) as (server, gateway):
        for request in (LONG, LONG):
            assert (await gateway.request(request)).text == "Hello"
    assert limits(server) == [16_000, None, None]


@pytest.mark.parametrize("dialect", KINDS)
async def test_a_maximum_that_does_not_help_is_not_remembered(dialect: Dialect) -> None:
    quoting = no(f'Output blocked by content filtering policy: "{ANTHROPIC}"')
    async with served(dialect, quoting) as (server, gateway):
        with pytest.raises(ModelFailed, match="content filtering"):
            await gateway.request(LONG)
        server.replies = [Say(("Hello",))]
        await gateway.request(LONG)
    assert limits(server)[:2] == [16_000, 4096]
    assert limits(server)[-1] == 16_000


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
