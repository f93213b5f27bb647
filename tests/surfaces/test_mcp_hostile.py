"""Invalid and hostile MCP messages: the server survives, reports the error, stores nothing, and
reveals no internals.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import mcp_types as wire
import pytest

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.context import AppContext
from remit.bootstrap import open_store
from remit.ports import EventStore
from remit.store_queries.event_queries import STREAMS
from remit.surfaces.mcp.server import MAX_MESSAGE, mcp_http, mcp_server
from tests.surfaces.mcp_http import CALLER, HELLO, JSON, MODERN
from tests.surfaces.mcp_http import served as served_app
from tests.surfaces.mcp_pipe import hello, piped, url

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}

ARGUMENTS = {
    "a title of 100,000 characters": '{"title": "%s"}' % ("x" * 100_000),
    "a field of 100,000 characters": '{"title": "x", "%s": 1}' % ("x" * 100_000),
    "900 levels": '{"title": "x", "metadata": {"deep": %s}}' % ("[" * 900 + "]" * 900),
    "not a number": '{"title": "x", "metadata": {"n": NaN}}',
    "infinity": '{"title": "x", "priority": Infinity}',
    "a number of 400 digits": '{"title": "x", "priority": %s}' % ("9" * 400),
    "a lone surrogate": r'{"title": "\ud800"}',
    "a lone surrogate in a field": r'{"title": "x", "\udfff": 1}',
    "a lone surrogate far inside": r'{"title": "x", "metadata": {"a": [{"b": "\ud83d"}]}}',
    "NUL": r'{"title": "a\u0000b"}',
    "NUL in a key": r'{"title": "x", "metadata": {"\u0000": 1}}',
    "a megabyte and a byte": '{"title": "x", "instructions": "%s"}' % ("x" * 1_000_001),
    "a megabyte of brackets": '{"title": "x", "metadata": {"a": [%s[]]}}' % ("[]," * 300_000),
    "the prototype": '{"title": "x", "__proto__": {"owner": "general"}, "constructor": 1}',
    "someone else's name": '{"title": "x", "actor": "system:engine", "run_id": "1"}',
}
SECRETS = ("Traceback", 'File "', "site-packages", str(Path.cwd()), "pydantic", "remit/")


def called(
    arguments: str,
    request_id: str = "7",
    tool: str = "create_task",
    meta: dict[str, Any] | None = None,
) -> bytes:
    """A call with arguments as they are, so that they need not be JSON that Python would write."""
    stamped = f', "_meta": {json.dumps(meta)}' if meta else ""
    params = f'{{"name": {json.dumps(tool)}, "arguments": {arguments}{stamped}}}'
    head = f'"jsonrpc": "2.0", "id": {request_id}, "method": "tools/call"'
    return f'{{{head}, "params": {params}}}'.encode()


def must_be_refused(answer: dict[str, Any], why: str, *codes: int) -> None:
    """A typed error: of the tool, or of the request with one of these codes."""
    text = json.dumps(answer)
    assert not any(secret in text for secret in SECRETS), f"{why}: {text[:500]}"
    if "error" in answer:
        assert answer["error"]["code"] in codes, f"{why}: {text[:500]}"
        assert answer["error"]["message"], why
    else:
        assert answer["result"]["isError"] is True, why
        assert answer["result"]["structuredContent"]["error"]["code"] == "INVALID_PARAM", why
        assert answer["result"]["content"][0]["text"].startswith("INVALID_PARAM: "), why


async def must_be_empty(store: EventStore) -> None:
    """Nothing was stored."""
    assert await store.select(STREAMS, {"after_id": "", "limit": 1}) == []


async def test_no_argument_breaks_the_server_on_stdio(tmp_path: Path) -> None:
    async with piped(tmp_path) as server:
        await server.hello()
        for why, arguments in ARGUMENTS.items():
            await server.send(called(arguments))
            answer = await server.receive()
            assert answer["id"] == 7
            must_be_refused(answer, why)
        server.stdin.close()
        await server.ends_well()
    async with open_store(url(tmp_path)) as store:
        await must_be_empty(store)


def _refusal(code: int, request_id: object = None) -> tuple[int, object]:
    return code, request_id


LINES: dict[str, tuple[bytes, tuple[int, object]]] = {
    "no JSON": (b"hello", _refusal(wire.PARSE_ERROR)),
    "half a message": (b'{"jsonrpc": "2.0", "id": 1,', _refusal(wire.PARSE_ERROR)),
    "no UTF-8": (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', _refusal(wire.PARSE_ERROR)),
    "UTF-16": (
        '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'.encode("utf-16-le").replace(b"\n", b""),
        _refusal(wire.PARSE_ERROR),
    ),
    "100,000 levels": (b'{"a":' * 100_000, _refusal(wire.PARSE_ERROR)),
    "an integer of 10,000 digits": (
        b'{"jsonrpc": "2.0", "id": %s, "method": "ping"}' % (b"9" * 10_000),
        _refusal(wire.PARSE_ERROR),
    ),
    "a batch": (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', _refusal(wire.INVALID_REQUEST)),
    "an empty batch": (b"[]", _refusal(wire.INVALID_REQUEST)),
    "a word": (b'"ping"', _refusal(wire.INVALID_REQUEST)),
    "null": (b"null", _refusal(wire.INVALID_REQUEST)),
    "nothing": (b"{}", _refusal(wire.INVALID_REQUEST)),
    "another JSON-RPC": (
        b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
        _refusal(wire.INVALID_REQUEST, 1),
    ),
    "no JSON-RPC": (b'{"id": "a", "method": "ping"}', _refusal(wire.INVALID_REQUEST, "a")),
    "no method": (b'{"jsonrpc": "2.0", "id": 1}', _refusal(wire.INVALID_REQUEST, 1)),
    "a method that is a number": (
        b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
        _refusal(wire.INVALID_REQUEST, 1),
    ),
    "params that are a list": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}',
        _refusal(wire.INVALID_REQUEST, 1),
    ),
    "an id that is null": (
        b'{"jsonrpc": "2.0", "id": null, "method": "ping"}',
        _refusal(wire.INVALID_REQUEST),
    ),
    "an id that is true": (
        b'{"jsonrpc": "2.0", "id": true, "method": "ping"}',
        _refusal(wire.INVALID_REQUEST),
    ),
    "an id that is an object": (
        b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}',
        _refusal(wire.INVALID_REQUEST),
    ),
    "an id with a lone surrogate": (
        rb'{"jsonrpc": "2.0", "id": "\ud800", "method": "tools/call"}',
        _refusal(wire.INVALID_PARAMS, "\ud800"),
    ),
    "an unknown method": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/burn"}',
        _refusal(wire.METHOD_NOT_FOUND, 1),
    ),
    "a method with a lone surrogate": (
        rb'{"jsonrpc": "2.0", "id": 1, "method": "\ud800"}',
        _refusal(wire.METHOD_NOT_FOUND, 1),
    ),
    "a method of 100,000 characters": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "%s"}' % (b"x" * 100_000),
        _refusal(wire.METHOD_NOT_FOUND, 1),
    ),
    "another era": (called('{"title": "x"}', meta=META), _refusal(wire.INVALID_REQUEST, 7)),
    "no name": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}',
        _refusal(wire.INVALID_PARAMS, 1),
    ),
    "a name that is a list": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": []}}',
        _refusal(wire.INVALID_PARAMS, 1),
    ),
    "a tool with a lone surrogate": (
        called("{}").replace(b"create_task", rb"\ud800"),
        _refusal(wire.INVALID_PARAMS, 7),
    ),
    "a tool for agents alone": (
        called('{"question": "?"}', tool="ask_user"),
        _refusal(wire.INVALID_PARAMS, 7),
    ),
    "arguments that are a list": (called("[1]"), _refusal(wire.INVALID_PARAMS, 7)),
    "arguments that are a word": (called('"x"'), _refusal(wire.INVALID_PARAMS, 7)),
    "more than a message may hold": (
        called('{"title": "%s"}' % ("x" * MAX_MESSAGE)),
        _refusal(wire.INVALID_REQUEST),
    ),
}


async def test_no_line_breaks_the_server_on_stdio(tmp_path: Path) -> None:
    async with piped(tmp_path) as server:
        await server.hello()
        for why, (line, (code, request_id)) in LINES.items():
            await server.send(
                b"",
                line,
                b'{"jsonrpc": "2.0", "id": 3, "result": {}}',
                b'{"jsonrpc": "2.0", "method": "notifications/odd", "params": {"a": [1]}}',
            )
            answer = await server.receive()
            assert (answer["id"], answer["error"]["code"]) == (request_id, code), why
            must_be_refused(answer, why, code)
            await server.send(b'{"jsonrpc": "2.0", "id": "still there?", "method": "ping"}')
            assert await server.receive() == {
                "jsonrpc": "2.0",
                "id": "still there?",
                "result": {},
            }, why
        server.stdin.close()
        await server.ends_well()
    async with open_store(url(tmp_path)) as store:
        await must_be_empty(store)


async def test_a_client_without_a_handshake_gets_an_error(tmp_path: Path) -> None:
    async with piped(tmp_path) as server:
        await server.send(b"what", called('{"title": "x"}', "1"))
        first, second = await server.receive(), await server.receive()
        assert (first["error"]["code"], second["error"]["code"]) == (
            wire.PARSE_ERROR,
            wire.INVALID_PARAMS,
        )
        assert (await server.hello("1999-01-01"))["result"]["protocolVersion"] == "2025-11-25", (
            "the newest of its era"
        )
    async with piped(tmp_path) as server:
        await server.send(
            called("{}", "1", meta=META | {"io.modelcontextprotocol/protocolVersion": "2999-01-01"})
        )
        refused = (await server.receive())["error"]
        assert (refused["code"], refused["data"]["supported"]) == (
            wire.UNSUPPORTED_PROTOCOL_VERSION,
            [MODERN],
        )
        await server.send(hello("2025-11-25"))
        assert (await server.receive())["error"]["code"] == wire.UNSUPPORTED_PROTOCOL_VERSION
    async with open_store(url(tmp_path)) as store:
        await must_be_empty(store)


# What HTTP finds first: a header that does not fit the body, or text that this era cannot hold.
NO_ROUTE = (wire.HEADER_MISMATCH, wire.INVALID_PARAMS, wire.PARSE_ERROR)
Post = Callable[[bytes], Awaitable[tuple[int, dict[str, Any]]]]


@asynccontextmanager
async def posting(era: str) -> AsyncIterator[tuple[Post, EventStore]]:
    """A way to post bodies to an endpoint as a client of an era does, and the store behind it."""
    async with open_store("memory:") as store, aiohttp.ClientSession(headers=JSON) as http:
        app = mcp_http(mcp_server(AppContext(store, SystemClock(), AgentRegistry()), CALLER, "1"))
        async with app.run(), served_app(app) as address:
            headers = {
                "mcp-protocol-version": MODERN,
                "mcp-method": "tools/call",
                "mcp-name": "create_task",
            }
            if era == "legacy":
                async with http.post(address, json=HELLO) as answer:
                    headers = {"mcp-session-id": answer.headers["mcp-session-id"]}

            async def post(body: bytes) -> tuple[int, dict[str, Any]]:
                async with http.post(address, data=body, headers=headers) as answer:
                    return answer.status, cast("dict[str, Any]", json.loads(await answer.read()))

            yield post, store


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_no_argument_breaks_the_server_on_http(era: str) -> None:
    async with posting(era) as (post, store):
        for why, arguments in ARGUMENTS.items():
            status, answer = await post(called(arguments, meta=META if era == "modern" else None))
            assert status in (200, 400), why
            must_be_refused(answer, why, wire.PARSE_ERROR)
        await must_be_empty(store)
        status, answer = await post(
            called('{"title": "Still there"}', meta=META if era == "modern" else None)
        )
        assert (status, answer["result"]["isError"]) == (200, False)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_no_body_breaks_the_server_on_http(era: str) -> None:
    # Right in its own era, and for the guard to refuse.
    elsewhere = {"another era", "more than a message may hold"}
    async with posting(era) as (post, store):
        for why, (body, (code, request_id)) in LINES.items():
            if why not in elsewhere:
                status, answer = await post(body)
                assert 200 <= status < 500, f"{why}: {status}"
                must_be_refused(answer, why, code, *NO_ROUTE)
                assert answer["id"] in (request_id, None), why
        await must_be_empty(store)
