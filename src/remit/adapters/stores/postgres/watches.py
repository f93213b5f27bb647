"""The watchers of a database in this process, and the connection that listens for them."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from remit.adapters.stores.postgres.connections import SILENCE_SECONDS
from remit.adapters.stores.postgres.driver_errors import LOST
from remit.adapters.stores.postgres.schema import CHANNELS
from remit.ports import Topic

SAFETY_SECONDS = 1.0
"""The longest sleep of a watcher, in case it missed a notification."""


class PostgresWatch:
    """Wakes on a notice, and now and then in case one was missed."""

    def __init__(self, notified: asyncio.Event) -> None:
        self._notified = notified

    async def wait(self) -> None:
        """Return after a notice, or after a short while."""
        try:
            async with asyncio.timeout(SAFETY_SECONDS):
                await self._notified.wait()
        except TimeoutError:
            return
        self._notified.clear()


class Watches:
    """Wakes watchers after commits of any process."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._watched = asyncio.Event()
        self._events: dict[str, set[asyncio.Event]] = {topic: set() for topic in CHANNELS}

    @asynccontextmanager
    async def watch(self, topic: Topic) -> AsyncGenerator[PostgresWatch, None]:
        """Yield a watch that wakes after commits of any process."""
        notified = asyncio.Event()
        self._events[topic].add(notified)
        self._watched.set()
        try:
            yield PostgresWatch(notified)
        finally:
            self._events[topic].discard(notified)

    async def listen_again(self) -> None:
        """Wake every watcher on a notification, and after each reconnect, because one may have been
        missed.
        """
        await self._watched.wait()
        with suppress(*LOST, asyncpg.PostgresError):
            await self._listen()
        self._wake()
        # so that processes do not all reconnect at the same time
        await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311

    async def _listen(self) -> None:
        """Pass on notices until the connection is lost."""
        gone = asyncio.Event()
        connection = await self._connect()

        topics = {channel: topic for topic, channel in CHANNELS.items()}

        def on_notice(_connection: Any, _pid: int, channel: str, _payload: Any) -> None:
            self._wake(topics[channel])

        def on_end(*_: Any) -> None:
            gone.set()

        try:
            connection.add_termination_listener(on_end)
            for channel in topics:
                await connection.add_listener(channel, on_notice)
            self._wake()
            while not gone.is_set():
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await gone.wait()
                except TimeoutError:
                    # A process that only listens would never notice a silent connection.
                    await connection.execute("SELECT 1", timeout=SILENCE_SECONDS)
        finally:
            connection.terminate()

    def _wake(self, *topics: str) -> None:
        for topic in topics or CHANNELS:
            for notified in self._events[topic]:
                notified.set()
