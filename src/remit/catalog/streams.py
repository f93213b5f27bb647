"""Live views: events, the number of tasks in each state, and workers."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from remit.app.context import AppContext
from remit.app.reading.follow import follow
from remit.app.reading.query_handlers import counts
from remit.app.reading.views import event_view, worker_view
from remit.app.runs.live_workers import is_alive
from remit.store_queries.event_queries import PlacedEvent
from remit.store_queries.queue_queries import JOB_COUNT


async def task_counts(core: AppContext) -> dict[str, int]:
    """Return the number of tasks in each state."""
    return await core.ask(counts())


async def fleet(core: AppContext) -> dict[str, Any]:
    """Return the workers and the length of the queues."""
    rows = await core.store.select(JOB_COUNT, {})
    return {
        "workers": [
            worker_view(row, alive=is_alive(row, core.lease_seconds, core.is_dead))
            for row in await core.store.workers()
        ],
        "queues": [row._asdict() for row in rows],
    }


async def follow_events(
    core: AppContext, after: str | None = None, task_id: str | None = None
) -> AsyncGenerator[list[dict[str, Any]], None]:
    """Yield pages of events of all tasks or of one, after a position or from now on, until the
    caller stops.

    An empty page means that there may have been events, but none for this caller.
    """
    stream = None if task_id is None else (await core.task(task_id))["id"]
    start = after
    if start is None:
        start = await core.store.tail()
    # Close it explicitly, not by garbage collection: it holds a watch on the store.
    async with aclosing(follow(core.store, start)) as pages:
        async for page in pages:
            shown = [
                event_view(PlacedEvent(*recorded.event, recorded.position))
                for recorded in page
                if recorded.event.stream.isdigit()
            ]
            yield [event for event in shown if stream in (None, event["task_id"])]
