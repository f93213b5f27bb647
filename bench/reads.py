"""Read times of the same queries with 1,000 and with 100,000 tasks."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.units import history
from remit.app.reading.query_handlers import (
    Asking,
    ask,
    get_task,
    list_history,
    list_ready,
    list_tasks,
)
from remit.ports import EventStore

NOW = "2027-01-01T00:00:00.000000Z"
REPEATS = 300


async def fill(store: EventStore, count: int) -> None:
    """Create a used workspace with this many tasks."""
    made = list(history(count))
    await store.import_events(
        [event for unit in made for append in unit.appends for event in append.events],
        [change for unit in made for change in unit.changes],
    )


def questions(count: int) -> dict[str, Callable[[int], Asking[Any]]]:
    """The queries, with changing parameters."""
    return {
        "get": lambda n: get_task(str(1 + n * 7919 % count), now=NOW),
        "list page": lambda _: list_tasks(),
        "list page of one owner": lambda _: list_tasks(owner="general"),
        "list page of done": lambda _: list_tasks(status="done"),
        "ready page": lambda _: list_ready(now=NOW),
        "history page": lambda _: list_history(),
    }


async def medians(store: EventStore, count: int) -> dict[str, float]:
    """Median seconds per query."""
    return {name: await _median(store, question) for name, question in questions(count).items()}


async def _median(store: EventStore, question: Callable[[int], Asking[Any]]) -> float:
    times: list[float] = []
    for n in range(REPEATS):
        started = time.perf_counter()
        await ask(question(n), store.select)
        times.append(time.perf_counter() - started)
    return statistics.median(times)
