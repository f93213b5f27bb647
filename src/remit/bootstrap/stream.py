"""Following events from a program that is not asynchronous itself."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from remit import config
from remit.bootstrap.store import open_core
from remit.catalog import follow_events
from remit.client import RemitClient
from remit.config import Settings

Page = list[dict[str, Any]]


def follow_now(
    settings: Settings,
    task_id: str | None,
    after: str | None,
    *,
    create: bool = True,
) -> Iterator[Page]:
    """Pages of events until the caller stops asking."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            pages = runner.run(_open(stack, settings, task_id, after, create=create))
            while True:
                yield runner.run(_next(pages))
        finally:
            runner.run(stack.aclose())


async def _open(
    stack: AsyncExitStack,
    settings: Settings,
    task_id: str | None,
    after: str | None,
    *,
    create: bool,
) -> AsyncIterator[Page]:
    # What follows is closed before what it follows, and not both at once by the end of the loop.
    if settings.get("url"):
        client = await stack.enter_async_context(RemitClient(settings.get("url"), config.token(settings)))
        events = await stack.enter_async_context(aclosing(client.events(after=after, task_id=task_id)))
        return await stack.enter_async_context(aclosing(_pages(events)))
    core = await stack.enter_async_context(open_core(settings.database_url, create=create))
    return await stack.enter_async_context(aclosing(follow_events(core, after, task_id)))


async def _pages(events: AsyncIterator[dict[str, Any]]) -> AsyncGenerator[Page, None]:
    async for event in events:
        yield [event]


async def _next(pages: AsyncIterator[Page]) -> Page:
    return await anext(pages)
