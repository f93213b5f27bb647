"""The common behavior of all gateways: two wires, a library, a script, and the offline model."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelAuthenticationError
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit.adapters.models.offline import NOTICE, OfflineGateway
from remit.adapters.models.prices import Prices
from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint, TimeSource
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.openai_responses import ResponsesGateway
from remit.domain.llm.failures import ModelFailed, Price
from remit.domain.llm.messages import (
    Message,
    ModelSettings,
    Request,
    Response,
    Tokens,
    Tool,
    ToolCall,
    ToolResult,
    plain,
    restore,
    user,
)
from remit.ports import ModelGateway
from tests.modelserver import Dialect, ModelServer, Say, Status
from tests.scripted_gateway import ScriptedGateway, calls, says

TOOL = Tool(
    "Read", "Read a file.", {"type": "object", "properties": {"file_path": {"type": "string"}}}
)
ASK = Request("m", "Be brief.", (user("Read notes.md"),), (TOOL,), ModelSettings(max_tokens=100))
WORDS = Say(("Hel", "lo"))
TOOLS = Say(
    ("Wait.",), (("a", "Read", ('{"file_path"', ': "x"}')), ("b", "Read", ('{"file_path": "y"}',)))
)
NO_KEY = Status(401, "no such key")

Setup = Callable[..., ModelGateway]


async def _nap(_seconds: float) -> None:
    return None


def endpoint() -> Endpoint:
    return Endpoint("test", ticks=TimeSource(sleep=_nap))


@pytest.fixture(
    params=[
        "wire",
        "wire-whole",
        "responses",
        "responses-whole",
        "anthropic",
        "anthropic-whole",
        "pydantic_ai",
        "pydantic_ai-wire",
        "scripted",
    ]
)
async def behind(request: pytest.FixtureRequest) -> AsyncIterator[Setup]:
    """Makes a gateway behind which these replies are given."""
    kind: str = request.param
    dialect: Dialect = "openai"
    if kind.startswith(("anthropic", "responses")):
        dialect = "anthropic" if kind.startswith("anthropic") else "responses"
    async with ModelServer(dialect).running() as server:
        made: list[ModelGateway] = []

        def setup(*replies: Say | Status) -> ModelGateway:
            server.replies = list(replies)
            made.append(_gateway(kind, server.url, replies))
            return made[-1]

        yield setup
        for gateway in made:
            await gateway.close()


def _gateway(kind: str, url: str, replies: tuple[Say | Status, ...]) -> ModelGateway:
    if kind.startswith("wire"):
        return OpenAIChatGateway("key", url, endpoint=endpoint(), stream=kind == "wire")
    if kind.startswith("responses"):
        return ResponsesGateway("key", url, endpoint=endpoint(), stream=kind == "responses")
    if kind.startswith("anthropic"):
        return AnthropicGateway("key", url, endpoint=endpoint(), stream=kind == "anthropic")
    if kind == "pydantic_ai":
        return _library(replies)
    if kind == "pydantic_ai-wire":
        return PydanticAiGateway(
            "openai-chat",
            endpoint=endpoint(),
            model=lambda name: OpenAIChatModel(name, provider=OpenAIProvider(url, "key")),
        )
    return ScriptedGateway([_line(reply) for reply in replies])


def _line(reply: Say | Status) -> Any:
    if isinstance(reply, Status):
        return ModelFailed("authentication", "no such key")
    if not reply.calls:
        return says("".join(reply.texts))
    wanted = [
        ToolCall(call_id, name, json.loads("".join(pieces)))
        for call_id, name, pieces in reply.calls
    ]
    return calls(*wanted, text="".join(reply.texts))


def _library(replies: tuple[Say | Status, ...]) -> ModelGateway:
    left = list(replies)

    async def stream(_messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        assert [tool.name for tool in info.function_tools] == ["Read"]
        assert info.instructions == "Be brief."
        reply = left.pop(0)
        if isinstance(reply, Status):
            raise ModelAuthenticationError("m", "no such key")
        for text in reply.texts:
            yield text
        for index, (call_id, name, pieces) in enumerate(reply.calls):
            for number, piece in enumerate(pieces):
                yield {
                    index: DeltaToolCall(
                        name=None if number else name, json_args=piece, tool_call_id=call_id
                    )
                }

    return PydanticAiGateway(
        "function", endpoint=endpoint(), model=lambda _name: FunctionModel(stream_function=stream)
    )


async def test_words(behind: Setup) -> None:
    answer = await behind(WORDS).request(ASK)
    assert (answer.text, answer.calls, answer.stop) == ("Hello", (), "end")
    assert answer.tokens.output > 0
    assert answer.model


async def test_tools(behind: Setup) -> None:
    answer = await behind(TOOLS).request(ASK)
    assert answer.text == "Wait."
    assert [(call.call_id, call.name, call.arguments) for call in answer.calls] == [
        ("a", "Read", {"file_path": "x"}),
        ("b", "Read", {"file_path": "y"}),
    ]
    assert answer.stop == "tool_calls"


async def goes_on(gateway: ModelGateway, *, may_call: bool = True) -> Response:
    """The answer after one that called for tools, by a conversation that comes from a store.

    What was stored is what was said: a later run sends what an earlier one sent, letter by letter,
    so that it can be cached.
    """
    first = await gateway.request(ASK)
    results = Message(
        "tool",
        tuple(
            ToolResult(call.call_id, call.name, "text", is_error=call.call_id == "b")
            for call in first.calls
        ),
    )
    said = (*ASK.messages, first.message, results)
    stored = tuple(restore(json.loads(json.dumps(plain(message)))) for message in said)
    assert (stored, bool(first.calls)) == (said, True)
    return await gateway.request(ASK._replace(messages=stored, may_call=may_call))


async def test_an_answer_has_all_its_pieces(behind: Setup) -> None:
    assert len((await behind(TOOLS).request(ASK)).calls) == 2
    assert (await behind(WORDS).request(ASK)).text == "Hello"


async def test_a_stored_conversation_continues(behind: Setup) -> None:
    assert (await goes_on(behind(TOOLS, WORDS))).text == "Hello"


async def test_without_callable_tools_the_answer_is_text(behind: Setup) -> None:
    assert (await goes_on(behind(TOOLS, WORDS), may_call=False)).text == "Hello"


async def test_the_offline_model_reports_where_it_may_call_nothing() -> None:
    assert (await OfflineGateway().request(ASK)).calls
    answer = await OfflineGateway().request(ASK._replace(may_call=False))
    assert (answer.calls, answer.text.startswith(NOTICE)) == ((), True)


async def test_the_offline_model_is_a_gateway_like_any() -> None:
    gateway = OfflineGateway()
    (wanted,) = (await gateway.request(ASK)).calls
    assert (wanted.name, wanted.arguments["file_path"]) == ("Read", "notes.md")
    answer = await goes_on(gateway)
    assert (answer.text.startswith(NOTICE), answer.model, answer.cost, answer.stop) == (
        True,
        "offline",
        0.0,
        "end",
    )
    await gateway.close()


async def test_what_a_call_will_cost_is_known_before_it_is_made() -> None:
    tokens, price = Tokens(1_000_000, 1_000_000, 500_000), Prices({"m": Price(1, 2)})
    made: list[ModelGateway] = [
        OpenAIChatGateway("key", "http://h"),
        AnthropicGateway("key", "http://h"),
        PydanticAiGateway("function"),
        ScriptedGateway([]),
    ]
    priced: list[ModelGateway] = [
        OpenAIChatGateway("key", "http://h", price=price),
        AnthropicGateway("key", "http://h", price=price),
        PydanticAiGateway("function", price=price),
        ScriptedGateway([], price),
    ]
    assert [gateway.cost("m", tokens) for gateway in made] == [None] * 4
    assert [gateway.cost("m", tokens) for gateway in priced] == [3.0] * 4
    assert OfflineGateway().cost("m", tokens) == 0.0
    for gateway in [*made, *priced]:
        await gateway.close()


async def test_a_failure_is_typed(behind: Setup) -> None:
    with pytest.raises(ModelFailed) as failed:
        await behind(NO_KEY).request(ASK)
    assert (failed.value.kind, failed.value.permanent) == ("authentication", True)
