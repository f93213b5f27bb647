"""Plain JSON responses of calls that wait: line breaks until the result is ready, so that no client
or proxy times out.
"""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_HEADERS = [(b"content-type", b"application/json"), (b"x-accel-buffering", b"no")]

Failed = Callable[[Scope, Exception], Response]
"""Creates the response to a failed request."""


async def answer_in_time(
    answering: Awaitable[Response], seconds: float, failed: Failed
) -> "Response | LateAnswer":
    """Return the response if it is ready within some seconds, or else one that starts now and keeps
    the connection alive.

    An error within that time is raised, so that it gets its own status.
    """
    coming = asyncio.ensure_future(answering)
    try:
        await asyncio.wait({coming}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(coming)
        raise
    return coming.result() if coming.done() else LateAnswer(coming, seconds, failed)


class LateAnswer:
    """A JSON response with status 200 that sends a line break after each pause until its body is
    ready.

    JSON allows leading whitespace. A client that disconnects ends neither the call nor its task.
    """

    def __init__(self, coming: asyncio.Future[Response], seconds: float, failed: Failed) -> None:
        self._coming, self._seconds, self._failed = coming, seconds, failed

    # The request was already read.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send line breaks, then the body."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            while not self._coming.done():
                await send({"type": "http.response.body", "body": b"\n", "more_body": True})
                await asyncio.wait({self._coming}, timeout=self._seconds)
            await send({"type": "http.response.body", "body": self._wait_for_body(scope).body})
        finally:
            await _stop(self._coming)

    def _wait_for_body(self, scope: Scope) -> Response:
        try:
            return self._coming.result()
        except Exception as error:  # noqa: BLE001 - the status is sent; errors go into the body
            return self._failed(scope, error)


async def _stop(coming: asyncio.Future[Response]) -> None:
    """Cancel a response that is no longer wanted; keep one that is ready."""
    if not coming.done():
        coming.cancel()
        await asyncio.wait({coming})
    if not coming.cancelled():
        coming.exception()  # retrieve the exception, so that asyncio does not log it
