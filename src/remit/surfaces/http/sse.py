"""Server-sent events.

Streams of task events can be resumed without a gap.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from starlette.types import Receive, Scope, Send

from remit.catalog import AppContext, follow_events
from remit.domain.records.serialize import dumps
from remit.domain.task.event_position import BEGINNING
from remit.errors import Internal, RemitError
from remit.surfaces.disconnect import client_disconnected, until_first

HEARTBEAT = 10.0
"""Seconds between the comments that keep an idle stream alive."""
RETRY_MS = 1000

_HEADERS = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]

log = logging.getLogger(__name__)


async def position(core: AppContext, given: str | None) -> str:
    """Return where a stream starts in the store: after the position of an event, or now."""
    if given is None:
        return await core.store.tail()
    await core.store.feed(given, 1)  # the store refuses what is not a position of its own
    return given


class EventStream:
    """A stream of text blocks to one listener, with comments in between.

    It ends when the server stops; without `stopping` the blocks end by themselves.
    """

    def __init__(
        self,
        blocks: AsyncGenerator[str, None],
        *,
        stopping: asyncio.Event | None = None,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self._blocks = blocks
        self._stopping, self._heartbeat = stopping, heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the blocks end, the listener disconnects or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        if scope["method"] != "HEAD":
            await self._serve(receive, send)
        await send({"type": "http.response.body", "body": b""})

    async def _serve(self, receive: Receive, send: Send) -> None:
        parts = [self._write_all(send), self._beat(send), client_disconnected(receive)]
        if self._stopping is not None:
            parts.append(_set(self._stopping))
        async with until_first(*parts):
            pass

    async def _write_all(self, send: Send) -> None:
        """Write one block at a time, created only after the previous one was sent: a slow listener
        delays only itself.
        """
        async with aclosing(self._blocks) as blocks:
            async for block in blocks:
                await _write(send, block)

    async def _beat(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._heartbeat)
            await _write(send, ": still here\n\n")


async def event_blocks(
    core: AppContext, after: str, task_id: str | None
) -> AsyncGenerator[str, None]:
    """Yield the events after a position, of all tasks or of one."""
    # The id comes first, so that a listener that disconnects before the first event resumes here.
    yield f"retry: {RETRY_MS}\nid: {after or BEGINNING}\n\n"
    try:
        async with aclosing(follow_events(core, after, task_id)) as pages:
            async for page in pages:
                if page:
                    yield _render(page)
    except Exception:
        log.exception("An event stream ended early; its client will resume.")


async def progress_blocks(
    first: dict[str, Any], items: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[str, None]:
    """Yield the progress of a waiting operation, from a first item to the end.

    An error in between is sent as an item.
    """
    yield _item(first)
    try:
        async with aclosing(items) as rest:
            async for item in rest:
                yield _item(item)
    except RemitError as error:
        if error.status >= Internal.status:
            log.warning(
                "A wait ended early", extra={"fields": {"code": error.code, "error": error.message}}
            )
        yield _item({"type": "error", **error.wire()})
    except Exception:
        log.exception("A wait ended early.")
        yield _item(
            {
                "type": "error",
                **Internal("Internal error.", hint="See the server's log.").wire(),
            }
        )


def _item(item: dict[str, Any]) -> str:
    return f"event: {item['type']}\ndata: {dumps(item)}\n\n"


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _render(page: Iterable[dict[str, Any]]) -> str:
    return "".join(
        f"id: {event['position']}\nevent: {event['type']}\ndata: {dumps(event)}\n\n"
        for event in page
    )
