"""Wakes other processes that use the same file: each listener has a named pipe, written after each
commit.

The write-ahead log is not a usable signal: it is written before the commit becomes visible, so its
watchers would read too early. Unlike a socket, a pipe has no limit on the length of its path. It
needs no root and works on every POSIX system.
"""

import errno
import logging
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
log = logging.getLogger("remit.store")


class Notifier:
    """Rings every listener of a database file, in this process and in others."""

    def __init__(self, path: Path) -> None:
        self._folder = path.with_name(f"{path.name}-wake")
        self._seen = -1
        self._pipes: list[Path] = []

    def notify(self, but: "Listener | None" = None) -> None:
        """Notify every listener except our own; costs one stat if there are none.

        Listeners may come and go at the same time.
        """
        with suppress(FileNotFoundError):
            changed = self._folder.stat().st_mtime_ns
            if changed != self._seen:
                self._pipes = [
                    pipe for pipe in self._folder.iterdir() if not pipe.name.startswith(".")
                ]
                # Folder timestamps are coarse: a listener that joins within the same tick would
                # never be seen.
                self._seen = -1
                if time_ns() - changed > TICK_NS:
                    self._seen = changed
            for pipe in self._pipes:
                if but is None or pipe != but.pipe:
                    _write_byte(pipe)

    def listen(self, heard: Callable[[], None]) -> "Listener":
        """Call back, from a separate thread, after each notification."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return Listener(self._folder / f"{os.getpid()}-{uuid4().hex[:8]}", heard)


class Listener:
    """One listener; it must be closed."""

    def __init__(self, pipe: Path, heard: Callable[[], None]) -> None:
        self.pipe, self._heard = pipe, heard
        # Opened under a name that is not notified: a pipe without a reader counts as left by a dead
        # process, and is removed.
        hidden = pipe.with_name(f".{pipe.name}")
        os.mkfifo(hidden, 0o600)
        # Opened for reading and writing, so that it never sees an end of file between two writers.
        self._fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK)
        hidden.rename(pipe)
        self._closed = False
        self._thread = Thread(target=self._listen, name="remit-notifier", daemon=True)
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
                self._hear()

    def _hear(self) -> None:
        try:
            self._heard()
        except Exception:
            log.exception("A commit of another process was not passed on; the next one will be.")


def _write_byte(pipe: Path) -> None:
    """Write one byte; remove a pipe without a reader, which a dead process left.

    If the pipe is full, its reader is about to look anyway.
    """
    try:
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        # Other errors do not mean that its reader is dead: we may be out of file descriptors.
        if error.errno == errno.ENXIO:
            pipe.unlink(missing_ok=True)
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"x")
    except (BlockingIOError, BrokenPipeError):
        pass  # full: its reader is about to look anyway; broken: it has just left
    finally:
        os.close(fd)
