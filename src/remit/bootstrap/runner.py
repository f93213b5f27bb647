"""What carries out runs: remit's own agents, or what the operator names instead."""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from remit.app.core import Core
from remit.config import Settings
from remit.errors import invalid
from remit.ports import Equipment, Runner, ToolHost
from remit.surfaces.display import display_line

log = logging.getLogger("remit.settings")

Function = Callable[..., Any]


@asynccontextmanager
async def open_runner(core: Core, settings: Settings, functions: Sequence[Function] = ()) -> AsyncGenerator[Runner, None]:
    """The runner in force: remit's own agents with their models and tools, or what the operator names instead."""
    _warn_ignored(settings)
    if name := settings.get("runner"):
        yield _named(str(name))
        return
    from remit.adapters.surroundings import WorkspaceSurroundings
    from remit.app.run import AgentRunner
    from remit.surfaces.agent_tools import CatalogTools

    async with open_equipment(core, settings, functions) as (models, tools):
        surroundings = WorkspaceSurroundings(Path(core.folder or Path.cwd()), core.clock)
        yield AgentRunner(core.store, core.agents, models, tools, CatalogTools(core), core.clock, surroundings)


def _warn_ignored(settings: Settings) -> None:
    """Write one line about what was set and does not count; `remit doctor` lists the same."""
    if ignored := [*settings.unknown, *settings.models.ignored]:
        listed = display_line("; ".join(ignored))
        log.warning("Ignored: %s. See what is in force with: remit doctor", listed)


@asynccontextmanager
async def open_equipment(core: Core, settings: Settings, functions: Sequence[Function] = ()) -> AsyncGenerator[Equipment, None]:
    """The models in force, and the tools of the workspace with functions beside them."""
    from remit.adapters.models.answer import DEFAULTS
    from remit.adapters.models.desk import ModelDesk
    from remit.adapters.tools import WorkspaceTools
    from remit.adapters.tools.functions import WithFunctions, named
    from remit.adapters.tools.shell import first_program
    from remit.adapters.tools.toolchains import toolchains_of

    folder = Path(core.folder or Path.cwd())
    unsandboxed = settings.get("allow_unsandboxed")
    desk = ModelDesk(settings.models, limits=DEFAULTS._replace(tool_calls=settings.get("tool_calls")))
    own = named(functions)
    bwrap, rg = first_program("bwrap"), first_program("rg")
    toolchains = toolchains_of(
        folder,
        os.environ,
        settings.get("sandbox.read_only"),
        network=settings.get("sandbox.network"),
    )

    def host() -> ToolHost:
        return WorkspaceTools(
            folder,
            allow_unsandboxed=unsandboxed,
            bwrap=bwrap,
            rg=rg,
            find_programs=False,
            toolchains=toolchains,
        )

    def tools() -> ToolHost:
        return WithFunctions(host, own) if own else host()

    try:
        yield Equipment(desk, tools)
    finally:
        await desk.close()


def _named(name: str) -> Runner:
    module, colon, attribute = name.partition(":")
    try:
        found: Any = getattr(import_module(module), attribute) if colon else None
    except (ImportError, AttributeError, ValueError):
        found = None
    runner = found() if isinstance(found, type) else found
    if not hasattr(runner, "run"):
        raise invalid("runner", f"is {name!r}, which is no runner", "module:name of a class or object with an async method run(activation)")
    return cast("Runner", runner)
