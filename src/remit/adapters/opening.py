"""Waiting for other processes while a store is opened."""

import logging
import time

from remit.errors import Busy

log = logging.getLogger("remit.store")

OPEN_SECONDS = 30.0
"""How long opening waits for processes that write or upgrade the store; a command may take as long."""
SAY_SECONDS = 1.0
"""After how long a wait is announced."""
TURN_SECONDS = 0.01


class OpeningWait:
    """Counts the time that one opening waits: announces the wait once, and ends it with an error."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._began = time.monotonic()
        self._said = False

    def again(self) -> float:
        """Return the seconds to sleep before the next try; Busy if the time is up."""
        waited = time.monotonic() - self._began
        if waited >= OPEN_SECONDS:
            message = f"The store {self._store} was locked by another process for {OPEN_SECONDS:.0f} seconds while it was being opened."
            raise Busy(message, hint="Find the process that writes or upgrades it, or try again.")
        if waited >= SAY_SECONDS and not self._said:
            self._said = True
            log.warning("Waiting for the store %s: another process has locked or upgrades it, or its server starts.", self._store)
        return TURN_SECONDS
