"""The guarantees of every model gateway, on each wire, with a correct and with a faulty endpoint.

The library speaks its provider's wire itself; guarantees that it does not give are tested for our
own wires only.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint, TimeSource
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.openai_responses import ResponsesGateway
from remit.adapters.models.wires.response import Limits
from remit.domain.llm.failures import ModelFailed, Price
from remit.domain.llm.messages import (
    Message,
    ModelSettings,
    Request,
    Response,
    TextPart,
    Tokens,
    Tool,
    ToolCall,
    ToolResult,
    user,
)
from tests.crash.process import until
from tests.modelserver import REFUSED, ModelServer, Raw, Reply, Say, Silent, Status, frames, sse
from tests.patience import patient

KEY = "sk-canary-0123456789abcdef0123456789"
READ = Tool(
    "Read", "Read a file.", {"type": "object", "properties": {"file_path": {"type": "string"}}}
)
LIMITS = Limits(
    connect_seconds=patient(60),
    first_byte_seconds=patient(60),
    idle_seconds=patient(60),
    total_seconds=patient(120),
)
HASTY = LIMITS._replace(first_byte_seconds=0.05, idle_seconds=0.05)
ASK = Request("asked", "Be brief.", (user("Hi"),), (READ,), agent="general")


class Time:
    """A clock that only moves when a caller sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def ticks(self) -> TimeSource:
        return TimeSource(lambda: self.now, self.sleep, lambda: 0.0)


Kind = Literal["openai", "responses", "anthropic", "library"]
Gateway = OpenAIChatGateway | ResponsesGateway | AnthropicGateway | PydanticAiGateway


class Rig(NamedTuple):
    """A gateway, the endpoint it asks, and the time it goes by."""

    kind: Kind
    gateway: Gateway
    server: ModelServer
    time: Time

    async def ask(self, *replies: Reply, request: Request = ASK) -> Response:
        if replies:
            self.server.replies = list(replies)
        return await self.gateway.request(request)

    async def fails(self, *replies: Reply, request: Request = ASK) -> ModelFailed:
        with pytest.raises(ModelFailed) as failed:
            await self.ask(*replies, request=request)
        assert KEY not in f"{failed.value!s} {failed.value!r} {failed.value.__cause__!r}"
        return failed.value

    @asynccontextmanager
    async def with_limits(self, limits: Limits) -> AsyncIterator["Rig"]:
        asked = gateway(self.kind, self.server.url, self.time, limits)
        yield self._replace(gateway=asked)
        await asked.close()


def gateway(kind: Kind, url: str, time: Time, limits: Limits = LIMITS, **more: Any) -> Gateway:
    shared: dict[str, Any] = {
        "limits": limits,
        "endpoint": Endpoint("test", ticks=time.ticks()),
        **more,
    }
    if kind == "library":
        return PydanticAiGateway(
            "openai-chat",
            model=lambda name: OpenAIChatModel(name, provider=OpenAIProvider(f"{url}/v1", KEY)),
            **shared,
        )
    if kind == "responses":
        return ResponsesGateway(KEY, f"{url}/v1", **shared)
    return (
        OpenAIChatGateway(KEY, f"{url}/v1", **shared)
        if kind == "openai"
        else AnthropicGateway(KEY, url, **shared)
    )


@asynccontextmanager
async def rigged(kind: Kind) -> AsyncIterator[Rig]:
    async with ModelServer("openai" if kind == "library" else kind).running() as server:
        time = Time()
        asked = gateway(kind, server.url, time)
        yield Rig(kind, asked, server, time)
        await asked.close()


