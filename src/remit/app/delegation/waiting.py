"""Waits from outside a run until tasks have ended."""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable

from remit.app.context import AppContext, Caller
from remit.domain.task import commands as cmd
from remit.domain.task.task import Task
from remit.errors import Unavailable
from remit.store_queries.tree_queries import ENDED, TaskState

SILENT_SECONDS = 60.0
"""How long a worker may be silent before callers no longer wait for it.

Longer than a lease, because machines may be busy.
"""


async def wait_for_ends(
    core: AppContext, task_ids: Iterable[str], until: float = math.inf
) -> AsyncGenerator[str, None]:
    """Yield each of these tasks as it ends, at most until a point of the loop's time.

    The store is read first and then watched, so that no end is missed. A task that was handed to
    another agent ends when its last successor does.
    """
    open_ids = {int(task_id): task_id for task_id in task_ids}
    await core.adopt(open_ids.values())
    async with core.store.watch() as notifier:
        while open_ids:
            reading = core.store.select(ENDED, {"ids": list(open_ids)})
            rows = await core.waits.read(reading, open_ids)
            moved: dict[int, str] = {}
            for row in rows:
                task_id = open_ids.pop(row.id)
                successor = await _live_successor(core, row)
                if successor is None:
                    yield task_id
                else:
                    moved[int(successor)] = task_id
            open_ids |= moved
            if asyncio.get_running_loop().time() >= until:
                return
            if open_ids and not moved:
                await core.waits.wait(notifier, until, open_ids)


async def _live_successor(core: AppContext, row: TaskState) -> str | None:
    """Return the live successor of an ended task and adopt it; None if there is none."""
    if row.state != "canceled":
        return None
    successor = await last_successor(core, str(row.id))
    if successor.state.terminal:
        return None
    await core.adopt([successor.id])
    return successor.id


async def last_successor(core: AppContext, task_id: str) -> Task:
    """Return the task that continues a task: itself, or its last successor after a handoff."""
    task = await core.service.load(task_id)
    while task.superseded_by is not None:
        task = await core.service.load(task.superseded_by)
    return task


async def begin_wait(core: AppContext, task: Task | None, caller: Caller) -> None:
    """Record that a caller waits for a task: from then on the task does not wait for ticks."""
    if task is None or task.awaited or task.state.terminal:
        return
    await core.do(cmd.AwaitTask(task_id=task.id), caller)


async def must_have_workers(core: AppContext, task_ids: Iterable[str]) -> None:
    """Raise `Unavailable` if no worker will work on one of the tasks."""
    wanted = list(task_ids)
    await core.adopt(wanted)
    if core.start_worker is not None:
        await core.start_worker()
    unattended = await core.unattended(wanted, SILENT_SECONDS)
    if unattended:
        task_id = unattended[0]
        raise Unavailable(
            f"No running worker works on task {task_id}.",
            hint=f"The task waits until a worker runs it. {core.how_to_start_worker}",
            details={"task_id": task_id},
        )
