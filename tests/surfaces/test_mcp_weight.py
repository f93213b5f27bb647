"""What an MCP client reads: the tools of a profile, small schemas, and results that say each thing once."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import jsonschema_rs
import mcp_types as wire
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from scripts.weight import MCP, weight_of_profile

from remit.adapters.clock import SystemClock
from remit.app.agents import AgentRegistry
from remit.app.core import Caller, Core
from remit.bootstrap import open_store
from remit.catalog import FOR_EVERYONE, PROFILES
from remit.surfaces.mcp import mcp_http, mcp_server
from tests.agents.stage import calls, says, stage
from tests.agents.test_weight import NOISE, RESULT, keys
from tests.people import ANN
from tests.surfaces.test_command import Shell, shell
from tests.surfaces.test_command import served as served_by_command
from tests.surfaces.test_mcp import HELLO, JSON, MODERN, MODES, served

__all__ = ["shell"]

CALLER = Caller(actor=ANN)
NAMED_BY_SOURCES = {
    *(
        "create_task",
        "update_task",
        "get_task",
        "list_tasks",
        "assign_task",
        "mark_task_complete",
        "attach_tsg",
    ),
    *(
        "complete_task",
        "cancel_task",
        "list_history",
        "update_steps",
        "update_step",
        "create_subtask",
    ),
    *("add_resource", "remove_resource", "task", "task_parallel", "Task"),
}
WITH_THEM = {"respond", "list_interactions", "task_output", "send_message"}
HANDED = {"id", "state", "version"}


@pytest.fixture
async def core() -> AsyncIterator[Core]:
    async with open_store("memory:") as store:
        yield Core(store, SystemClock(), AgentRegistry())


async def listed(core: Core, tools: str = "standard", mode: str = MODERN) -> list[wire.Tool]:
    async with Client(mcp_server(core, CALLER, "1", tools), mode=mode) as client:
        return (await client.list_tools()).tools


async def told(client: Client, tool: str, **fields: Any) -> dict[str, Any]:
    """What a tool returns; its text says the same."""
    result = await client.call_tool(tool, fields)
    (text,) = result.content
    assert isinstance(text, wire.TextContent)
    if not result.is_error:
        assert json.loads(text.text) == result.structured_content
    return cast("dict[str, Any]", result.structured_content)


@pytest.mark.parametrize("profile", list(PROFILES))
async def test_a_profile_is_within_its_bounds(profile: str) -> None:
    weight = await weight_of_profile(profile)
    assert weight.within(MCP[profile]), weight


@pytest.mark.parametrize("mode", MODES)
async def test_the_standard_profile_has_what_the_sources_name(core: Core, mode: str) -> None:
    names = {tool.name for tool in await listed(core, mode=mode)}
    assert names >= NAMED_BY_SOURCES | WITH_THEM
    assert names >= set(PROFILES["core"])


async def test_tools_can_be_named_one_by_one(core: Core) -> None:
    assert [tool.name for tool in await listed(core, "get_events, task")] == ["get_events", "task"]
    assert [tool.name for tool in await listed(core, "core,respond")] == [
        *PROFILES["core"],
        "respond",
    ]
    assert [tool.name for tool in await listed(core, "all")] == list(FOR_EVERYONE)


async def test_no_schema_has_noise(core: Core) -> None:
    for tool in await listed(core, "all"):
        assert not NOISE & set(keys(tool.input_schema)), tool.name
        assert "description" not in tool.input_schema
        assert "format" not in tool.input_schema["properties"], tool.name
        assert tool.output_schema is not None
        jsonschema_rs.Draft202012Validator(tool.input_schema)
        jsonschema_rs.Draft202012Validator(tool.output_schema)
    task = next(tool for tool in await listed(core) if tool.name == "task")
    assert task.input_schema["required"] == ["objective"]
    assert "prompt" not in task.input_schema["properties"], "another name for objective"


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_not_listed_can_be_called(core: Core, mode: str) -> None:
    async with Client(mcp_server(core, CALLER, "1", "core"), mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == set(PROFILES["core"])
        made = await told(client, "create_task", title="Write", owner="general")
        assert (await told(client, "get_events", task_id=made["task_id"]))["events"][0]["type"] == "TaskCreated"
        assert (await told(client, "pause_task", task_id=made["task_id"]))["task"]["state"] == "paused"


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_over_http_chooses_by_its_address(core: Core, mode: str) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    async with app.run(), served(app) as url:
        for tools, expected in (
            ("", PROFILES["standard"]),
            ("?tools=core", PROFILES["core"]),
            ("?tools=task,respond", ("task", "respond")),
        ):
            async with Client(f"{url}{tools}", mode=mode) as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == list(expected)
                assert "tasks" in await told(client, "list_ready")


async def test_an_unknown_name_is_refused_with_suggestions(core: Core) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with app.run(), served(app) as url, aiohttp.ClientSession(headers=JSON) as http:
        for wrong, meant in (("cor", "core"), ("task,get_tusk", "get_task")):
            async with http.post(f"{url}?tools={wrong}", json=listing) as answer:
                error = (await answer.json())["error"]
            assert (answer.status, error["code"]) == (422, "INVALID_PARAM")
            assert f"Did you mean {meant}?" in error["message"]


async def test_a_change_says_what_changed_and_not_the_whole_task(core: Core) -> None:
    async with Client(mcp_server(core, CALLER, "1"), mode=MODERN) as client:
        made = await told(client, "create_task", title="Write", instructions="Long. " * 1000, owner="general")
        changes = [
            await told(client, "update_task", task_id="1", instructions="Longer. " * 1000),
            await told(client, "update_steps", task_id="1", steps=["Read", "Write"]),
            await told(client, "update_step", task_id="1", index=0, done=True),
            await told(client, "add_resource", task_id="1", type="url", value="https://example.org/"),
            await told(client, "complete_task", task_id="1", summary="Written."),
        ]
        whole = await told(client, "get_task", task_id="1")
    assert set(made) == {"task_id", "task"}
    assert set(changes[0]) == {"success", "update_id", "update_ids", "task"}
    assert all(set(change["task"]) == HANDED for change in (made, *changes))
    assert changes[-1]["task"] == {name: whole[name] for name in HANDED}
    assert {"instructions", "steps", "resources", "usage", "uid"} <= set(whole), "a read is whole"


async def test_a_result_says_each_thing_once(any_url: str, tmp_path: Path) -> None:
    def rule(request: Any) -> Any:
        if "fail" in request.messages[0].text:
            return calls(("LS", {"path": "."}))
        return says("Found it.")

    async with (
        stage(any_url, tmp_path, rule) as at,
        Client(mcp_server(at.team.core, CALLER, "1"), mode=MODERN) as client,
    ):
        found = await told(client, "task", objective="Look", subagent_type="explore")
        several = await told(
            client,
            "task_parallel",
            tasks=["Look", {"objective": "fail", "limits": {"max_turns": 1}}, {}],
        )
        again = await told(client, "task_output", task_id="1")
        exact = await told(client, "Task", description="A look", prompt="Look", subagent_type="explore")
        envelope = await told(client, "task", objective="Look", format="envelope")
        flat = await told(client, "task", objective="Look", format="flat")
        refused = await told(client, "task", objective="Look", subagent_type="nobody")
    assert list(found) == RESULT
    assert (found["task_id"], found["status"], found["result"]) == ("1", "completed", "Found it.")
    assert found["model_used"] == "light (scripted)"
    assert json.dumps(found).count("Found it.") == 1
    assert again == found
    done, failed, wrong = several["results"]
    assert list(done) == RESULT
    assert (failed["status"], failed["error"]["code"], failed["result"]) == (
        "failed",
        "LIMIT_EXCEEDED",
        "",
    )
    assert (wrong["task_id"], wrong["status"], wrong["error"]["code"]) == (
        None,
        "failed",
        "INVALID_PARAM",
    )
    assert list(exact) == list(envelope) == ["status", "data", "text", "stats", "context"]
    assert exact["text"] == "Subagent (explore, light) completed.\n\nFound it."
    assert exact["data"]["model_used"] == exact["stats"]["model"] == "light (scripted)"
    assert set(flat) == {
        "task_id",
        "objective",
        "agent_type",
        "status",
        "result",
        "error",
        "duration",
        "started_at",
        "completed_at",
    }
    assert (refused["status"], refused["error"]["code"]) == ("failed", "INVALID_PARAM")
    assert not {"data", "text", "stats", "context"} & set(refused)


async def test_a_subtask_that_was_waited_for_comes_with_its_result(any_url: str, tmp_path: Path) -> None:
    async with (
        stage(any_url, tmp_path, lambda _: says("Found it.")) as at,
        Client(mcp_server(at.team.core, CALLER, "1"), mode=MODERN) as client,
    ):
        parent = await told(client, "create_task", title="Lead", status="draft")
        part = await told(
            client,
            "create_subtask",
            task_id=parent["task_id"],
            title="Look",
            owner="explore",
            wait="block",
        )
    assert (part["task"]["state"], part["result"]) == ("done", "Found it.")
    assert set(part["task"]) == HANDED


def on_streams(shell: Shell, *arguments: str, **variables: str) -> Client:
    """A client of a `remit mcp` process."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "remit", "mcp", *arguments],
        cwd=str(shell.folder),
        env=shell.env | variables,
    )
    return Client(stdio_client(server), mode=MODERN)