@pytest.fixture(params=["openai", "responses", "anthropic", "library"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with rigged(request.param) as made:
        yield made


@pytest.fixture(params=["openai", "responses", "anthropic"])
async def own(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """The wires that are read by code of ours."""
    async with rigged(request.param) as made:
        yield made


# Answers.


async def test_an_answer_in_words(rig: Rig) -> None:
    answer = await rig.ask(Say(("Hel", "lo ", "wörld 世界")))
    assert answer == Response((TextPart("Hello wörld 世界"),), "end", Tokens(120, 30, 20), "really")


TOOLS = Say(("Let me see.",), (("a", "Read", ('{"file_', 'path": "x"}')), ("b", "LS", ("{}",))))


async def test_an_answer_that_calls_tools(rig: Rig) -> None:
    answer = await rig.ask(TOOLS)
    assert answer.text == "Let me see."
    assert [(call.call_id, call.name, call.arguments, call.error) for call in answer.calls] == [
        ("a", "Read", {"file_path": "x"}, ""),
        ("b", "LS", {}, ""),
    ]
    assert (answer.stop, answer.tokens, answer.model) == (
        "tool_calls",
        Tokens(120, 30, 20),
        "really",
    )


async def test_an_answer_may_come_whole_although_pieces_were_asked_for(own: Rig) -> None:
    pieces, whole = await own.ask(TOOLS), await own.ask(TOOLS._replace(stream=False))
    assert (whole, len(whole.calls)) == (pieces, 2)


async def test_a_conversation_is_sent_as_the_endpoint_knows_it(rig: Rig) -> None:
    first = await rig.ask(Say((), (("a", "Read", ('{"file_path": "x"}',)),)))
    results = Message("tool", (ToolResult("a", "Read", 'line "1"\n', is_error=True),))
    settings = ModelSettings(max_tokens=77, temperature=0.5, stop=("END",))
    await rig.ask(
        request=ASK._replace(
            messages=(user("Hi"), first.message, results, user("Go on.")), settings=settings
        )
    )
    body, expected = rig.server.asked[-1].body, SENT[rig.kind]
    assert {name: body[name] for name in expected} == expected
    assert (
        rig.server.asked[-1]
        .headers.get("x-api-key" if rig.kind == "anthropic" else "authorization", "")
        .endswith(KEY)
    )


async def test_tools_are_sent_even_if_none_may_be_called(rig: Rig) -> None:
    first = await rig.ask(Say((), (("a", "Read", ('{"file_path": "x"}',)),)))
    said = (
        user("Hi"),
        first.message,
        Message("tool", (ToolResult("a", "Read", "x"),)),
        user("Report."),
    )
    assert (
        await rig.ask(
            Say(("As far as I came.",)), request=ASK._replace(messages=said, may_call=False)
        )
    ).text == "As far as I came."
    free, last = (asked.body for asked in rig.server.asked)
    assert last["tools"] == free["tools"]
    choices = free.get("tool_choice", "auto"), last["tool_choice"]
    assert choices == ("auto", {"type": "none"} if rig.kind == "anthropic" else "none")
    await rig.ask(request=ASK._replace(tools=(), may_call=False))
    assert "tool_choice" not in rig.server.asked[-1].body


async def test_an_endpoint_without_tool_choice_is_not_sent_it_again(own: Rig) -> None:
    no = Status(400, {"error": {"message": "Unrecognized request argument supplied: tool_choice"}})
    for replies in ((no, Say(("Hello",))), (Say(("Hello",)),)):
        assert (await own.ask(*replies, request=ASK._replace(may_call=False))).text == "Hello"
    assert ["tool_choice" in asked.body for asked in own.server.asked] == [True, False, False]


SENT: dict[Kind, dict[str, Any]] = {
    "openai": {
        "model": "asked",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 77,
        "temperature": 0.5,
        "stop": ["END"],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "Read",
                    "description": "Read a file.",
                    "parameters": READ.schema,
                },
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "Read", "arguments": '{"file_path":"x"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": 'line "1"\n'},
            {"role": "user", "content": "Go on."},
        ],
    },
    "anthropic": {
        "model": "asked",
        "stream": True,
        "max_tokens": 77,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "tools": [{"name": "Read", "description": "Read a file.", "input_schema": READ.schema}],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "a", "name": "Read", "input": {"file_path": "x"}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": 'line "1"\n',
                        "is_error": True,
                    },
                    {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
                ],
            },
        ],
    },
}


SENT["responses"] = {
    "model": "asked",
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 77,
    "temperature": 0.5,
    "instructions": "Be brief.",
    "tools": [
        {
            "type": "function",
            "name": "Read",
            "description": "Read a file.",
            "parameters": READ.schema,
            "strict": False,
        }
    ],
    "input": [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "a", "name": "Read", "arguments": '{"file_path":"x"}'},
        {"type": "function_call_output", "call_id": "a", "output": 'line "1"\n'},
        {"role": "user", "content": "Go on."},
    ],
}
FAILED = {
    "role": "tool",
    "tool_call_id": "a",
    "content": json.dumps({"error": 'line "1"\n'}, separators=(",", ":")),
}
SENT["library"] = {
    name: value for name, value in SENT["openai"].items() if name != "max_tokens"
} | {
    "max_completion_tokens": 77,
    "messages": [
        FAILED if message["role"] == "tool" else message for message in SENT["openai"]["messages"]
    ],
}


