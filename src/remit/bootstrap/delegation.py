"""Handing out work from a program that is not asynchronous itself: what happens meanwhile, and then what came of it."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing
from typing import Any

from remit import config
from remit.app.progress import watched
from remit.bootstrap.api import operator
from remit.bootstrap.stop import at_once
from remit.bootstrap.worker import embedded_worker, worker_alive
from remit.bootstrap.workspace import open_workspace
from remit.catalog import Caller, attend
from remit.client import RemitClient
from remit.config import Settings

Result = dict[str, Any]


def delegate_now(settings: Settings, operation: str, fields: Mapping[str, Any]) -> Generator[Result]:
    """Carry out a delegation: what goes on meanwhile, each result as it comes, and last `end` with the answer."""
    return _each(_remote(settings, operation, fields) if settings.get("url") else _local(settings, operation, fields))


def attend_now(settings: Settings, task_id: str) -> Generator[Result]:
    """Work on a task until it rests, where no worker is alive that would: how it and those below stand, whenever that changes."""
    if not settings.get("url"):
        yield from _each(_attend(settings, task_id))


def _each(items: AsyncGenerator[Result]) -> Generator[Result]:
    busy = False

    async def following() -> Result:
        nonlocal busy
        busy = True
        try:
            return await anext(items)
        finally:
            busy = False

    async def close() -> None:
        await items.aclose()

    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    yield runner.run(following())
                except StopAsyncIteration:
                    return
        except KeyboardInterrupt:
            if busy:  # interrupted again while its runs were being handed over
                at_once(signal.SIGINT, None)
            raise
        finally:
            try:
                runner.run(close())
            except KeyboardInterrupt:  # the first one came between two items
                at_once(signal.SIGINT, None)


async def _attend(settings: Settings, task_id: str) -> AsyncGenerator[Result]:
    async with open_workspace(settings) as core:
        if await worker_alive(core, settings):
            return
        async with embedded_worker(core, settings), aclosing(watched(core, {task_id: 0})) as items:
            async for item in items:
                yield item
                if item["task_id"] == task_id and item["state"] not in ("pending", "running", "verifying"):
                    return


async def _remote(settings: Settings, operation: str, fields: Mapping[str, Any]) -> AsyncGenerator[Result]:
    async with RemitClient(settings.get("url"), config.token(settings)) as client, aclosing(client.stream(operation, **fields)) as items:
        async for item in items:
            yield item


async def _local(settings: Settings, operation: str, fields: Mapping[str, Any]) -> AsyncGenerator[Result]:
    caller = Caller(actor=operator())
    async with open_workspace(settings) as core, embedded_worker(core, settings), aclosing(attend(core, operation, fields, caller)) as items:
        async for item in items:
            yield item
