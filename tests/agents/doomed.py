"""A worker process that is killed during a check: it has examined nothing yet, and holds the
job.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remit.app.agents.registry import AgentRegistry
from remit.bootstrap.embedded_worker import WorkerOptions, working
from remit.bootstrap.store_opening import open_core
from remit.ports import AgentEquipment
from remit.testing import Scripted
from tests.patience import patient


@asynccontextmanager
async def killed() -> AsyncIterator[AgentEquipment]:
    """The end, where files would be looked for."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield AgentEquipment(None, None)  # type: ignore[arg-type]  # never reached


async def main(url: str) -> None:
    """Work until the first check."""
    async with open_core(url, AgentRegistry(), "UTC", ".") as core:
        core.equipment = killed
        async with working(core, Scripted(), WorkerOptions(heartbeat_seconds=patient(1))):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
