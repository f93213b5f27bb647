"""Commands of a worker, each under a keeper that lets nothing of it survive."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, NamedTuple

from remit.adapters.tools import supervisor
from remit.domain.tool import Signal

HEAD = 15_000
TAIL = 15_000
MAX_READ = 32_000_000
GRACE_SECONDS = 3.0
LIMITS = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 2 << 30, "RLIMIT_DATA": 4 << 30, "RLIMIT_NOFILE": 1024}
"""Data and not address space: runtimes reserve far more of that than they use."""

MAX_PROCESSES = 256

Why = Literal["ended", "timeout", "canceled", "flood", "processes", "lost"]


class Command(NamedTuple):
    """What to run, where, and with nothing but this environment."""

    argv: Sequence[str]
    folder: int
    env: Mapping[str, str]
    seconds: float
    no_new_privileges: bool = True
    keep: int = HEAD + TAIL
    """Bytes of its output to keep: half from its beginning, half from its end."""
    stop_when_full: bool = False
    """End it once that much was read; only the beginning is kept then."""


class Finished(NamedTuple):
    """How a command ended, and what it wrote."""

    why: Why
    code: int | None
    head: bytes
    tail: bytes
    left_out: int


class Runner:
    """Runs commands; what it starts ends with it."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    async def run(self, command: Command, cancel: Signal) -> Finished:
        """Run a command until it ends, its time is up, or it is canceled; nothing of it runs on afterwards."""
        nonce = token_hex(16)
        mark = supervisor.cookie(os.getpid(), nonce)
        output = _Output(command.keep, stop_when_full=command.stop_when_full)
        async with self._started(command, mark) as (reader, control, status):
            ending = _Ending(control)
            try:
                body = await _until_end(reader, output, status, ending, cancel, mark=mark, seconds=command.seconds)
            except TimeoutError:  # its keeper did not do its work: somebody has stopped it
                body = await _swept(mark)
            except asyncio.CancelledError:
                ending.stop("canceled")
                await _gone(reader, status)
                raise
        said: dict[str, Any] = json.loads(body or '{"why": "lost", "code": null}')
        return output.finished(ending.why or ("lost" if said["why"] == "stopped" else said["why"]), said["code"])

    async def close(self) -> None:
        """End the program; keepers see that it is gone and end what is left."""
        program, link = self._program, self._link
        self._program = self._link = None
        if link:
            link.close()
        if program:
            # A canceled caller must not leave a process behind that nobody waits for.
            ended = asyncio.get_running_loop().run_in_executor(None, program.wait)
            await asyncio.shield(ended)

    @asynccontextmanager
    async def _started(self, command: Command, mark: str) -> AsyncGenerator[tuple[asyncio.StreamReader, socket.socket, asyncio.StreamReader], None]:
        out, into = os.pipe()
        control, theirs = socket.socketpair()
        with os.fdopen(out, "rb", 0) as pipe, control:
            try:
                self._send(command, mark, (command.folder, into, theirs.fileno()))
            finally:
                os.close(into)
                theirs.close()
            async with _reading(pipe) as reader, _reading(control.dup()) as status:
                yield reader, control, status

    def _send(self, command: Command, mark: str, fds: tuple[int, int, int]) -> None:
        request: dict[str, Any] = {
            "argv": list(command.argv),
            "env": {**command.env, supervisor.COOKIE: mark},
            "seconds": command.seconds,
            "limits": LIMITS,
            "processes": MAX_PROCESSES,
            "no_new_privileges": command.no_new_privileges,
        }
        body = json.dumps(request, ensure_ascii=False).encode()
        for attempt in (1, 2):
            try:
                socket.send_fds(self._linked(), [body], list(fds))
                return
            except OSError:
                if attempt == 2:
                    raise
                self._forget()

    def _linked(self) -> socket.socket:
        if self._link is None:
            link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    self._program = _started_program(theirs.fileno())
                except OSError:
                    link.close()
                    raise
            self._link = link
        return self._link

    def _forget(self) -> None:
        """The program is gone; the next command starts another."""
        if self._link:
            self._link.close()
        if self._program:
            self._program.kill()
            self._program.wait()
        self._program = self._link = None


def _started_program(link: int) -> subprocess.Popen[bytes]:
    """Isolated and without site packages: nothing in the workspace or of the user can be imported by it."""
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(link)],
        env={},
        pass_fds=(link,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class _Ending:
    """The first reason for which a command was ended by us."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self.why: Why | None = None

    def stop(self, why: Why) -> None:
        if self.why is None:
            self.why = why
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)


class _Output:
    """The beginning and the end of what is written, in little memory."""

    def __init__(self, keep: int, *, stop_when_full: bool) -> None:
        self._head_size = keep if stop_when_full else keep // 2
        self._tail_size = keep - self._head_size
        self._max = keep if stop_when_full else MAX_READ
        self._head, self._tail, self._size = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> bool:
        """Take what was read; False once it is enough."""
        self._size += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * self._tail_size + 65536:
            del self._tail[: len(self._tail) - self._tail_size]
        return self._size <= self._max

    def finished(self, why: Why, code: int | None) -> Finished:
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_size) :])
        return Finished(why, code, bytes(self._head), tail, self._size - len(self._head) - len(tail))


@asynccontextmanager
async def _reading(source: Any) -> AsyncGenerator[asyncio.StreamReader, None]:
    """What comes out of a file that stays ours to close: uvloop closes a pipe it was given later, when its number is another's."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    fd = source.fileno()
    os.set_blocking(fd, False)

    def ready() -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            reader.feed_data(data)
        else:
            loop.remove_reader(fd)
            reader.feed_eof()

    loop.add_reader(fd, ready)
    try:
        yield reader
    finally:
        loop.remove_reader(fd)
        source.close()


async def _until_end(
    reader: asyncio.StreamReader, output: _Output, status: asyncio.StreamReader, ending: _Ending, cancel: Signal, *, mark: str, seconds: float
) -> bytes:
    """Read until everything that could write is gone; what the keeper says of it."""

    async def watch() -> None:
        await cancel.wait()
        ending.stop("canceled")

    async def hear() -> bytes:
        return await status.read() or await _swept(mark)

    async with asyncio.timeout(seconds + GRACE_SECONDS), asyncio.TaskGroup() as group:
        watching, hearing = group.create_task(watch()), group.create_task(hear())
        while data := await reader.read(65536):
            if not output.add(data):
                ending.stop("flood")
        body = await hearing
        watching.cancel()
    return body


async def _swept(mark: str) -> bytes:
    """The last resort, when a keeper says nothing: whatever carries the mark is ended."""
    await asyncio.to_thread(supervisor.sweep, lambda found: found == mark)
    return b""


async def _gone(reader: asyncio.StreamReader, status: asyncio.StreamReader) -> None:
    """Wait until its keeper has ended everything; a short while at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            while await reader.read(65536):
                pass
            await status.read()
