"""Which model worked on a task."""

import json
from collections.abc import Sequence

from remit.ports import EventStore
from remit.store_queries.query import NO_LIMIT
from remit.store_queries.run_queries import MESSAGES, PULSE

RECENT = 2
"""How many of the last messages nearly always include an answer of the model."""


async def last_models(store: EventStore, task_ids: Sequence[str]) -> dict[str, str]:
    """Return the model that answered last, by task.

    Tasks without an answer of a model are left out.
    """
    found: dict[str, str] = {}
    ids = list(map(int, task_ids))
    for task in await store.select(PULSE, {"ids": ids}):
        before_recent = max(0, task.number - RECENT)
        model = await _last_model(store, task.id, before_recent)
        if model is None and before_recent:
            model = await _last_model(store, task.id, 0)
        if model is not None:
            found[str(task.id)] = model
    return found


async def _last_model(store: EventStore, task_id: int, after: int) -> str | None:
    """Return the model of the last answer after a message; None if there is no answer."""
    rows = await store.select(MESSAGES, {"id": task_id, "after": after, "limit": NO_LIMIT})
    for row in reversed(rows):
        document = json.loads(row.doc)
        model: str | None = document.get("model")
        if model and "mark" not in document:
            return model
    return None
