"""A workspace, opened: apart from its agents, which commands that only read can do with alone."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from remit.adapters.clock import SystemClock, wall
from remit.adapters.mark import OnRollback
from remit.app.core import Core
from remit.bootstrap.agents import open_agents
from remit.bootstrap.runner import Function, open_equipment
from remit.bootstrap.store import open_core
from remit.config import KNOWN, Setting, Settings, keep_workspace
from remit.errors import InvalidParam, Problem

EVERY_MINUTE = "* * * * *"


@asynccontextmanager
async def open_workspace(
    settings: Settings,
    functions: Sequence[Function] = (),
    on_rollback: OnRollback = "refuse",
    *,
    create: bool = True,
    to_write: bool = False,
) -> AsyncGenerator[Core, None]:
    """Everything that works on a workspace's store, with its agents and in its time zone; functions are tools that can be granted.

    A calendar that cannot be is refused here, for everybody: without it no turn would ever come, and nobody would be told.
    """
    check_calendar(settings)
    keep_workspace(settings)
    agents = open_agents(settings, [function.__name__ for function in functions])
    folder = str(settings.workspace or Path.cwd())
    timezone = settings.get("scheduler.timezone")
    opened = open_core(
        settings.database_url,
        agents,
        timezone,
        folder,
        on_rollback,
        create=create,
        to_write=to_write,
    )
    async with opened as core:
        core.lease_seconds = settings.get("heartbeat_seconds")
        core.progress_seconds = settings.get("progress_seconds")
        core.equipment = partial(open_equipment, core, settings, functions)
        yield core


def check_calendar(settings: Settings) -> None:
    """Refuse a cron expression or a time zone that is set and cannot be used."""
    if wrong := calendar_problems(settings):
        raise InvalidParam(wrong)


def calendar_problems(settings: Settings) -> list[Problem]:
    """What is wrong with the calendar that is set."""
    cron, zone = "scheduler.cron", "scheduler.timezone"
    tried = ((cron, SystemClock("UTC"), settings.get(cron)), (zone, SystemClock(settings.get(zone)), EVERY_MINUTE))
    return [problem for name, clock, expression in tried for problem in _refused(name, settings.values[name].origin, clock, expression)]


def without_calendar(settings: Settings) -> Settings:
    """The same settings with the calendar that there is by default, for whoever must go on whatever is set."""
    return settings._replace(values=settings.values | {name: Setting(KNOWN[name][0], "default") for name in KNOWN if name.startswith("scheduler.")})


def _refused(name: str, origin: str, clock: SystemClock, expression: str) -> list[Problem]:
    if origin == "default":
        return []
    try:
        clock.next_slot(expression, wall())
    except InvalidParam as error:
        return [Problem(f"{name} in {origin}", field["problem"], field["expected"]) for field in error.details["fields"]]
    return []
