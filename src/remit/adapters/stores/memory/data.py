"""The data of the memory store."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remit.adapters.stores.memory.jobs import MemoryJobs
from remit.adapters.stores.memory.records import Record, Records
from remit.domain.projection.rows import Change, Key
from remit.domain.projection.tables import BESIDE, TABLES
from remit.domain.task.stored_event import Stored

Params = Mapping[str, Any]


class MemoryData:
    """Events, rows, budgets and jobs."""

    def __init__(self) -> None:
        self.events: list[Stored] = []
        self.streams: dict[str, list[Stored]] = {}
        self.tables: dict[str, dict[Key, tuple[Any, ...]]] = {name: {} for name in TABLES | BESIDE}
        self.budgets: dict[int, tuple[int, float]] = {}
        """The tokens and the cost that were debited, by the root of the tree."""
        self.jobs = MemoryJobs()

    def append(self, events: Iterable[Stored]) -> None:
        """Add events to the end of their streams."""
        for event in events:
            self.events.append(event)
            self.streams.setdefault(event.stream, []).append(event)

    def write(self, changes: Iterable[Change]) -> None:
        """Write and remove rows."""
        for table, key, values in changes:
            if values is None:
                self.tables[table].pop(key, None)
            elif table == "budget":
                root, tokens, cost = map(str, values)
                self.budgets[int(root)] = int(tokens), float(cost)
            else:
                self._put(table, key, values)

    def _put(self, table: str, key: Key, values: tuple[Any, ...]) -> None:
        if table == "task":
            self._move_jobs(key, values)
        self.tables[table][key] = values

    def _move_jobs(self, key: Key, values: tuple[Any, ...]) -> None:
        """Move the jobs of a task that changes into another tree."""
        before = self.tables["task"].get(key)
        if before is None:
            return
        column = TABLES["task"].columns.index("root_id")
        if before[column] != values[column]:
            self.jobs.move(int(str(key[0])), int(values[column]))

    def records(self, table: str) -> Records:
        """Return all rows of a table, in the order of their keys."""
        columns = (TABLES | BESIDE)[table].columns
        rows = sorted(self.tables[table].items())
        return Records(dict(zip(columns, values, strict=True)) for _, values in rows)

    def ended_tasks(self) -> Records:
        """Return the tasks that have ended."""
        return self.records("task").known("archived_at")

    def live_tasks(self) -> Records:
        """Return the tasks that have not ended."""
        return self.records("task").where(archived_at=None)

    def task(self, task_id: int) -> Record | None:
        """Return the row of a task."""
        values = self.tables["task"].get((task_id,))
        if values is None:
            return None
        return dict(zip(TABLES["task"].columns, values, strict=True))


Answer = Callable[[MemoryData, Params], Iterable[Record]]
"""A function that answers a query from the data of the memory store."""
