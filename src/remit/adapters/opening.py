"""Waiting for other processes and for the server while a store is opened."""

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TypeVar

from remit.errors import Busy, Unavailable

log = logging.getLogger("remit.store")

T = TypeVar("T")

OPEN_SECONDS = 30.0
"""How long opening waits in all for the server, and for processes that write or upgrade the store; a command may take as long."""
SAY_SECONDS = 1.0
"""After how long a wait for other processes is announced."""
SILENT_SECONDS = 2.4
"""After how long a server that does not answer is announced; a locked table is reported by the server before that."""
ANSWER_SECONDS = 10.0
"""How long opening waits for one answer before it connects again: a wire can go silent without breaking."""
TURN_SECONDS = 0.01

OTHERS = "another process has locked or upgrades it, or its server starts"
SILENCE = "its server does not answer"


class OpeningWait:
    """Counts the time that one opening waits: announces the wait once, and ends it with an error."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._began = time.monotonic()
        self._said = False
        self._is_locked = False
        """Whether the server has reported a lock: it answers, even if an answer then comes too late."""

    @property
    def waited(self) -> float:
        """How many seconds ago the opening began."""
        return time.monotonic() - self._began

    def again(self) -> float:
        """Return the seconds to sleep before the next try; Busy if the time is up."""
        self._is_locked = True
        if self.waited >= OPEN_SECONDS:
            raise self._locked()
        if self.waited >= SAY_SECONDS:
            self._announce(OTHERS)
        return TURN_SECONDS

    async def answer(self, request: Awaitable[T]) -> T:
        """Wait for an answer of the server and announce a long wait; TimeoutError if none comes."""
        announcement = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._announce, SILENCE)
        try:
            async with asyncio.timeout(min(ANSWER_SECONDS, OPEN_SECONDS - self.waited)):
                return await request
        finally:
            announcement.cancel()

    def must_go_on(self) -> None:
        """Raise Unavailable if the server has been silent until the time was up, or Busy if it had reported a lock."""
        if self.waited >= OPEN_SECONDS:
            if self._is_locked:
                raise self._locked()
            message = f"The server of the store {self._store} did not answer for {OPEN_SECONDS:.0f} seconds while it was being opened."
            raise Unavailable(message, hint="Check the database URL and that the server runs.")

    def _locked(self) -> Busy:
        message = f"The store {self._store} was locked by another process for {OPEN_SECONDS:.0f} seconds while it was being opened."
        return Busy(message, hint="Find the process that writes or upgrades it, or try again.")

    def _announce(self, cause: str) -> None:
        if not self._said:
            self._said = True
            log.warning("Waiting for the store %s: %s.", self._store, cause)
