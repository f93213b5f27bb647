"""How a process is told to stop: once to hand over, twice to end at once."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable

from remit.errors import Unavailable
from remit.surfaces.stopping import STOP_SECONDS, StopDeadline, stop_signals, write_line

log = logging.getLogger("remit.server")


class Deadline(StopDeadline):
    """The same for a process that has runs: its last line says what becomes of them."""

    def __init__(self, write: Callable[[str], None] = write_line) -> None:
        super().__init__(self._told, Unavailable.exit_code, write)
        self.running: Callable[[], int] = int
        """How many runs are under way."""
        self._runs: int | None = None
        """How many there were when it was told to stop."""

    def begin(self) -> None:
        """Start to count; safe in a signal handler."""
        if self._runs is None:
            self._runs = self.running()
        super().begin()

    def _told(self) -> str:
        left = "No run was left to hand over."
        if self._runs:
            runs = "1 run was" if self._runs == 1 else f"{self._runs} runs were"
            left = f"{runs} under way; other workers take over what was not handed over when its lease ends."
        return f"Stopped after {STOP_SECONDS:.0f} seconds, before everything was finished. {left}"


class Stop:
    """Tells all who asked for it at the first signal; the second one ends the process and leaves its tasks to others.

    The second is listened to from the first on, whatever the event loop is busy with meanwhile.
    A process that was started to ignore Ctrl-C keeps ignoring it.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self.begun = asyncio.Event()
        self._deadline = deadline
        self._tell: list[Callable[[], None]] = []
        self._signals, self._loop = stop_signals(), asyncio.get_running_loop()
        for number in self._signals:
            signal.signal(number, self._first)

    def then(self, tell: Callable[[], None]) -> None:
        """Have somebody told; at once, if it has begun."""
        if self.begun.is_set():
            tell()
        else:
            self._tell.append(tell)

    def begin(self) -> None:
        """Stop, as at the first signal."""
        if not self.begun.is_set():
            self._count()
            self.begun.set()
            for tell in self._tell:
                tell()

    def _first(self, _number: int, _frame: object) -> None:
        for number in self._signals:
            signal.signal(number, at_once)
        self._count()
        self._loop.call_soon_threadsafe(self._begin_by_signal)

    def _begin_by_signal(self) -> None:
        log.info("Stopping%s. Ctrl-C again to quit now.", self._under_way())
        self.begin()

    def _under_way(self) -> str:
        runs = 0 if self._deadline is None else self._deadline.running()
        if not runs:
            return ""
        return ": handing over 1 run" if runs == 1 else f": handing over {runs} runs"

    def _count(self) -> None:
        if self._deadline is not None:
            self._deadline.begin()


def at_once(number: int, _frame: object) -> None:
    """End this process here and now; whatever it had under way is taken over by others once its lease runs out."""
    os._exit(128 + number)
