"""The watchers of a database file in this process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from remit.adapters.stores.sqlite.notifier import Listener, Notifier

T = TypeVar("T")

log = logging.getLogger("remit.sqlite")

SAFETY_SECONDS = 1.0
"""The longest sleep of a watcher, in case it missed a notification.

Asking SQLite then costs almost nothing.
"""


class SqliteWatch:
    """Wakes on a notification, and checks periodically in case one was missed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.notified = asyncio.Event()

    async def wait(self) -> None:
        """Return after a notification, or after a short while."""
        try:
            async with asyncio.timeout(SAFETY_SECONDS):
                await self.notified.wait()
        except TimeoutError:
            return
        self.notified.clear()


class Watches:
    """Wakes watchers after commits of any process; those of this process share one listener."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._notifier = Notifier(path)
        self._watches: set[SqliteWatch] = set()
        self._listener: Listener | None = None

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[SqliteWatch, None]:
        """Yield a watch that wakes after commits of any process."""
        watch = SqliteWatch(asyncio.get_running_loop())
        if self._listener is None:
            self._listener = self._notifier.listen(self._wake)
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            await self._listen_no_longer()

    def notify(self) -> None:
        """Notify all watchers of a commit; those in this process directly."""
        try:
            self._wake()
            self._notifier.notify(self._listener)
        except Exception:
            # The commit is durable, and a watcher that misses a notification checks by itself; but
            # the caller must be answered.
            log.exception("could not notify watchers of a commit to %s", self._path)

    def notify_listeners(self) -> None:
        """Notify the listeners of all processes, including our own."""
        self._notifier.notify()

    async def _listen_no_longer(self) -> None:
        if not self._watches and self._listener is not None:
            listener, self._listener = self._listener, None
            await asyncio.to_thread(listener.close)

    def _wake(self) -> None:
        """Wake all watchers of this process, with one call per event loop; may be called by any
        thread.
        """
        loops: dict[asyncio.AbstractEventLoop, list[SqliteWatch]] = {}
        for watch in tuple(self._watches):
            loops.setdefault(watch.loop, []).append(watch)
        call_in_loops(_set_notified, loops)


def _set_notified(watches: Sequence[SqliteWatch]) -> None:
    for watch in watches:
        watch.notified.set()


def call_in_loops(
    action: Callable[[list[T]], None], groups: Mapping[asyncio.AbstractEventLoop, list[T]]
) -> None:
    """Call a function once in each event loop that is open, with the group of the loop."""
    for loop, group in groups.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(action, group)
