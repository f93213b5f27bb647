"""A runner for tests of the command line: it gives its task back when told to stop, but for the one that will not; one breaks its worker."""

import asyncio
from pathlib import Path
from typing import NoReturn

from remit.adapters.sqlite.store import SqliteEventStore
from remit.app.activation import Activation


class Stubborn:
    """Works until it is told to stop; a task of that title does not listen, and one called Saboteur lets the next claim fail."""

    async def run(self, activation: Activation) -> None:
        if activation.task.title == "Saboteur":
            SqliteEventStore.claim = broken  # type: ignore[assignment, method-assign]  # what nobody foresaw
        await activation.stopping.wait()
        if activation.task.title == "Stubborn":
            await asyncio.to_thread(Path("deaf").touch)
            await asyncio.Event().wait()
        await activation.release()


async def broken(*_: object) -> NoReturn:
    """Fail in a way nobody foresaw."""
    raise RuntimeError("boom")
