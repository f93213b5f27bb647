"""A model endpoint on this machine that answers by rule, and remembers what it was asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.modelserver import Asked, ModelServer, Raw, Say, frames

Body = dict[str, Any]
Answer = Callable[[Body], Awaitable[Say]]


class RuledServer(ModelServer):
    """Speaks the one dialect; what it says follows from the request."""

    def __init__(self, rule: Answer) -> None:
        super().__init__("openai")
        self._rule = rule
        self.transports: list[asyncio.Transport] = []
        """The connections that requests came by."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert request.transport is not None
        self.transports.append(request.transport)
        self.asked.append(Asked(request.path, {}, body))
        said = asyncio.ensure_future(self._rule(body))
        over = asyncio.ensure_future(self._over.wait())
        await asyncio.wait({said, over}, return_when=asyncio.FIRST_COMPLETED)
        if not said.done():
            said.cancel()
            return web.Response(status=503)
        over.cancel()
        return await self._send(request, Raw(frames("openai", said.result())))


def wants(call_id: str, name: str, **arguments: Any) -> tuple[str, str, tuple[str, ...]]:
    """A call as the endpoint makes it."""
    return (call_id, name, (json.dumps(arguments),))


def objective(body: Body) -> str:
    """What the first message asks for."""
    return str(next(message["content"] for message in body["messages"] if message["role"] == "user"))


def answers(body: Body) -> int:
    """How often the model has answered in a conversation."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def tool_results(body: Body) -> list[str]:
    """Everything that tools have answered in a conversation."""
    return [str(message["content"]) for message in body["messages"] if message["role"] == "tool"]
