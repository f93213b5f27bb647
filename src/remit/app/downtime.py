"""Time without a worker does not count: the clock of a task that waits stops while nobody is there to go on with its tree."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from remit.app.service import Service
from remit.domain import command as cmd
from remit.domain.downtime import unattended_since
from remit.errors import Corrupt, NotFound, UnknownEvent
from remit.ports import Clock, EventStore

SYSTEM = "system:engine"
PAGE = 500


class Downtime:
    """Finds clocks that ran while no worker was alive for their tree, and leaves that time out.

    Heartbeats write down when each tree was last attended, so it must be called before the first heartbeat after a gap. Several
    workers may do so at once: what one has left out already is not left out again.
    """

    def __init__(self, store: EventStore, service: Service, clock: Clock, lease_seconds: float) -> None:
        self._store, self._service, self._clock = store, service, clock
        self._lease = timedelta(seconds=lease_seconds)

    async def exclude(self, roots: Sequence[int] | None = None) -> None:
        """Leave out the time without a worker from the clocks of these trees, or of all."""
        if roots is not None:
            await self._exclude(await self._store.select("clocks_of", {"ids": list(roots)}))
            return
        after = 0
        while rows := await self._store.select("clocks", {"after": after, "limit": PAGE}):
            await self._exclude(rows)
            after = rows[-1][0]

    async def _exclude(self, rows: Iterable[tuple[Any, ...]]) -> None:
        now = self._clock.now()
        for task_id, _, at in rows:
            attended = None if at is None else datetime.fromisoformat(at)
            if attended is None or now - attended > self._lease:
                with suppress(Corrupt, NotFound, UnknownEvent):  # left alone, as by every worker
                    await self._stop_clock(str(task_id), attended, now)

    async def _stop_clock(self, task_id: str, attended: datetime | None, now: datetime) -> None:
        task = await self._service.load(task_id)
        since = unattended_since(task, attended, now, self._lease)
        if since is not None:
            await self._service.execute(cmd.ExcludeDowntime(task_id=task_id, since=since, until=now), SYSTEM)
