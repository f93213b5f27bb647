"""Excludes downtime: the clock of a waiting task stops while no worker serves its tree."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from remit.app.service import Service
from remit.domain.planning.downtime import unattended_since
from remit.domain.task import commands as cmd
from remit.errors import Corrupt, NotFound, UnknownEvent
from remit.ports import Clock, EventStore
from remit.store_queries.tree_queries import CLOCKS, CLOCKS_OF, RunningClock

SYSTEM = "system:engine"
PAGE = 500


class Downtime:
    """Finds clocks that ran while no worker was alive for their tree, and excludes that time.

    Heartbeats record when each tree was last served, so this must run before the first heartbeat
    after a gap. Several workers may do so at the same time: downtime is excluded only once.
    """

    def __init__(
        self, store: EventStore, service: Service, clock: Clock, lease_seconds: float
    ) -> None:
        self._store, self._service, self._clock = store, service, clock
        self._lease = timedelta(seconds=lease_seconds)

    async def exclude(self, roots: Sequence[int] | None = None) -> None:
        """Leave out the time without a worker from the clocks of these trees, or of all."""
        if roots is not None:
            await self._exclude(await self._store.select(CLOCKS_OF, {"ids": list(roots)}))
            return
        after = 0
        while rows := await self._store.select(CLOCKS, {"after": after, "limit": PAGE}):
            await self._exclude(rows)
            after = rows[-1].id

    async def _exclude(self, rows: Iterable[RunningClock]) -> None:
        """Exclude the time without a worker from some clocks."""
        clocks = list(rows)
        if not clocks:
            return
        served = await self._service.lookups.served_roots({clock.root_id for clock in clocks})
        now = self._clock.now()
        for clock in clocks:
            attended = None if clock.at is None else datetime.fromisoformat(clock.at)
            is_served = clock.root_id in served
            if is_served and not self._is_old(attended, now):
                continue
            with suppress(Corrupt, NotFound, UnknownEvent):  # skipped, as by every worker
                await self._stop_clock(str(clock.id), attended, now, is_served=is_served)

    def _is_old(self, attended: datetime | None, now: datetime) -> bool:
        """Return whether a tree was last served more than a lease ago, or never."""
        return attended is None or now - attended > self._lease

    async def _stop_clock(
        self, task_id: str, attended: datetime | None, now: datetime, *, is_served: bool
    ) -> None:
        """Exclude the time without a worker from the clock of one task."""
        task = await self._service.load(task_id)
        since = unattended_since(task, attended, now, self._lease, is_served=is_served)
        if since is not None:
            await self._service.execute(
                cmd.ExcludeDowntime(task_id=task_id, since=since, until=now), SYSTEM
            )
