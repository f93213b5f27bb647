"""A client that waits over MCP hears what goes on if it wants to, and can stop waiting without
stopping the work.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from mcp import Client

from remit.adapters.stores.sqlite.driver import connect as connect_sqlite
from remit.app.context import AppContext
from remit.domain.llm.messages import Request
from remit.domain.task.task import State
from remit.surfaces.mcp.server import mcp_http, mcp_server
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage
from tests.patience import patient
from tests.surfaces.mcp_http import CALLER, HELLO, JSON, MODES, ok, over_http, served
from tests.surfaces.mcp_pipe import asking, piped, url
from tests.surfaces.mcp_pipe import client as stdio_client

Connect = Callable[[Stage, str], AbstractAsyncContextManager[Client]]


class Heard(NamedTuple):
    """A notification of progress."""

    progress: float
    total: float | None
    message: str | None


class Ear:
    """Remembers what it hears, and tells who waits for a word."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self._more = asyncio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.append(Heard(progress, total, message))
        self._more.set()

    async def until(self, word: str) -> None:
        """Wait for a word."""
        while not any(word in (heard.message or "") for heard in self.heard):
            self._more.clear()
            await self._more.wait()

    def grows(self) -> bool:
        """Every notification says more than the one before."""
        return all(
            earlier.progress < later.progress
            for earlier, later in zip(self.heard, self.heard[1:], strict=False)
        )


@pytest.fixture(params=["http", "stdio"])
def connect(request: pytest.FixtureRequest, durable_url: str, tmp_path: Path) -> Connect:
    """Opens a client over each transport.

    On standard streams its server is another process on the same store.
    """
    return (
        over_http
        if request.param == "http"
        else lambda _, mode: stdio_client(tmp_path, mode, durable_url)
    )


both_ages = pytest.mark.parametrize("mode", MODES)


@asynccontextmanager
async def play(store: str, folder: Path) -> AsyncIterator[tuple[Stage, Gate]]:
    """Workers whose model lists the folder and then stands at a gate, unless it is told to be
    quick.
    """
    gate = Gate()

    def rule(request: Request) -> Any:
        if "quick" in request.messages[0].text:
            return says("Quick.")
        return (
            gate.then(says("Slow.")) if results(request) else calls(("LS", {"path": str(folder)}))
        )

    async with asyncio.timeout(patient(40)), stage(store, folder, rule) as at:
        yield at, gate


@both_ages
async def test_a_call_for_several_tasks_reports_each(
    connect: Connect, mode: str, durable_url: str, tmp_path: Path
) -> None:
    ear = Ear()
    async with play(durable_url, tmp_path) as (at, gate), connect(at, mode) as client:
        works = {"tasks": ["Be slow", "Be quick", {"objective": "x", "subagent_type": "nobody"}]}
        waiting = asyncio.create_task(
            client.call_tool("task_parallel", works, progress_callback=ear)
        )
        await ear.until("LS")
        await ear.until("2 of 3 settled")
        gate.open.set()
        found: Any = (await waiting).structured_content
        await ear.until("3 of 3 settled")
    assert [result["status"] for result in found["results"]] == ["completed", "completed", "failed"]
    assert ear.grows()
    assert {heard.total for heard in ear.heard} == {3.0}
    assert (ear.heard[-1].progress, ear.heard[-1].message) == (3.0, "3 of 3 settled · #1 completed")
    assert any(
        "#1 Be slow · general · running · LS · 1 tool call · 15 tokens" in str(heard.message)
        for heard in ear.heard
    )


WAITS: list[tuple[str, dict[str, Any]]] = [
    ("task", {"objective": "Be slow"}),
    ("Task", {"description": "Be slow", "prompt": "Be slow", "subagent_type": "explore"}),
    ("create_subtask", {"task_id": "1", "title": "Be slow", "owner": "explore", "wait": "block"}),
    ("task_output", {"task_id": "5", "wait_seconds": patient(60)}),
]


