"""MCP: the tools are the catalogue, and a real client gets the same from them as every other caller."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

import aiohttp
import jsonschema_rs
import mcp_types as wire
import pytest
import uvicorn
from mcp import Client, MCPError

from remit.adapters.clock import SystemClock
from remit.app.agents import AgentRegistry
from remit.app.core import Caller, Core
from remit.bootstrap import open_store
from remit.catalog import FOR_EVERYONE, OPERATIONS, PROFILES, call
from remit.domain.envelope import lean
from remit.domain.schema import record_schema
from remit.errors import RemitError
from remit.surfaces.mcp import McpHttp, mcp_http, mcp_server
from tests.patience import patient
from tests.people import ANN

MODERN = "2026-07-28"
MODES = ["legacy", MODERN]
CALLER = Caller(actor=ANN)
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.fixture
async def core() -> AsyncIterator[Core]:
    async with open_store("memory:") as store:
        yield Core(store, SystemClock(), AgentRegistry())


def connected(core: Core, mode: str, tools: str = "all") -> Client:
    """A client in memory."""
    return Client(mcp_server(core, CALLER, "1.2.3", tools), mode=mode)


@asynccontextmanager
async def served(app: McpHttp) -> AsyncIterator[str]:
    """The URL of an endpoint behind a real server, which must have stopped at the end of the block."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(cast("Any", app), lifespan="off", log_level="warning"))
        async with asyncio.timeout(patient(30)), asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            finally:
                server.should_exit = True


async def ok(client: Client, tool: str, **fields: Any) -> dict[str, Any]:
    """What a tool returns; its text says the same."""
    result = await client.call_tool(tool, fields)
    assert not result.is_error, result.content
    (text,) = result.content
    assert isinstance(text, wire.TextContent)
    assert json.loads(text.text) == result.structured_content
    return cast("dict[str, Any]", result.structured_content)


async def refused(client: Client, tool: str, **fields: Any) -> dict[str, Any]:
    """The one error shape that a tool fails with; its text begins with the code and reads as a sentence."""
    result = await client.call_tool(tool, fields)
    assert result.is_error
    error = cast("dict[str, Any]", result.structured_content)["error"]
    (text,) = result.content
    assert isinstance(text, wire.TextContent)
    assert text.text == f"{error['code']}: {error['message']}"
    return cast("dict[str, Any]", error)


async def tell_story(client: Client) -> str:
    """A task from its beginning to its end, by tools alone; its id."""
    task_id = (await ok(client, "create_task", title="Write the report", acceptance=["It is short."], outputs=["report"], owner="general"))["task_id"]
    planned = await ok(client, "update_steps", task_id=task_id, steps=["Read", {"title": "Write", "details": "two pages"}])
    assert planned == {"success": True, "task": {"id": task_id, "state": "pending", "version": 2}}
    assert [step["title"] for step in (await ok(client, "get_task", task_id=task_id))["steps"]] == [
        "Read",
        "Write",
    ]
    assert (await ok(client, "update_task", task_id=task_id, instructions="In English."))["update_id"] == f"{task_id}-u1"
    child = await ok(client, "create_subtask", task_id=task_id, title="Read the notes", owner="explore", step_index=0)
    assert (await ok(client, "get_task", task_id=child["task_id"]))["parent_id"] == task_id
    await ok(client, "update_step", task_id=task_id, index=1, done=True)
    assert [task["id"] for task in (await ok(client, "list_tasks", limit=2))["tasks"]] == [child["task_id"], task_id]

    error = await refused(client, "complete_task", task_id=task_id)
    assert (error["code"], error["details"]["fields"][0]["problem"]) == ("INVALID_PARAM", "missing required output: report")
    done = await ok(client, "mark_task_complete", task_id=task_id, outputs={"report": "Zwei Seiten: 你好 🙂"}, summary="Written.")
    assert (done["success"], done["task"]["state"]) == (True, "done")
    assert (await ok(client, "get_task", task_id=task_id))["completion_outputs"] == {"report": "Zwei Seiten: 你好 🙂"}
    assert (await refused(client, "pause_task", task_id=task_id))["code"] == "CONFLICT"
    assert (await ok(client, "list_history"))["tasks"][0]["id"] == task_id
    assert (await ok(client, "get_events", task_id=task_id))["events"][-1]["type"] == "TaskCompleted"
    return str(task_id)


