"""MCP on standard input and output: one JSON-RPC message per line.

The SDK's transport does not answer unreadable lines, crosses threads three times per message, and
cannot stop at a signal while it waits for a line.
"""

import asyncio
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as wire
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from remit.surfaces.mcp.server import MAX_MESSAGE, decode_message, encode_message
from remit.surfaces.shutdown import stop_signals

CHUNK = 1 << 16
# A client with this many unread answers is not read from until it catches up.
MAX_WAITING = 1000
# Shorter than clients wait before they kill the server: running calls are still answered after the
# input ends.
GRACE_SECONDS = 1.0
UNANSWERED = (
    "UNAVAILABLE: This MCP server is stopping, and the store has not answered. A change may"
    " or may not be stored: list the tasks, or repeat the call with the same idempotency_key."
)
"""The answer to a request that is still open when the process ends."""


async def serve_stdio(server: Server[Any], on_end: Callable[[], None] = lambda: None) -> None:
    """Serve standard input and output until the input ends or a signal arrives.

    Then `on_end` is called at once.
    """
    with _claim_descriptors() as (source, target):
        lines = _Lines(source)
        answers = _Answers(target, lines.close)
        with _at_signal(lines.close, answers.stop):
            try:
                await server.run(
                    _Requests(lines, answers, on_end),
                    answers,
                    server.create_initialization_options(),
                )
            finally:
                answers.close()


@contextmanager
def _claim_descriptors() -> Generator[tuple[int, int], None, None]:
    """Reserve the descriptors for the protocol: a stray `print` or a child process reads nothing
    and writes to the log.
    """
    source, target, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        yield source, target
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(target, 1)
        for descriptor in (source, target, nothing):
            os.close(descriptor)


@contextmanager
def _at_signal(*stops: Callable[[], None]) -> Generator[None, None, None]:
    loop, signals = asyncio.get_running_loop(), stop_signals()
    for number in signals:
        loop.add_signal_handler(number, lambda: [stop() for stop in stops])
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


class _Lines:
    """Reads lines from a descriptor without changing its flags, which terminals and parents
    share.
    """

    def __init__(self, source: int) -> None:
        self._source = source
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._ended = False
        self._ready = asyncio.Event()

    async def next(self) -> bytes | None:
        """Return the next line, cut just above MAX_MESSAGE bytes if it is longer; None at
        the end.
        """
        while not self._lines and not self._ended:
            await self._readable()
            if not self._ended:
                self._take(self._chunk())
        return self._lines.popleft() if self._lines else None

    def close(self) -> None:
        """Stop before the input ends."""
        self._lines.clear()
        self._ended = True
        self._ready.set()

    async def _readable(self) -> None:
        """Wait until there is something to read, or the input has ended."""
        loop = asyncio.get_running_loop()
        self._ready.clear()
        try:
            loop.add_reader(self._source, self._ready.set)
        except PermissionError:  # a file or /dev/null: always readable, but cannot be polled
            return
        try:
            await self._ready.wait()
        finally:
            loop.remove_reader(self._source)

    def _chunk(self) -> bytes:
        """Read what is there; empty at the end."""
        try:
            return os.read(self._source, CHUNK)
        except OSError:  # a socket reports a dead peer this way
            return b""

    def _take(self, chunk: bytes) -> None:
        """Split what was read into lines."""
        head, *more = chunk.split(b"\n")
        self._rest += head
        del self._rest[MAX_MESSAGE + 1 :]
        if more or (not chunk and self._rest):
            self._lines.append(bytes(self._rest))
            self._lines.extend(more[:-1])
            self._rest = bytearray(more[-1] if more else b"")
        self._ended = not chunk


