"""The runner in force: remit's own agents, or the one that the operator sets."""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from remit.app.context import AppContext
from remit.config import Settings
from remit.errors import invalid
from remit.ports import AgentEquipment, Runner, ToolHost
from remit.surfaces.text.display import display_line

log = logging.getLogger("remit.settings")

Function = Callable[..., Any]


@asynccontextmanager
async def open_runner(
    core: AppContext, settings: Settings, functions: Sequence[Function] = ()
) -> AsyncGenerator[Runner, None]:
    """Open the runner in force: remit's own agents with their models and tools, or the one that the
    operator sets.
    """
    _warn_ignored(settings)
    if name := settings.get("runner"):
        yield _import_runner(str(name))
        return
    from remit.adapters.workspace_facts import WorkspaceSurroundings
    from remit.app.agent_loop.runner import AgentRunner
    from remit.surfaces.agent_tools import CatalogTools

    async with open_equipment(core.folder, settings, functions) as (models, tools):
        surroundings = WorkspaceSurroundings(Path(core.folder or Path.cwd()), core.clock)
        yield AgentRunner(
            core.store, core.agents, models, tools, CatalogTools(core), core.clock, surroundings
        )


def _warn_ignored(settings: Settings) -> None:
    """Log one line about settings without effect, which `remit doctor` lists too."""
    if ignored := [*settings.unknown, *settings.models.ignored]:
        listed = display_line("; ".join(ignored))
        log.warning("Ignored: %s. See what is in force with: `remit doctor`", listed)


@asynccontextmanager
async def open_equipment(
    workspace: str, settings: Settings, functions: Sequence[Function] = ()
) -> AsyncGenerator[AgentEquipment, None]:
    """Open the models in force, and the tools of the workspace with additional functions."""
    from remit.adapters.models.refusals.remembered_limits import RememberedLimits, limits_file
    from remit.adapters.models.registry import ModelRegistry
    from remit.adapters.models.wires.response import DEFAULTS
    from remit.adapters.tools import WorkspaceTools
    from remit.adapters.tools.functions import FunctionTools, by_name
    from remit.adapters.tools.shell.bash import first_program
    from remit.adapters.tools.shell.toolchains import find_toolchains

    folder = Path(workspace or Path.cwd())
    unsandboxed = settings.get("allow_unsandboxed")
    registry = ModelRegistry(
        settings.models,
        limits=DEFAULTS._replace(tool_calls=settings.get("tool_calls")),
        memory=RememberedLimits(limits_file()),
    )
    own = by_name(functions)
    bwrap, rg = first_program("bwrap"), first_program("rg")
    toolchains = find_toolchains(
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
        return FunctionTools(host, own) if own else host()

    try:
        yield AgentEquipment(registry, tools)
    finally:
        await registry.close()


def _import_runner(name: str) -> Runner:
    """Import the runner that a setting names as `module:attribute`."""
    module, colon, attribute = name.partition(":")
    try:
        found: Any = getattr(import_module(module), attribute) if colon else None
    except (ImportError, AttributeError, ValueError):
        found = None
    runner = found() if isinstance(found, type) else found
    if not hasattr(runner, "run"):
        raise invalid(
            "runner",
            f"is {name!r}, which is not a runner",
            "module:name of a class or object with an async method run(handle)",
        )
    return cast("Runner", runner)
