"""When a call must end, and how work in a thread learns of it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Literal, TypeVar

from remit.domain.tool import Signal

T = TypeVar("T")


class Halted(Exception):
    """The work was ended before it was done."""

    def __init__(self, why: Literal["canceled", "timeout"]) -> None:
        super().__init__(why)
        self.why = why


class Stop:
    """The deadline of one call, and its cancel."""

    def __init__(self, seconds: float, cancel: Signal) -> None:
        self.seconds, self.cancel = seconds, cancel
        self._end = monotonic() + seconds
        self._left_alone = False

    def check(self) -> None:
        """Halted if the work must end; called by whatever may take long, and before anything is changed."""
        if self._left_alone or self.cancel.is_set():
            raise Halted("canceled")
        if monotonic() > self._end:
            raise Halted("timeout")

    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._end - monotonic())

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do blocking work; who is canceled meanwhile waits until it has ended, so that nothing changes afterwards."""
        running = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._left_alone = True
            while not running.done():
                with suppress(asyncio.CancelledError):  # the first is passed on below; a second must not make us leave early
                    await asyncio.wait([running])
            running.exception()  # wanted by nobody any more
            raise
