"""Every tool of `remit mcp`: what it returns, refusals too, is what its output schema says.

Clients made with the TypeScript SDK check the results of failed calls as well, and show an error of
their own in place of a result that does not match.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import mcp_types as wire
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from remit.catalog import FOR_EVERYONE
from tests.surfaces.mcp_http import MODES

FIND = {"objective": "Find hello in a.txt", "subagent_type": "explore"}
SOON = "2999-01-01T00:00:00Z"
NOWHERE = {"task_id": "999"}
REFUSED: dict[str, dict[str, Any]] = {
    **{name: {"limit": 0} for name in FOR_EVERYONE if name.startswith("list_")},
    "list_updates": NOWHERE,
    "list_agents": {"x": 1},
    "create_task": {"owner": "nobody"},
    "create_guide": {},
    "get_guide": {"guide_id": "none"},
    "get_agent": {"agent_id": "none"},
    "respond": {"interaction_id": "9", "answer": "a"},
    "pre_request": {},
    "cancel_all": {},
    "task": {"objective": "a", "subagent_type": "none"},
    "task_parallel": {"tasks": []},
    "Task": {"description": "a", "prompt": "b", "subagent_type": "none"},
    "update_steps": NOWHERE | {"steps": []},
    "update_step": NOWHERE | {"index": 0, "done": True},
    "create_subtask": NOWHERE | {"title": "a", "owner": "explore"},
    "add_resource": NOWHERE | {"type": "url", "value": "https://a.example"},
    "remove_resource": NOWHERE | {"index": 0},
    "send_message": NOWHERE | {"message": "a"},
    "assign_task": NOWHERE | {"subagent_session_id": "s"},
    "attach_tsg": NOWHERE | {"tsg_id": "none"},
    "fail_task": NOWHERE | {"message": "a"},
    "waive_criterion": NOWHERE | {"criterion_id": "c1", "reason": "a"},
}
"""A call of each tool that is refused; all others are asked about a task that does not exist."""


class Caller:
    """A client that checks each result against the schema of its tool."""

    def __init__(self, client: Client, tools: list[wire.Tool]) -> None:
        self._client = client
        self._schemas = {tool.name: tool.output_schema for tool in tools}
        self.answered: set[str] = set()

    async def call(self, tool: str, **fields: Any) -> Any:
        result = await self._client.call_tool(tool, fields)
        assert not result.is_error, (tool, result.content)
        (text,) = result.content
        assert isinstance(text, wire.TextContent)
        assert json.loads(text.text) == self._checked(tool, result)
        self.answered.add(tool)
        return result.structured_content

    async def refused(self, tool: str, fields: dict[str, Any]) -> Any:
        result = await self._client.call_tool(tool, fields)
        assert result.is_error, (tool, result.content)
        return self._checked(tool, result)

    def _checked(self, tool: str, result: wire.CallToolResult) -> Any:
        schema = self._schemas[tool]
        assert schema is not None
        jsonschema_rs.Draft202012Validator(schema).validate(result.structured_content)
        return result.structured_content


@pytest.mark.parametrize("mode", MODES)
async def test_every_result_is_what_its_schema_says(
    any_url: str, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    named = ("LLM_", "LIGHT_LLM_", "REMIT_", "OPENAI_", "ANTHROPIC_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "remit", "mcp", "--tools", "all", "--database-url", any_url],
        cwd=str(folder),
        env=clean | {"HOME": str(folder / "home")},
    )
    async with Client(stdio_client(server), mode=mode) as client:
        caller = Caller(client, (await client.list_tools()).tools)
        for tool in FOR_EVERYONE:
            refused = await caller.refused(tool, REFUSED.get(tool, NOWHERE))
            assert refused["error"]["code"] in ("NOT_FOUND", "INVALID_PARAM"), tool
        await delegated(caller)
        await changed(caller)
        await read(caller)
    assert set(FOR_EVERYONE) - caller.answered == {"respond"}, "only an agent can ask a question"


async def delegated(caller: Caller) -> None:
    for form in ({}, {"format": "flat"}, {"format": "envelope"}, {"wait": False}):
        made = await caller.call("task", **FIND, **form)
        task_id = made["data"]["task_id"] if "data" in made else made["task_id"]
        for read_as in ({}, {"format": "flat"}, {"format": "envelope"}):
            await caller.call("task_output", task_id=task_id, wait_seconds=30, **read_as)
    await caller.call("task_parallel", tasks=[FIND, {"objective": "a", "subagent_type": "none"}])
    await caller.call("task_parallel", tasks=[FIND], format="flat")
    await caller.call("Task", description="Find", prompt="Find hello", subagent_type="explore")


async def changed(caller: Caller) -> None:
    guide = (await caller.call("create_guide", title="Guide", body="Text"))["guide_id"]
    later: dict[str, Any] = {"schedule": {"not_before": SOON}, "owner": "general"}
    made = await caller.call("create_task", title="Write", acceptance=["It is there."], **later)
    one = {"task_id": made["task_id"]}
    await caller.call("update_task", **one)
    await caller.call("update_task", **one, instructions="New", outputs=["report"])
    await caller.call("update_steps", **one, steps=[{"title": "First"}])
    await caller.call("update_step", **one, index=0, done=True)
    await caller.call("add_resource", **one, type="url", value="https://a.example")
    await caller.call("remove_resource", **one, index=0)
    await caller.call("attach_tsg", **one, tsg_id=guide)
    await caller.call("pause_task", **one)
    await caller.call("resume_task", **one)
    await caller.call("send_message", **one, message="Hello")
    await caller.call("waive_criterion", **one, criterion_id="c1", reason="Not needed")
    for wait in ("none", "block"):
        await caller.call("create_subtask", **one, title="Find hello", owner="explore", wait=wait)
    await caller.call("complete_task", **one, outputs={"report": "Done"})
    other = {"task_id": (await caller.call("create_task", title="Other"))["task_id"]}
    await caller.call("assign_task", **other, subagent_session_id="s")
    await caller.call("pre_request", session_id="s")
    await caller.call("list_session_tasks", session_id="s")
    await caller.call("mark_task_complete", **other, summary="Done")
    third = {"task_id": (await caller.call("create_task", title="Third", **later))["task_id"]}
    await caller.call("run_task", **third)
    await caller.call(
        "fail_task", task_id=(await caller.call("create_task", title="a"))["task_id"], message="No"
    )
    await caller.call(
        "cancel_task", task_id=(await caller.call("create_task", title="b"))["task_id"]
    )
    await caller.call("rerun_task", **other)
    await caller.call("cancel_all", session_id="s")


async def read(caller: Caller) -> None:
    for tool in ("get_task", "get_events", "get_transcript", "list_updates"):
        await caller.call(tool, task_id="1")
    guides = (await caller.call("list_guides"))["guides"]
    await caller.call("get_guide", guide_id=guides[0]["id"])
    await caller.call("get_agent", agent_id="explore")
    for tool in (
        "list_tasks",
        "list_history",
        "list_ready",
        "list_agents",
        "list_interactions",
        "list_notifications",
    ):
        await caller.call(tool)
