"""A line on standard error after each silence of a command that follows events."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Self

from remit.errors import RemitError
from remit.surfaces.cli.output import live_progress
from remit.surfaces.text.display import display_line

_BLINK_SECONDS, _JOIN_SECONDS, _LOOK_SECONDS = 0.1, 1.0, 3.0


def waiting_for_server(url: str) -> str:
    """What a command says while its server does not answer."""
    return f"Waiting for the server {url}"


class Reminder:
    """Prints the state whenever nothing was printed for `progress.REPEAT_SECONDS`.

    One thread prints and another reads the store, so a store that does not respond stops neither;
    then the last known line is repeated. Use it with `with`.
    """

    def __init__(self, line: str, look: Callable[[], str] | None = None) -> None:
        self._line, self._look = line, look
        self._err = sys.stderr
        self._heard_at = self._said_at = time.monotonic()
        self._over = Event()
        self._stopping = self._told_stopping = False
        self._speaking = Thread(target=self._speak, daemon=True)
        self._looking: Thread | None = None
        self._looked_for = 0.0
        """The start of the silence in which the store was last read."""

    def __enter__(self) -> Self:
        self._speaking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._speaking.join(_JOIN_SECONDS)
        if self._stopping:
            self._tell_stopping()
        # Python warns about an event loop that a thread leaves open at exit.
        elif self._looking is not None:
            self._looking.join(_LOOK_SECONDS)

    def stop(self) -> None:
        """Print that the command is stopping; may be called from a signal handler."""
        self._stopping = True

    def hear(self) -> None:
        """Note that something is about to be printed."""
        self._heard_at = self._said_at = time.monotonic()

    def _speak(self) -> None:
        """Print the state after each silence; runs in its own thread."""
        while not self._over.wait(min(_BLINK_SECONDS, live_progress.REPEAT_SECONDS / 4)):
            if self._stopping:
                self._tell_stopping()
                continue
            silence = time.monotonic() - self._said_at
            if silence >= live_progress.REPEAT_SECONDS / 2:
                self._look_aside()
            if silence >= live_progress.REPEAT_SECONDS:
                self._say()

    def _look_aside(self) -> None:
        """Start a read of the store before each line, unless one is still running."""
        is_looking = self._looking is not None and self._looking.is_alive()
        if self._look is not None and not is_looking and self._looked_for != self._said_at:
            self._looked_for = self._said_at
            self._looking = Thread(target=self._learn, args=(self._look,), daemon=True)
            self._looking.start()

    def _learn(self, look: Callable[[], str]) -> None:
        """Read the state; keep the old one if the store does not respond."""
        with suppress(RemitError):
            self._line = look()

    def _say(self) -> None:
        self._said_at = time.monotonic()
        silence = self._said_at - self._heard_at
        first, *hints = self._line.split("\n")
        self._write(f"{first} · no news for {silence:.0f} s", *hints)

    def _tell_stopping(self) -> None:
        if not self._told_stopping:
            self._told_stopping = True
            self._write(live_progress.stopping_line())

    def _write(self, *lines: str) -> None:
        self._err.write("".join(map("{}\n".format, map(display_line, lines))))
        self._err.flush()
