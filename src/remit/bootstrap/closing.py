"""The end of a program that uses the library: it does not wait long for a store that is away."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from remit.ports import Store

log = logging.getLogger("remit.store")

CLOSE_SECONDS = 6.0
"""How long closing may wait for the store; the rest of the ten seconds is for its last steps."""


class Closing:
    """Limits the time of closing from when it begins."""

    def __init__(self) -> None:
        self._began_at: float | None = None

    def begin(self, store: Store) -> None:
        """Begin to close: calls no longer wait for the store after the limit."""
        self._began_at = asyncio.get_running_loop().time()
        store.end_within(CLOSE_SECONDS)

    def report(self) -> None:
        """Log that the store did not answer in time, if that is so."""
        if self._began_at is None:
            return
        if asyncio.get_running_loop().time() - self._began_at >= CLOSE_SECONDS:
            log.warning(
                "Closed before the store answered. When their leases expire, other workers"
                " take over the runs that were not handed over."
            )


@asynccontextmanager
async def closing_in_time() -> AsyncGenerator[Closing, None]:
    """Yield the limit for the end of the block, and log at its end if it was reached."""
    closing = Closing()
    try:
        yield closing
    finally:
        closing.report()
