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
    ids = [int(task_id) for task_id in task_ids]
    for task in await store.select(PULSE, {"ids": ids}):
        before_recent = max(0, task.number - RECENT)
        models = await _models_after(store, task.id, before_recent)
        if not models and before_recent:
            models = await _models_after(store, task.id, 0)
        if models:
            found[str(task.id)] = models[-1]
    return found


async def _models_after(store: EventStore, task_id: int, after: int) -> list[str]:
    rows = await store.select(MESSAGES, {"id": task_id, "after": after, "limit": NO_LIMIT})
    documents = [json.loads(row.doc) for row in rows]
    return [found["model"] for found in documents if found.get("model") and "mark" not in found]