async def test_the_command_chooses_the_tools(shell: Shell) -> None:
    wanted = [
        (on_streams(shell), PROFILES["standard"]),
        (on_streams(shell, "--tools", "core"), PROFILES["core"]),
        (on_streams(shell, "--tools", "task,get_events"), ("task", "get_events")),
        (on_streams(shell, REMIT_MCP_TOOLS="core"), PROFILES["core"]),
    ]
    for opened, expected in wanted:
        async with opened as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == list(expected)
    ran = shell.remit("mcp", "--tools", "standart")
    assert ran.code == 2
    assert "unknown tool or profile 'standart'. Did you mean standard?" in ran.err


async def test_a_server_has_a_default_and_its_clients_choose(shell: Shell) -> None:
    token = shell.remit("token", "show").out.strip()
    headers = {**JSON, "authorization": f"Bearer {token}"}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    with served_by_command(shell, "--mcp-tools", "core", "--no-worker") as server:
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.post(f"{server.url}/mcp", json=HELLO) as answer:
                session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            for query, expected in (("", "core"), ("?tools=all", "all")):
                async with http.post(f"{server.url}/mcp{query}", json=listing, headers=session) as answer:
                    tools = (await answer.json())["result"]["tools"]
                assert [tool["name"] for tool in tools] == list(PROFILES[expected])
            async with http.post(f"{server.url}/mcp?tools=cor", json=HELLO) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (422, "INVALID_PARAM")
