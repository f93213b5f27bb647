"""Opens a workspace. Agents are separate, because some commands need only them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from remit.adapters.clock import SystemClock, wall_clock
from remit.adapters.stores.high_water_mark import OnRollback
from remit.app.context import AppContext
from remit.bootstrap.agent_loading import open_agents
from remit.bootstrap.runner_selection import Function, open_equipment
from remit.bootstrap.store_opening import LOCAL, open_core
from remit.config import KNOWN, Setting, Settings, hide_workspace_from_git
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
) -> AsyncGenerator[AppContext, None]:
    """Open the application on a workspace's store, with its agents and in its time zone.

    `functions` are tools that can be granted.

    An invalid schedule is always refused here: otherwise no scheduled task would ever run, and
    there would be no error.
    """
    check_calendar(settings)
    hide_workspace_from_git(settings)
    agents = open_agents(settings, [function.__name__ for function in functions])
    folder = str(settings.root)
    timezone = settings.get("scheduler.timezone")
    opened = open_core(
        settings.database_url,
        agents,
        timezone,
        folder,
        on_rollback,
        create=create,
        to_write=to_write,
        options=LOCAL._replace(
            lease_seconds=settings.get("heartbeat_seconds"),
            progress_seconds=settings.get("progress_seconds"),
            equipment=partial(open_equipment, folder, settings, functions),
        ),
    )
    async with opened as core:
        yield core


def check_calendar(settings: Settings) -> None:
    """Refuse an invalid cron expression or time zone."""
    if wrong := calendar_problems(settings):
        raise InvalidParam(wrong)


def calendar_problems(settings: Settings) -> list[Problem]:
    """Return the problems of the schedule settings."""
    cron, zone = "scheduler.cron", "scheduler.timezone"
    tried = (
        (cron, SystemClock("UTC"), settings.get(cron)),
        (zone, SystemClock(settings.get(zone)), EVERY_MINUTE),
    )
    return [
        problem
        for name, clock, expression in tried
        for problem in _find_problems(name, settings.values[name].origin, clock, expression)
    ]


def without_calendar(settings: Settings) -> Settings:
    """Return the settings with the default schedule, for commands that must work despite an invalid
    one.
    """
    return settings._replace(
        values=settings.values
        | {
            name: Setting(KNOWN[name][0], "default")
            for name in KNOWN
            if name.startswith("scheduler.")
        }
    )


def _find_problems(name: str, origin: str, clock: SystemClock, expression: str) -> list[Problem]:
    """Return what is wrong with the cron expression of a setting."""
    if origin == "default":
        return []
    try:
        clock.next_slot(expression, wall_clock())
    except InvalidParam as error:
        return [
            Problem(f"{name} in {origin}", field["problem"], field["expected"])
            for field in error.details["fields"]
        ]
    return []
