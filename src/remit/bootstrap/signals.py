"""Stopping a process by signals: the first one hands over, the second ends it at once."""

import asyncio
import logging
import signal
from collections.abc import Callable, Collection

from remit.app.context import AppContext
from remit.domain.text.counting import counted
from remit.errors import RemitError, Unavailable
from remit.surfaces.shutdown import (
    STOP_SECONDS,
    StopDeadline,
    stop_again,
    stop_signals,
    write_line,
)
from remit.surfaces.text.last_line import stopped_line
from remit.surfaces.text.printed_commands import command_line

log = logging.getLogger("remit.server")


class Deadline(StopDeadline):
    """A deadline for a process with runs; its last line says what happens to them."""

    def __init__(self, write: Callable[[str], None] = write_line) -> None:
        super().__init__(self._last_line, Unavailable.exit_code, write)
        self.running: Callable[[], int] = int
        """Returns the number of live runs."""
        self.is_interrupted = False
        """True once Ctrl-C has told the process to stop."""
        self._runs: int | None = None
        """The number of live runs when the process was told to stop."""
        # A handler of signals must not import what the command line needs.
        self._start_worker = f"If none is running, start one with: {command_line('worker')}"

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
        follows = "The next worker continues it when its lease expires."
        if runs > 1:
            follows = "The next worker continues them when their leases expire."
        return f"{stopped_line()} {left} not handed over. {follows} {self._start_worker}"

    def _last_line(self) -> str:
        """Return the last line, with the number of runs that were not handed over."""
        left = "No run was left to hand over."
        if self._runs:
            left = (
                f"{_count(self._runs)} live. When their leases expire, the next worker continues"
                f" those that were not handed over. {self._start_worker}"
            )
        return f"Stopped after {STOP_SECONDS:g} seconds, before everything was finished. {left}"


def _count(runs: int) -> str:
    """Return the number of runs, as the start of a sentence about them."""
    return "1 run was" if runs == 1 else f"{runs} runs were"


class Stop:
    """Calls registered functions at the first signal.

    The second signal ends the process and leaves its tasks to the next worker, even if the event
    loop is busy. A process that was started to ignore Ctrl-C keeps ignoring it. Until the process
    announces its start, the first signal cancels the asyncio task that has made this object.
    """

    def __init__(self, deadline: Deadline) -> None:
        self.begun = asyncio.Event()
        self.deadline = deadline
        self._is_asked = False
        """True from the first signal on, which the event loop may not have noticed yet."""
        self._tell: list[Callable[[], None]] = []
        self._starting: asyncio.Task[object] | None = asyncio.current_task()
        self._signals, self._loop = stop_signals(), asyncio.get_running_loop()
        for number in self._signals:
            signal.signal(number, self._first)

    def announce(self, begin: Callable[[], None]) -> None:
        """End the start of the process: call a function unless the process was told to stop."""
        self._starting = None
        if not self._is_asked:
            begin()

    def then(self, tell: Callable[[], None]) -> None:
        """Call a function when the stop begins; at once if it has begun."""
        if self.begun.is_set():
            tell()
        else:
            self._tell.append(tell)

    def begin(self) -> None:
        """Begin to stop, as at the first signal."""
        if self.begun.is_set():
            return
        self.deadline.begin()
        self.begun.set()
        for tell in self._tell:
            tell()

    def _first(self, number: int, _frame: object) -> None:
        """Begin to stop; the next signal ends the process."""
        for each in self._signals:
            signal.signal(each, self._second)
        if self._loop.is_closed():  # only the last line is left to write
            self._second(number, None)
        self._is_asked = True
        self.deadline.is_interrupted = number == signal.SIGINT
        self.deadline.begin()
        self._loop.call_soon_threadsafe(self._begin_by_signal)

    def _second(self, number: int, _frame: object) -> None:
        """End the process at once."""
        self.deadline.quit(self.deadline.quit_line(), 128 + number)

    def _begin_by_signal(self) -> None:
        log.info("Stopping%s. %s again to quit now.", self._under_way(), stop_again())
        self.begin()
        if self._starting is not None:
            self._starting.cancel()

    def _under_way(self) -> str:
        """Return the number of runs to hand over, as part of a sentence."""
        runs = self.deadline.running()
        if not runs:
            return ""
        return ": handing over 1 run" if runs == 1 else f": handing over {runs} runs"


async def handover_line(core: AppContext, task_ids: Collection[str]) -> str:
    """Return the last line of a worker that has handed over these tasks: who continues them."""
    if not task_ids:
        return stopped_line()
    them, were = ("it", "was") if len(task_ids) == 1 else ("them", "were")
    told = f"{stopped_line()} {counted(len(task_ids), 'task')} {were} handed over."
    start = f"Continue {them} with: `remit worker`"
    try:
        unattended = await core.unattended(task_ids)
    except RemitError:  # the store is gone
        return f"{told} If no other worker is running: {start}"
    if not unattended:
        return f"{told} Another worker continues {them}."
    if len(unattended) < len(task_ids):
        return f"{told} No other worker is running for {len(unattended)} of them. {start}"
    return f"{told} No other worker is running for {them}. {start}"
