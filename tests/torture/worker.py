"""A real worker process: `python -m tests.torture.worker URL NAME [OPTIONS]`, where the options
are a JSON object.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.context import AppContext
from remit.app.runs.run_handle import RunHandle
from remit.bootstrap import open_store
from remit.bootstrap.embedded_worker import WorkerOptions, work
from remit.bootstrap.signals import Deadline, Stop
from remit.ports import Clock
from remit.testing import Scripted

NEVER = "0 0 1 1 *"
"""A calendar that does not come into the way."""


class Mortal(Scripted):
    """Knows more steps.

    `["die", path]` kills this process, but only if it did not do so before; `["time", path]` writes
    down what time it is here; `["gate", path]` works until a file is there.
    """

    async def _do(self, handle: RunHandle, number: int, step: list[Any]) -> None:
        match step:
            case ["die", str(path)]:
                _die_once(Path(path))
                await handle.call(f"step-{number}", "die", path, _survive, repeatable=True)
            case ["time", str(path)]:
                await handle.call(
                    f"step-{number}",
                    "time",
                    path,
                    lambda: asyncio.to_thread(_tell_time, path, handle.run_id),
                    repeatable=True,
                )
            case ["gate", str(path)]:
                await handle.call(
                    f"step-{number}", "gate", path, lambda: _opened(Path(path)), repeatable=True
                )
            case _:
                await super()._do(handle, number, step)


class FastClock(SystemClock):
    """A clock on which every calendar has a slot each so many milliseconds."""

    def __init__(self, every_ms: int, now: Callable[[], datetime]) -> None:
        super().__init__("UTC", now)
        self._every = timedelta(milliseconds=every_ms)

    def next_slot(self, cron: str, after: datetime) -> datetime:
        """The next whole multiple."""
        start = datetime(2020, 1, 1, tzinfo=UTC)
        return start + self._every * ((after - start) // self._every + 1)


async def run(url: str, *, slot_ms: int = 0, **options: Any) -> None:
    """Work until a signal comes."""
    async with open_store(url) as store:
        clock: Clock = FastClock(slot_ms, store.now) if slot_ms else SystemClock("UTC", store.now)
        await work(
            AppContext(store, clock, AgentRegistry()),
            Mortal(),
            WorkerOptions(**{"cron": NEVER, **options}),
            lambda: None,
            Stop(Deadline()),
        )


def _die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _tell_time(path: str, run_id: str) -> str:
    with Path(path).open("a") as file:
        file.write(f"{run_id} {time.time()}\n")
    return "told"


async def _opened(gate: Path) -> str:
    while not await asyncio.to_thread(gate.exists):  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.05)
    return "open"


async def _survive() -> str:
    return "survived"


if __name__ == "__main__":
    logging.basicConfig(format=f"%(asctime)s {sys.argv[2]} %(name)s %(levelname)s %(message)s")
    asyncio.run(run(sys.argv[1], **json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}))
