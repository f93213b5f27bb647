"""A calendar with a slot every tenth of a second."""

from datetime import datetime, timedelta

from remit.adapters.clock import SystemClock
from tests.engine.fleet import Fleet

WAITING = {"completion": "explicit", "metadata": {"script": [["wait"], ["finish", "second turn"]]}}


class FastClock(SystemClock):
    """A calendar with a slot every tenth of a second, for one expression."""

    def next_slot(self, cron: str, after: datetime) -> datetime:
        if cron != "* * * * *":
            return super().next_slot(cron, after)
        return after + timedelta(seconds=0.1)


def fast(team: Fleet) -> Fleet:
    """A fleet whose calendar is fast."""
    clock = FastClock("UTC")
    team.core.clock = clock
    for part in (team.core.service, team.core.service.jobs, team.core.service.lookups):
        part._clock = clock
    return team
