"""Run the commands of a worker, each under a reaper process that leaves nothing running."""

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

from remit.adapters.tools.shell import supervisor
from remit.domain.agents.tools import Signal

HEAD = 15_000
TAIL = 15_000
MAX_READ = 32_000_000
GRACE_SECONDS = 3.0
LIMITS = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 2 << 30, "RLIMIT_DATA": 4 << 30, "RLIMIT_NOFILE": 1024}
"""Limit data, not address space: runtimes reserve far more address space than they use."""

MAX_PROCESSES = 256

Why = Literal["ended", "timeout", "canceled", "flood", "processes", "lost"]


class Command(NamedTuple):
    """A command, its folder and its whole environment."""

    argv: Sequence[str]
    folder: int
    env: Mapping[str, str]
    seconds: float
    no_new_privileges: bool = True
    keep: int = HEAD + TAIL
    """Bytes of output to keep: half from the beginning, half from the end."""
    stop_when_full: bool = False
    """End the command once `keep` bytes were read, and keep only the beginning."""


class Finished(NamedTuple):
    """The exit of a command, and its output."""

    why: Why
    code: int | None
    head: bytes
    tail: bytes
    left_out: int


class Runner:
    """Runs commands; closing it ends them."""

    def __init__(self) -> None:
        self._supervisor: tuple[socket.socket, subprocess.Popen[bytes]] | None = None

    async def run(self, command: Command, cancel: Signal) -> Finished:
        """Run a command until it ends, times out or is canceled.

        None of its processes run afterwards.
        """
        nonce = token_hex(16)
        cookie = supervisor.cookie(os.getpid(), nonce)
        output = _Output(command.keep, stop_when_full=command.stop_when_full)
        async with self._start(command, cookie) as (reader, control, status):
            ending = _StopReason(control)
            try:
                body = await _read_until_end(
                    reader, output, status, ending, cancel, cookie=cookie, seconds=command.seconds
                )
            except TimeoutError:  # the reaper does not respond: another process stopped it
                body = await _sweep(cookie)
            except asyncio.CancelledError:
                ending.stop("canceled")
                await _wait_for_reaper(reader, status)
                raise
        report: dict[str, Any] = json.loads(body or '{"why": "lost", "code": null}')
        why: Why = "lost" if report["why"] == "stopped" else report["why"]
        return output.finished(ending.why or why, report["code"])

    async def close(self) -> None:
        """End the supervisor; reapers notice and end the remaining processes."""
        running, self._supervisor = self._supervisor, None
        if running is None:
            return
        link, program = running
        link.close()
        # A canceled caller must not leave a zombie process.
        ended = asyncio.get_running_loop().run_in_executor(None, program.wait)
        await asyncio.shield(ended)

    @asynccontextmanager
    async def _start(
        self, command: Command, cookie: str
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, socket.socket, asyncio.StreamReader], None]:
        out, into = os.pipe()
        control, theirs = socket.socketpair()
        with os.fdopen(out, "rb", 0) as pipe, control:
            try:
                self._send(command, cookie, (command.folder, into, theirs.fileno()))
            finally:
                os.close(into)
                theirs.close()
            async with _open_reader(pipe) as reader, _open_reader(control.dup()) as status:
                yield reader, control, status

    def _send(self, command: Command, cookie: str, fds: tuple[int, int, int]) -> None:
        request: dict[str, Any] = {
            "argv": list(command.argv),
            "env": {**command.env, supervisor.COOKIE: cookie},
            "seconds": command.seconds,
            "limits": LIMITS,
            "processes": MAX_PROCESSES,
            "no_new_privileges": command.no_new_privileges,
        }
        body = json.dumps(request, ensure_ascii=False).encode()
        for attempt in (1, 2):
            try:
                socket.send_fds(self._connect(), [body], list(fds))
                return
            except OSError:
                if attempt == 2:
                    raise
                self._discard()

    def _connect(self) -> socket.socket:
        if self._supervisor is None:
            link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    self._supervisor = link, _start_program(theirs.fileno())
                except OSError:
                    link.close()
                    raise
        return self._supervisor[0]

    def _discard(self) -> None:
        """Discard a supervisor that is gone; the next command starts another."""
        if self._supervisor is None:
            return
        link, program = self._supervisor
        link.close()
        program.kill()
        program.wait()
        self._supervisor = None


def _start_program(link: int) -> subprocess.Popen[bytes]:
    """Start the supervisor isolated and without site packages, so it imports nothing of the
    workspace or user.
    """
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(link)],
        env={},
        pass_fds=(link,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class _StopReason:
    """The first reason why this process ended a command."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self.why: Why | None = None

    def stop(self, why: Why) -> None:
        """End the command, unless it was already ended for another reason."""
        if self.why is None:
            self.why = why
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)


class _Output:
    """The beginning and the end of the output, in bounded memory."""

    def __init__(self, keep: int, *, stop_when_full: bool) -> None:
        if stop_when_full:
            self._head_size, self._max = keep, keep
        else:
            self._head_size, self._max = keep // 2, MAX_READ
        self._tail_size = keep - self._head_size
        self._head, self._tail, self._size = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> bool:
        """Add data; return False once the limit is exceeded."""
        self._size += len(data)
        room = max(0, self._head_size - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_size + 65536:
            del self._tail[: len(self._tail) - self._tail_size]
        return self._size <= self._max

    def finished(self, why: Why, code: int | None) -> Finished:
        """Return the output that was kept, and how the command ended."""
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_size) :])
        return Finished(
            why, code, bytes(self._head), tail, self._size - len(self._head) - len(tail)
        )


@asynccontextmanager
async def _open_reader(source: Any) -> AsyncGenerator[asyncio.StreamReader, None]:
    """Read a file descriptor that the caller still owns.

    uvloop closes a pipe later, when its number may be in use again.
    """
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


async def _read_until_end(
    reader: asyncio.StreamReader,
    output: _Output,
    status: asyncio.StreamReader,
    ending: _StopReason,
    cancel: Signal,
    *,
    cookie: str,
    seconds: float,
) -> bytes:
    """Read until all writers are gone; return the reaper's report."""

    async def watch() -> None:
        await cancel.wait()
        ending.stop("canceled")

    async def read_report() -> bytes:
        return await status.read() or await _sweep(cookie)

    async with asyncio.timeout(seconds + GRACE_SECONDS), asyncio.TaskGroup() as group:
        watching, report = group.create_task(watch()), group.create_task(read_report())
        while data := await reader.read(65536):
            if not output.add(data):
                ending.stop("flood")
        body = await report
        watching.cancel()
    return body


async def _sweep(cookie: str) -> bytes:
    """Kill every process with this cookie: the last resort if a reaper reports nothing."""
    await asyncio.to_thread(supervisor.sweep, lambda found: found == cookie)
    return b""


async def _wait_for_reaper(reader: asyncio.StreamReader, status: asyncio.StreamReader) -> None:
    """Wait briefly until the reaper has ended everything."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            while await reader.read(65536):
                pass
            await status.read()