class _Stream:
    """The stream interface of the SDK; `serve_stdio` closes the descriptors."""

    async def aclose(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Do nothing."""


class _Answers(_Stream):
    """Writes messages to the client, each one whole even if its sender is canceled, and tracks open
    requests.
    """

    def __init__(self, target: int, on_broken: Callable[[], None]) -> None:
        self._target, self._on_broken = target, on_broken
        self._poll = select.poll()
        self._poll.register(target, select.POLLOUT)
        self._unsent, self._sent = bytearray(), asyncio.Event()
        self._waiting: list[wire.RequestId] = []
        self._fewer = asyncio.Event()
        self._broken = self._stopped = self._watching = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; return once it is on its way."""
        message = item.message
        self.put(message)
        if self._unsent:
            self._sent.clear()
            await self._sent.wait()
        if self._broken:
            raise anyio.BrokenResourceError
        if isinstance(message, wire.JSONRPCResponse | wire.JSONRPCError):
            self.forget(message.id)

    def put(self, message: wire.JSONRPCMessage) -> None:
        """Write one message, now or when the client can take it."""
        if not self._broken:
            self._unsent += encode_message(message) + b"\n"
            self._write()

    def expect(self, request_id: wire.RequestId) -> None:
        """Count an open request."""
        self._waiting.append(request_id)

    def forget(self, request_id: object) -> None:
        """Remove an answered request; some clients cancel `1` as `"1"`."""
        named = [known for known in self._waiting if str(known) == str(request_id)]
        for known in named[:1]:
            self._waiting.remove(known)
        self._fewer.set()

    async def room(self) -> None:
        """Wait while too many requests are open."""
        while not self._stopped and (
            len(self._waiting) >= MAX_WAITING or len(self._unsent) >= MAX_MESSAGE
        ):
            self._fewer.clear()
            await self._fewer.wait()

    async def settle(self) -> None:
        """Wait briefly for the open requests; the client may be gone or not reading."""
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                while self._waiting and not self._broken:
                    self._fewer.clear()
                    await self._fewer.wait()
        except TimeoutError:
            self._answer_open()
            self._give_up()

    def _answer_open(self) -> None:
        """Answer the requests that still wait, for example for a store that is gone."""
        for request_id in self._waiting:
            error = wire.ErrorData(code=wire.INTERNAL_ERROR, message=UNANSWERED)
            self.put(wire.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    def stop(self) -> None:
        """Release everything that waits for room."""
        self._stopped = True
        self._fewer.set()

    def close(self) -> None:
        """Stop watching the descriptor."""
        self._watch(False)

    def _give_up(self) -> None:
        """Drop lines that can no longer be sent."""
        self._broken = True
        self._unsent.clear()
        self._sent.set()
        self._on_broken()
        self.stop()

    def _write(self) -> None:
        """Write as much as possible without blocking, and the rest when the client reads."""
        try:
            while self._unsent and self._poll.poll(0):
                del self._unsent[: os.write(self._target, self._unsent[: select.PIPE_BUF])]
        except OSError:
            self._give_up()
        self._watch(bool(self._unsent))
        if not self._unsent:
            self._sent.set()
            self._fewer.set()

    def _watch(self, wanted: bool) -> None:
        """Watch the descriptor, or stop watching it."""
        if wanted != self._watching:
            self._watching = wanted
            loop = asyncio.get_running_loop()
            if wanted:
                loop.add_writer(self._target, self._write)
            else:
                loop.remove_writer(self._target)


class _Requests(_Stream):
    """Messages from the client; invalid ones are answered here."""

    def __init__(self, lines: _Lines, answers: _Answers, on_end: Callable[[], None]) -> None:
        self._lines, self._answers, self._on_end = lines, answers, on_end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; `EndOfStream` once the input has ended and all requests are
        answered.
        """
        await self._answers.room()
        while (line := await self._lines.next()) is not None:
            message = decode_message(line)
            if isinstance(message, wire.JSONRPCError):
                self._answers.put(message)
                await self._answers.room()
            elif message is not None:
                self._note(message)
                return SessionMessage(message)
        # Stop before waiting: clients soon kill a server that they have left.
        self._on_end()
        await self._answers.settle()
        raise anyio.EndOfStream

    def _note(self, message: wire.JSONRPCRequest | wire.JSONRPCNotification) -> None:
        """Count a request as open, or forget one that the client has canceled."""
        if isinstance(message, wire.JSONRPCRequest):
            self._answers.expect(message.id)
        elif message.method == "notifications/cancelled":
            self._answers.forget((message.params or {}).get("requestId"))
