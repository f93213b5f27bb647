"""A refused API key is recognized in the words of each vendor, whatever the status."""

import json
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint, TimeSource
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.openai_responses import ResponsesGateway
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import Request, user
from tests.contract.library import library
from tests.modelserver import Dialect, ModelServer, Raw, Reply, Say, Status, frames, sse

RECORDED = json.loads((Path(__file__).parent / "refused_keys.json").read_text())
KEYS: dict[str, tuple[int, Any]] = RECORDED["keys"]
"""The status and the document with which endpoints refuse a key."""
OTHERS: dict[str, tuple[int, Any, str]] = RECORDED["others"]
"""Refusals with similar words, and their kinds."""
CUT = {"title 400", "MiniMax 200"}
"""What the library does not pass on: fields beside `error`, and an answer without choices."""
ASK = Request("m", "Be brief.", (user("Hi"),))


async def nap(_seconds: float) -> None:
    return None


def reply(status: int, document: Any) -> Reply:
    if status == 200:
        return Raw((json.dumps(document).encode(),), content_type="application/json")
    return Status(status, document, {"Retry-After": "0"})


INSIDE: dict[str, Any] = {
    "code and msg": {"code": 401, "msg": "no access"},
    "code as text": {"code": "401", "msg": "no access", "data": None},
    "code and message": {"success": False, "code": 401, "message": "no access"},
    "errcode": {"errcode": 401, "errmsg": "no access"},
    "error": {"error": {"code": 401, "message": "no access"}},
    "error with text": {"error": {"code": "401", "message": "no access", "type": ""}},
    "status": {"status": 401, "error": "no access"},
    "another code": {"code": 1001, "msg": "API key invalid"},
    "no choices": {"code": 401, "msg": "no access", "choices": []},
}
"""Documents that refuse a key although the status of the answer is 200."""
PASSED: tuple[Any, ...] = (
    {"code": 200, "msg": "ok"},
    {"code": 0, "msg": "success"},
    {"code": "0", "message": "success"},
)
"""Documents that say nothing about a failure."""
DIRECT: dict[Dialect, type[OpenAIChatGateway | ResponsesGateway | AnthropicGateway]] = {
    "openai": OpenAIChatGateway,
    "responses": ResponsesGateway,
    "anthropic": AnthropicGateway,
}


async def failure(answer: Reply, *, by_library: bool) -> ModelFailed:
    """How an endpoint that replies like this fails."""
    async with ModelServer("openai").running() as server:
        server.replies = [answer]
        if by_library:
            async with library(server) as gateway:
                return await _failure(gateway)
        return await _failure(OpenAIChatGateway("key", server.url))


async def _failure(
    gateway: OpenAIChatGateway | ResponsesGateway | AnthropicGateway | PydanticAiGateway,
) -> ModelFailed:
    gateway.endpoint = Endpoint("test", ticks=TimeSource(sleep=nap))
    with pytest.raises(ModelFailed) as failed:
        await gateway.request(ASK)
    await gateway.close()
    return failed.value


@pytest.mark.parametrize("name", KEYS)
async def test_a_refused_key_is_typed_as_such(name: str) -> None:
    failed = await failure(reply(*KEYS[name]), by_library=False)
    assert (failed.kind, failed.permanent) == ("authentication", True), failed
    assert "{'" not in failed.text, "no Python literals"


@pytest.mark.parametrize("name", sorted(KEYS.keys() - CUT))
async def test_a_refused_key_is_typed_as_such_through_the_library(name: str) -> None:
    failed = await failure(reply(*KEYS[name]), by_library=True)
    assert (failed.kind, failed.permanent) == ("authentication", True), failed
    assert "{'" not in failed.text, "no Python literals"


@pytest.mark.parametrize("by_library", [False, True])
@pytest.mark.parametrize("name", OTHERS)
async def test_other_refusals_are_not_taken_for_a_refused_key(name: str, by_library: bool) -> None:
    status, document, kind = OTHERS[name]
    failed = await failure(reply(status, document), by_library=by_library)
    assert failed.kind == kind, failed


@pytest.mark.parametrize("form", ["document", "frame", "document as a stream"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("dialect", DIRECT)
async def test_a_key_refused_inside_status_200_is_refused_like_401(
    dialect: Dialect, name: str, stream: bool, form: str
) -> None:
    document = INSIDE[name]
    data = sse(document) if form == "frame" else json.dumps(document).encode()
    kind = "application/json" if form == "document" else "text/event-stream"
    async with ModelServer(dialect).running() as server:
        server.replies = [Raw((data,), content_type=kind), Say(("Hello",))]
        failed = await _failure(DIRECT[dialect]("key", server.url, stream=stream))
        assert len(server.asked) == 1, "nothing is tried again"
        server.replies = [Status(401, document)]
        plain = await _failure(DIRECT[dialect]("key", server.url, stream=stream))
    assert (failed.kind, failed.permanent) == ("authentication", True), failed
    if name != "another code":
        assert failed.text == plain.text.replace("answered 401", "reported error 401")


@pytest.mark.parametrize("name", ["error", "error with text"])
async def test_a_key_refused_inside_a_stream_of_the_library_is_refused_like_401(name: str) -> None:
    failed = await failure(Raw((sse(INSIDE[name]),)), by_library=True)
    assert (failed.kind, failed.permanent) == ("authentication", True), failed


@pytest.mark.parametrize("document", PASSED)
@pytest.mark.parametrize("dialect", DIRECT)
async def test_a_frame_that_reports_success_does_not_fail_an_answer(
    dialect: Dialect, document: Any
) -> None:
    async with ModelServer(dialect).running() as server:
        server.replies = [Raw((sse(document), *frames(dialect, Say(("Hello",)))))]
        gateway = DIRECT[dialect]("key", server.url)
        assert (await gateway.request(ASK)).text == "Hello"
        await gateway.close()


async def test_a_success_code_beside_the_answer_does_not_fail_it() -> None:
    async with ModelServer("openai").running() as server:
        answer = {"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
        document = {"code": 200, "msg": "ok", "choices": [answer]}
        server.replies = [Raw((json.dumps(document).encode(),), content_type="application/json")]
        gateway = OpenAIChatGateway("key", server.url)
        assert (await gateway.request(ASK)).text == "Hello"
        await gateway.close()


@pytest.mark.parametrize(("code", "kind"), [(402, "quota"), (403, "forbidden"), (404, "not_found")])
@pytest.mark.parametrize("dialect", DIRECT)
async def test_other_codes_inside_status_200_mean_what_the_status_means(
    dialect: Dialect, code: int, kind: str
) -> None:
    async with ModelServer(dialect).running() as server:
        server.replies = [Raw((json.dumps({"code": code, "msg": "no"}).encode(),))]
        failed = await _failure(DIRECT[dialect]("key", server.url))
    assert failed.kind == kind, failed


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rate_limit_error", "rate_limited"),
        ("not_found_error", "not_found"),
        ("billing_error", "quota"),
        ("authentication_error", "authentication"),
    ],
)
async def test_an_error_of_anthropic_inside_a_stream_means_what_its_type_says(
    name: str, kind: str
) -> None:
    document = {"type": "error", "error": {"type": name, "message": "no"}}
    async with ModelServer("anthropic").running() as server:
        server.replies = [Raw((sse(document),))]
        failed = await _failure(AnthropicGateway("key", server.url))
    assert failed.kind == kind, failed
