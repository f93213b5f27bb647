"""The connections to a database: retried while its server restarts, dropped if it is silent."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import asyncpg

from remit.adapters.stores.postgres.driver_errors import (
    EXPECTED,
    LOST,
    PATIENCE_SECONDS,
    translate,
)
from remit.adapters.stores.postgres.rollback_check import History
from remit.adapters.stores.wait_notice import CHECK_SECONDS, WaitNotice
from remit.errors import Unavailable

T = TypeVar("T")

SAY_SECONDS = 5.0
"""After how long a wait for the server is announced: a busy machine may take a few seconds for
an answer.
"""
SILENCE_SECONDS = 10.0
"""The time to wait for a response before a connection counts as dead: it can go silent without
breaking.
"""
LATE_SECONDS = 0.3
"""The time that a call may still take after the time of `end_within`, for a server that answers."""


def closed_error(place: str) -> Unavailable:
    """Return the error of a call to a store that was closed."""
    return Unavailable(f"The store {place} is closed.")


class Connections:
    """Uses the connections of a pool to one database."""

    def __init__(self, pool: Any, history: History) -> None:
        self.pool, self.history = pool, history
        self._notice = WaitNotice(history.marks.place)
        self._ends_at = math.inf
        self._limits: set[asyncio.Timeout] = set()
        """The limits of the calls that wait for an answer."""

    def end_within(self, seconds: float) -> None:
        """Let calls wait at most this long from now on."""
        self._ends_at = min(self._ends_at, asyncio.get_running_loop().time() + seconds)
        for limit in self._limits:
            when = limit.when()
            if when is None or when > self._ends_at:
                limit.reschedule(self._ends_at)

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Return the rows of a statement."""

        async def fetch(connection: Any) -> list[Any]:
            await self.history.check_if_due(connection)
            found: list[Any] = await connection.fetch(statement, *arguments)
            return found

        with self.translating():
            return await self.patiently(fetch)

    @contextmanager
    def translating(self) -> Generator[None]:
        """Refuse a store that was found wrong, and raise errors of the driver in remit's terms."""
        self.history.must_be_sound()
        try:
            yield
        except (*LOST, asyncpg.PostgresError) as error:
            raise translate(error) from error

    async def patiently(self, action: Callable[[Any], Awaitable[T]]) -> T:
        """Do it again while the server restarts; whatever we send can be sent twice."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        pause = 0.02
        with self._announcing():
            while True:
                try:
                    return await self.use(action)
                except LOST:
                    if self.pool.is_closing():
                        raise closed_error(self.history.marks.place) from None
                    left = min(deadline, self._ends_at) - loop.time()
                    if left <= 0:
                        raise
                await asyncio.sleep(min(pause, left))
                pause = min(pause * 2, 0.5)

    @contextmanager
    def _announcing(self) -> Generator[None]:
        """Announce from time to time that the block waits for the server."""
        loop, began, is_over = asyncio.get_running_loop(), time.monotonic(), False
        cause = "its server does not answer, or another program has locked a table"
        timers = list[asyncio.TimerHandle]()

        def announce() -> None:
            self._notice.announce(cause, time.monotonic() - began, lambda: not is_over)
            timers[:] = [loop.call_later(CHECK_SECONDS, announce)]

        timers.append(loop.call_later(SAY_SECONDS, announce))
        try:
            yield
        finally:
            timers[0].cancel()
            is_over = True

    async def use(self, action: Callable[[Any], Awaitable[T]]) -> T:
        """Use a connection.

        It is dropped if its response does not arrive in time or the caller stops waiting: the
        driver would ask the server to cancel, and wait for that on a connection that may be silent.
        """
        try:
            async with self._limit(), self.pool.acquire() as connection:
                try:
                    return await action(connection)
                except asyncio.CancelledError:
                    connection.terminate()
                    raise
                except asyncpg.PostgresError as error:
                    if not isinstance(error, EXPECTED):
                        # A restore removes and creates the parts of the schema one by one.
                        await self.history.check(connection)
                    raise
        except asyncpg.InvalidCatalogNameError:
            raise await self.history.remember_removal() from None

    @asynccontextmanager
    async def _limit(self) -> AsyncGenerator[None, None]:
        """Limit the time of a call, which `end_within` may shorten."""
        now = asyncio.get_running_loop().time()
        end = max(self._ends_at, now + LATE_SECONDS)
        limit = asyncio.timeout_at(min(now + SILENCE_SECONDS, end))
        self._limits.add(limit)
        try:
            async with limit:
                yield
        finally:
            self._limits.discard(limit)
