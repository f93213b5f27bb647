"""Handing out work from a program that is not asynchronous itself: what happens meanwhile, and then what came of it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from remit import config
from remit.app.view import event_view
from remit.bootstrap.agents import open_workspace
from remit.bootstrap.api import operator
from remit.bootstrap.worker import embedded_worker, worker_alive
from remit.catalog import Caller, call, follow_events
from remit.client import RemitClient
from remit.config import Settings

Result = dict[str, Any]


def delegate_now(settings: Settings, operation: str, fields: Mapping[str, Any]) -> Iterator[Result]:
    """Carry out a delegation: `{"event": …}` for each event of its tasks, then `{"result": …}`."""
    return _each(_remote(settings, operation, fields) if settings.get("url") else _local(settings, operation, fields))


def attend_now(settings: Settings, task_id: str) -> Iterator[Result]:
    """Work on a task until it rests, where no worker is alive that would: `{"event": …}` for each event of it and of those below."""
    if settings.get("url"):
        return iter(())
    return _each(_attend(settings, task_id))


def _each(items: AsyncIterator[Result]) -> Iterator[Result]:
    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    yield runner.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            runner.run(_close(items))


async def _attend(settings: Settings, task_id: str) -> AsyncIterator[Result]:
    async with open_workspace(settings) as core:
        if await worker_alive(core, settings):
            return
        async with embedded_worker(core, settings):
            mine = {task_id}
            after = await core.store.tail()
            async with core.store.watch() as bell:
                while (await core.task(task_id))["state"] in ("pending", "running", "verifying"):
                    await bell.wait()
                    for recorded in await core.store.feed(after, 1000):
                        after = recorded.position
                        event = event_view((*recorded.event, recorded.position))
                        if recorded.event.stream.isdigit() and _belongs(event, mine, ""):
                            yield {"event": event}


async def _next(items: AsyncIterator[Result]) -> Result:
    return await anext(items)


async def _close(items: Any) -> None:
    await items.aclose()


async def _remote(settings: Settings, operation: str, fields: Mapping[str, Any]) -> AsyncIterator[Result]:
    async with RemitClient(settings.get("url"), config.token(settings)) as client:
        yield {"result": await client.call(operation, dict(fields))}


async def _local(settings: Settings, operation: str, fields: Mapping[str, Any]) -> AsyncIterator[Result]:
    caller = Caller(actor=operator())
    async with open_workspace(settings) as core, embedded_worker(core, settings):
        start = await core.store.tail()
        work = asyncio.ensure_future(call(core, operation, fields, caller))
        pages = follow_events(core, start)
        mine: set[str] = set()
        page = asyncio.ensure_future(anext(pages))
        try:
            while not work.done():
                await asyncio.wait({work, page}, return_when=asyncio.FIRST_COMPLETED)
                if page.done():
                    for event in page.result():
                        if _belongs(event, mine, caller.actor):
                            yield {"event": event}
                    page = asyncio.ensure_future(anext(pages))
            yield {"result": work.result()}
        finally:
            page.cancel()
            await asyncio.wait({page})
            await pages.aclose()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})


def _belongs(event: Result, mine: set[str], actor: str) -> bool:
    """True for events of the tasks that this delegation made, and of those below them."""
    if event["type"] == "TaskCreated" and (
        event["data"].get("parent_id") in mine or (event["actor"] == actor and not event["data"].get("parent_id"))
    ):
        mine.add(event["task_id"])
    return event["task_id"] in mine
