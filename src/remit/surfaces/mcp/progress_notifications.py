"""Progress of waiting calls: notifications for MCP clients that sent a progress token, and comments
in HTTP streams.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sized
from contextlib import aclosing
from typing import Any

import mcp_types as wire
from starlette.types import Message, Send

from remit.surfaces.text.display import cut
from remit.surfaces.text.progress_line import headline

Report = Callable[[float, float | None, str | None], Awaitable[None]]
Encode = Callable[[wire.JSONRPCMessage], bytes]

REPORT = "remit.report"
"""The key of the HTTP request scope that holds the report channel."""
LONGEST = 400
"""The longest message in cells."""

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


async def report_progress(
    items: AsyncGenerator[dict[str, Any], None], report: Report, total: int | None
) -> dict[str, Any]:
    """Report the items and return the answer at the end.

    Progress must increase with every message. If the number of results is known, progress counts
    them, and messages in between approach the next number; otherwise it counts messages.
    """
    settled = words = 0
    async with aclosing(items) as rest:
        async for item in rest:
            if item["type"] == "end":
                answer: dict[str, Any] = item["answer"]
                return answer
            ended = item["type"] == "result"
            settled, words = settled + ended, 0 if ended and total is not None else words + 1
            if total is None:
                await report(words, None, cut(headline(item), LONGEST))
            else:
                await report(
                    settled + words / (words + 1),
                    total,
                    cut(f"{settled} of {total} settled · {headline(item)}", LONGEST),
                )
    raise AssertionError("a wait without an end")


def total_of(fields: Mapping[str, Any]) -> int | None:
    """Return how many results a call will have, if it asks for several."""
    tasks = fields.get("tasks")
    return len(tasks) if isinstance(tasks, Sized) else None


class HttpReport:
    """The response to an HTTP request: a stream once there is progress to report, otherwise the
    response of the SDK.
    """

    def __init__(self, token: str | int | None, send: Send, encode: Encode) -> None:
        self._token, self._send, self._encode = token, send, encode
        self._begun = self._over = False
        self._body = b""

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Send a notification; do nothing after the answer or a disconnect."""
        if self._over:
            return
        await self._begin()
        params: dict[str, Any] = {
            "progressToken": self._token,
            "progress": progress,
            "message": message,
        }
        if total is not None:
            params["total"] = total
        await self._event(
            self._encode(
                wire.JSONRPCNotification(
                    jsonrpc="2.0", method="notifications/progress", params=params
                )
            )
        )

    async def keep_alive(self) -> None:
        """Send a comment, which clients ignore; do nothing after the answer or a disconnect."""
        if not self._over:
            await self._begin()
            await self._write(b": still here\n\n")

    async def send(self, message: Message) -> None:
        """Pass on the response of the SDK; in a started stream it is the last event."""
        if not self._begun:
            self._over = True
            await self._send(message)
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                self._over = True
                await self._event(self._body)
                await self._send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """Stop sending."""
        self._over = True

    async def _begin(self) -> None:
        """Start the stream, once."""
        if not self._begun:
            self._begun = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}
            )

    async def _event(self, data: bytes) -> None:
        await self._write(b"event: message\ndata: " + data + b"\n\n")

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