async def test_a_stream_may_be_cut_anywhere(rig: Rig) -> None:
    whole = b"".join(frames(rig.server.dialect, Say(("Grüße",), (("a", "Read", ('{"x": "ü"}',)),))))
    answer = await rig.ask(Raw(tuple(whole[at : at + 1] for at in range(len(whole)))))
    assert (answer.text, answer.calls[0].arguments) == ("Grüße", {"x": "ü"})


async def test_a_stream_may_be_written_in_other_ways(own: Rig) -> None:
    whole = b"".join(frames(own.server.dialect, Say(("Hello",))))
    spelled = b": comment\r\n\r\nretry: 5\n\n" + whole.replace(b"data: ", b"data:").replace(
        b"\n", b"\r\n"
    ).replace(b"data:[DONE]\r\n\r\n", b"")
    assert (await own.ask(Raw((spelled,)))).text == "Hello"
    spread = whole.replace(b', "', b'\ndata: , "')
    assert (await own.ask(Raw((spread,)))).text == "Hello"


async def test_calls_never_share_an_id(rig: Rig) -> None:
    earlier = Message("assistant", (ToolCall("a", "Read", {}),))
    request = ASK._replace(
        messages=(user("Hi"), earlier, Message("tool", (ToolResult("a", "Read", ""),)))
    )
    answer = await rig.ask(
        Say((), (("a", "Read", ("{}",)), ("a", "Read", ("{}",)), ("", "LS", ("{}",)))),
        request=request,
    )
    assert len({"a", *(call.call_id for call in answer.calls)}) == 4


@pytest.mark.parametrize(
    "raw",
    [
        "{",
        "[1]",
        "nonsense",
        '{"a": NaN}',
        '{"a": 1e999}',
        "[" * 50_000,
        '{"a":' * 40 + "1" + "}" * 40,
    ],
)
async def test_arguments_that_cannot_be_used_are_kept_with_the_reason(rig: Rig, raw: str) -> None:
    answer = await rig.ask(Say((), (("a", "Read", (raw,)),)))
    (call,) = answer.calls
    assert call.error
    assert (call.arguments, call.raw) == ({}, raw)
    await rig.ask(
        request=ASK._replace(
            messages=(
                user("Hi"),
                answer.message,
                Message("tool", (ToolResult("a", "Read", call.error, True),)),
            )
        )
    )
    assert json.dumps(rig.server.asked[-1].body["input" if rig.kind == "responses" else "messages"])


@pytest.mark.parametrize(
    "name", ["Read", " Read ", "functions.Read", "Read<|channel|>commentary", "Read<|constrain|>"]
)
async def test_a_name_with_tokens_of_the_model_around_it_is_that_of_the_tool(
    rig: Rig, name: str
) -> None:
    (call,) = (await rig.ask(Say((), (("a", name, ('{"file_path": "x"}',)),)))).calls
    assert (call.name, call.arguments, call.error) == ("Read", {"file_path": "x"}, "")


async def test_arguments_may_be_null(own: Rig) -> None:
    (call,) = (await own.ask(Say((), (("a", "LS", ("null",)),)))).calls
    assert (call.arguments, call.error) == ({}, "")


async def test_text_that_no_store_can_hold_is_replaced(rig: Rig) -> None:
    answer = await rig.ask(Say(("a\0b\ud800",), (("a", "Read", ('{"x": "\\u0000\\ud800"}',)),)))
    assert (answer.text, answer.calls[0].arguments) == ("a\ufffdb?", {"x": "\ufffd?"})


@pytest.mark.filterwarnings("ignore")  # the library wonders aloud
@pytest.mark.parametrize(
    "usage", [None, (-5, -5, 0), (120, 0, 0), (10**12, "many", 0), (True, 1.5, 0)]
)
async def test_counts_that_cannot_be_true_are_estimated(rig: Rig, usage: Any) -> None:
    if (
        rig.server.dialect == "anthropic"
        and isinstance(usage, tuple)
        and not isinstance(usage[0] - usage[2], int)
    ):
        pytest.skip("cannot be written")
    answer = await rig.ask(Say(("x" * 400,), usage=usage))
    assert answer.tokens.estimated
    assert 0 < answer.tokens.input < 1000
    assert 0 < answer.tokens.output <= 101


