"""The time of the embedded store: that of the machine, but for a clock that is set while work is under way."""

import time
from datetime import UTC, datetime

JUMP_SECONDS = 1.0
"""A clock that is off by less was put right, or two readings were far apart; more, and it was set, or the machine slept."""


class Clock:
    """Follows the machine's clock, but goes on as before when that jumps while there is work.

    So no time limit, timer or pause before another try ends hours early or hours late. Once the work is done the jump is followed:
    what people mean by six o'clock is what their clocks say.
    """

    def __init__(self) -> None:
        self._zero = _zero()
        self.busy = False
        """There is work under way, as far as this process has seen."""

    def now(self) -> datetime:
        """This instant."""
        zero = _zero()
        if not self.busy or abs(zero - self._zero) < JUMP_SECONDS:
            self._zero = zero
        return datetime.fromtimestamp(self._zero + time.monotonic(), UTC)


def _zero() -> float:
    """What time of day it was when the monotonic clock, which nobody sets, stood at zero."""
    return time.time() - time.monotonic()
