"""The data of the memory store."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from remit.adapters.stores.memory.jobs import MemoryJobs
from remit.adapters.stores.memory.records import Record, Records
from remit.adapters.stores.memory.workers import MemoryWorkers
from remit.domain.projection.rows import Change, Key
from remit.domain.projection.tables import BESIDE, TABLES
from remit.domain.task.stored_event import Stored
from remit.ports import LeaseLost, Stale, Unit

Params = Mapping[str, Any]


class MemoryData:
    """Events, rows, budgets, jobs and workers."""

    def __init__(self) -> None:
        self.events: list[Stored] = []
        self.streams: dict[str, list[Stored]] = {}
        self.tables: dict[str, dict[Key, tuple[Any, ...]]] = {name: {} for name in TABLES | BESIDE}
        self.budgets: dict[int, tuple[int, float]] = {}
        """The tokens and the cost that were debited, by the root of the tree."""
        self.jobs = MemoryJobs()
        self.workers = MemoryWorkers(self.jobs)

    def find_refusal(self, unit: Unit) -> type[Exception] | None:
        """Return the error of a unit that cannot be stored; None if it can."""
        if unit.lease is not None and not self.jobs.holds(unit.lease):
            return LeaseLost
        if self._is_stale(unit):
            return Stale
        return None

    def _is_stale(self, unit: Unit) -> bool:
        """Return True if a stream, or what depends on a task, has changed in between."""
        needed = Counter(self.needed_tasks())
        moved = (
            len(self.streams.get(append.stream, ())) != append.expected for append in unit.appends
        )
        rewired = (needed[task_id] != count for task_id, count in unit.dependents)
        return any(chain(moved, rewired))

    def has(self, event: Stored | None) -> bool:
        """Return True if this very event was stored before and only its acknowledgement was
        lost.
        """
        if event is None:
            return False
        same_place = self.streams.get(event.stream, [])[event.version - 1 : event.version]
        return [stored.id for stored in same_place] == [event.id]

    def needed_tasks(self) -> Iterator[Any]:
        """Yield the tasks that others depend on, once for each dependency."""
        return (needs for _, needs in self.tables["task_dependency"])

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
