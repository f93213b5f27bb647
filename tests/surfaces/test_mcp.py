"""MCP: the tools are the catalogue, and a real client gets the same from them as every other
caller.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any, cast

import aiohttp
import jsonschema_rs
import mcp_types as wire
import pytest
from mcp import Client, MCPError

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.context import AppContext
from remit.bootstrap import open_store
from remit.catalog import FOR_EVERYONE, OPERATIONS, PROFILES, call, lean_answer
from remit.domain.records.json_schema import record_schema
from remit.errors import RemitError
from remit.surfaces.mcp.server import mcp_http, mcp_server
from tests.people import ANN
from tests.surfaces.mcp_http import (
    CALLER,
    HELLO,
    JSON,
    MODERN,
    MODES,
    ok,
    refused,
    served,
    tell_story,
)


@pytest.fixture
async def core() -> AsyncIterator[AppContext]:
    async with open_store("memory:") as store:
        yield AppContext(store, SystemClock(), AgentRegistry())


def connected(core: AppContext, mode: str, tools: str = "all") -> Client:
    """A client in memory."""
    return Client(mcp_server(core, CALLER, "1.2.3", tools), mode=mode)


@pytest.mark.parametrize("mode", MODES)
async def test_the_tools_are_exactly_the_table(core: AppContext, mode: str) -> None:
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


async def test_a_model_can_read_every_schema_as_it_stands(core: AppContext) -> None:
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
async def test_the_server_says_who_it_is_and_how_to_use_it(core: AppContext, mode: str) -> None:
    async with connected(core, "auto" if mode == MODERN else mode) as client:
        assert client.protocol_version == (MODERN if mode == MODERN else "2025-11-25")
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("remit", "1.2.3")
        assert client.instructions is not None
        assert all(
            f" {name}" in client.instructions
            for name in ("task,", "task_parallel", "task_output", "create_task", "respond")
        )
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.resources is None


@pytest.mark.parametrize("mode", MODES)
async def test_a_story_in_memory(core: AppContext, mode: str) -> None:
    async with connected(core, mode) as client:
        task_id = await tell_story(client)
    assert (await core.task(task_id))["created_by"] == ANN


@pytest.mark.parametrize("mode", MODES)
async def test_a_story_over_http(core: AppContext, mode: str) -> None:
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
async def test_the_same_call_gives_the_same_data_as_everywhere(core: AppContext, mode: str) -> None:
    async with connected(core, mode) as client:
        await ok(client, "create_task", title="Write", instructions="First.", owner="general")
        await ok(client, "create_task", title="Read")
        await ok(client, "update_task", task_id="1", instructions="Second.")
        await ok(client, "create_guide", title="Restart", body="Turn it off and on.", id="restart")
        for tool, fields in READS:
            whole = await call(core, tool, fields, CALLER)
            expected = lean_answer(OPERATIONS[tool], fields, whole)
            assert await ok(client, tool, **fields) == expected, tool
    reads = {name for name, operation in FOR_EVERYONE.items() if operation.effect == "read"}
    assert {tool for tool, _ in READS} == reads


@pytest.mark.parametrize("mode", MODES)
async def test_the_same_call_fails_with_the_same_error_as_everywhere(
    core: AppContext, mode: str
) -> None:
    async with connected(core, mode) as client:
        await ok(client, "create_task", title="Write")
        for tool, fields in REFUSALS:
            with pytest.raises(RemitError) as expected:
                await call(core, tool, fields, CALLER)
            assert {"error": await refused(client, tool, **fields)} == expected.value.wire(), tool


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ["ask_user", "no_such_tool", "x" * 100_000])
async def test_an_unknown_tool_is_an_error_of_the_request(
    core: AppContext, mode: str, tool: str
) -> None:
    assert "ask_user" in OPERATIONS, "offered to running agents alone"
    async with connected(core, mode) as client:
        with pytest.raises(MCPError, match="Unknown tool") as error:
            await client.call_tool(tool, {})
    assert error.value.code == wire.INVALID_PARAMS
    assert error.value.data["error"]["code"] == "NOT_FOUND"
    assert len(error.value.message) < 200


@pytest.mark.parametrize("mode", MODES)
async def test_there_is_one_page_of_tools(core: AppContext, mode: str) -> None:
    async with connected(core, mode) as client:
        with pytest.raises(MCPError, match="Unknown cursor"):
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
async def test_an_unexpected_error_reveals_no_internals(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_store("memory:") as store,
        connected(AppContext(store, BrokenClock(), AgentRegistry()), mode) as client,
    ):
        with caplog.at_level(logging.ERROR):
            error = await refused(client, "get_task", task_id="1")
    assert error == {
        "code": "INTERNAL_ERROR",
        "message": "Internal error. See the server's log.",
    }
    assert ".secret" in caplog.text


async def test_a_stream_cannot_be_opened(core: AppContext) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    async with app.run(), served(app) as url, aiohttp.ClientSession() as http:
        for method in ("GET", "PUT", "OPTIONS"):
            async with http.request(method, url, headers={"accept": "text/event-stream"}) as answer:
                assert (answer.status, answer.headers["allow"]) == (405, "POST, DELETE")
                assert (await answer.json())["error"]["code"] == "INVALID_PARAM"


async def test_a_session_of_an_older_client_ends_when_it_says_so(core: AppContext) -> None:
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


async def test_open_connections_and_sessions_do_not_hold_up_the_end(core: AppContext) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    async with aiohttp.ClientSession(headers=JSON) as http, served(app) as url:
        async with app.run(), http.post(url, json=HELLO) as answer:
            assert answer.status == 200
        async with http.post(url, json=HELLO) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "UNAVAILABLE")
