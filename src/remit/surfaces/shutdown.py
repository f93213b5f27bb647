"""Ending a process in time after a signal, and the signals that end it."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, NoReturn, Self

from remit.surfaces.text.last_line import stopped_line
from remit.surfaces.text.stream_writer import write_through

STOP_SECONDS = 7.5
"""How long a process may take to stop, even if something does not respond: supervisors kill it
after about ten seconds, and a busy machine needs some time to end it.
"""
LAST_LINE_SECONDS = 0.5
"""How long writing the last line may take: it may have no reader."""


def write_line(line: str) -> None:
    """Write a line to standard error at once."""
    write_through(sys.stderr, f"{line}\n")


def end_process(line: str, exit_code: int, write: Callable[[str], None] = write_line) -> NoReturn:
    """End this process now, with a last line if it can be written soon.

    Safe in a signal handler.
    """
    try:
        writing = threading.Thread(target=write, args=(line,), daemon=True)
        writing.start()
        writing.join(LAST_LINE_SECONDS)
    finally:
        os._exit(exit_code)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a server or a worker: SIGTERM, and SIGINT unless the process
    ignores it.

    Scripts start background jobs that ignore SIGINT.
    """
    return (signal.SIGTERM,) if _ignores_ctrl_c() else (signal.SIGTERM, signal.SIGINT)


def stop_key() -> str:
    """Return how to stop this process: Ctrl-C, or SIGTERM if the process ignores Ctrl-C."""
    return "SIGTERM" if _ignores_ctrl_c() else "Ctrl-C"


def stop_again() -> str:
    """What ends this process at once after a first signal: each of the signals that stop it."""
    return "SIGTERM" if _ignores_ctrl_c() else "Ctrl-C or SIGTERM"


def ending_signals() -> dict[signal.Signals, Any]:
    """Return the signals that would end this process now, with their handlers: Ctrl-C, a
    supervisor, a closed terminal.

    Ignored signals, as in background processes, stay ignored. Threads other than the main thread
    cannot handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    found = {number: signal.getsignal(number) for number in signals}
    return {
        number: handler
        for number, handler in found.items()
        if handler in (signal.default_int_handler, signal.SIG_DFL)
    }


def quit_at(signals: Iterable[signal.Signals], last_line: Callable[[], str]) -> None:
    """Make the next of these signals end this process at once, with a last line.

    Other workers take over its runs when their leases expire.
    """

    def leave(number: int, _frame: object) -> None:
        line = stopped_line()
        try:
            line = last_line()
        finally:
            end_process(line, 128 + number)

    for number in signals:
        signal.signal(number, leave)


@contextmanager
def quitting_at_signals(last_line: Callable[[], str]) -> Generator[None]:
    """End the process at once if a signal that would end it arrives in this block."""
    handled = ending_signals()
    quit_at(handled, last_line)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


def _ignores_ctrl_c() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class StopDeadline:
    """Ends the process if it has not stopped in time, for example because the store does not
    respond.

    A context; `begin` starts the clock. A thread watches it, because the event loop may be stuck.
    """

    def __init__(
        self,
        last_line: Callable[[], str],
        exit_code: int,
        write: Callable[[str], None] = write_line,
    ) -> None:
        self._last_line, self.exit_code, self._write = last_line, exit_code, write
        self._begun, self._over = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="remit-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._begun.set()

    def begin(self) -> None:
        """Start the clock; safe in a signal handler."""
        self._begun.set()

    @property
    def has_begun(self) -> bool:
        """True once the clock runs."""
        return self._begun.is_set()

    def _watch(self) -> None:
        self._begun.wait()
        if self._over.wait(STOP_SECONDS):
            return
        self.quit(self._last_line(), self.exit_code)

    def quit(self, line: str, exit_code: int) -> NoReturn:
        """End the process now, with a last line if it can be written."""
        end_process(line, exit_code, self._write)
