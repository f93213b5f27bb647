"""Cancels all tasks of an outside session."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from remit.app.context import AppContext, Caller
from remit.app.delegation.sessions import session_task_ids
from remit.domain.delegation.requests import CancelAll
from remit.domain.task import commands as cmd
from remit.domain.task.task import State, Task
from remit.errors import Conflict, TimedOut
from remit.store_queries.query import NO_LIMIT
from remit.store_queries.queue_queries import JOBS, QUEUED

STOP_SECONDS = 30.0
RUN = "run/"


async def cancel_all(core: AppContext, request: CancelAll, caller: Caller) -> dict[str, Any]:
    """Cancel all tasks that a session created, and wait until their runs have stopped.

    Runs of tasks that were canceled earlier are waited for too.
    """
    canceled: list[str] = []
    for task_id in await session_task_ids(core, request.session_id, "created"):
        with suppress(Conflict):
            canceled += (await core.do(cmd.CancelTask(task_id=task_id), caller)).canceled
    stopping = await _still_stopping(core, request.session_id)
    running = await _wait_until_stopped(core, [*canceled, *stopping])
    if running:
        raise TimedOut(
            f"All tasks are canceled, but the runs of these have not stopped within"
            f" {STOP_SECONDS:g} seconds: {', '.join(running)}.",
            hint="Their further writes are discarded. Call again to continue waiting.",
            details={"canceled": canceled, "running": running},
        )
    return {"success": True, "canceled": canceled}


async def _still_stopping(core: AppContext, session_id: str) -> list[str]:
    """Return the canceled tasks of a session whose runs have not stopped yet."""
    found: list[str] = []
    for row in await core.store.select(JOBS, {"limit": NO_LIMIT}):
        if row.worker is None or not row.key.startswith(RUN):
            continue
        task = await core.service.load(row.key.removeprefix(RUN))
        if await _is_canceled_in(core, task, session_id):
            found.append(task.id)
    return found


async def _is_canceled_in(core: AppContext, task: Task, session_id: str) -> bool:
    """Return whether a task was canceled and belongs to a session by the root of its tree."""
    if task.state is not State.CANCELED:
        return False
    root = await core.service.load(task.root_id)
    return root.parent_session_id == session_id


async def _wait_until_stopped(core: AppContext, task_ids: Sequence[str]) -> list[str]:
    """Wait until workers have stopped the runs of ended tasks; return those still running."""
    keys = [f"{RUN}{task_id}" for task_id in dict.fromkeys(task_ids)]
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS), core.store.watch("jobs") as notifier:
            while await core.store.select(QUEUED, {"names": keys}):
                await notifier.wait()
    rows = await core.store.select(QUEUED, {"names": keys})
    return [row.key.removeprefix(RUN) for row in rows]
