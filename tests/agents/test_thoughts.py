"""Thoughts of a model: they go back as they came, and no reader takes them for its answer."""

import json
from pathlib import Path

import pytest

from remit import Remit
from tests.agents.endpoint import Body, RuledServer
from tests.modelserver import Raw, Reply, sse
from tests.surfaces.test_command import Shell

THOUGHT = "I wonder whether RED is right."
SEALED = "c2VhbGVk" * 100
BLOCKS = (
    {"type": "thinking", "thinking": THOUGHT, "signature": SEALED},
    {"type": "redacted_thinking", "data": SEALED},
    {"type": "text", "text": "BLUE."},
)


async def thoughtful(_: Body) -> Reply:
    starts = [{"type": "content_block_start", "index": place, "content_block": block} for place, block in enumerate(BLOCKS)]
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    events = ({"type": "message_start", "message": {}}, *starts, end, {"type": "message_stop"})
    return Raw(tuple(map(sse, events)))


async def test_a_thought_is_told_apart_from_the_answer(durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RuledServer(thoughtful, "anthropic").running() as server:
        monkeypatch.setenv("LLM_MODEL_ID", "anthropic:claude-x")
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        monkeypatch.setenv("LLM_API_KEY", "none")
        async with Remit.open(tmp_path, durable_url) as remit:
            found = await remit.task("Which color?", subagent_type="explore")
            task_id = found["data"]["task_id"]
            said = (await remit.get_transcript(task_id=task_id))["messages"][-1]
            others = json.dumps([found, await remit.get_task(task_id=task_id)])
    assert (found["data"]["result"], THOUGHT in others, SEALED in others) == ("BLUE.", False, False)
    assert said["parts"] == [{"type": "thinking", "text": THOUGHT}, {"type": "text", "text": "BLUE."}]
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    assert f"(thought) {THOUGHT}\n  BLUE." in shell.remit("task", "transcript", task_id).out
