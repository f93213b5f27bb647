"""Waking other processes on the same file: a named pipe per listener, rung after each commit.

The write-ahead log itself is no signal: it is written before the commit becomes visible, so whoever watches it looks too
early. A pipe needs no path short enough for a socket, no root, and works wherever POSIX does.
"""

import errno
import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import time_ns
from uuid import uuid4

TICK_NS = 50_000_000


class Bell:
    """Rings every listener of a database file, in this process and in others."""

    def __init__(self, path: Path) -> None:
        self._folder = path.with_name(f"{path.name}-wake")
        self._seen = -1
        self._pipes: list[Path] = []

    def ring(self, but: "Listener | None" = None) -> None:
        """Tell every listener but one's own; costs one stat while nobody listens. Listeners come and go meanwhile, and that is no failure."""
        with suppress(FileNotFoundError):
            changed = self._folder.stat().st_mtime_ns
            if changed != self._seen:
                self._pipes = [pipe for pipe in self._folder.iterdir() if not pipe.name.startswith(".")]
                # Folders are stamped by a coarse clock: who joins within the same tick would never be seen.
                self._seen = changed if time_ns() - changed > TICK_NS else -1
            for pipe in self._pipes:
                if but is None or pipe != but.pipe:
                    _poke(pipe)

    def listen(self, heard: Callable[[], None]) -> "Listener":
        """Call back, from a thread of its own, after each ring."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return Listener(self._folder / f"{os.getpid()}-{uuid4().hex[:8]}", heard)


class Listener:
    """One listener; it must be closed."""

    def __init__(self, pipe: Path, heard: Callable[[], None]) -> None:
        self.pipe, self._heard = pipe, heard
        # Opened under a name that nobody rings: a pipe without a reader is taken for one left by the dead, and removed.
        hidden = pipe.with_name(f".{pipe.name}")
        os.mkfifo(hidden, 0o600)
        # Opened for both directions so that it never sees an end of file between two writers.
        self._fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK)
        hidden.rename(pipe)
        self._closed = False
        self._thread = Thread(target=self._listen, name="remit-bell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and remove the pipe."""
        self._closed = True
        with suppress(BlockingIOError):  # full: the thread is about to read anyway
            os.write(self._fd, b"x")
        self._thread.join()
        with suppress(FileNotFoundError):
            self.pipe.unlink()
        os.close(self._fd)

    def _listen(self) -> None:
        while not self._closed:
            select.select([self._fd], [], [])
            with suppress(BlockingIOError):
                os.read(self._fd, 65536)
            if not self._closed:
                self._heard()


def _poke(pipe: Path) -> None:
    """One byte; a full pipe means that its reader is about to look anyway, a pipe without one is left by the dead."""
    try:
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing else means that its reader is dead: we may only be out of file descriptors
            pipe.unlink(missing_ok=True)
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"x")
    except (BlockingIOError, BrokenPipeError):
        pass  # full: its reader is about to look anyway; broken: it has just left
    finally:
        os.close(fd)
