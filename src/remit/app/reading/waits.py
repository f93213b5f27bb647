"""Waits for tasks; the process can end all of its waits at once."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

from remit.errors import RemitError, Unavailable
from remit.ports import Watch

T = TypeVar("T")

MakeError = Callable[..., RemitError]
"""Creates the error that ends a wait; takes its details."""


class Waits:
    """All waits for tasks in this process."""

    def __init__(self) -> None:
        self._limits: set[asyncio.Timeout] = set()
        self._reads: set[asyncio.Timeout] = set()
        self._reason: MakeError | None = None

    def end(self, reason: MakeError) -> None:
        """End every wait, current and future, with an error; the first reason wins."""
        if self._reason is None:
            self._reason = reason
            now = asyncio.get_running_loop().time()
            for limit in self._limits | self._reads:
                if not limit.expired():
                    limit.reschedule(now)

    def __len__(self) -> int:
        """Return the number of current waits."""
        return len(self._limits)

    async def wait(self, notifier: Watch, until: float, task_ids: Iterable[str | int]) -> bool:
        """Wait for a notification on behalf of tasks; return False at the deadline."""
        if self._reason is not None:
            raise self._error(task_ids)
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                self._limits.add(limit)  # only an entered timeout can be rescheduled
                await notifier.wait()
                return True
        except TimeoutError:
            if self._reason is not None:
                raise self._error(task_ids) from None
            return False
        finally:
            self._limits.discard(limit)

    async def read(self, read: Awaitable[T], task_ids: Iterable[str | int]) -> T:
        """Return what a wait reads from the store, unless all waits end first: the store may be
        silent.
        """
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._reads.add(limit)
                return await read
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._error(task_ids) from None
        finally:
            self._reads.discard(limit)

    def _error(self, task_ids: Iterable[str | int]) -> RemitError:
        """Create a new error for each wait: its context belongs to one call."""
        assert self._reason is not None
        return self._reason(details=_task_details(task_ids))


@contextmanager
def with_task_ids(task_ids: Collection[str]) -> Generator[None, None, None]:
    """Add existing tasks to the details of an `Unavailable` error, unless it names tasks."""
    try:
        yield
    except Unavailable as error:
        if not task_ids or error.details.keys() & {"task_id", "task_ids"}:
            raise
        raise error.for_call(details={**error.details, **_task_details(task_ids)}) from error


@contextmanager
def with_all_task_ids(task_ids: Collection[str]) -> Generator[None, None, None]:
    """Add all tasks of a call to the details of an `Unavailable` error."""
    try:
        yield
    except Unavailable as error:
        details = dict(error.details)
        one, several = details.pop("task_id", None), details.pop("task_ids", ())
        ids = {*task_ids, *several, *([one] if one else [])}
        if not ids:
            raise
        raise error.for_call(details={**details, **_task_details(ids)}) from error


def _task_details(task_ids: Iterable[str | int]) -> dict[str, Any]:
    """Return the details of an error that names the tasks of a wait."""
    ids = sorted(map(str, task_ids), key=int)
    if len(ids) == 1:
        return {"task_id": ids[0]}
    return {"task_ids": ids}
