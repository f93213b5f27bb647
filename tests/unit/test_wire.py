"""Features of chat completions endpoints only."""

import json
from typing import Any

import pytest

from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import (
    Message,
    ModelSettings,
    Request,
    Thinking,
    ToolResult,
    user,
)
from remit.errors import InvalidParam
from tests.modelserver import ModelServer, Raw, Reply, Say, Status, sse

ASK = Request("m", "", (user("Hi"),))


async def ask(*replies: Reply, request: Request = ASK) -> tuple[Any, ModelServer]:
    async with ModelServer("openai").running() as server:
        server.replies = list(replies)
        gateway = OpenAIChatGateway(base_url=server.url, endpoint=Endpoint("test"))
        try:
            answer = await gateway.request(request)
        finally:
            await gateway.close()
    return answer, server


def deltas(*found: Any, finish: str = "tool_calls") -> Raw:
    return Raw(
        (
            *(sse({"choices": [{"delta": delta}]}) for delta in found),
            sse({"choices": [{"delta": {}, "finish_reason": finish}]}),
        )
    )


async def test_calls_without_index_or_id_stay_separate() -> None:
    answer, _ = await ask(
        deltas(
            {"tool_calls": [{"id": "a", "function": {"name": "Read", "arguments": "{"}}]},
            {"tool_calls": [{"function": {"arguments": '"x": 1}'}}]},
            {"tool_calls": [{"id": "b", "function": {"name": "LS", "arguments": {"y": 2}}}]},
            {"tool_calls": [{"function": {"name": "Glob"}}]},
        )
    )
    assert [(call.name, call.arguments) for call in answer.calls] == [
        ("Read", {"x": 1}),
        ("LS", {"y": 2}),
        ("Glob", {}),
    ]
    assert len({call.call_id for call in answer.calls}) == 3


@pytest.mark.parametrize("index", [{"index": 0}, {}])
async def test_calls_with_one_index_and_one_id_are_two_calls(index: dict[str, int]) -> None:
    def call(raw: str) -> Any:
        return {
            "tool_calls": [{**index, "id": "a", "function": {"name": "Read", "arguments": raw}}]
        }

    answer, _ = await ask(deltas(call('{"x": 1}'), call('{"y": 2}'), call("")))
    assert [call.arguments for call in answer.calls] == [{"x": 1}, {"y": 2}]
    assert len({call.call_id for call in answer.calls}) == 2


@pytest.mark.parametrize(
    "pieces",
    [
        ['"{\\"x\\": 1}"'],
        [{}, {"x": 1}],
        [{"x": 1}],
        ['{"x"', ": 1}"],
    ],
)
async def test_arguments_may_be_an_object_or_json_in_json(pieces: list[Any]) -> None:
    first = {"index": 0, "id": "a", "function": {"name": "Read", "arguments": pieces[0]}}
    others = [{"index": 0, "function": {"arguments": piece}} for piece in pieces[1:]]
    answer, _ = await ask(deltas(*({"tool_calls": [call]} for call in (first, *others))))
    assert [call.arguments for call in answer.calls] == [{"x": 1}]


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("<think>hm\n</think>\n\nHello", "hm", "Hello"),
        ("\n<think></think>Hello", "", "Hello"),
        ("hm\nhm\n</think>\n\nHello", "hm\nhm", "Hello"),
        ("<think>hm", "hm", ""),
        ("A thought ends with </think>.", "", "A thought ends with </think>."),
        ("Write:\n```\na\n</think>\n```", "", "Write:\n```\na\n</think>\n```"),
        ("Say <think>a\n</think>\nb", "", "Say <think>a\n</think>\nb"),
    ],
)
async def test_thoughts_in_the_text_are_not_the_answer(text: str, thought: str, said: str) -> None:
    answer, _ = await ask(deltas({"content": text[:3]}, {"content": text[3:]}, finish="stop"))
    assert answer.text == said
    assert "".join(part.text for part in answer.parts if isinstance(part, Thinking)) == thought
    history = (user("Hi"), answer.message, user("And?"))
    _, server = await ask(Say(("ok",)), request=ASK._replace(messages=history))
    assert server.asked[0].body["messages"][1] == {"role": "assistant", "content": said}


