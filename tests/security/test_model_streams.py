"""Two thousand streams that were tampered with: each ends in an answer that can be stored, or in
a typed failure.
"""

import json
import math
import random
from typing import Any

import pytest

from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.response import Limits
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import Request, plain, user
from tests.modelserver import Dialect, ModelServer, Raw, Say, document, frames
from tests.patience import patient

STREAMS = 1000
SAY = Say(("Hello ", "wörld"), (("a", "Read", ('{"file_path"', ': "x"}')), ("b", "LS", ("{}",))))
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "\ud800\0",
    [],
    [None],
    [[]],
    {},
    {"a": {}},
    "[DONE]",
    [{"text": 5}],
    {"type": "text"},
)
LIMITS = Limits(
    first_byte_seconds=patient(60),
    idle_seconds=patient(60),
    frame_bytes=20_000,
    message_bytes=50_000,
    tool_calls=8,
)


def tampered(value: Any, chance: random.Random) -> Any:
    """A JSON value with one place changed, here and there."""
    if chance.random() < 0.04:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {
            key: tampered(item, chance) for key, item in value.items() if chance.random() > 0.02
        }
    if isinstance(value, list):
        return [
            tampered(item, chance)
            for item in value
            for _ in range(chance.choice((1, 1, 1, 1, 1, 1, 1, 2, 0)))
        ]
    return value


def stream(dialect: Dialect, chance: random.Random) -> Raw:
    if chance.random() < 0.1:
        return Raw(
            (json.dumps(tampered(document(dialect, SAY), chance)).encode(),),
            content_type="application/json",
        )
    blocks: list[bytes] = []
    for frame in frames(dialect, SAY):
        head, _, body = frame.partition(b"data: ")
        if body.startswith(b"{"):
            body = json.dumps(tampered(json.loads(body), chance)).encode() + b"\n\n"
        blocks.append(head + b"data: " + body)
    whole = bytearray(b"".join(blocks))
    for _ in range(chance.choice((0, 0, 0, 1, 5))):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    if chance.random() < 0.1:
        whole = whole[: chance.randrange(len(whole))]
    return Raw((bytes(whole),))


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_every_stream_ends_in_an_answer_or_a_typed_failure(dialect: Dialect) -> None:
    chance = random.Random(7)  # the same streams each time
    outcomes = {"answered": 0, "failed": 0}
    async with ModelServer(dialect).running() as server:
        made = (
            OpenAIChatGateway("key", server.url, limits=LIMITS)
            if dialect == "openai"
            else AnthropicGateway("key", server.url, limits=LIMITS)
        )
        for _ in range(STREAMS):
            server.replies = [stream(dialect, chance)]
            try:
                answer = await made._attempts(Request("m", "", (user("Hi"),)), None)(math.inf)
            except ModelFailed:
                outcomes["failed"] += 1
            else:
                stored = json.dumps(plain(answer.message), ensure_ascii=False, allow_nan=False)
                assert "\0" not in stored.encode().decode()
                assert len({call.call_id for call in answer.calls}) == len(answer.calls) <= 8
                assert min(answer.tokens.input, answer.tokens.output, answer.tokens.cached) >= 0
                assert answer.model
                outcomes["answered"] += 1
        await made.close()
    assert outcomes["answered"] > 50
    assert outcomes["failed"] > 50
