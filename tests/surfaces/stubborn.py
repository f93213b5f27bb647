"""A runner for tests of the command line: it gives its task back when told to stop, but for the one that will not; one breaks its worker."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from remit.adapters.sqlite.store import SqliteEventStore
from remit.app.activation import Activation


class Stubborn:
    """Works until it is told to stop; a task of that title does not listen, and one called Saboteur lets the next claim fail."""

    async def run(self, activation: Activation) -> None:
        if activation.task.title == "Saboteur":
            SqliteEventStore.claim = broken  # type: ignore[assignment, method-assign]  # what nobody foresaw
        if activation.task.title == "Stubborn":
            Path("begun").touch()  # noqa: ASYNC240 - nothing else runs here
            await deaf(activation.stopping)
        await activation.stopping.wait()
        await activation.release()


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
