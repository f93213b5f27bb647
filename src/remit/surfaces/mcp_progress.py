"""Progress of calls that wait, for MCP clients that gave a token for it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sized
from contextlib import aclosing
from typing import Any

import mcp_types as wire
from starlette.types import Message, Send

from remit.surfaces.display import cut
from remit.surfaces.headline import headline

Report = Callable[[float, float | None, str | None], Awaitable[None]]
Encode = Callable[[wire.JSONRPCMessage], bytes]

REPORT = "remit.report"
"""Under what name the scope of a request over HTTP carries the way back."""
LONGEST = 400
"""How many cells a message may take."""

_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no")]


async def reported(items: AsyncGenerator[dict[str, Any], None], report: Report, total: int | None) -> dict[str, Any]:
    """The answer at the end of items; what comes before it is reported.

    Progress must grow with every word. It counts the results where it is known how many there will be, and what is said between two
    of them comes ever closer to the next; otherwise it counts the words.
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
                await report(settled + words / (words + 1), total, cut(f"{settled} of {total} settled · {headline(item)}", LONGEST))
    raise AssertionError("a wait without an end")


def total_of(fields: Mapping[str, Any]) -> int | None:
    """How many results a call will have, if it asks for several."""
    tasks = fields.get("tasks")
    return len(tasks) if isinstance(tasks, Sized) else None


class HttpReport:
    """The answer to a request over HTTP: a stream once there is something to report, and otherwise what the SDK answers with."""

    def __init__(self, token: str | int, send: Send, encode: Encode) -> None:
        self._token, self._send, self._encode = token, send, encode
        self._begun = self._over = False
        self._body = b""

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Send a notification; once the answer is there, or the client is not, nothing."""
        if self._over:
            return
        if not self._begun:
            self._begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        told: dict[str, Any] = {"progressToken": self._token, "progress": progress, "message": message}
        params = told if total is None else told | {"total": total}
        await self._event(self._encode(wire.JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params)))

    async def send(self, message: Message) -> None:
        """Pass on what the SDK answers with; in a stream that has begun it is the last event."""
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
        """Nobody listens any more."""
        self._over = True

    async def _event(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": b"event: message\ndata: " + data + b"\n\n", "more_body": True})