@both_ages
async def test_whatever_waits_is_heard_of(
    connect: Connect, mode: str, durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as (at, gate), connect(at, mode) as client:
        await at.create(owner=None)
        for tool, fields in WAITS:
            if tool == "task_output":
                assert await at.create(title="Be slow") == fields["task_id"]
            ear = Ear()
            waiting = asyncio.create_task(client.call_tool(tool, fields, progress_callback=ear))
            await ear.until("LS")
            await reached(gate)
            gate.open.set()
            assert "Slow." in str((await waiting).structured_content), tool
            assert ear.grows()
            assert {heard.total for heard in ear.heard} == {None}
            gate.open.clear()
            gate.reached.clear()


async def test_a_call_without_a_token_gets_no_progress(durable_url: str, tmp_path: Path) -> None:
    async with (
        play(durable_url, tmp_path) as (_, gate),
        piped(tmp_path, store=durable_url) as server,
    ):
        gate.open.set()
        await server.hello()
        with_token = asking(2, "task", objective="Be slow")
        with_token["params"]["_meta"] = {"progressToken": 7}
        await server.send(asking(1, "task", objective="Be slow"))
        assert (await server.receive())["id"] == 1
        await server.send(with_token)
        server.stdin.close()
        *progress, answer = await server.rest()
        assert answer["id"] == 2
        assert {message["params"]["progressToken"] for message in progress} == {7}


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_call_that_waits_for_the_store_is_heard_of(transport: str, tmp_path: Path) -> None:
    ear = Ear()
    async with play(url(tmp_path), tmp_path) as (at, _):
        connect = (
            over_http(at, "legacy") if transport == "http" else stdio_client(tmp_path, "legacy")
        )
        async with connect as client:
            with closing(connect_sqlite(tmp_path / "remit.db")) as other:
                other.execute("BEGIN IMMEDIATE")
                calling = asyncio.create_task(
                    client.call_tool("create_task", {"title": "A"}, progress_callback=ear)
                )
                await ear.until("no news yet")
                other.execute("ROLLBACK")
            made = (await calling).structured_content
            assert made is not None
            assert made["task_id"] == "1"


@both_ages
async def test_a_client_that_stops_waiting_cancels_no_task(
    connect: Connect, mode: str, durable_url: str, tmp_path: Path
) -> None:
    ear = Ear()
    async with play(durable_url, tmp_path) as (at, gate), connect(at, mode) as client:
        waiting = asyncio.create_task(
            client.call_tool("task", {"objective": "Be slow"}, progress_callback=ear)
        )
        await ear.until("LS")
        waiting.cancel()
        await asyncio.wait({waiting})
        assert (await ok(client, "task_output", task_id="1"))["status"] == "running"
        gate.open.set()
        assert (await ok(client, "task_output", task_id="1", wait_seconds=patient(60)))[
            "result"
        ] == "Slow."
        assert (await at.team.task("1")).state is State.DONE
        assert "TaskCanceled" not in await at.team.events("1")


@both_ages
async def test_a_call_that_is_refused_is_refused_with_a_token_too(
    connect: Connect, mode: str, durable_url: str, tmp_path: Path
) -> None:
    ear = Ear()
    async with play(durable_url, tmp_path) as (at, _), connect(at, mode) as client:
        refused = await client.call_tool(
            "task", {"objective": "x", "subagent_type": "nobody"}, progress_callback=ear
        )
        quick = await client.call_tool("list_tasks", {}, progress_callback=ear)
    assert refused.is_error
    assert not quick.is_error
    assert ear.heard == []


CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}


async def _posted(
    http: aiohttp.ClientSession, address: str, accept: str, params: dict[str, Any]
) -> tuple[str, str]:
    async with http.post(address, json=HELLO) as answer:
        session = {"mcp-session-id": answer.headers["mcp-session-id"], "accept": accept}
    async with http.post(address, json=CALL | {"params": params}, headers=session) as answer:
        return answer.content_type, await answer.text()


@pytest.mark.parametrize("token", ["a", 0, "\u2028é"])
async def test_an_answer_over_http_is_a_stream_only_where_there_is_progress(
    token: Any, tmp_path: Path
) -> None:
    params: dict[str, Any] = {"name": "task", "arguments": {"objective": "Be quick"}}
    with_token = params | {"_meta": {"progressToken": token}}
    async with (
        play(url(tmp_path), tmp_path) as (at, _),
        aiohttp.ClientSession(headers=JSON) as http,
    ):
        app = mcp_http(mcp_server(at.team.core, CALLER, "1"))
        async with app.run(), served(app) as address:
            kinds = [
                (await _posted(http, address, accept, sent))[0]
                for accept, sent in (
                    (JSON["accept"], params),
                    (JSON["accept"], params | {"_meta": {"progressToken": True}}),
                    (
                        JSON["accept"],
                        {"name": "list_tasks", "arguments": {}, "_meta": {"progressToken": "a"}},
                    ),
                    ("application/json", with_token),
                )
            ]
            kind, text = await _posted(http, address, JSON["accept"], with_token)
    assert kinds == ["application/json"] * 4
    assert kind == "text/event-stream"
    blocks = text.split("\n\n")
    assert all(block.startswith("event: message\ndata: {") for block in blocks[:-1])
    assert blocks[-1] == ""
    assert "Quick." in blocks[-2]
    assert all("notifications/progress" in block for block in blocks[:-2])


