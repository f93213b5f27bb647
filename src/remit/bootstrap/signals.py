"""Stopping a process by signals: the first one hands over, the second ends it at once."""

import asyncio
import logging
import signal
from collections.abc import Callable

from remit.errors import Unavailable
from remit.surfaces.shutdown import (
    STOP_SECONDS,
    StopDeadline,
    end_process,
    stop_again,
    stop_signals,
    write_line,
)
from remit.surfaces.text.last_line import stopped_line

log = logging.getLogger("remit.server")


class Deadline(StopDeadline):
    """A deadline for a process with runs; its last line says what happens to them."""

    def __init__(self, write: Callable[[str], None] = write_line) -> None:
        super().__init__(self._last_line, Unavailable.exit_code, write)
        self.running: Callable[[], int] = int
        """Returns the number of live runs."""
        self._runs: int | None = None
        """The number of live runs when the process was told to stop."""

    def begin(self) -> None:
        """Start the clock; safe in a signal handler."""
        if self._runs is None:
            self._runs = self.running()
        super().begin()

    def quit_line(self) -> str:
        """Return the last line of a process that is told to end at once; safe in a signal
        handler.
        """
        runs = self.running()
        if not runs:
            return stopped_line()
        left = _count(runs)
        follows = "Other workers continue it when its lease expires."
        if runs > 1:
            follows = "Other workers continue them when their leases expire."
        return f"{stopped_line()} {left} not handed over. {follows}"

    def _last_line(self) -> str:
        """Return the last line, with the number of runs that were not handed over."""
        left = "No run was left to hand over."
        if self._runs:
            left = (
                f"{_count(self._runs)} live; other workers take over those that were not handed"
                " over when their leases expire."
            )
        return f"Stopped after {STOP_SECONDS:g} seconds, before everything was finished. {left}"


def _count(runs: int) -> str:
    """Return the number of runs, as the start of a sentence about them."""
    return "1 run was" if runs == 1 else f"{runs} runs were"


class Stop:
    """Calls registered functions at the first signal.

    The second signal ends the process and leaves its tasks to other workers, even if the event loop
    is busy. A process that was started to ignore Ctrl-C keeps ignoring it.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self.begun = asyncio.Event()
        self._deadline = deadline
        self._tell: list[Callable[[], None]] = []
        self._signals, self._loop = stop_signals(), asyncio.get_running_loop()
        for number in self._signals:
            signal.signal(number, self._first)

    def then(self, tell: Callable[[], None]) -> None:
        """Call a function when the stop begins; at once if it has begun."""
        if self.begun.is_set():
            tell()
        else:
            self._tell.append(tell)

    def begin(self) -> None:
        """Begin to stop, as at the first signal."""
        if not self.begun.is_set():
            self._count()
            self.begun.set()
            for tell in self._tell:
                tell()

    def _first(self, number: int, _frame: object) -> None:
        """Begin to stop; the next signal ends the process."""
        for each in self._signals:
            signal.signal(each, self._second)
        if self._loop.is_closed():  # only the last line is left to write
            self._second(number, None)
        self._count()
        self._loop.call_soon_threadsafe(self._begin_by_signal)

    def _second(self, number: int, _frame: object) -> None:
        """End the process at once."""
        if self._deadline is None:
            end_process(stopped_line(), 128 + number)
        else:
            self._deadline.quit(self._deadline.quit_line(), 128 + number)

    def _begin_by_signal(self) -> None:
        log.info("Stopping%s. %s again to quit now.", self._under_way(), stop_again())
        self.begin()

    def _under_way(self) -> str:
        """Return the number of runs to hand over, as part of a sentence."""
        runs = 0 if self._deadline is None else self._deadline.running()
        if not runs:
            return ""
        return ": handing over 1 run" if runs == 1 else f": handing over {runs} runs"

    def _count(self) -> None:
        """Start the deadline."""
        if self._deadline is not None:
            self._deadline.begin()
