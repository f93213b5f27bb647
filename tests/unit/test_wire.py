"""What only endpoints of the chat completions kind do."""

from typing import Any

import pytest

from remit.adapters.models.endpoint import Endpoint
from remit.adapters.models.wire import WireGateway
from remit.domain.message import Delta, Message, ModelSettings, Request, Thinking, ToolResult, user
from remit.errors import InvalidParam
from tests.modelserver import ModelServer, Raw, Reply, Say, Status, sse

ASK = Request("m", "", (user("Hi"),))


async def ask(*replies: Reply, request: Request = ASK) -> tuple[Any, ModelServer, list[Delta]]:
    told: list[Delta] = []
    async with ModelServer("openai").running() as server:
        server.replies = list(replies)
        gateway = WireGateway(base_url=server.url, endpoint=Endpoint("test"))
        answer = await gateway.request(request, on_part=told.append)
        await gateway.close()
    return answer, server, told


def deltas(*found: Any, finish: str = "tool_calls") -> Raw:
    return Raw((*(sse({"choices": [{"delta": delta}]}) for delta in found), sse({"choices": [{"delta": {}, "finish_reason": finish}]})))


async def test_calls_without_index_or_id_are_told_apart() -> None:
    answer, _, _ = await ask(
        deltas(
            {"tool_calls": [{"id": "a", "function": {"name": "Read", "arguments": "{"}}]},
            {"tool_calls": [{"function": {"arguments": '"x": 1}'}}]},
            {"tool_calls": [{"id": "b", "function": {"name": "LS", "arguments": {"y": 2}}}]},
            {"tool_calls": [{"function": {"name": "Glob"}}]},
        )
    )
    assert [(call.name, call.arguments) for call in answer.calls] == [("Read", {"x": 1}), ("LS", {"y": 2}), ("Glob", {})]
    assert len({call.call_id for call in answer.calls}) == 3


async def test_a_call_without_a_name_is_kept_with_the_reason() -> None:
    answer, _, _ = await ask(deltas({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "{}"}}]}))
    assert (answer.calls[0].name, bool(answer.calls[0].error)) == ("unnamed", True)


async def test_content_may_come_as_parts() -> None:
    answer, _, _ = await ask(deltas({"content": [{"type": "text", "text": "He"}, {"type": "image"}]}, {"content": "llo"}, finish="stop"))
    assert answer.text == "Hello"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_go_back_under_the_name_they_came_with(field: str) -> None:
    answer, _, told = await ask(deltas({field: "hm"}, {"content": "Hello"}, finish="stop"))
    assert answer.parts[0] == Thinking("hm", "openai", {"field": field})
    assert [delta.kind for delta in told] == ["thinking", "text"]
    _, server, _ = await ask(Say(("ok",)), request=ASK._replace(messages=(user("Hi"), answer.message, user("And?"))))
    assert server.asked[0].body["messages"][1] == {"role": "assistant", "content": "Hello", field: "hm"}


async def test_what_an_endpoint_refuses_is_left_out_from_then_on() -> None:
    def no(field: str) -> Status:
        return Status(400, {"error": {"message": f"Unsupported parameter: '{field}'"}})

    settings = ModelSettings(max_tokens=5, temperature=1.0, effort="low")
    refused = ("stream_options", "max_tokens", "temperature", "reasoning_effort")
    _, server, _ = await ask(*map(no, refused), Say(("ok",)), request=ASK._replace(settings=settings))
    assert all(name in server.asked[0].body for name in refused)
    assert set(server.asked[-1].body) == {"model", "stream", "messages", "max_completion_tokens"}


async def test_without_a_key_none_is_sent() -> None:
    _, server, _ = await ask(Say(("ok",)))
    assert "authorization" not in server.asked[0].headers


async def test_results_are_messages_of_their_own() -> None:
    results = Message("tool", (ToolResult("a", "Read", "1"), ToolResult("b", "Read", "2")))
    _, server, _ = await ask(Say(("ok",)), request=ASK._replace(messages=(user("Hi"), results)))
    assert [message.get("tool_call_id") for message in server.asked[0].body["messages"]] == [None, "a", "b"]


@pytest.mark.parametrize("url", ["ftp://host/v1", "nowhere", "http://me:secret@host/v1", "http://"])
def test_an_address_that_cannot_be_one_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidParam) as refused:
        WireGateway("key", url)
    assert "secret" not in str(refused.value)
