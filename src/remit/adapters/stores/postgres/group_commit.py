"""Group commit: one round trip commits the waiting units of many callers of this process."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from remit.adapters.stores.postgres.batch import pack_units
from remit.adapters.stores.postgres.connections import Connections, closed_error
from remit.adapters.stores.postgres.driver_errors import (
    LOST,
    PATIENCE_SECONDS,
    explain,
    translate,
)
from remit.errors import RolledBack, Unacknowledged
from remit.ports import LeaseLost, OverBudget, Stale, Unit

COMMITS, SHARE = 2, 2
"""The maximum number of commits in progress, and the share of the waiting units per commit: the
server works on some while we prepare others.
"""
SMALL, LARGE = 16, 256
"""The number of units that is too small to split, and the number that is enough for one commit."""
UNKNOWN = "It is not known whether the change was stored. Check before you try again."
STORED = (0, 1)
"""Stored now, or before when only the acknowledgement got lost."""
REFUSALS: dict[int, type[Exception]] = {2: Stale, 3: LeaseLost, 4: OverBudget}


class _Request(NamedTuple):
    unit: Unit
    reply: "asyncio.Future[None]"
    touched: list[str]
    """The streams and the job that no other commit may change at the same time."""


class CommitQueue:
    """Units that wait for their commit, and commits that are under way."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: list[_Request] = []
        self._under_way: set[str] = set()
        """The streams and jobs of commits that the server has not answered yet."""
        self._work = asyncio.Event()
        self._closed = False

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, together with whatever else is waiting."""
        if self._closed:
            raise closed_error(self._connections.history.marks.place)
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        touched = [append.stream for append in unit.appends]
        if unit.lease:
            touched.append(f"job {unit.lease.job}")
        self._waiting.append(_Request(unit, reply, touched))
        self._work.set()
        await reply

    def close(self) -> None:
        """Accept no more units; accepted ones are finished."""
        self._closed = True
        self._work.set()

    async def run(self) -> None:
        """Commit until the queue is closed and nothing waits."""
        await asyncio.gather(*(self._commit_forever() for _ in range(COMMITS)))

    def refuse_waiting(self) -> None:
        """Fail the waiting callers: no more units are committed."""
        self._closed = True
        left, self._waiting = self._waiting, []
        _settle(left, [closed_error(self._connections.history.marks.place)] * len(left))

    async def _commit_forever(self) -> None:
        """Commit batch after batch until the store is closed and nothing waits."""
        while self._waiting or not self._closed:
            await self._work.wait()
            self._work.clear()
            while batch := self._take():
                touched = {name for request in batch for name in request.touched}
                self._under_way |= touched
                try:
                    await self._commit(batch)
                except asyncio.CancelledError:
                    lost = Unacknowledged(
                        "The store was closed before the commit was answered.", hint=UNKNOWN
                    )
                    _settle(batch, [lost] * len(batch))
                    raise
                self._under_way -= touched
        self._work.set()

    def _take(self) -> list[_Request]:
        """Return units that can be committed together: units that touch the same stream or job
        wait.
        """
        batch: list[_Request] = []
        later: list[_Request] = []
        taken = self._under_way.copy()
        most = min(LARGE, max(SMALL, len(self._waiting) // SHARE))
        for request in self._waiting:
            if len(batch) < most and taken.isdisjoint(request.touched):
                batch.append(request)
            else:
                later.append(request)
            taken.update(request.touched)
        self._waiting = later
        return batch

    async def _commit(self, batch: list[_Request], looks: int = 3) -> None:
        """Commit a batch and answer all requests in it."""
        try:
            arguments = pack_units([request.unit for request in batch])
            fates = await self._connections.patiently(
                lambda connection: self._connections.history.commit(connection, arguments)
            )
        except LOST as error:
            silence = f"PostgreSQL did not answer for {PATIENCE_SECONDS:.0f} seconds"
            lost = Unacknowledged(f"{silence}: {explain(error)}.", hint=UNKNOWN)
            return _settle(batch, [lost] * len(batch))
        except asyncpg.PostgresError as error:
            if isinstance(error, asyncpg.UniqueViolationError) and looks > 1:
                # The same stream was stored in the meantime, by another process or by us before a
                # response was lost: read again.
                return await self._commit(batch, looks - 1)
            if len(batch) == 1:
                return _settle(batch, [translate(error)])
            for request in batch:
                await self._commit([request])
            return None
        except RolledBack as error:
            return _settle(batch, [error] * len(batch))
        except Exception as error:  # noqa: BLE001 - the loop must outlive any error
            surprise = Unacknowledged(
                f"The commit failed unexpectedly: {explain(error)}.", hint=UNKNOWN
            )
            return _settle(batch, [surprise] * len(batch))
        return _settle(batch, list(map(_read_fate, fates)))


def _read_fate(fate: int) -> Exception | None:
    """Return why a unit was refused; None if it is stored."""
    if fate in STORED:
        return None
    return REFUSALS[fate]()


def _settle(batch: Sequence[_Request], answers: Sequence[Exception | None]) -> None:
    """Answer the callers that still wait."""
    for request, answer in zip(batch, answers, strict=True):
        if request.reply.done():
            continue
        if answer is None:
            request.reply.set_result(None)
        else:
            request.reply.set_exception(answer)
