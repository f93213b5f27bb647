"""The store itself: commits, budgets, watches, and which function answers a query."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from operator import add
from typing import Any

from remit.adapters.stores.memory import queue_answers, record_answers, task_answers, tree_answers
from remit.adapters.stores.memory.data import Answer, MemoryData
from remit.adapters.stores.memory.records import Record
from remit.domain.projection.rows import Change
from remit.domain.projection.tables import TABLES
from remit.domain.task.event_position import parse_position
from remit.domain.task.stored_event import Stored
from remit.errors import Conflict
from remit.ports import (
    Claim,
    ClaimResult,
    Debit,
    Lease,
    OverBudget,
    Recorded,
    Topic,
    Unit,
    WorkerRow,
)
from remit.store_queries.query import Query, R

ANSWERS: dict[str, Answer] = {
    **task_answers.ANSWERS,
    **tree_answers.ANSWERS,
    **record_answers.ANSWERS,
    **queue_answers.ANSWERS,
}


class MemoryEventStore:
    """Keeps everything in this process and forgets it with it."""

    def __init__(self) -> None:
        self._data = MemoryData()
        self._workers = self._data.workers
        self._last_id = 0
        self._watchers: set[asyncio.Event] = set()

    async def new_ids(self, count: int) -> list[int]:
        """Return new, ascending ids."""
        self._last_id += count
        return list(range(self._last_id - count + 1, self._last_id + 1))

    async def commit(self, unit: Unit) -> None:
        """Store a unit; nothing can come in between since nothing is awaited."""
        refusal = self._data.find_refusal(unit)
        if refusal is not None:
            if self._data.has(unit.first):
                return
            raise refusal
        if unit.debit is not None:
            self._debit(unit.debit)
        for append in unit.appends:
            self._data.append(append.events)
        self._data.write(unit.changes)
        self._data.jobs.write(unit, set(self._data.needed_tasks()))
        self._wake_watchers()

    def now(self) -> datetime:
        """Return the current time of this machine."""
        return datetime.now(UTC)

    async def claim(self, claim: Claim) -> ClaimResult:
        """Claim jobs for a worker."""
        return self._workers.claim(claim)

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Record a heartbeat; return jobs that other workers have taken over."""
        return self._workers.beat(row, jobs)

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue."""
        self._workers.give_back(lease, delay_seconds)
        self._wake_watchers()

    async def leave(self, worker: str) -> None:
        """Take a worker off the list, and its leases."""
        self._workers.leave(worker)
        self._wake_watchers()

    async def workers(self) -> list[WorkerRow]:
        """Return all workers with a heartbeat."""
        return self._workers.all()

    async def select(self, query: Query[R], params: Mapping[str, Any]) -> list[R]:
        """Return the rows of a named query."""
        columns = query.columns
        found = self._answer(query.name, params)
        return query.rows([record[column] for column in columns] for record in found)

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Return the events after a position."""
        (start,) = parse_position(after, parts=1)
        events = self._data.events[start : start + limit]
        return [Recorded(str(number), event) for number, event in enumerate(events, start + 1)]

    async def tail(self) -> str:
        """Return the last position."""
        return str(len(self._data.events))

    async def check(self) -> None:
        """Return: nothing outside of this process can change the store."""

    @asynccontextmanager
    async def watch(
        self,
        topic: Topic = "events",  # noqa: ARG002 - one notifier for both
    ) -> AsyncGenerator["MemoryWatch", None]:
        """Yield a watch that wakes after commits."""
        committed = asyncio.Event()
        self._watchers.add(committed)
        try:
            yield MemoryWatch(committed)
        finally:
            self._watchers.discard(committed)

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store."""
        if self._data.events:
            raise Conflict("The store already has events.", hint="Import into a new one.")
        self._data.append(events)
        self._data.write(changes)
        tasks = [int(stream) for stream in self._data.streams if stream.isdigit()]
        self._last_id = max([self._last_id, *tasks])

    def end_within(self, seconds: float) -> None:
        """Do nothing: there is nothing to wait for."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _debit(self, debit: Debit) -> None:
        """Book tokens and cost; raise OverBudget if they exceed a limit."""
        booked = self._data.budgets.get(debit.root_id)
        if booked is None:
            if not debit.opens:
                return
            booked = _sum_answers(self._data, debit.root_id)
        tokens, cost = booked[0] + debit.tokens, booked[1] + debit.cost
        if _exceeds(tokens, debit.max_tokens) or _exceeds(cost, debit.max_cost):
            raise OverBudget
        self._data.budgets[debit.root_id] = tokens, cost

    def _wake_watchers(self) -> None:
        for committed in self._watchers:
            committed.set()

    def _answer(self, query: str, params: Mapping[str, Any]) -> Iterable[Record]:
        kind, _, table = query.partition("_")
        if kind == "rows":
            first_column = TABLES[table].columns[0]
            return self._data.records(table).among(first_column, next(iter(params.values())))
        if query == "count_event":
            return [{"rows": len(self._data.events)}]
        if kind == "count":
            return [{"rows": len(self._data.tables[table])}]
        return ANSWERS[query](self._data, params)


class MemoryWatch:
    """Wakes on a commit."""

    def __init__(self, committed: asyncio.Event) -> None:
        self._committed = committed

    async def wait(self) -> None:
        """Return after a commit."""
        await self._committed.wait()
        self._committed.clear()


def _exceeds(amount: float, limit: float | None) -> bool:
    return limit is not None and amount > limit


def _sum_answers(data: MemoryData, root_id: int) -> tuple[int, float]:
    """Return the tokens and the cost of all stored answers of a tree."""
    tokens, cost = 0, 0.0
    for record in tree_answers.tree(data, {"id": root_id}):
        task = json.loads(record["doc"])
        counted = _read_counts(task.get("usage", {}), ("input_tokens", "output_tokens", "cost"))
        stored = [0.0, 0.0, 0.0]
        if task.get("run"):
            stored = _count_messages(data, int(task["id"]))
        sent, received, paid = map(max, counted, stored)
        tokens += int(sent + received)
        cost += paid
    return tokens, cost


def _count_messages(data: MemoryData, task_id: int) -> list[float]:
    """Return the sums of input tokens, output tokens and cost of the messages of a task."""
    sums = [0.0, 0.0, 0.0]
    every_message = {"id": task_id, "after": 0, "limit": sys.maxsize}
    for message in record_answers.messages(data, every_message):
        counts = _read_counts(json.loads(message["doc"]), ("input", "output", "cost"))
        sums = list(map(add, sums, counts))
    return sums


def _read_counts(document: Mapping[str, Any], names: Sequence[str]) -> list[float]:
    return [document.get(name) or 0 for name in names]
