"""Clients of the event stream."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from tests.surfaces.http import BEARER, Site


class Block(NamedTuple):
    """What a server says between two empty lines."""

    id: str = ""
    event: str = ""
    data: str = ""
    comment: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@asynccontextmanager
async def listening(
    served: Site, target: str, last: str | None = None, body: Any = None
) -> AsyncIterator[AsyncGenerator[Block, None]]:
    """A stream, once the server has begun to answer; with a body it is asked for with POST."""
    headers = BEARER | {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    method = "GET" if body is None else "POST"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, served.url + target, headers=headers, json=body) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/event-stream"
        async with aclosing(_blocks(response)) as blocks:
            yield blocks


async def _blocks(response: aiohttp.ClientResponse) -> AsyncGenerator[Block, None]:
    rest = b""
    async for chunk in response.content.iter_any():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            told = dict(line.split(": ", 1) for line in block.decode().split("\n"))
            yield Block(
                told.get("id", ""), told.get("event", ""), told.get("data", ""), comment="" in told
            )
