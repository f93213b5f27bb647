"""MCP on standard input and output: one JSON-RPC message a line, and nothing else.

The SDK has such a transport too, but it leaves lines that it cannot read without an answer, crosses threads three times for
each message, and cannot end at a signal while it waits for a line.
"""

import asyncio
import logging
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

from remit.surfaces.mcp import MAX_MESSAGE, decoded, encoded
from remit.surfaces.stopping import stop_signals

CHUNK = 1 << 16
# A client that asks this much without reading answers is not read from any more until it does.
MAX_WAITING = 1000
# Shorter than clients wait before they kill: what is being done when the input ends is still answered.
GRACE_SECONDS = 1.0


async def serve_stdio(server: Server[Any], on_end: Callable[[], None] = lambda: None) -> None:
    """Answer on standard output what comes on standard input, until it ends or a signal says stop; `on_end` is called at once then."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    with _claimed() as (source, target):
        lines = _Lines(source)
        answers = _Answers(target, lines.close)
        with _at_signal(lines.close, answers.stop):
            try:
                await server.run(_Requests(lines, answers, on_end), answers, server.create_initialization_options())
            finally:
                answers.close()


@contextmanager
def _claimed() -> Generator[tuple[int, int], None, None]:
    """Descriptors that are the protocol's alone: meanwhile a stray `print`, or a child, reads nothing and writes to the log."""
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
    """Lines of a descriptor, read when it has something and left as it is: terminals and parents share its flags."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._ended = False
        self._ready = asyncio.Event()

    async def next(self) -> bytes | None:
        """The next line, cut just above MAX_MESSAGE bytes if it is longer; None at the end."""
        while not self._lines and not self._ended:
            await self._readable()
            if not self._ended:
                self._take(self._chunk())
        return self._lines.popleft() if self._lines else None

    def close(self) -> None:
        """End before the input does."""
        self._lines.clear()
        self._ended = True
        self._ready.set()

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._ready.clear()
        try:
            loop.add_reader(self._source, self._ready.set)
        except PermissionError:  # a file, or /dev/null: always readable, and nothing that can be waited for
            return
        try:
            await self._ready.wait()
        finally:
            loop.remove_reader(self._source)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._source, CHUNK)
        except OSError:  # so does a socket say that the other side died
            return b""

    def _take(self, chunk: bytes) -> None:
        head, *more = chunk.split(b"\n")
        self._rest += head
        del self._rest[MAX_MESSAGE + 1 :]
        if more or (not chunk and self._rest):
            self._lines.append(bytes(self._rest))
            self._lines.extend(more[:-1])
            self._rest = bytearray(more[-1] if more else b"")
        self._ended = not chunk


class _Stream:
    """What the SDK expects of both of its ends; the descriptors are closed by `serve_stdio`."""

    async def aclose(self) -> None:
        """Nothing to do."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        """Nothing to do."""


class _Answers(_Stream):
    """Messages to the client, each written whole whatever becomes of its sender, and who still waits for one."""

    def __init__(self, target: int, on_broken: Callable[[], None]) -> None:
        self._target, self._on_broken = target, on_broken
        self._poll = select.poll()
        self._poll.register(target, select.POLLOUT)
        self._unsent, self._sent = bytearray(), asyncio.Event()
        self._waiting: list[str] = []
        self._fewer = asyncio.Event()
        self._broken = self._stopped = self._watching = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; returns once it is on its way."""
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
        """Write one message, now or when the client takes it."""
        if not self._broken:
            self._unsent += encoded(message) + b"\n"
            self._write()

    def expect(self, request_id: object) -> None:
        """An answer is owed."""
        self._waiting.append(str(request_id))

    def forget(self, request_id: object) -> None:
        """One answer less is owed."""
        with suppress(ValueError):
            self._waiting.remove(str(request_id))
        self._fewer.set()

    async def room(self) -> None:
        """Wait while too much is owed to the client."""
        while not self._stopped and (len(self._waiting) >= MAX_WAITING or len(self._unsent) >= MAX_MESSAGE):
            self._fewer.clear()
            await self._fewer.wait()

    async def settle(self) -> None:
        """Wait a little until nobody waits any more; who still does has gone, or does not read."""
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                while self._waiting and not self._broken:
                    self._fewer.clear()
                    await self._fewer.wait()
        except TimeoutError:
            self._give_up()

    def stop(self) -> None:
        """Make nobody wait for room any more."""
        self._stopped = True
        self._fewer.set()

    def close(self) -> None:
        """Leave the descriptor alone."""
        self._watch(False)

    def _give_up(self) -> None:
        self._broken = True
        self._unsent.clear()
        self._sent.set()
        self._on_broken()
        self.stop()

    def _write(self) -> None:
        """Write what the client takes now, in pieces that cannot block, and the rest when it takes more."""
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
        if wanted != self._watching:
            self._watching = wanted
            loop = asyncio.get_running_loop()
            loop.add_writer(self._target, self._write) if wanted else loop.remove_writer(self._target)


class _Requests(_Stream):
    """Messages of the client; what is none is answered here."""

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
        """The next message; EndOfStream once there is no more and what was asked is answered."""
        await self._answers.room()
        while (line := await self._lines.next()) is not None:
            message = decoded(line)
            if isinstance(message, wire.JSONRPCError):
                self._answers.put(message)
                await self._answers.room()
            elif message is not None:
                self._note(message)
                return SessionMessage(message)
        self._on_end()  # before anything is waited for: clients soon kill a server that they have left
        await self._answers.settle()
        raise anyio.EndOfStream

    def _note(self, message: wire.JSONRPCRequest | wire.JSONRPCNotification) -> None:
        if isinstance(message, wire.JSONRPCRequest):
            self._answers.expect(message.id)
        elif message.method == "notifications/cancelled":
            self._answers.forget((message.params or {}).get("requestId"))
