"""Features of OpenAI's Responses API only: encrypted thoughts, and its own stop reasons."""

from typing import Any

import pytest

from remit.adapters.models.registry import ModelRegistry
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.openai_responses import ResponsesGateway
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import (
    Message,
    ModelSettings,
    Request,
    TextPart,
    Thinking,
    ToolResult,
    plain,
    restore,
    user,
)
from remit.domain.llm.selection import Choices, ModelChoice
from tests.modelserver import ModelServer, Raw, Reply, Say, Status, sse

ASK = Request("gpt-5", "Be brief.", (user("Hi"),))
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "sealed",
}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "Read", "arguments": "{}"}
THOUGHTFUL = (
    {"type": "response.output_item.added", "output_index": 0, "item": THOUGHT | {"summary": []}},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"},
    {"type": "response.output_item.done", "output_index": 0, "item": THOUGHT},
    {"type": "response.output_item.added", "output_index": 1, "item": CALL | {"arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"},
    {"type": "response.something_new", "output_index": 1},
    {"type": "response.output_item.done", "output_index": 1, "item": CALL},
    {"type": "response.completed", "response": {"model": "gpt-5-2025", "status": "completed"}},
)


async def ask(*replies: Reply, request: Request = ASK, **options: Any) -> tuple[Any, ModelServer]:
    async with ModelServer("responses").running() as server:
        server.replies = list(replies)
        gateway = ResponsesGateway("key", server.url, endpoint=Endpoint("test"), **options)
        try:
            answer = await gateway.request(request)
        finally:
            await gateway.close()
    return answer, server


async def test_thoughts_go_back_encrypted_before_the_call_that_they_led_to() -> None:
    answer, first = await ask(Raw(tuple(map(sse, THOUGHTFUL))))
    assert (first.asked[0].body["store"], first.asked[0].path) == (False, "/responses")
    assert (answer.stop, answer.model) == ("tool_calls", "gpt-5-2025")
    stored = restore(plain(answer.message))
    results = Message("tool", (ToolResult("c1", "Read", "text"),))
    _, server = await ask(
        Say(("ok",)), request=ASK._replace(messages=(user("Hi"), stored, results))
    )
    assert server.asked[0].body["input"] == [
        {"role": "user", "content": "Hi"},
        {name: value for name, value in THOUGHT.items() if name != "id"},
        {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "text"},
    ]


async def test_thoughts_of_other_wires_are_not_sent() -> None:
    foreign = Message(
        "assistant", (Thinking("hm", "openai", {"field": "reasoning"}), TextPart("Hello"))
    )
    request = ASK._replace(messages=(user("Hi"), foreign, user("And?")))
    _, server = await ask(Say(("ok",)), request=request)
    assert server.asked[0].body["input"][1] == {"role": "assistant", "content": "Hello"}


async def test_a_refusal_is_reported_as_a_refusal() -> None:
    answer, _ = await ask(Say(("I cannot help with that.",), finish="refusal"))
    assert (answer.stop, answer.text) == ("refusal", "I cannot help with that.")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "server_error", "message": "Oh no"}, "overloaded"),
        (
            {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "Slow down"}},
            "rate_limited",
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "x"}},
            },
            "overloaded",
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "context_length_exceeded", "message": "Too long"}},
            },
            "context_overflow",
        ),
    ],
)
async def test_an_error_in_a_stream_is_typed(event: dict[str, Any], kind: str) -> None:
    begun = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"}
    with pytest.raises(ModelFailed) as failed:
        await ask(Raw((sse(begun), sse(event))))
    assert (failed.value.kind, failed.value.started) == (kind, True)


async def test_a_refused_parameter_is_omitted_from_then_on() -> None:
    def no(param: str) -> Status:
        return Status(400, {"error": {"message": "Unsupported with this model.", "param": param}})

    request = ASK._replace(settings=ModelSettings(effort="low", temperature=1.0))
    _, server = await ask(
        no("reasoning.effort"), no("include"), no("temperature"), Say(("ok",)), request=request
    )
    assert server.asked[0].body["reasoning"] == {"effort": "low"}
    assert set(server.asked[-1].body) == {"model", "stream", "store", "instructions", "input"}


async def test_a_tier_names_its_api() -> None:
    chat = ModelChoice("m", "http://h/v1", "k")
    tiers = {"main": chat._replace(api="responses"), "light": chat}
    desk = ModelRegistry(Choices(tiers, {}))
    assert isinstance(desk.resolve("main").gateway, ResponsesGateway)
    assert isinstance(desk.resolve("light").gateway, OpenAIChatGateway)
    await desk.close()


MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello"}],
}
READ = {**CALL, "arguments": '{"path": "a"}'}
PIECES = (
    {"type": "response.output_item.added", "output_index": 0, "item": MESSAGE | {"content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "lo"},
    {"type": "response.output_item.added", "output_index": 1, "item": READ | {"arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"path": '},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '"a"}'},
)


@pytest.mark.parametrize(
    "events",
    [
        (*PIECES, {"type": "response.completed", "response": {"output": [MESSAGE, READ]}}),
        (*PIECES, {"type": "response.completed", "response": {}}),
        (
            {
                "type": "response.completed",
                "response": {"output": [MESSAGE, READ | {"arguments": {"path": "a"}}]},
            },
        ),
    ],
)
async def test_received_text_counts_without_a_completed_item(events: Any) -> None:
    answer, _ = await ask(Raw(tuple(map(sse, events))))
    assert (answer.text, [call.arguments for call in answer.calls]) == ("Hello", [{"path": "a"}])


async def test_a_refusal_in_a_stream_is_learned_from() -> None:
    no = {
        "type": "error",
        "code": "unsupported_parameter",
        "message": "No.",
        "param": "reasoning.effort",
    }
    settings = ModelSettings(effort="low")
    answer, server = await ask(
        Raw((sse(no),)), Say(("ok",)), request=ASK._replace(settings=settings)
    )
    assert (answer.text, len(server.asked)) == ("ok", 2)
    assert "reasoning" not in server.asked[1].body


async def test_thoughts_of_another_account_are_left_out_of_one_conversation() -> None:
    answer, _ = await ask(Raw(tuple(map(sse, THOUGHTFUL))))
    said = "The encrypted content for item rs_1 could not be verified."
    refusal = Status(
        400, {"error": {"message": said, "code": "invalid_encrypted_content", "param": None}}
    )
    result = Message("tool", (ToolResult("c1", "Read", "text"),))
    request = ASK._replace(messages=(user("Hi"), answer.message, result))
    last, server = await ask(refusal, Say(("ok",)), request=request)
    assert last.text == "ok"
    kinds = [[item.get("type") for item in asked.body["input"]] for asked in server.asked]
    assert kinds[0] == [None, "reasoning", "function_call", "function_call_output"]
    assert kinds[1] == [None, "function_call", "function_call_output"]
    assert "include" in server.asked[1].body