@pytest.mark.parametrize("mode", MODES)
async def test_the_tools_are_exactly_the_table(core: Core, mode: str) -> None:
    async with connected(core, mode) as client:
        listed = await client.list_tools()
    assert listed.next_cursor is None
    assert [tool.name for tool in listed.tools] == list(FOR_EVERYONE)
    for tool, operation in zip(listed.tools, FOR_EVERYONE.values(), strict=True):
        exact = record_schema(cast("Any", operation.input))
        assert set(tool.input_schema["properties"]) <= set(exact["properties"])
        assert set(exact.get("required", ())) <= set(tool.input_schema.get("required", ()))
        assert tool.description is not None
        assert tool.description.startswith(operation.description)
        assert tool.title
        hints = tool.annotations
        assert hints is not None
        assert hints.read_only_hint is (operation.effect == "read")
        assert hints.destructive_hint is (operation.effect == "destroy")
        assert hints.idempotent_hint is operation.idempotent
        assert hints.open_world_hint is False


async def test_a_model_can_read_every_schema_as_it_stands(core: Core) -> None:
    async with connected(core, MODERN) as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        for schema in (tool.input_schema, tool.output_schema):
            assert schema is not None
            jsonschema_rs.Draft202012Validator(schema)
            assert not {"$ref", "$defs", "definitions"} & set(_keys(schema)), tool.name
        assert tool.input_schema["type"] == "object"
        for name, parameter in tool.input_schema["properties"].items():
            assert parameter.get("description"), f"{tool.name}.{name} says nothing"


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


@pytest.mark.parametrize("mode", MODES)
async def test_the_server_says_who_it_is_and_how_to_use_it(core: Core, mode: str) -> None:
    async with connected(core, "auto" if mode == MODERN else mode) as client:
        assert client.protocol_version == (MODERN if mode == MODERN else "2025-11-25")
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("remit", "1.2.3")
        assert client.instructions is not None
        assert all(f" {name}" in client.instructions for name in ("task,", "task_parallel", "task_output", "create_task", "respond"))
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.resources is None


@pytest.mark.parametrize("mode", MODES)
async def test_a_story_in_memory(core: Core, mode: str) -> None:
    async with connected(core, mode) as client:
        task_id = await tell_story(client)
    assert (await core.task(task_id))["created_by"] == ANN


@pytest.mark.parametrize("mode", MODES)
async def test_a_story_over_http(core: Core, mode: str) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1.2.3"))
    async with app.run(), served(app) as url, Client(url, mode=mode) as client:
        assert client.protocol_version == (MODERN if mode == MODERN else "2025-11-25")
        task_id = await tell_story(client)
        found = await asyncio.gather(*(ok(client, "get_task", task_id=task_id) for _ in range(50)))
        assert all(task == found[0] for task in found)


READS: list[tuple[str, dict[str, Any]]] = [
    ("get_task", {"task_id": "1"}),
    ("list_tasks", {"scope": "all", "limit": 1}),
    ("list_history", {}),
    ("list_session_tasks", {"session_id": "s1"}),
    ("list_updates", {"task_id": "1"}),
    ("get_events", {"task_id": "1", "after": 1}),
    ("list_interactions", {}),
    ("list_notifications", {}),
    ("get_guide", {"guide_id": "restart"}),
    ("list_guides", {}),
    ("list_agents", {}),
    ("get_agent", {"agent_id": "general"}),
    ("list_ready", {"limit": 5}),
    ("get_transcript", {"task_id": "1"}),
    ("task_output", {"task_id": "1"}),
]
REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("get_task", {"task_id": "9"}),
    ("get_task", {}),
    ("get_task", {"task_id": 9}),
    ("get_task", {"task": "1"}),
    ("create_task", {"title": ""}),
    ("create_task", {"title": "x", "priority": 7, "owner": 3, "steps": [{}]}),
    ("create_task", {"title": "x", "owner": "nobody"}),
    ("list_tasks", {"scope": "mine"}),
    ("respond", {"interaction_id": "9-q1", "answer": "yes"}),
    ("resume_task", {"task_id": "1"}),
    ("update_task", {"task_id": "1", "title": "y", "expected_version": 99}),
    ("get_agent", {"agent_id": "nobody"}),
]


