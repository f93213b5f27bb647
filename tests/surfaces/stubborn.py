"""A runner for tests of the command line: it gives its task back when told to stop, but for the one that will not."""

import asyncio
from pathlib import Path

from remit.app.activation import Activation


class Stubborn:
    """Works until it is told to stop; a task of that title does not listen."""

    async def run(self, activation: Activation) -> None:
        await activation.stopping.wait()
        if activation.task.title == "Stubborn":
            await asyncio.to_thread(Path("deaf").touch)
            await asyncio.Event().wait()
        await activation.release()
