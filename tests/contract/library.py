"""A gateway that uses pydantic-ai."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.adapters.models.wires.endpoint import Endpoint
from tests.modelserver import ModelServer


@asynccontextmanager
async def library(
    server: ModelServer, *, strict_turns: bool = False
) -> AsyncIterator[PydanticAiGateway]:
    provider = OpenAIProvider(f"{server.url}/v1", "key")
    gateway = PydanticAiGateway(
        "openai-chat",
        endpoint=Endpoint("test"),
        model=lambda name: OpenAIChatModel(name, provider=provider),
        parallel_tool_calls=False,
        strict_turns=strict_turns,
    )
    try:
        yield gateway
    finally:
        await gateway.close()
