"""Waiting for tasks: who waits is rung for whenever something happened, and all can be told at once that there is no use in it."""

import asyncio
from collections.abc import Callable, Iterable

from remit.errors import RemitError
from remit.ports import Watch

Why = Callable[..., RemitError]
"""Makes the error that a wait ends in; takes its details."""


class Waits:
    """All who wait for tasks in this process."""

    def __init__(self) -> None:
        self._limits: set[asyncio.Timeout] = set()
        self._why: Why | None = None

    def end(self, why: Why) -> None:
        """End every wait, and each that would begin; the first reason stands."""
        if self._why is None:
            self._why = why
            now = asyncio.get_running_loop().time()
            for limit in self._limits:
                if not limit.expired():
                    limit.reschedule(now)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._limits)

    async def ring(self, bell: Watch, until: float | None, task_ids: Iterable[str | int]) -> bool:
        """Wait for a ring on behalf of tasks; False if a point of the loop's time came first."""
        if self._why is not None:
            raise self._error(task_ids)
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                self._limits.add(limit)  # only one that was entered can be told
                await bell.wait()
                return True
        except TimeoutError:
            if self._why is not None:
                raise self._error(task_ids) from None
            return False
        finally:
            self._limits.discard(limit)

    def _error(self, task_ids: Iterable[str | int]) -> RemitError:
        """A new one for each: what stands around an error is of one call."""
        assert self._why is not None
        ids = sorted(map(str, task_ids), key=int)
        return self._why(details={"task_id": ids[0]} if len(ids) == 1 else {"task_ids": ids})
