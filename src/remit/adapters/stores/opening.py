"""Waiting for other processes and for the server while a store is opened."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Self, TypeVar

from remit.adapters.stores.wait_notice import CHECK_SECONDS, WaitNotice
from remit.errors import Busy, Unavailable

T = TypeVar("T")

OPEN_SECONDS = 30.0
"""The total time that opening waits for the server, and for processes that write or upgrade the
store.

A command may wait as long.
"""
SAY_SECONDS = 1.0
"""After how long a wait for other processes is announced."""
SILENT_SECONDS = 2.4
"""After how long a server that does not answer is announced.

A locked table is reported by the server before that.
"""
ANSWER_SECONDS = 10.0
"""The time that opening waits for one response before it reconnects: a connection can go silent
without breaking.
"""
TURN_SECONDS = 0.01

OTHERS = "another process has locked it or is upgrading it"
OTHERS_OR_START = f"{OTHERS}, or its server starts"
SILENCE = "its server does not answer"


class OpeningWait:
    """Counts the time that one opening waits: announces the wait, and ends it with an error.

    A context, which ends with the opening.
    """

    def __init__(self, store: str, cause: str = OTHERS) -> None:
        self.store, self._cause = store, cause
        self._began = time.monotonic()
        self._notice = WaitNotice(store)
        self._is_locked = False
        """True if the server reported a lock and has not been silent since, even if the last
        response was cut off by the limit.
        """
        self._is_over = False
        self._silence_check: asyncio.TimerHandle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True

    @property
    def waited(self) -> float:
        """The seconds since the opening began."""
        return time.monotonic() - self._began

    def again(self) -> float:
        """Return the seconds to sleep before the next try; Busy if the time is up."""
        self._is_locked = True
        if self.waited >= OPEN_SECONDS:
            raise self._lock_error()
        if self.waited >= SAY_SECONDS:
            self._announce(self._cause)
        return TURN_SECONDS

    async def answer(self, request: Awaitable[T]) -> T:
        """Wait for an answer of the server and announce a long wait; TimeoutError if none comes."""
        self._check_silence_in(SILENT_SECONDS)
        try:
            async with asyncio.timeout(min(ANSWER_SECONDS, OPEN_SECONDS - self.waited)):
                return await request
        finally:
            self._silence_check.cancel()

    def must_go_on(self) -> None:
        """Raise Unavailable if the server has been silent until the time was up, or Busy if it
        had reported a lock.
        """
        if self.waited >= OPEN_SECONDS:
            if self._is_locked:
                raise self._lock_error()
            message = (
                f"The server of the store {self.store} did not answer for {OPEN_SECONDS:.0f}"
                " seconds while it was being opened."
            )
            raise Unavailable(message, hint="Check the database URL and that the server runs.")

    def _lock_error(self) -> Busy:
        """Return the error for a store that others have locked."""
        message = (
            f"The store {self.store} was locked by another process for {OPEN_SECONDS:.0f} seconds"
            " while it was being opened."
        )
        return Busy(message, hint="Find the process that writes or upgrades it, or try again.")

    def _check_silence_in(self, seconds: float) -> None:
        """Announce in so many seconds that the server does not answer, unless it does."""
        loop = asyncio.get_running_loop()
        self._silence_check = loop.call_later(seconds, self._find_silent)

    def _find_silent(self) -> None:
        self._is_locked = False
        self._announce(SILENCE)
        self._check_silence_in(CHECK_SECONDS)

    def _announce(self, cause: str) -> None:
        self._notice.announce(cause, self.waited, lambda: not self._is_over)
