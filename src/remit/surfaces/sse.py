"""Events as they happen, as server-sent events: resumable, never a gap, gone at once when the server stops."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from starlette.types import Receive, Scope, Send

from remit.catalog import Core, follow_events
from remit.domain.shape import describe
from remit.domain.wire import dumps
from remit.errors import invalid

HEARTBEAT = 15.0
"""Seconds between the comments that keep an idle stream alive."""
RETRY_MS = 1000
BEGINNING = "0"
"""Before the first event, in every store."""

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
    """The answer to one listener: events after a position, of all tasks or of one."""

    def __init__(self, core: Core, after: str, task_id: str | None, *, stopping: asyncio.Event, heartbeat: float = HEARTBEAT) -> None:
        self._core, self._after, self._task_id = core, after, task_id
        self._stopping, self._heartbeat = stopping, heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the listener goes away or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        if scope["method"] != "HEAD":
            # The id comes first so that whoever loses the connection before the first event resumes from here.
            await _write(send, f"retry: {RETRY_MS}\nid: {self._after or BEGINNING}\n\n")
            await self._serve(receive, send)
        await send({"type": "http.response.body", "body": b""})

    async def _serve(self, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as group:
            work = (self._events(send), self._beat(send), _gone(receive), self._stopped())
            parts = [group.create_task(part) for part in work]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()

    async def _events(self, send: Send) -> None:
        """One page at a time, read only once the last was taken: a slow listener holds back nobody but itself."""
        try:
            async with aclosing(self._pages()) as pages:
                async for page in pages:
                    if page:
                        await _write(send, _rendered(page))
        except Exception:
            log.exception("An event stream ended early; its listener will resume.")

    def _pages(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        return follow_events(self._core, self._after, self._task_id)

    async def _beat(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._heartbeat)
            await _write(send, ": still here\n\n")

    async def _stopped(self) -> None:
        await self._stopping.wait()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _rendered(page: Iterable[dict[str, Any]]) -> str:
    return "".join(f"id: {event['position']}\nevent: {event['type']}\ndata: {dumps(event)}\n\n" for event in page)