@pytest.mark.parametrize(
    ("dialect", "reply"),
    [
        ("anthropic", Say(("a",), finish="model_context_window_exceeded")),
        ("anthropic", Say((), (("1", "Read", ('{"pa',)),), finish="model_context_window_exceeded")),
        ("openai", Say((), usage=(120, 0, 0), finish="length")),
    ],
)
async def test_an_answer_that_ends_because_the_context_is_full_says_so(
    dialect: Literal["openai", "anthropic"], reply: Say
) -> None:
    async with ModelServer(dialect).running() as server:
        server.replies = [reply]
        kind = OpenAIChatGateway if dialect == "openai" else AnthropicGateway
        gateway = kind("key", server.url, endpoint=Endpoint("test"))
        answer = await gateway.request(Request("m", "", (user("Hi"),)))
        await gateway.close()
    assert answer.stop == "context_full"


@pytest.mark.parametrize("kind", ["openai", "library"])
@pytest.mark.parametrize(
    "text",
    [
        "analysisWe need the port.assistantfinalThe port is 8420.",
        'analysisCheck.assistantcommentary to=functions.Read json{"a": 1}assistantfinalThe port is'
        " 8420.",
        "<|channel|>analysis<|message|>Check.<|end|><|start|>assistant<|channel|>final<|message|>The"
        " port is 8420.<|return|>",
        "<|channel|>final<|message|>The port is 8420.<|return|>",
    ],
)
async def test_channels_that_a_server_leaves_in_the_text_are_not_part_of_the_answer(
    kind: Kind, text: str
) -> None:
    async with rigged(kind) as rig:
        assert (await rig.ask(Say((text,)))).text == "The port is 8420."


async def test_an_answer_that_was_cut_at_its_limit_says_so(rig: Rig) -> None:
    finish = {"openai": "length", "responses": "max_output_tokens", "anthropic": "max_tokens"}[
        rig.server.dialect
    ]
    assert (await rig.ask(Say(("a",), finish=finish))).stop == "length"
    refusal = "refusal" if rig.server.dialect == "anthropic" else "content_filter"
    assert (await rig.ask(Say(("a",), finish=refusal))).stop == "refusal"


BROKEN_OFF = (
    "insufficient_system_resource",
    "network_error",
    "abort",
    "error",
    "function_call_filter: MALFORMED_FUNCTION_CALL",
)
"""The reasons of DeepSeek, Zhipu, vLLM and SGLang, OpenRouter and Gemini for half an answer."""
REFUSING = ("sensitive", "SAFETY", "content_filter: PROHIBITED_CONTENT", "RECITATION", "blocklist")


@pytest.mark.parametrize("reason", BROKEN_OFF)
async def test_an_answer_that_its_endpoint_breaks_off_is_not_complete(
    rig: Rig, reason: str
) -> None:
    failed = await rig.fails(Say(("The port is",), finish=reason))
    assert (failed.kind, failed.started, len(rig.server.asked)) == ("overloaded", True, 1)
    assert f"broke off its answer (reason: {reason})" in failed.text
    answer = await rig.ask(Say((), finish=reason), Say(("Hello",)))
    assert (answer.text, len(rig.server.asked)) == ("Hello", 3)


@pytest.mark.parametrize("reason", REFUSING)
async def test_a_filter_of_the_endpoint_is_a_refusal(rig: Rig, reason: str) -> None:
    answer = await rig.ask(Say((), finish=reason))
    assert (answer.stop, answer.reason, len(rig.server.asked)) == ("refusal", reason, 1)


async def test_a_refusal_in_words_is_one(rig: Rig) -> None:
    refusal = Say(("I can't ", "help."), finish=REFUSED)
    for reply in (refusal, refusal._replace(stream=rig.kind == "library")):
        answer = await rig.ask(reply)
        assert (answer.text, answer.stop) == ("I can't help.", "refusal")
    assert len(rig.server.asked) == 2


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "model_length"])
async def test_every_wire_knows_the_reason_of_a_full_context(rig: Rig, reason: str) -> None:
    assert (await rig.ask(Say(("The port is",), finish=reason))).stop == "context_full"


