"""The time of the embedded store: that of the machine, but for a clock that is set while work is
under way.
"""

import time
from datetime import UTC, datetime

JUMP_SECONDS = 1.0
"""A clock that is off by less was put right, or two readings were far apart.

More, and it was set, or the machine slept.
"""


class Clock:
    """Follows the machine's clock, but ignores jumps of that clock while there is work.

    So no time limit, timer or retry pause ends hours early or late. The jump is followed once the
    work is done, so that times of day match the clocks of users.
    """

    def __init__(self) -> None:
        self._zero = _zero()
        self.busy = False
        """There is work under way, as far as this process has seen."""

    def now(self) -> datetime:
        """Return the current time."""
        zero = _zero()
        if not self.busy or abs(zero - self._zero) < JUMP_SECONDS:
            self._zero = zero
        return datetime.fromtimestamp(self._zero + time.monotonic(), UTC)


def _zero() -> float:
    """Return the time of day at which the monotonic clock was zero."""
    return time.time() - time.monotonic()
