"""MCP over HTTP: an app, real clients of each protocol version, and a story told with tools."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import mcp_types as wire
import uvicorn
from mcp import Client

from remit.app.context import Caller
from remit.surfaces.mcp.server import McpHttp, mcp_http, mcp_server
from tests.agents.stage import Stage
from tests.patience import patient
from tests.people import ANN

MODERN = "2026-07-28"


MODES = ["legacy", MODERN]


CALLER = Caller(actor=ANN)


JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served(app: McpHttp) -> AsyncIterator[str]:
    """The URL of an endpoint behind a real server, which must have stopped at the end of the
    block.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(
            uvicorn.Config(cast("Any", app), lifespan="off", log_level="warning")
        )
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
    """The one error shape that a tool fails with.

    Its text begins with the code and reads as a sentence.
    """
    result = await client.call_tool(tool, fields)
    assert result.is_error
    error = cast("dict[str, Any]", result.structured_content)["error"]
    (text,) = result.content
    assert isinstance(text, wire.TextContent)
    assert text.text == f"{error['code']}: {error['message']}"
    return cast("dict[str, Any]", error)


async def tell_story(client: Client) -> str:
    """A task from its beginning to its end, by tools alone; its id."""
    task_id = (
        await ok(
            client,
            "create_task",
            title="Write the report",
            acceptance=["It is short."],
            outputs=["report"],
            owner="general",
        )
    )["task_id"]
    planned = await ok(
        client,
        "update_steps",
        task_id=task_id,
        steps=["Read", {"title": "Write", "details": "two pages"}],
    )
    assert planned == {"success": True, "task": {"id": task_id, "state": "pending", "version": 2}}
    assert [step["title"] for step in (await ok(client, "get_task", task_id=task_id))["steps"]] == [
        "Read",
        "Write",
    ]
    assert (await ok(client, "update_task", task_id=task_id, instructions="In English."))[
        "update_id"
    ] == f"{task_id}-u1"
    child = await ok(
        client,
        "create_subtask",
        task_id=task_id,
        title="Read the notes",
        owner="explore",
        step_index=0,
    )
    assert (await ok(client, "get_task", task_id=child["task_id"]))["parent_id"] == task_id
    await ok(client, "update_step", task_id=task_id, index=1, done=True)
    assert [task["id"] for task in (await ok(client, "list_tasks", limit=2))["tasks"]] == [
        child["task_id"],
        task_id,
    ]

    error = await refused(client, "complete_task", task_id=task_id)
    assert (error["code"], error["details"]["fields"][0]["problem"]) == (
        "INVALID_PARAM",
        "missing required output: report",
    )
    done = await ok(
        client,
        "mark_task_complete",
        task_id=task_id,
        outputs={"report": "Zwei Seiten: 你好 🙂"},
        summary="Written.",
    )
    assert (done["success"], done["task"]["state"]) == (True, "done")
    assert (await ok(client, "get_task", task_id=task_id))["completion_outputs"] == {
        "report": "Zwei Seiten: 你好 🙂"
    }
    assert (await refused(client, "pause_task", task_id=task_id))["code"] == "CONFLICT"
    assert (await ok(client, "list_history"))["tasks"][0]["id"] == task_id
    assert (await ok(client, "get_events", task_id=task_id))["events"][-1][
        "type"
    ] == "TaskCompleted"
    return str(task_id)


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    },
}


@asynccontextmanager
async def over_http(at: Stage, mode: str) -> AsyncIterator[Client]:
    app = mcp_http(mcp_server(at.team.core, CALLER, "1"))
    async with app.run(), served(app) as address, Client(address, mode=mode) as client:
        yield client
