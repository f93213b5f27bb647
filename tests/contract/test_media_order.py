"""With strict turns, text of remit comes after every image and PDF of its message."""

from base64 import b64encode
from typing import Any

import pytest

from remit.adapters.models.refusals.endpoint_limits import ONE_RESULT
from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.openai_responses import ResponsesGateway
from remit.domain.agents.media import PDF, Media
from remit.domain.llm.messages import DELIMITER, Message, Request, Tool, ToolCall, ToolResult, user
from tests.modelserver import ModelServer

DATA = b64encode(f"%PDF-1.7 {DELIMITER}".encode()).decode()
FILES = (Media("image/png", "aGVsbG8="), Media(PDF, DATA))
READ = Tool("Read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
CALLS = tuple(ToolCall(f"call_{place}", "Read", {}) for place in range(len(FILES)))
RESULTS = tuple(
    ToolResult(call.call_id, "Read", "d.pdf", media=file)
    for call, file in zip(CALLS, FILES, strict=True)
)
UPDATE, TAIL = "[Task Update: Message]\nHurry.", "<Task id=1>\n</Task>"
MERGED = f"{DELIMITER}\n{UPDATE}\n\n{DELIMITER}\n{TAIL}"
ASK = Request(
    "m",
    "Be brief.",
    (
        user("Look."),
        Message("assistant", CALLS),
        Message("tool", RESULTS),
        user(UPDATE),
        user(TAIL),
    ),
    (READ,),
    passing=1,
)


async def sent(kind: Any, dialect: Any, known: set[str]) -> Any:
    """The request as an endpoint with strict turns gets it."""
    async with ModelServer(dialect).running() as server:
        gateway = kind("key", server.url, endpoint=Endpoint("test"), strict_turns=True)
        gateway.endpoint.refused(ASK.model).update(known)
        await gateway.request(ASK)
        await gateway.close()
    return server.asked[-1].body


@pytest.mark.parametrize("known", [set(), {ONE_RESULT}], ids=["each", "one"])
async def test_chat_completions_get_the_text_of_remit_after_the_media(known: set[str]) -> None:
    body = await sent(OpenAIChatGateway, "openai", known)
    last = body["messages"][-1]
    assert last["role"] == "tool"
    first, shown, tail = last["content"]
    assert (first["type"], tail) == ("text", {"type": "text", "text": MERGED})
    assert shown["type"] in ("image_url", "file")
    assert DELIMITER not in first["text"]


@pytest.mark.parametrize("known", [set(), {ONE_RESULT}], ids=["each", "one"])
async def test_the_responses_api_gets_the_text_of_remit_after_the_media(known: set[str]) -> None:
    body = await sent(ResponsesGateway, "responses", known)
    last = body["input"][-1]
    assert last["type"] == "function_call_output"
    first, shown, tail = last["output"]
    assert (first["type"], tail) == ("input_text", {"type": "input_text", "text": MERGED})
    assert shown["type"] in ("input_image", "input_file")
    assert DELIMITER not in first["text"]


async def test_anthropic_gets_the_text_of_remit_as_blocks_after_the_results() -> None:
    body = await sent(AnthropicGateway, "anthropic", set())
    blocks = body["messages"][-1]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text", "text"]
    assert [block["text"] for block in blocks[2:]] == [UPDATE, TAIL]