@pytest.mark.parametrize("mode", MODES)
async def test_the_same_call_gives_the_same_data_as_everywhere(core: Core, mode: str) -> None:
    async with connected(core, mode) as client:
        await ok(client, "create_task", title="Write", instructions="First.", owner="general")
        await ok(client, "create_task", title="Read")
        await ok(client, "update_task", task_id="1", instructions="Second.")
        await ok(client, "create_guide", title="Restart", body="Turn it off and on.", id="restart")
        for tool, fields in READS:
            whole = await call(core, tool, fields, CALLER)
            assert await ok(client, tool, **fields) == (lean(whole) if tool == "task_output" else whole), tool
    reads = {name for name, operation in FOR_EVERYONE.items() if operation.effect == "read"}
    assert {tool for tool, _ in READS} == reads


@pytest.mark.parametrize("mode", MODES)
async def test_the_same_call_fails_with_the_same_error_as_everywhere(core: Core, mode: str) -> None:
    async with connected(core, mode) as client:
        await ok(client, "create_task", title="Write")
        for tool, fields in REFUSALS:
            with pytest.raises(RemitError) as expected:
                await call(core, tool, fields, CALLER)
            assert {"error": await refused(client, tool, **fields)} == expected.value.wire(), tool


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ["ask_user", "no_such_tool", "x" * 100_000])
async def test_an_unknown_tool_is_an_error_of_the_request(core: Core, mode: str, tool: str) -> None:
    assert "ask_user" in OPERATIONS, "offered to running agents alone"
    async with connected(core, mode) as client:
        with pytest.raises(MCPError, match="There is no tool") as error:
            await client.call_tool(tool, {})
    assert error.value.code == wire.INVALID_PARAMS
    assert error.value.data["error"]["code"] == "NOT_FOUND"
    assert len(error.value.message) < 200


@pytest.mark.parametrize("mode", MODES)
async def test_there_is_one_page_of_tools(core: Core, mode: str) -> None:
    async with connected(core, mode) as client:
        with pytest.raises(MCPError, match="no such cursor"):
            await client.list_tools(cursor="2")


class BrokenClock:
    """Fails in a way that nobody foresaw."""

    def now(self) -> datetime:
        raise RuntimeError("/home/ann/.secret")

    def next_slot(self, cron: str, after: datetime) -> datetime:
        raise AssertionError

    def uid(self) -> str:
        raise RuntimeError("/home/ann/.secret")


@pytest.mark.parametrize("mode", MODES)
async def test_what_nobody_foresaw_says_nothing_of_the_inside(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async with open_store("memory:") as store, connected(Core(store, BrokenClock(), AgentRegistry()), mode) as client:
        with caplog.at_level(logging.ERROR):
            error = await refused(client, "get_task", task_id="1")
    assert error == {"code": "INTERNAL_ERROR", "message": "Something went wrong inside remit. The server's log says more."}
    assert ".secret" in caplog.text


async def test_there_is_no_stream_to_open(core: Core) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    async with app.run(), served(app) as url, aiohttp.ClientSession() as http:
        for method in ("GET", "PUT", "OPTIONS"):
            async with http.request(method, url, headers={"accept": "text/event-stream"}) as answer:
                assert (answer.status, answer.headers["allow"]) == (405, "POST, DELETE")
                assert (await answer.json())["error"]["code"] == "INVALID_PARAM"


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}},
}


async def test_a_session_of_an_older_client_ends_when_it_says_so(core: Core) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with app.run(), served(app) as url, aiohttp.ClientSession(headers=JSON) as http:
        async with http.post(url, json=HELLO) as answer:
            session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            assert answer.content_type == "application/json"
            assert (await answer.json())["result"]["protocolVersion"] == "2025-03-26"
        async with http.post(url, json=listing, headers=session) as answer:
            assert len((await answer.json())["result"]["tools"]) == len(PROFILES["standard"])
        async with http.delete(url, headers=session) as answer:
            assert answer.status == 200
        async with http.post(url, json=listing, headers=session) as answer:
            assert answer.status == 404


async def test_open_connections_and_sessions_do_not_hold_up_the_end(core: Core) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    async with aiohttp.ClientSession(headers=JSON) as http, served(app) as url:
        async with app.run(), http.post(url, json=HELLO) as answer:
            assert answer.status == 200
        async with http.post(url, json=HELLO) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "UNAVAILABLE")
