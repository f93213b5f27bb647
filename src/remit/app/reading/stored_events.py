"""Events of one kind in the stream of a task."""

from typing import TypeVar, cast

from remit.codec import decode_event
from remit.domain.task import events as ev
from remit.ports import EventStore
from remit.store_queries.event_queries import EVENTS
from remit.store_queries.query import NO_LIMIT

E = TypeVar("E", bound=ev.Event)


async def events_of(store: EventStore, task_id: str, kind: type[E]) -> list[E]:
    """Return the events of a kind, oldest first; only these are decoded."""
    rows = await store.select(EVENTS, {"stream": task_id, "after": 0, "limit": NO_LIMIT})
    found = [decode_event(row.stored).event for row in rows if row.type == kind.__name__]
    return cast("list[E]", found)
