"""Announces that a process waits for its store: the same way for opening, reading and writing."""

import logging
import math
import time
from collections.abc import Callable

log = logging.getLogger("remit.store")

REPEAT_SECONDS = 7.0
"""How often a wait is announced.

A line every 10 seconds is promised; the difference is for a busy machine.
"""
CHECK_SECONDS = 1.0
"""How often a wait on an event loop checks whether its announcement is due."""
GOES_ON = "goes_on"
"""The attribute of a log record about a wait: a function that returns True until the wait is
over.
"""


class WaitNotice:
    """Announces the waits for one store.

    Only the first wait is announced at once: on a busy machine, short waits occur again and again.
    A wait that lasts is announced every `REPEAT_SECONDS`, once for all calls that wait together.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._said_at = -math.inf

    def announce(self, cause: str, waited: float, goes_on: Callable[[], bool]) -> None:
        """Announce a wait of so many seconds if that is due."""
        now = time.monotonic()
        is_first, is_long = self._said_at == -math.inf, waited >= REPEAT_SECONDS
        if now - self._said_at < REPEAT_SECONDS or not (is_first or is_long):
            return
        self._said_at = now
        so_far = f" ({waited:.0f} seconds so far)" if is_long else ""
        extra = {GOES_ON: goes_on}
        log.warning("Waiting for the store %s: %s%s.", self._store, cause, so_far, extra=extra)
