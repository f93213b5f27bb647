"""Workers that die at given places: `python -m tests.agents.fragile EVENT…`.

Each is a process of its own that kills itself right after the commit of such an event, before it
can do anything else; then comes the next. The last one lives.
"""

import asyncio
import os
import signal
import sys

import remit.adapters.models.registry
import remit.adapters.tools
import remit.app.agent_loop.runner
import remit.surfaces.agent_tools  # noqa: F401 - so that each life begins at once
from remit import config
from remit.bootstrap.embedded_worker import options_of, work
from remit.bootstrap.runner_selection import open_runner
from remit.bootstrap.signals import Deadline, Stop
from remit.bootstrap.workspace import open_workspace
from remit.ports import Unit


async def life(deadly: str) -> None:
    """Work until an event of a kind is stored."""
    settings = config.load(None, {})
    async with open_workspace(settings) as core, open_runner(core, settings) as runner:
        commit = core.store.commit

        async def commit_and_die(unit: Unit) -> None:
            await commit(unit)
            if any(event.type == deadly for append in unit.appends for event in append.events):
                os.kill(os.getpid(), signal.SIGKILL)

        # The one place where it dies.
        core.store.commit = commit_and_die  # type: ignore[method-assign]
        await work(core, runner, options_of(settings), lambda: None, Stop(Deadline()))


for name in (*sys.argv[1:], ""):
    child = os.fork()
    if child == 0:
        asyncio.run(life(name))
        os._exit(0)
    os.waitpid(child, 0)
