"""The system clock, cron schedules, and ids that sort by time."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from uuid_utils import uuid7

from remit.errors import invalid


def wall_clock() -> datetime:
    """Return the current time of this machine."""
    return datetime.now(UTC)


class SystemClock:
    """Time from the store or from this machine, UUIDv7 ids, and cron slots in a time zone."""

    def __init__(
        self, timezone: str | None = None, now: Callable[[], datetime] = wall_clock
    ) -> None:
        self.timezone, self._now = timezone or local_timezone(), now

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return self._now()

    def uid(self) -> str:
        """Return a new UUIDv7."""
        return str(uuid7())

    def next_slot(self, cron: str, after: datetime) -> datetime:
        """Return the first time of a cron expression after another time.

        Daylight-saving changes neither skip nor repeat a slot.
        """
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        from cronsim import CronSim, CronSimError

        try:
            # In the hour that is repeated, local times may be before `after`.
            local = CronSim(cron, after.astimezone(ZoneInfo(self.timezone)))
            slots = (slot.astimezone(UTC) for slot in local)
            return next(slot for slot in slots if slot > after)
        except CronSimError as error:
            raise _invalid_cron(cron, _find_fault(cron, str(error))) from error
        except StopIteration as error:
            raise _invalid_cron(cron, _NEVER) from error
        except (
            ZoneInfoNotFoundError,
            ValueError,
            OSError,
        ) as error:  # a folder of zones, such as Europe, is an OSError
            raise invalid(
                "timezone",
                f"unknown time zone {self.timezone!r}",
                "a name such as Europe/Berlin or UTC",
            ) from error


def local_timezone() -> str:
    """Return the name of this machine's time zone."""
    if name := os.environ.get("TZ", "").lstrip(":"):
        return name
    _, found, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    if not found:
        return "UTC"
    return name


_NEVER = "never occurs"


def _find_fault(cron: str, reason: str) -> str:
    """Return what is wrong with an expression; a day that its month lacks never occurs."""
    from cronsim import CronSim, CronSimError

    fields = cron.split()
    fields[3:4] = ["*"]
    try:
        CronSim(" ".join(fields), wall_clock())
    except CronSimError:
        return f"is not a cron expression: {reason.lower()}"
    return _NEVER


def _invalid_cron(cron: str, problem: str) -> Exception:
    return invalid("schedule.cron", f"{cron!r} {problem}", "five fields such as 0 6-21 * * *")
