"""An overflow of the context is recognized in each server's words, and so are parallel cuts."""

import asyncio

import pytest

from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.domain.llm.failures import ModelFailed, ModelOrigin, explain
from remit.domain.llm.messages import Request, user
from tests.agents.endpoint import Body, RuledServer
from tests.contract.refusals import OTHERS, OVERFLOWS
from tests.modelserver import Dialect, ModelServer, Raw, Reply, Say, Status, frames, sse

ASK = Request("m", "Be brief.", (user("Hi"),))


async def failure(reply: Reply, dialect: Dialect = "openai") -> ModelFailed:
    """How an endpoint that replies like this fails."""
    async with ModelServer(dialect).running() as server:
        server.replies = [reply]
        kind = OpenAIChatGateway if dialect == "openai" else AnthropicGateway
        gateway = kind("key", server.url, endpoint=Endpoint("test"))
        with pytest.raises(ModelFailed) as failed:
            await gateway.request(ASK)
        await gateway.close()
    return failed.value


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("name", OVERFLOWS)
async def test_a_refusal_is_typed_as_overflow(name: str, dialect: Dialect) -> None:
    failed = await failure(Status(*OVERFLOWS[name]), dialect)
    assert (failed.kind, failed.permanent, failed.started) == ("context_overflow", True, False)


@pytest.mark.parametrize("name", OVERFLOWS)
async def test_an_overflow_inside_a_stream_is_typed_too(name: str) -> None:
    document = OVERFLOWS[name][1]
    error = document[0] if isinstance(document, list) else document
    shaped = error if "error" in error else {"error": error}
    failed = await failure(Raw((*frames("openai", Say(("Hello",)))[:2], sse(shaped))))
    assert (failed.kind, failed.started) == ("context_overflow", True)


@pytest.mark.parametrize(
    "frame",
    [
        b'error: {"code":500,"message":"Context size has been exceeded."}\n\n',
        sse({"object": "error", "message": "This model's maximum context length is 4096 tokens."}),
        b'event: error\ndata: {"error": "context length exceeded"}\n\n',
    ],
)
async def test_an_overflow_is_typed_however_a_stream_carries_it(frame: bytes) -> None:
    failed = await failure(Raw((*frames("openai", Say(("Hello",)))[:2], frame)))
    assert (failed.kind, failed.started) == ("context_overflow", True)


async def test_an_error_event_of_anthropic_is_typed_too() -> None:
    event = {"type": "error", "error": OVERFLOWS["Anthropic"][1]["error"]}
    begun = frames("anthropic", Say(("Hello",)))[:4]
    failed = await failure(Raw((*begun, sse(event))), "anthropic")
    assert (failed.kind, failed.started) == ("context_overflow", True)


@pytest.mark.parametrize("name", OTHERS)
async def test_other_refusals_are_not_taken_for_overflow(name: str) -> None:
    status, message, kind = OTHERS[name]
    hasty = Status(status, {"error": {"message": message}}, {"Retry-After": "0"})
    assert (await failure(hasty)).kind == kind


def test_the_end_of_a_task_says_what_to_set() -> None:
    failed = ModelFailed("context_overflow", "x answered 400: too long")
    shown = explain(failed, "main: m", ModelOrigin())
    assert "does not fit into the context of the model" in shown
    assert "--ctx-size" in shown


async def test_a_server_that_cuts_off_parallel_answers_is_named_with_the_setting() -> None:
    """llama.cpp with too few slots: the streams of two calls at once end without a finish
    reason.
    """
    both = asyncio.Event()
    asked: list[Body] = []

    async def rule(body: Body) -> Reply:
        asked.append(body)
        if len(asked) == 2:
            both.set()
        await both.wait()
        return Raw(frames("openai", Say(("Hello",)))[:2])

    async with RuledServer(rule).running() as server:
        gateway = OpenAIChatGateway(base_url=server.url, endpoint=Endpoint("test"))
        calls = (gateway.request(ASK), gateway.request(ASK))
        failures = await asyncio.gather(*calls, return_exceptions=True)
        await gateway.close()
    for failed in failures:
        assert isinstance(failed, ModelFailed)
        assert (failed.kind, failed.started) == ("bad_response", True)
        assert "ended its answer in the middle. 2 calls were under way there." in failed.text
        assert "concurrency" in failed.text


async def test_an_answer_cut_off_alone_is_not_blamed_on_others() -> None:
    failed = await failure(Raw(frames("openai", Say(("Hello",)))[:2]))
    assert "concurrency" not in failed.text


@pytest.mark.parametrize("said", ["no slot available", "too many parallel requests"])
async def test_an_error_about_slots_names_the_setting(said: str) -> None:
    error = {"error": {"code": 503, "message": said, "type": "unavailable_error"}}
    failed = await failure(Raw((*frames("openai", Say(("Hello",)))[:2], sse(error))))
    assert (failed.kind, "LLM_CONCURRENCY" in failed.text) == ("overloaded", True)