async def test_a_whole_message_may_be_the_only_frame_of_a_stream() -> None:
    message = {"role": "assistant", "content": "Hello"}
    only = sse({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (await ask(Raw((only,))))[0].text == "Hello"
    again = Raw((sse({"choices": [{"delta": {"content": "Hello"}}]}), only))
    assert (await ask(again))[0].text == "Hello"


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_blank_lines_may_keep_a_connection_open_before_a_whole_answer(
    content_type: str,
) -> None:
    whole = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})
    pieces = (b"\n", b"\n\n", whole[:9].encode(), whole[9:].encode())
    assert (await ask(Raw(pieces, content_type=content_type)))[0].text == "Hello"


async def test_a_stream_may_begin_with_a_byte_order_mark() -> None:
    reply = deltas({"content": "Hello"}, finish="stop")
    first, *others = reply.pieces
    marked = Raw((b"\xef\xbb\xbf" + first, *others))
    assert (await ask(marked))[0].text == "Hello"


ENDED = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
WRONG = {"code": 400, "message": "the prompt is too long for Acme"}


@pytest.mark.parametrize(
    "frame",
    [
        {"error": WRONG, "choices": [ENDED]},
        {"choices": [{**ENDED, "error": WRONG}]},
        {"error": WRONG["message"]},
        {"message": WRONG["message"]},
        {"detail": WRONG["message"]},
        {"object": "error", **WRONG},
    ],
)
@pytest.mark.parametrize("place", ["first", "middle", "whole", "list"])
async def test_an_error_is_reported_wherever_the_endpoint_puts_it(frame: Any, place: str) -> None:
    begun = sse({"choices": [{"delta": {"content": "Hel"}}]})
    document = json.dumps([frame] if place == "list" else frame).encode()
    if place in ("whole", "list"):
        reply = Raw((document,), content_type="application/json")
    else:
        reply = Raw((begun, sse(frame)) if place == "middle" else (sse(frame),))
    with pytest.raises(ModelFailed, match="the prompt is too long for Acme") as failed:
        await ask(reply)
    assert failed.value.kind == "context_overflow"


async def test_a_call_without_a_name_is_kept_with_the_reason() -> None:
    answer, _ = await ask(
        deltas({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "{}"}}]})
    )
    assert (answer.calls[0].name, bool(answer.calls[0].error)) == ("unnamed", True)


async def test_content_may_come_as_parts() -> None:
    answer, _ = await ask(
        deltas(
            {"content": [{"type": "text", "text": "He"}, {"type": "image"}]},
            {"content": "llo"},
            finish="stop",
        )
    )
    assert answer.text == "Hello"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_go_back_under_the_name_they_came_with(field: str) -> None:
    answer, _ = await ask(deltas({field: "hm"}, {"content": "Hello"}, finish="stop"))
    assert answer.parts[0] == Thinking("hm", "openai", {"field": field})
    _, server = await ask(
        Say(("ok",)), request=ASK._replace(messages=(user("Hi"), answer.message, user("And?")))
    )
    assert server.asked[0].body["messages"][1] == {
        "role": "assistant",
        "content": "Hello",
        field: "hm",
    }


async def test_a_refused_parameter_is_omitted_from_then_on() -> None:
    def no(field: str) -> Status:
        return Status(400, {"error": {"message": f"Unsupported parameter: '{field}'"}})

    settings = ModelSettings(max_tokens=5, temperature=1.0, effort="low")
    refused = ("stream_options", "max_tokens", "temperature", "reasoning_effort")
    _, server = await ask(*map(no, refused), Say(("ok",)), request=ASK._replace(settings=settings))
    assert all(name in server.asked[0].body for name in refused)
    assert set(server.asked[-1].body) == {"model", "stream", "messages", "max_completion_tokens"}


async def test_without_a_key_none_is_sent() -> None:
    _, server = await ask(Say(("ok",)))
    assert "authorization" not in server.asked[0].headers


async def test_results_are_messages_of_their_own() -> None:
    results = Message("tool", (ToolResult("a", "Read", "1"), ToolResult("b", "Read", "2")))
    _, server = await ask(Say(("ok",)), request=ASK._replace(messages=(user("Hi"), results)))
    assert [message.get("tool_call_id") for message in server.asked[0].body["messages"]] == [
        None,
        "a",
        "b",
    ]


@pytest.mark.parametrize("url", ["ftp://host/v1", "nowhere", "http://me:secret@host/v1", "http://"])
def test_an_address_that_cannot_be_one_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidParam) as refused:
        OpenAIChatGateway("key", url)
    assert "secret" not in str(refused.value)