async def test_an_unknown_reason_ends_an_answer_with_text_but_no_empty_one(rig: Rig) -> None:
    if rig.kind != "responses":  # it says in another field whether an answer is complete
        assert (await rig.ask(Say(("The port is 8420.",), finish="tired"))).stop == "end"
    failed = await rig.fails(Say((), finish="tired"))
    assert failed.kind == "overloaded"
    assert "(reason: tired)" in failed.text


async def test_an_incomplete_response_is_not_complete_for_an_unknown_reason() -> None:
    async with rigged("responses") as rig:
        failed = await rig.fails(Say(("The port is",), finish="tired"))
    assert (failed.kind, failed.started) == ("overloaded", True)


async def test_a_price_that_is_known_makes_a_cost(rig: Rig) -> None:
    price = Price(1.0, 2.0, 0.5)
    asked = gateway(
        rig.kind,
        rig.server.url,
        rig.time,
        price=lambda model, used: price.of(used.input, used.output, used.cached),
    )
    answer = await asked.request(ASK)
    await asked.close()
    assert answer.cost == pytest.approx((100 * 1 + 20 * 0.5 + 30 * 2) / 1e6)


# Faults.


@pytest.mark.parametrize(
    ("reply", "kind", "permanent"),
    [
        (Status(401, {"error": {"message": f"bad key {KEY}"}}), "authentication", True),
        (Status(403, "no"), "forbidden", True),
        (Status(402, "pay"), "quota", True),
        (
            Status(
                429,
                {
                    "error": {
                        "code": "insufficient_quota",
                        "message": "You exceeded your current quota",
                    }
                },
            ),
            "quota",
            True,
        ),
        (Status(400, {"error": {"message": "no such model"}}), "rejected_request", True),
        (Status(404, "<html>gone</html>"), "not_found", True),
        (
            Status(400, {"error": {"code": "context_length_exceeded", "message": "too much"}}),
            "context_overflow",
            True,
        ),
        (Status(413, ""), "context_overflow", True),
        (Status(302, "", {"Location": "http://127.0.0.1:9/"}), "rejected_request", True),
    ],
)
async def test_permanent_errors_are_not_retried(
    rig: Rig, reply: Status, kind: str, permanent: bool
) -> None:
    failed = await rig.fails(reply)
    assert (failed.kind, failed.permanent, len(rig.server.asked)) == (kind, permanent, 1)
    assert len(str(failed)) < 400
    assert "<" not in str(failed)


@pytest.mark.parametrize("content_type", ["text/html", "text/event-stream"])
async def test_a_web_page_means_a_wrong_address_and_fails_at_once(
    own: Rig, content_type: str
) -> None:
    failed = await own.fails(
        Raw((f"<!doctype html><p>Sign in, {KEY}".encode(),), content_type=content_type)
    )
    assert (failed.kind, failed.permanent, len(own.server.asked)) == ("rejected_request", True, 1)
    path = {"openai": "/v1/chat/completions", "responses": "/v1/responses"}.get(
        own.kind, "/v1/messages"
    )
    assert (
        failed.text
        == f"{own.server.url}{path} answered with a web page instead of a model response: Sign in,"
        " [redacted]"
    )
    assert f"{path} answered 404: gone" in (await own.fails(Status(404, "<p>gone</p>"))).text
    assert (
        f"{path} answered 302; redirects are not followed"
        in (await own.fails(Status(302, "", {"Location": "http://127.0.0.1:9/"}))).text
    )


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Status(500, f"Traceback {KEY}"), "overloaded"),
        (Status(529, ""), "overloaded"),
        (Status(429, ""), "rate_limited"),
        (Raw((), "close"), "bad_response"),
        (Raw((), "drop"), "bad_response"),
        (Raw((b"\x00\xff\xfegarbage" * 100,)), "bad_response"),
        (Raw((b"data: {garbage}\n\n",)), "bad_response"),
        (Raw((b"data: 1\n\n",)), "bad_response"),
        (Raw((b'data: {"choices": "x", "type": "content_block_delta"}\n\n',)), "bad_response"),
        (Raw((b'data: {"a":' * 1 + b"[" * 100_000 + b"\n\n",)), "bad_response"),
        (Raw((b'{"half": ',), content_type="application/json"), "bad_response"),
        (Raw((b'{"whole": "nonsense"}',), content_type="application/json"), "bad_response"),
        (Raw((b"data: " + b"x" * 1_100_000,)), "bad_response"),
        (Raw((b"data: " + b"x" * 1_100_000 + b"\n\n",)), "bad_response"),
    ],
)
async def test_a_fault_is_typed_and_tried_again_a_few_times(
    rig: Rig, reply: Reply, kind: str
) -> None:
    failed = await rig.fails(reply)
    assert (failed.kind, failed.permanent, failed.started) == (kind, False, False)
    assert len(rig.server.asked) == 6
    assert len(str(failed)) < 400


