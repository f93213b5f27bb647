"""What there is to watch: events as they happen, and how many tasks are in which state."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from remit.app.attendance import is_alive
from remit.app.core import Core
from remit.app.follow import follow
from remit.app.query import counts
from remit.app.view import event_view, worker_view

BEGINNING = "0"
"""Before the first event, in every store."""


async def task_counts(core: Core) -> dict[str, int]:
    """How many tasks there are in each state."""
    return await core.ask(counts())


async def fleet(core: Core) -> dict[str, Any]:
    """Who works, and how much waits to be worked on."""
    rows = await core.store.select("job_count", {})
    return {
        "workers": [worker_view(row, alive=is_alive(row, core.lease_seconds, core.is_dead)) for row in await core.store.workers()],
        "queues": [{"queue": queue, "queued": queued, "claimed": claimed} for queue, queued, claimed in rows],
    }


async def follow_events(core: Core, after: str | None = None, task_id: str | None = None) -> AsyncGenerator[list[dict[str, Any]], None]:
    """Events of all tasks, or of one, after a position and for as long as the caller listens; from now on without one.

    An empty page means that there may have been events, none of them for this caller.
    """
    stream = None if task_id is None else (await core.task(task_id))["id"]
    start = await core.store.tail() if after is None else "" if after == BEGINNING else after
    # Closed with us, not by the garbage collector: it holds a watch on the store.
    async with aclosing(follow(core.store, start)) as pages:
        async for page in pages:
            shown = [event_view((*recorded.event, recorded.position)) for recorded in page if recorded.event.stream.isdigit()]
            yield [event for event in shown if stream in (None, event["task_id"])]
