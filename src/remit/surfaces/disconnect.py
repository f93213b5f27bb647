"""Noticing that an HTTP client has closed its connection."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Receive


async def client_disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def until_first(*parts: Coroutine[Any, Any, None]) -> AsyncGenerator[None, None]:
    """Run parts until the first of them ends; cancel the others after the block."""
    async with asyncio.TaskGroup() as group:
        running = list(map(group.create_task, parts))
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        yield
        for part in running:
            part.cancel()