@pytest.mark.parametrize("reply", [Silent(), Raw((), "stall")])
async def test_silence_is_typed_and_tried_again_a_few_times(rig: Rig, reply: Reply) -> None:
    async with rig.with_limits(HASTY) as hasty:
        failed = await hasty.fails(reply)
    assert (failed.kind, failed.permanent, failed.started, len(rig.time.slept)) == (
        "no_first_byte",
        False,
        False,
        5,
    )


async def test_a_keep_alive_is_not_an_answer(own: Rig) -> None:
    async with own.with_limits(LIMITS._replace(idle_seconds=0.05)) as restless:
        failed = await restless.fails(Raw((b": still here\n\n",), "stall"))
    assert (failed.kind, failed.permanent, failed.started, len(own.time.slept)) == (
        "stalled",
        False,
        False,
        5,
    )


@pytest.mark.parametrize("reply", [Status(500, ""), Status(429, "", {"Retry-After": "7"}), Raw(())])
async def test_after_a_fault_the_next_try_can_succeed(rig: Rig, reply: Reply) -> None:
    assert (await rig.ask(reply, reply, Say(("Hello",)))).text == "Hello"
    assert rig.gateway.endpoint.state().breaker.failures == 0


@pytest.mark.parametrize(
    ("end", "kind"), [("stall", "stalled"), ("drop", "bad_response"), ("close", "bad_response")]
)
async def test_an_answer_that_began_is_not_begun_again(rig: Rig, end: Any, kind: str) -> None:
    whole = frames(rig.server.dialect, Say(("Hello", "there")))
    async with rig.with_limits(
        LIMITS._replace(idle_seconds=patient(0.3 if end == "stall" else 20))
    ) as limited:
        failed = await limited.fails(
            Raw(whole[: {"openai": -4, "responses": -2}.get(rig.server.dialect, -3)], end)
        )
    assert (failed.kind, failed.started, len(rig.server.asked)) == (kind, True, 1)


async def test_half_a_frame_at_the_end_is_not_an_answer(rig: Rig) -> None:
    whole = b"".join(frames(rig.server.dialect, Say(("Hello",))))
    failed = await rig.fails(Raw((whole[: whole.index(b"Hello") + 3],)))
    assert failed.kind == "bad_response"


async def test_an_error_in_the_middle_of_a_stream_is_an_error(rig: Rig) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": f"Overloaded {KEY}"}}
    failed = await rig.fails(Raw((*frames(rig.server.dialect, Say(("Hello",)))[:4], sse(error))))
    assert (failed.kind, failed.started) == ("overloaded", True)


async def test_an_endpoint_that_is_not_there_is_refused(rig: Rig, unused_tcp_port: int) -> None:
    asked = gateway(rig.kind, f"http://127.0.0.1:{unused_tcp_port}", rig.time)
    with pytest.raises(ModelFailed) as failed:
        await asked.request(ASK)
    await asked.close()
    assert (failed.value.kind, failed.value.permanent) == ("refused", False)


async def test_a_drip_is_an_answer_but_not_for_ever(rig: Rig) -> None:
    drip = Raw((b": drip\n\n",) * 3, "stall")
    assert (await rig.fails(drip, request=ASK._replace(timeout_seconds=0.1))).kind == "timed_out"
    async with rig.with_limits(LIMITS._replace(total_seconds=0.1)) as limited:
        assert (await limited.fails(drip)).kind == "timed_out"
    assert rig.time.slept == []


async def test_no_more_tools_than_allowed_are_called_at_once(rig: Rig) -> None:
    assert (
        len((await rig.ask(Say((), tuple((f"c{n}", "LS", ("{}",)) for n in range(64))))).calls)
        == 64
    )
    answer = await rig.ask(Say((), tuple((f"c{n}", "LS", ("{}",)) for n in range(65))))
    (call,) = answer.calls
    assert call.name == "LS"
    assert "more than 64 tools at once, which the setting tool_calls" in call.error


