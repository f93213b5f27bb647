"""Tasks as stored rows: each row is parsed once as long as it does not change."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from remit.codec import task_of
from remit.domain.records.pick import beyond
from remit.domain.task.task import TASK_ID, Task
from remit.ports import EventStore
from remit.store_queries.task_queries import TASKS, TASKS_BY_UID

RECENT = 256
"""How many recently written or read tasks are cached.

A row with the same hash does not have to be parsed again.
"""


class LoadedTask(NamedTuple):
    """A task and the hash that its next event is chained to."""

    task: Task
    head: bytes


Seen = dict[str, LoadedTask]
"""The tasks that one attempt has read, by id."""


def seen_task(seen: Seen, task_id: str) -> Task | None:
    """Return a task that an attempt has read; None for any other task."""
    known = seen.get(task_id)
    return None if known is None else known.task


class TaskCache:
    """Reads tasks from the store and remembers the most recent ones."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._recent: dict[str, LoadedTask] = {}

    def parse(self, task_id: str, head: bytes, document: str) -> LoadedTask:
        """Return the task of a row, from the cache if it has not changed."""
        known = self._recent.get(task_id)
        if known is not None and known.head == head:
            return known
        return self.remember(LoadedTask(task_of(document, task_id), head))

    def remember(self, loaded: LoadedTask) -> LoadedTask:
        """Cache a task, and drop the one that was cached first if there are too many."""
        self._recent.pop(loaded.task.id, None)
        self._recent[loaded.task.id] = loaded
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        return loaded

    async def load(self, refs: Iterable[str], seen: Seen) -> dict[str, Task | None]:
        """Return tasks by id or uid, each read once per attempt."""
        refs = tuple(refs)
        if seen.keys() >= set(refs):
            return {ref: seen[ref].task for ref in refs}
        ids = [ref for ref in refs if re.fullmatch(TASK_ID, ref)]
        await self._read_ids(ids, seen)
        known = dict(zip(ids, ids, strict=True))
        uids = beyond(refs, known)
        known |= await self._read_uids(uids, seen)
        return {ref: seen_task(seen, known.get(ref, "")) for ref in refs}

    async def load_one(self, task_id: str, seen: Seen) -> Task | None:
        """Return one task; None for an empty id or a missing task."""
        if not task_id:
            return None
        return (await self.load([task_id], seen))[task_id]

    async def _read_ids(self, ids: Iterable[str], seen: Seen) -> None:
        """Read the tasks with these ids that the attempt has not read."""
        unread = [int(task_id) for task_id in ids if task_id not in seen]
        for row in await TASKS.among(self._store.select, ids=unread):
            seen[str(row.id)] = self.parse(str(row.id), row.hash, row.doc)

    async def _read_uids(self, uids: list[str], seen: Seen) -> dict[str, str]:
        """Read tasks by uid; return their ids by uid."""
        ids: dict[str, str] = {}
        for row in await TASKS_BY_UID.among(self._store.select, uids=uids):
            task_id = ids[row.uid] = str(row.id)
            seen[task_id] = self.parse(task_id, row.hash, row.doc)
        return ids
