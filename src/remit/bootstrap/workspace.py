"""A workspace, opened: apart from its agents, which commands that only read can do with alone."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from remit.app.core import Core
from remit.bootstrap.agents import open_agents
from remit.bootstrap.runner import Function, open_equipment
from remit.bootstrap.store import open_core
from remit.config import Settings


@asynccontextmanager
async def open_workspace(settings: Settings, functions: Sequence[Function] = ()) -> AsyncGenerator[Core, None]:
    """Everything that works on a workspace's store, with its agents and in its time zone; functions are tools that can be granted."""
    agents = open_agents(settings, [function.__name__ for function in functions])
    folder = str(settings.workspace or Path.cwd())
    async with open_core(settings.database_url, agents, settings.get("scheduler.timezone"), folder) as core:
        core.lease_seconds = settings.get("heartbeat_seconds")
        core.equipment = partial(open_equipment, core, settings, functions)
        yield core
