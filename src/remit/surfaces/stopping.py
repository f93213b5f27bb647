"""How a process that was told to stop ends in time, and which signals tell it."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Self

STOP_SECONDS = 9.0
"""How long a process may take to stop, whatever does not answer: supervisors kill after about ten seconds."""


def write_line(line: str) -> None:
    """Write a line to standard error at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a process that serves: SIGTERM, and SIGINT unless the process was started to ignore it.

    `nohup` and the background jobs of scripts start processes that ignore Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return signal.SIGTERM, signal.SIGINT


class StopDeadline:
    """Ends the process if it has not stopped in time: a store or a run that does not answer must not keep it.

    A context, in which `begin` starts to count. The event loop may be stuck, so a thread watches.
    """

    def __init__(self, last_line: Callable[[], str], exit_code: int, write: Callable[[str], None] = write_line) -> None:
        self._last_line, self._exit_code, self._write = last_line, exit_code, write
        self._begun, self._over = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="remit-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._begun.set()

    def begin(self) -> None:
        """Start to count; safe in a signal handler."""
        self._begun.set()

    def _watch(self) -> None:
        self._begun.wait()
        if self._over.wait(STOP_SECONDS):
            return
        try:
            self._write(self._last_line())
        finally:
            os._exit(self._exit_code)
