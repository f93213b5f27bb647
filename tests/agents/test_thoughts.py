"""Thoughts of a model: they go back as they came, and no reader takes them for its answer."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from tests.agents.endpoint import Body, RuledServer, answers
from tests.modelserver import Raw, Reply, Say, sse
from tests.patience import patient
from tests.surfaces.shell import Shell

THOUGHT = "I wonder whether RED is right."
SEALED = "c2VhbGVk" * 100
BLOCKS = (
    {"type": "thinking", "thinking": THOUGHT, "signature": SEALED},
    {"type": "redacted_thinking", "data": SEALED},
    {"type": "text", "text": "BLUE."},
)


async def thoughtful(_: Body) -> Reply:
    starts = [
        {"type": "content_block_start", "index": place, "content_block": block}
        for place, block in enumerate(BLOCKS)
    ]
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 7},
    }
    events = ({"type": "message_start", "message": {}}, *starts, end, {"type": "message_stop"})
    return Raw(tuple(map(sse, events)))


async def test_a_thought_is_distinguished_from_the_answer(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RuledServer(thoughtful, "anthropic").running() as server:
        monkeypatch.setenv("LLM_MODEL_ID", "anthropic:claude-x")
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        monkeypatch.setenv("LLM_API_KEY", "none")
        async with Remit.open(tmp_path, durable_url) as remit:
            found = await remit.task("Which color?", subagent_type="explore")
            task_id = found.task_id
            said = (await remit.get_transcript(task_id=task_id)).messages[-1]
            others = json.dumps(
                [found.envelope(), (await remit.get_task(task_id=task_id)).to_dict()]
            )
    assert (found.text, THOUGHT in others, SEALED in others) == ("BLUE.", False, False)
    assert said.to_dict()["parts"] == [
        {"type": "thinking", "text": THOUGHT},
        {"type": "text", "text": "BLUE."},
    ]
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    assert f"(thought) {THOUGHT}\n  BLUE." in shell.remit("task", "transcript", task_id).out


SIGNED = {"google": {"thought_signature": "SIGNED=="}}
DETAILS = (
    {"type": "reasoning.text", "index": 0, "text": "I must ", "format": "f", "signature": None},
    {"type": "reasoning.text", "index": 0, "text": "ask.", "format": "f", "signature": None},
    {"type": "reasoning.text", "index": 0, "text": "", "format": "f", "signature": "s"},
    {"type": "reasoning.encrypted", "index": 1, "data": SEALED, "id": "call_1", "format": "f"},
)
ASKED = {"question": "Which color?", "options": ["red", "blue"]}


def asks(extra: dict[str, Any] | None = None, details: Sequence[Any] = ()) -> Reply:
    """A call of ask_user, as an endpoint sends it that needs some of it back."""
    function = {"name": "ask_user", "arguments": json.dumps(ASKED)}
    call = {"index": 0, "id": "call_1", "function": function, **(extra or {})}
    thoughts = [{"reasoning": item.get("text"), "reasoning_details": [item]} for item in details]
    deltas: list[dict[str, Any]] = [*thoughts, {"tool_calls": [call]}]
    frames = [sse({"choices": [{"delta": delta}]}) for delta in deltas]
    end = sse({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    return Raw((*frames, end))


async def asked_and_answered(
    first: Reply, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], str]:
    """Let a task ask a person, restart remit, and answer; the endpoint begins with `first`.

    Return the answer of the model as its endpoint gets it back, and the transcript.
    """

    async def rule(body: Body) -> Reply:
        return Say(("Painted.",)) if answers(body) else first

    async with RuledServer(rule).running() as server:
        monkeypatch.setenv("LLM_MODEL_ID", "m")
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("LLM_API_KEY", "none")
        async with Remit.open(tmp_path, url) as remit, asyncio.timeout(patient(20)):
            made = await remit.create_task(title="Paint", owner="general")
            async for event in remit.events(after="0"):
                if event.type == "RunYielded":
                    break
        async with Remit.open(tmp_path, url) as remit, asyncio.timeout(patient(20)):
            (question,) = (await remit.list_interactions()).interactions
            await remit.respond(interaction_id=question.id, answer="blue")
            await remit.task_output(task_id=made.task_id, wait_seconds=patient(20))
            shown = json.dumps((await remit.get_transcript(task_id=made.task_id)).to_dict())
        (answer,) = [m for m in server.asked[-1].body["messages"] if m["role"] == "assistant"]
        return answer, shown


async def test_the_signature_of_a_call_survives_a_restart_and_goes_back(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asks({"extra_content": SIGNED})
    answer, shown = await asked_and_answered(first, durable_url, tmp_path, monkeypatch)
    assert [call["extra_content"] for call in answer["tool_calls"]] == [SIGNED]
    assert "SIGNED==" not in shown


async def test_thoughts_of_a_router_survive_a_restart_and_go_back_joined(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asks(details=DETAILS)
    answer, shown = await asked_and_answered(first, durable_url, tmp_path, monkeypatch)
    whole = {**DETAILS[0], "text": "I must ask.", "signature": "s"}
    assert answer["reasoning_details"] == [whole, DETAILS[-1]]
    assert "reasoning" not in answer
    assert ("I must ask." in shown, SEALED in shown) == (True, False)
