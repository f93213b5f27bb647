"""A line on standard error after each silence of a command that follows events."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Self

from remit.errors import RemitError
from remit.surfaces.cli import progress
from remit.surfaces.display import display_line

_BLINK_SECONDS, _JOIN_SECONDS, _LOOK_SECONDS = 0.1, 1.0, 3.0


class Reminder:
    """Says how things stand whenever nothing was printed for `progress.REPEAT_SECONDS`.

    A thread of its own speaks and another one looks, so a store that does not answer silences neither; the last known line is
    repeated then. Use it with `with`.
    """

    def __init__(self, line: str, look: Callable[[], str] | None = None) -> None:
        self._line, self._look = line, look
        self._err = sys.stderr
        self._heard_at = self._said_at = time.monotonic()
        self._over = Event()
        self._speaking = Thread(target=self._speak, daemon=True)
        self._looking: Thread | None = None
        self._looked_for = 0.0
        """When the silence began in which the last look was started."""

    def __enter__(self) -> Self:
        self._speaking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._speaking.join(_JOIN_SECONDS)
        if self._looking is not None:  # Python complains about an event loop that a thread leaves open at the end
            self._looking.join(_LOOK_SECONDS)

    def hear(self) -> None:
        """Something is about to be printed."""
        self._heard_at = self._said_at = time.monotonic()

    def _speak(self) -> None:
        while not self._over.wait(min(_BLINK_SECONDS, progress.REPEAT_SECONDS / 4)):
            silence = time.monotonic() - self._said_at
            if silence >= progress.REPEAT_SECONDS / 2:
                self._look_aside()
            if silence >= progress.REPEAT_SECONDS:
                self._say()

    def _look_aside(self) -> None:
        """Look once before each line; a look that is still under way is enough."""
        is_looking = self._looking is not None and self._looking.is_alive()
        if self._look is not None and not is_looking and self._looked_for != self._said_at:
            self._looked_for = self._said_at
            self._looking = Thread(target=self._learn, args=(self._look,), daemon=True)
            self._looking.start()

    def _learn(self, look: Callable[[], str]) -> None:
        with suppress(RemitError):
            self._line = look()

    def _say(self) -> None:
        self._said_at = time.monotonic()
        self._err.write(f"{display_line(f'{self._line} · {self._said_at - self._heard_at:.0f} s without news')}\n")
        self._err.flush()
