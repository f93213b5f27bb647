"""Stores that stand in front of another one: they say what was sent and what was acknowledged,
or lose an answer.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any

from remit.domain.projection.rows import Change
from remit.domain.task.stored_event import Stored
from remit.errors import Unacknowledged
from remit.ports import EventStore, Recorded, Topic, Unit, Watch
from remit.store_queries.query import Query, R

Say = Callable[[dict[str, Any]], None]


class Around:
    """Passes everything on."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    async def new_ids(self, count: int) -> list[int]:
        return await self._store.new_ids(count)

    async def commit(self, unit: Unit) -> None:
        await self._store.commit(unit)

    async def select(self, query: Query[R], params: Mapping[str, Any]) -> list[R]:
        return await self._store.select(query, params)

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        return await self._store.feed(after, limit)

    async def tail(self) -> str:
        return await self._store.tail()

    async def check(self) -> None:
        await self._store.check()

    def watch(self, topic: Topic = "events") -> AbstractAsyncContextManager[Watch]:
        return self._store.watch(topic)

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        await self._store.import_events(events, changes)

    def end_within(self, seconds: float) -> None:
        self._store.end_within(seconds)

    async def close(self) -> None:
        await self._store.close()


class Witness(Around):
    """Says which ids were given, and of each unit that it is sent and that it is acknowledged."""

    def __init__(self, store: EventStore, say: Say) -> None:
        super().__init__(store)
        self._say = say

    async def new_ids(self, count: int) -> list[int]:
        numbers = await self._store.new_ids(count)
        self._say({"given": numbers})
        return numbers

    async def commit(self, unit: Unit) -> None:
        events = [
            [event.id, event.stream, event.version]
            for append in unit.appends
            for event in append.events
        ]
        self._say({"sent": events})
        await self._store.commit(unit)
        self._say({"acked": events})


class LosesAnswers(Around):
    """Now and then a commit is not heard of again, before or after it happened."""

    def __init__(self, store: EventStore, random: Random, *, before: float, after: float) -> None:
        super().__init__(store)
        self._random, self._before, self._after = random, before, after
        self.lost_before = self.lost_after = 0

    async def commit(self, unit: Unit) -> None:
        if self._random.random() < self._before:
            self.lost_before += 1
            raise Unacknowledged("The request was lost.")
        await self._store.commit(unit)
        if self._random.random() < self._after:
            self.lost_after += 1
            raise Unacknowledged("The answer was lost.")
