"""The deadline of a call, and how work in a thread notices it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Literal, TypeVar

from remit.domain.agents.tools import Signal

T = TypeVar("T")


class Halted(Exception):
    """The work was stopped before it finished."""

    def __init__(self, why: Literal["canceled", "timeout"]) -> None:
        super().__init__(why)
        self.why = why


class Stop:
    """The deadline and the cancel signal of one call."""

    def __init__(self, seconds: float, cancel: Signal) -> None:
        self.seconds, self.cancel = seconds, cancel
        self._end = monotonic() + seconds
        self._abandoned = False

    def check(self) -> None:
        """Raise `Halted` if the work must end.

        Slow work calls this regularly and before every change.
        """
        if self._abandoned or self.cancel.is_set():
            raise Halted("canceled")
        if monotonic() > self._end:
            raise Halted("timeout")

    def left(self) -> float:
        """Return the seconds until the deadline."""
        return max(0.0, self._end - monotonic())

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in a thread.

        If the caller is canceled, wait for the thread to end first, so nothing changes afterwards.
        """
        running = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._abandoned = True
            while not running.done():
                # The first cancellation is raised below; a second one must not end the wait early.
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            running.exception()  # mark the exception as retrieved
            raise
