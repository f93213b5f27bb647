"""Hits of Anthropic's prompt cache from turn to turn, in a cache that follows the provider's
rules.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.agents.delegating import delegated
from tests.agents.endpoint import Body, RuledServer, answers, may_call, wants
from tests.modelserver import Say

LOOKBACK = 20
MARKS = 4
MANY = 30
"""Calls in one turn: their blocks are more than the provider looks back over."""


class PromptCache:
    """Stores the text before every mark, block by block.

    A request finds what is kept up to a mark, or a little before it.
    """

    def __init__(self) -> None:
        self._kept: set[str] = set()

    def found(self, body: Body) -> int:
        """How many blocks of a request are there already; what it marks is kept from now on."""
        blocks = flat(body)
        prefixes = [
            "".join(json.dumps(bare(block)) for block in blocks[: number + 1])
            for number in range(len(blocks))
        ]
        marks = [number for number, block in enumerate(blocks) if "cache_control" in block]
        assert len(marks) <= MARKS
        near = {number for mark in marks for number in range(max(0, mark - LOOKBACK), mark + 1)}
        found = max((number + 1 for number in near if prefixes[number] in self._kept), default=0)
        self._kept |= {prefixes[mark] for mark in marks}
        return found


def flat(body: Body) -> list[dict[str, Any]]:
    """Tools, the system text and all that was said, in the order in which they are cached.

    Another choice of tools is another conversation.
    """
    said = [
        {**block, "role": message["role"], "choice": body.get("tool_choice")}
        for message in body["messages"]
        for block in message["content"]
    ]
    return [*body["tools"], *body["system"], *said]


def bare(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


async def test_every_turn_finds_all_that_came_before(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block about the task changes with every turn and is not kept.

    The last turn shares no more than tools and system text.
    """

    async def rule(body: Body) -> Say:
        turn = answers(body)
        if not may_call(body):
            return Say(("So far.",))
        many = (
            tuple(wants(f"m{number}", "LS", path=".") for number in range(MANY))
            if turn == 1
            else ()
        )
        return Say(
            ("Next.",),
            (
                *many,
                wants(
                    f"p{turn}",
                    "update_steps",
                    steps=[f"Step {number}" for number in range(turn + 1)],
                ),
            ),
        )

    async with RuledServer(rule, "anthropic").running() as server:
        await delegated(server, durable_url, tmp_path, monkeypatch, limits={"max_turns": 5})
    bodies = [asked.body for asked in server.asked]
    tails = [flat(body)[-1]["text"] for body in bodies]
    assert len(set(tails)) == len(bodies) == 6
    assert len(flat(bodies[2])) - len(flat(bodies[1])) > 2 * LOOKBACK
    cache = PromptCache()
    found = [cache.found(body) for body in bodies]
    static = len([*bodies[0]["tools"], *bodies[0]["system"]])
    assert found == [0, *(len(flat(earlier)) - 1 for earlier, _ in pairwise(bodies[:-1])), static]
    assert not any(
        "cache_control" in block
        for message in bodies[-1]["messages"]
        for block in message["content"]
    )
