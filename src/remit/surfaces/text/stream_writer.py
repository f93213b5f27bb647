"""Writing to a stream in a thread: an unread pipe must not block anything else."""

import os
import select
from queue import SimpleQueue
from threading import Event, Thread
from typing import TextIO

MAX_WAITING = 10_000
"""The maximum number of queued texts; more are dropped."""


class ThreadedWriter:
    """Writes texts in order, each as soon as the reader takes it.

    Only its own thread ever blocks. It writes to the descriptor, not to the buffer of the stream:
    Python could not exit while a thread holds the lock of that buffer.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._texts: SimpleQueue[str | Event] = SimpleQueue()
        self.error: OSError | None = None
        """The error that ended writing, such as a closed pipe."""
        Thread(target=self._write_all, name="remit-writer", daemon=True).start()

    @property
    def has_room(self) -> bool:
        """True unless the next text would be dropped."""
        return self._texts.qsize() < MAX_WAITING

    def put(self, text: str) -> bool:
        """Queue a text; return False if the queue is full and the text is dropped."""
        if not self.has_room:
            return False
        self._texts.put(text)
        return True

    def drain(self, seconds: float | None = None) -> None:
        """Wait until everything is written, or until a timeout."""
        written = Event()
        self._texts.put(written)
        written.wait(seconds)

    def _write_all(self) -> None:
        """Write queued texts; runs in its own thread."""
        while True:
            text = self._texts.get()
            if isinstance(text, Event):
                text.set()
                continue
            try:
                write_through(self._stream, text)
            except OSError as error:
                self.error = error
            except ValueError as error:  # the stream was closed
                self.error = OSError(str(error))


def write_through(stream: TextIO, text: str) -> None:
    """Write a text to the descriptor of a stream; a stream without one is only flushed."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        stream.write(text)
        stream.flush()
        return
    rest = text.encode(stream.encoding, stream.errors or "strict")
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    while rest:
        poll.poll()  # the descriptor may be non-blocking
        rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
