"""The real clock and calendar, and ids that sort by time."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from uuid_utils import uuid7

from remit.errors import invalid


def wall() -> datetime:
    """This instant, by the clock of this machine."""
    return datetime.now(UTC)


class SystemClock:
    """Time from the store, or else from this machine; names from UUIDv7; cron expressions in a place's own time."""

    def __init__(self, timezone: str | None = None, now: Callable[[], datetime] = wall) -> None:
        self.timezone, self._now = timezone or local_timezone(), now

    def now(self) -> datetime:
        """This instant, in UTC."""
        return self._now()

    def uid(self) -> str:
        """A UUIDv7."""
        return str(uuid7())

    def next_slot(self, cron: str, after: datetime) -> datetime:
        """The first instant of a cron expression after another; days on which clocks are set neither lose nor double one."""
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        from cronsim import CronSim, CronSimError

        try:
            # In the hour that a clock shows twice, local times may lie before `after`.
            local = CronSim(cron, after.astimezone(ZoneInfo(self.timezone)))
            slots = (slot.astimezone(UTC) for slot in local)
            return next(slot for slot in slots if slot > after)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # a folder of zones, such as Europe, is an OSError
            if isinstance(error, CronSimError):
                raise _no_cron(cron) from error
            raise invalid("timezone", f"is {self.timezone!r}, which is no known time zone", "a name such as Europe/Berlin or UTC") from error
        except (CronSimError, StopIteration) as error:
            raise _no_cron(cron) from error


def local_timezone() -> str:
    """The name of this machine's time zone."""
    if name := os.environ.get("TZ", "").lstrip(":"):
        return name
    _, found, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name if found else "UTC"


def _no_cron(cron: str) -> Exception:
    return invalid("schedule.cron", f"is {cron!r}, which is no cron expression or never comes", "five fields such as 0 6-21 * * *")
