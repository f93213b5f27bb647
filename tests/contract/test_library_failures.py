"""A refusal through pydantic-ai means what it means over HTTP, and teaches the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError, ModelRequestRejectedError
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.adapters.models.wires.endpoint import Endpoint, TimeSource
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import ModelSettings, Request, Tool, user
from remit.ports import ModelGateway
from tests.contract.library import library
from tests.contract.refusals import AT_MOST, OTHERS, OVERFLOWS
from tests.modelserver import ModelServer, Raw, Reply, Say, Status, frames, sse

TOOL = Tool("Read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
SETTINGS = ModelSettings(max_tokens=16_000, effort="low")
ASK = Request("gpt-5", "Be brief.", (user("Go."),), (TOOL,), SETTINGS)
HEADER = "Missing or invalid Authorization header."
REFUSALS: dict[str, Status] = {
    "header 400": Status(400, {"error": {"message": HEADER}}),
    "header 400 as text": Status(400, HEADER),
    "header 401": Status(401, {"error": HEADER}),
    "header 403": Status(403, {"detail": HEADER}),
    "key 400": Status(400, {"error": {"code": "invalid_api_key", "message": "No."}}),
    "Bedrock key": Status(
        403, {"message": "The security token included in the request is invalid."}
    ),
    "not found": Status(404, {"error": {"message": "No such model."}}),
    "nothing said": Status(400, ""),
    "rate limit": Status(429, {"error": {"message": "Slow down."}}, {"Retry-After": "0"}),
    "quota": Status(429, {"error": {"code": "insufficient_quota", "message": "No credit."}}),
    "quota 402": Status(402, {"error": {"message": "Pay first."}}),
    "quota 400": Status(400, {"error": {"message": "Your credit balance is too low."}}),
    "overloaded": Status(503, {"error": {"message": "Busy."}}, {"Retry-After": "0"}),
    "template": Status(500, {"error": {"message": "Jinja Exception: roles must alternate"}}),
    "teapot": Status(418, {"error": {"message": "No."}}),
    **{f"overflow: {name}": Status(*row) for name, row in OVERFLOWS.items()},
    **{
        f"other: {name}": Status(status, {"error": {"message": said}}, {"Retry-After": "0"})
        for name, (status, said, _) in OTHERS.items()
    },
}


async def nap(_seconds: float) -> None:
    return None


async def failure(gateway: ModelGateway) -> ModelFailed:
    with pytest.raises(ModelFailed) as failed:
        await gateway.request(ASK)
    await gateway.close()
    return failed.value


@asynccontextmanager
async def refusing(*replies: Reply) -> AsyncIterator[ModelServer]:
    async with ModelServer("openai").running() as server:
        server.replies = list(replies)
        yield server


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_means_the_same_through_the_library(name: str) -> None:
    refused = REFUSALS[name]
    async with refusing(refused) as server:
        direct = await failure(OpenAIChatGateway("key", server.url, endpoint=napping()))
    async with refusing(refused) as server, library(server) as gateway:
        gateway.endpoint = napping()
        found = await failure(gateway)
    assert (found.kind, found.started) == (direct.kind, direct.started)
    assert found.retry_after == direct.retry_after


def napping() -> Endpoint:
    return Endpoint("test", ticks=TimeSource(sleep=nap))


@pytest.mark.parametrize("name", OVERFLOWS)
async def test_an_overflow_inside_a_stream_means_the_same(name: str) -> None:
    document = OVERFLOWS[name][1]
    error = document[0] if isinstance(document, list) else document
    shaped = error if "error" in error else {"error": error}
    cut = Raw((*frames("openai", Say(("Hello",)))[:2], sse(shaped)))
    async with refusing(cut) as server, library(server) as gateway:
        failed = await failure(gateway)
    assert (failed.kind, failed.started) == ("context_overflow", True)


async def test_an_endpoint_that_is_not_there_means_the_same() -> None:
    async with refusing() as server:
        pass
    async with library(server) as gateway:
        gateway.endpoint = napping()
        found = await failure(gateway)
    direct = await failure(OpenAIChatGateway("key", server.url, endpoint=napping()))
    assert (found.kind, direct.kind) == ("refused", "refused")


PARAMETERS: dict[str, tuple[str, Any]] = {
    "effort": ("thinking", {"error": {"message": "Unsupported.", "param": "reasoning_effort"}}),
    "xAI": (
        "thinking",
        {"code": "invalid", "error": "m does not support parameter reasoningEffort."},
    ),
    "calls": ("parallel_tool_calls", {"error": {"message": "Unknown name parallel_tool_calls"}}),
    "limit": (
        "max_tokens",
        {"error": {"message": "Unsupported parameter: 'max_completion_tokens'"}},
    ),
    "router": (
        "parallel_tool_calls",
        {"message": "Provider returned error", "metadata": {"raw": "parallel_tool_calls: no"}},
    ),
}


@pytest.mark.parametrize("name", PARAMETERS)
async def test_a_refused_parameter_is_learned_once_through_the_library(name: str) -> None:
    lesson, document = PARAMETERS[name]
    async with (
        refusing(Status(400, document), Say(("Hello",))) as server,
        library(server) as gateway,
    ):
        for _ in range(2):
            assert (await gateway.request(ASK)).text == "Hello"
        assert gateway.endpoint.refused(ASK.model) == {lesson}
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    "error",
    [
        ModelHTTPError(400, "m", body=f'{{"message": "{AT_MOST}"}}'),
        ModelHTTPError(400, "m", body={"Error": {"Message": AT_MOST}, "ResponseMetadata": {}}),
        ModelHTTPError(400, "m", body=AT_MOST.encode()),
        ModelRequestRejectedError("m", AT_MOST),
    ],
    ids=["Mistral", "Bedrock", "bytes", "without a status"],
)
async def test_a_maximum_is_learned_from_every_error_of_the_library(error: Exception) -> None:
    sent: list[Any] = []

    async def stream(_messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        sent.append((info.model_settings or {}).get("max_tokens"))
        if len(sent) == 1:
            raise error
        yield "Hello"

    model = FunctionModel(stream_function=stream)
    gateway = PydanticAiGateway("function", endpoint=napping(), model=lambda _name: model)
    assert (await gateway.request(ASK)).text == "Hello"
    assert sent == [16_000, 4096]
    await gateway.close()
