"""A runner for tests of the command line: it gives its task back when told to stop, but for the
one that will not; one breaks its worker.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from remit.adapters.stores.sqlite.store import SqliteEventStore
from remit.app.runs.run_handle import RunHandle


class Stubborn:
    """Works until it is told to stop.

    A task of that title does not listen, and one called Saboteur lets the next claim fail.
    """

    async def run(self, handle: RunHandle) -> None:
        if handle.task.title == "Saboteur":
            # What nobody foresaw.
            SqliteEventStore.claim = broken  # type: ignore[assignment, method-assign]
        if handle.task.title == "Stubborn":
            Path("begun").touch()  # noqa: ASYNC240 - nothing else runs here
            await deaf(handle.stopping)
        await handle.stopping.wait()
        await handle.release()


async def deaf(stopping: asyncio.Event) -> NoReturn:
    """Hear that it should stop, and go on whatever is said or done."""
    with suppress(asyncio.CancelledError):
        await stopping.wait()
    Path("deaf").touch()  # noqa: ASYNC240 - nothing else matters here
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def broken(*_: object) -> NoReturn:
    """Fail in a way nobody foresaw."""
    raise RuntimeError("boom")
