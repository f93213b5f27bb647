"""A scripted model for real clients and for remit's own agents: one server that speaks both
dialects and answers by rule.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

from tests.modelserver import Dialect, Say, document, frames

PATHS: dict[str, Dialect] = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai"}
TOKENS = "/v1/messages/count_tokens"
AGENTS = "/agents"
"""What the address of the model begins with for remit's own agents."""


class Asked(NamedTuple):
    """A request to the model, in the few words that rules need."""

    agent: bool
    """True for remit's own agents, False for a client."""
    tools: tuple[str, ...]
    texts: tuple[str, ...]
    """Everything that was said, message by message, with the results of tools."""
    results: int
    """How many results of tools there are."""

    def tool(self, name: str) -> str | None:
        """The name under which the client offers a tool of remit; None if it does not."""
        endings = (f"remit_{name}", f"remit__{name}")
        return next((known for known in self.tools if known.endswith(endings)), None)


Rule = Callable[[Asked], Say | Awaitable[Say]]


def call(tool: str, **arguments: Any) -> Say:
    """A call of one tool."""
    return Say(
        calls=((f"call_{tool}_{abs(hash(json.dumps(arguments)))}", tool, (json.dumps(arguments),)),)
    )


class ScriptedModel:
    """A model server on localhost; it remembers what it was asked."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.asked: list[Asked] = []
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedModel"]:
        """Serve within the block."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/{path:.*}", self._answer)
        app.router.add_get("/{path:.*}", self._nothing)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _nothing(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == TOKENS:
            return web.json_response({"input_tokens": 1})
        dialect = PATHS.get(request.path.removeprefix(AGENTS))
        if dialect is None:
            return web.json_response({})
        body = await request.json()
        asked = _read(dialect, body, request.path.startswith(AGENTS))
        self.asked.append(asked)
        answer = self.rule(asked)
        say = await answer if isinstance(answer, Awaitable) else answer
        if not body.get("stream"):
            return web.json_response(document(dialect, say) | _whole(dialect))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in frames(dialect, say):
            await response.write(_completed(piece))
            await asyncio.sleep(0)
        return response


def _whole(dialect: Dialect) -> dict[str, Any]:
    return (
        {"id": "msg_1", "role": "assistant"}
        if dialect == "anthropic"
        else {"id": "1", "object": "chat.completion", "created": 0}
    )


def _completed(piece: bytes) -> bytes:
    """A frame with the fields that clients insist on and remit does not."""
    kind, _, data = piece.rpartition(b"data: ")
    if b"message_start" not in kind:
        return piece
    frame = json.loads(data)
    more: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    frame["message"] = more | frame["message"]
    return kind + b"data: " + json.dumps(frame).encode() + b"\n\n"


def _read(dialect: Dialect, body: dict[str, Any], agent: bool) -> Asked:
    offered = body.get("tools") or []
    tools = tuple(
        tool["name"] if dialect == "anthropic" else tool["function"]["name"] for tool in offered
    )
    messages = body["messages"]
    texts = tuple(json.dumps(message["content"]) for message in messages)
    if dialect == "openai":
        return Asked(agent, tools, texts, sum(message["role"] == "tool" for message in messages))
    blocks = [
        block
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return Asked(agent, tools, texts, sum(block["type"] == "tool_result" for block in blocks))
