"""What happens, as it happens, as server-sent events; events of tasks are resumable, without a gap."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from starlette.types import Receive, Scope, Send

from remit.catalog import BEGINNING, Core, follow_events
from remit.domain.shape import describe
from remit.domain.wire import dumps
from remit.errors import Internal, RemitError, invalid

HEARTBEAT = 10.0
"""Seconds between the comments that keep an idle stream alive."""
RETRY_MS = 1000

_POSITION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_HEADERS = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]

log = logging.getLogger(__name__)


async def position(core: Core, given: str | None) -> str:
    """Where a stream begins, as the store has it: after a position that an event had, or now."""
    if given is None:
        return await core.store.tail()
    if given in ("", BEGINNING):
        return ""
    try:
        if _POSITION.fullmatch(given) is None:
            raise ValueError
        await core.store.feed(given, 1)  # positions are the store's own: only it can tell
    except ValueError as error:
        raise invalid("after", f"is {describe(given)}", "the position of an event, as this server gave it") from error
    return given


class EventStream:
    """The answer to one listener: blocks of text as they come, and comments between them; gone when the server stops.

    Without `stopping` the blocks themselves end then.
    """

    def __init__(self, blocks: AsyncGenerator[str, None], *, stopping: asyncio.Event | None = None, heartbeat: float = HEARTBEAT) -> None:
        self._blocks = blocks
        self._stopping, self._heartbeat = stopping, heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is no more, the listener goes away or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        if scope["method"] != "HEAD":
            await self._serve(receive, send)
        await send({"type": "http.response.body", "body": b""})

    async def _serve(self, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(part) for part in (self._write_all(send), self._beat(send), gone(receive))]
            if self._stopping is not None:
                parts.append(group.create_task(_set(self._stopping)))
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()

    async def _write_all(self, send: Send) -> None:
        """One block at a time, made only once the last was taken: a slow listener holds back nobody but itself."""
        async with aclosing(self._blocks) as blocks:
            async for block in blocks:
                await _write(send, block)

    async def _beat(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._heartbeat)
            await _write(send, ": still here\n\n")


async def followed(core: Core, after: str, task_id: str | None) -> AsyncGenerator[str, None]:
    """Events after a position, of all tasks or of one."""
    # The id comes first so that whoever loses the connection before the first event resumes from here.
    yield f"retry: {RETRY_MS}\nid: {after or BEGINNING}\n\n"
    try:
        async with aclosing(follow_events(core, after, task_id)) as pages:
            async for page in pages:
                if page:
                    yield _rendered(page)
    except Exception:
        log.exception("An event stream ended early; its listener will resume.")


async def attended(first: dict[str, Any], items: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[str, None]:
    """What goes on while an operation waits, from an item that has come already to the end; what goes wrong meanwhile is told too."""
    yield _item(first)
    try:
        async with aclosing(items) as rest:
            async for item in rest:
                yield _item(item)
    except RemitError as error:
        if error.status >= Internal.status:
            log.warning("A wait ended early", extra={"fields": {"code": error.code, "error": error.message}})
        yield _item({"type": "error", **error.wire()})
    except Exception:
        log.exception("A wait ended early.")
        yield _item({"type": "error", **Internal("Something went wrong inside remit.", hint="The server's log says more.").wire()})


def _item(item: dict[str, Any]) -> str:
    return f"event: {item['type']}\ndata: {dumps(item)}\n\n"


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def gone(receive: Receive) -> None:
    """Return once the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _rendered(page: Iterable[dict[str, Any]]) -> str:
    return "".join(f"id: {event['position']}\nevent: {event['type']}\ndata: {dumps(event)}\n\n" for event in page)