async def test_a_call_without_a_token_is_kept_alive_over_http(tmp_path: Path) -> None:
    params: dict[str, Any] = {"name": "task", "arguments": {"objective": "Be slow"}}
    async with (
        play(url(tmp_path), tmp_path) as (at, gate),
        aiohttp.ClientSession(headers=JSON) as http,
    ):
        app = mcp_http(mcp_server(at.team.core, CALLER, "1"), heartbeat=0.05)
        async with app.run(), served(app) as address:
            async with http.post(address, json=HELLO) as answer:
                session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            async with http.post(
                address, json=CALL | {"params": params}, headers=session
            ) as stream:
                assert stream.content_type == "text/event-stream"
                for _ in range(2):
                    assert await stream.content.readuntil(b"\n\n") == b": still here\n\n"
                gate.open.set()
                *comments, last, end = (await stream.text()).split("\n\n")
    assert set(comments) <= {": still here"}
    assert last.startswith("event: message\ndata: {")
    assert "Slow." in last
    assert end == ""


@both_ages
async def test_clients_ignore_what_keeps_a_call_alive(mode: str, tmp_path: Path) -> None:
    async with play(url(tmp_path), tmp_path) as (at, gate):
        app = mcp_http(mcp_server(at.team.core, CALLER, "1"), heartbeat=0.01)
        async with app.run(), served(app) as address, Client(address, mode=mode) as client:
            waiting = asyncio.create_task(ok(client, "task", objective="Be slow"))
            await reached(gate)
            gate.open.set()
            assert (await waiting)["result"] == "Slow."


async def test_an_older_client_that_cancels_gets_an_answer_and_its_session_continues(
    durable_url: str, tmp_path: Path
) -> None:
    params: dict[str, Any] = {
        "name": "task",
        "arguments": {"objective": "Be slow"},
        "_meta": {"progressToken": "t"},
    }
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    async with (
        play(durable_url, tmp_path) as (at, gate),
        aiohttp.ClientSession(headers=JSON) as http,
    ):
        app = mcp_http(mcp_server(at.team.core, CALLER, "1"))
        async with app.run(), served(app) as address:
            async with http.post(address, json=HELLO) as answer:
                session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            async with http.post(
                address, json=CALL | {"params": params}, headers=session
            ) as stream:
                await reached(gate)
                async with http.post(address, json=cancel, headers=session) as answer:
                    assert answer.status == 202
                assert "cancelled" in (await stream.text()).splitlines()[-2]
            gate.open.set()
            assert (await at.team.ended("1")).state is State.DONE


async def test_a_wait_ends_with_the_connection_of_a_modern_client(
    durable_url: str, tmp_path: Path
) -> None:
    """A wait that nobody listens to any more holds no watch on the store."""
    ear = Ear()
    async with play(durable_url, tmp_path) as (at, gate):
        left = _left(at.team.core)
        async with over_http(at, MODES[1]) as client:
            waiting = asyncio.create_task(
                client.call_tool("task", {"objective": "Be slow"}, progress_callback=ear)
            )
            await ear.until("LS")
            assert not left.is_set()
            waiting.cancel()
            await left.wait()
        gate.open.set()
        assert (await at.team.ended("1")).state is State.DONE


def _left(core: AppContext) -> asyncio.Event:
    """Set when a watch is closed that was opened from here on."""
    store: Any = core.store
    watch, left = store.watch, asyncio.Event()

    @asynccontextmanager
    async def noticed(*topic: Any) -> AsyncIterator[Any]:
        try:
            async with watch(*topic) as bell:
                yield bell
        finally:
            left.set()

    store.watch = noticed
    return left
