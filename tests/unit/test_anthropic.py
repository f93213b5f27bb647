"""Features of Anthropic messages only: thoughts that must be sent back unchanged, and cache
marks.
"""

from typing import Any

import pytest

from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import ModelSettings, Request, Thinking, user
from tests.modelserver import ModelServer, Raw, Reply, Say, Status, sse

ASK = Request("claude", "", (user("Hi"),))


async def ask(*replies: Reply, request: Request = ASK) -> tuple[Any, ModelServer]:
    async with ModelServer("anthropic").running() as server:
        server.replies = list(replies)
        gateway = AnthropicGateway("key", server.url, endpoint=Endpoint("test"))
        try:
            answer = await gateway.request(request)
        finally:
            await gateway.close()
    return answer, server


THOUGHT = (
    {"type": "message_start", "message": {"usage": {"input_tokens": 5}}},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "hm"},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "c2ln"},
    },
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "redacted_thinking", "data": "x"},
    },
    {"type": "content_block_start", "index": 2, "content_block": {"type": "something_new"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "new_delta"}},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
)


async def test_thoughts_go_back_as_they_came() -> None:
    answer, _ = await ask(Raw(tuple(map(sse, THOUGHT))))
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    assert [part.data for part in answer.parts if isinstance(part, Thinking)] == blocks
    assert answer.text == "Hello"
    _, server = await ask(
        Say(("ok",)), request=ASK._replace(messages=(user("Hi"), answer.message, user("And?")))
    )
    assert server.asked[0].body["messages"][1]["content"] == [
        *blocks,
        {"type": "text", "text": "Hello"},
    ]


@pytest.mark.parametrize(
    ("effort", "thinks"), [(None, False), ("none", False), ("low", False), ("high", True)]
)
async def test_effort_is_passed_on(effort: Any, thinks: bool) -> None:
    _, server = await ask(
        Say(("ok",)), request=ASK._replace(settings=ModelSettings(effort=effort, temperature=0.1))
    )
    body = server.asked[0].body
    assert body.get("output_config") == (None if effort in (None, "none") else {"effort": effort})
    assert ("thinking" in body, "temperature" in body) == (thinks, not thinks)
    assert server.asked[0].path == "/v1/messages"


async def test_a_refused_parameter_is_omitted_from_then_on() -> None:
    no = Status(
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "This model does not support effort.",
            },
        },
    )
    _, server = await ask(
        no, Say(("ok",)), request=ASK._replace(settings=ModelSettings(effort="low"))
    )
    assert ["output_config" in asked.body for asked in server.asked] == [True, False]


async def test_words_of_nothing_are_not_sent() -> None:
    _, server = await ask(Say(("ok",)), request=ASK._replace(messages=(user("Hi"), user("  "))))
    (message,) = server.asked[0].body["messages"]
    assert [block["text"] for block in message["content"]] == ["Hi"]


@pytest.mark.parametrize(
    ("texts", "passing", "marked"),
    [
        (("Tail",), 1, set[str]()),
        (("Tail",), 0, {"Tail"}),
        (("Hi", "Tail"), 1, {"Hi"}),
        (("Hi", "  ", "Tail"), 1, {"Hi"}),
    ],
)
async def test_text_that_is_not_sent_again_is_not_marked_for_the_cache(
    texts: tuple[str, ...], passing: int, marked: set[str]
) -> None:
    request = ASK._replace(system="Be brief.", messages=tuple(map(user, texts)), passing=passing)
    _, server = await ask(Say(("ok",)), request=request)
    body = server.asked[0].body
    blocks = [
        *body["system"],
        *(block for message in body["messages"] for block in message["content"]),
    ]
    assert {block["text"] for block in blocks if "cache_control" in block} == {"Be brief.", *marked}


@pytest.mark.parametrize("effort", [None, "high"])
async def test_thoughts_of_another_endpoint_are_left_out_of_one_conversation(effort: Any) -> None:
    answer, _ = await ask(Raw(tuple(map(sse, THOUGHT))))
    said = "messages.1.content.0: Invalid `signature` in `thinking` block"
    refusal = Status(
        400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    )
    settings = ModelSettings(effort=effort)
    request = ASK._replace(messages=(user("Hi"), answer.message, user("And?")), settings=settings)
    last, server = await ask(refusal, Say(("ok",)), request=request)
    assert last.text == "ok"
    blocks = [
        [block["type"] for block in asked.body["messages"][1]["content"]] for asked in server.asked
    ]
    assert blocks == [["thinking", "redacted_thinking", "text"], ["text"]]
    assert [asked.body.get("thinking") for asked in server.asked] == [
        {"type": "adaptive"} if effort else None
    ] * 2


async def test_a_block_may_be_complete_when_it_starts() -> None:
    used = {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a"}}
    events = (
        {"type": "message_start", "message": {}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": "Hello"},
        },
        {"type": "content_block_start", "index": 1, "content_block": used},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"input_tokens": 9, "output_tokens": 7},
        },
        {"type": "message_stop"},
    )
    answer, _ = await ask(Raw(tuple(map(sse, events))))
    assert (answer.text, [call.arguments for call in answer.calls]) == ("Hello", [{"path": "a"}])
    assert tuple(answer.tokens)[:2] == (9, 7)


async def test_an_error_without_a_type_is_reported() -> None:
    wrong = Raw(
        (b'{"error": {"message": "the prompt is too long for Acme"}}',),
        content_type="application/json",
    )
    with pytest.raises(ModelFailed, match="the prompt is too long for Acme"):
        await ask(wrong)