async def test_no_more_is_taken_than_allowed(rig: Rig) -> None:
    piece = "x" * 900_000
    assert len((await rig.ask(Say((piece,) * 8))).text) == 7_200_000
    assert (await rig.fails(Say((piece,) * 9))).kind == "bad_response"
    assert (await rig.fails(Say((piece,) * 9, stream=False))).kind == "bad_response"


async def test_a_tool_that_takes_any_object_is_offered_as_one(rig: Rig) -> None:
    schema = {
        "type": "object",
        "properties": {"context": {"type": "object", "properties": {}}, "mode": {"type": "string"}},
    }
    await rig.ask(request=ASK._replace(tools=(Tool("Hand", "Hand out.", schema),)))
    (sent,) = rig.server.asked[-1].body["tools"]
    found = sent.get("function") or sent
    assert found["input_schema" if rig.kind == "anthropic" else "parameters"] == schema


async def test_a_closed_gateway_has_no_connection_and_can_be_asked_again(rig: Rig) -> None:
    for _ in range(2):
        await rig.ask(Say(("Hello",)))
        await rig.gateway.close()
        await until(rig.server.transports[-1].is_closing)
    assert len(rig.server.transports) == 2


async def test_the_key_is_nowhere_to_be_seen(rig: Rig) -> None:
    await rig.ask()
    assert KEY not in f"{rig.gateway!r} {rig.gateway.endpoint.state()!r} {vars(rig.gateway)!r}"


# State that all callers of an endpoint share.


async def test_a_pause_that_the_endpoint_asks_for_is_kept_and_capped(rig: Rig) -> None:
    await rig.ask(
        Status(429, "", {"Retry-After": "7"}),
        Status(429, "", {"Retry-After": "9999"}),
        Say(("Hello",)),
    )
    assert rig.time.slept == [7.0, 120.0]


async def test_retry_after_dates_use_the_endpoints_clock(rig: Rig) -> None:
    headers = {
        "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
        "Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT",
    }
    await rig.ask(Status(429, "", headers), Say(("Hello",)))
    assert rig.time.slept == [30.0]


async def test_no_wait_exceeds_the_deadline(rig: Rig) -> None:
    failed = await rig.fails(
        Status(429, "", {"Retry-After": "60"}), request=ASK._replace(timeout_seconds=30)
    )
    assert (failed.kind, failed.retry_after, rig.time.slept) == ("rate_limited", 60.0, [])
    # The pause holds for the next caller too.
    failed = await rig.fails(request=ASK._replace(timeout_seconds=30))
    assert (failed.kind, len(rig.server.asked)) == ("rate_limited", 1)


async def test_an_endpoint_that_keeps_failing_is_left_alone_for_a_while(rig: Rig) -> None:
    await rig.fails(Status(500))
    await rig.fails(request=ASK._replace(agent="other"))
    state = rig.gateway.endpoint.state()
    assert (state.breaker.state, state.breaker.failures, state.breaker.opened) == ("open", 10, 1)
    assert len(rig.server.asked) == 10
    failed = await rig.fails()
    assert (failed.kind, failed.cause, len(rig.server.asked)) == ("circuit_open", "overloaded", 10)
    assert " failed 10 times in a row and is paused for 30 s" in failed.text
    place = "openai-chat" if rig.kind == "library" else rig.server.url
    assert failed.text.startswith(f"{place} answered 500")
    assert failed.retry_after is not None
    rig.time.now += failed.retry_after
    assert rig.gateway.endpoint.state().breaker.state == "half_open"
    assert (await rig.ask(Say(("Hello",)))).text == "Hello"
    assert rig.gateway.endpoint.state().breaker[:2] == ("closed", 0)


async def test_an_agent_that_keeps_failing_does_not_hold_back_others(rig: Rig) -> None:
    for _ in range(10):
        await rig.fails(Status(400, "no"))
    assert (await rig.fails()).kind == "circuit_open"
    assert rig.gateway.endpoint.state().agents["general"].state == "open"
    assert (await rig.ask(Say(("Hello",)), request=ASK._replace(agent="other"))).text == "Hello"
