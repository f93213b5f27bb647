"""How a process is told to stop: once to hand over, twice to end at once."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Tells all who asked for it at the first signal; the second one ends the process and leaves its tasks to others.

    The second is listened to from the first on, whatever the event loop is busy with meanwhile.
    """

    def __init__(self, signals: Sequence[int] = SIGNALS) -> None:
        self.begun = asyncio.Event()
        self._tell: list[Callable[[], None]] = []
        self._signals, self._loop = signals, asyncio.get_running_loop()
        for number in signals:
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
            self.begun.set()
            for tell in self._tell:
                tell()

    def _first(self, _number: int, _frame: object) -> None:
        for number in self._signals:
            signal.signal(number, at_once)
        self._loop.call_soon_threadsafe(self.begin)


def at_once(number: int, _frame: object) -> None:
    """End this process here and now; whatever it had under way is taken over by others once its lease runs out."""
    os._exit(128 + number)
