"""Queries about events."""

from typing import NamedTuple

from remit.domain.task.stored_event import Stored
from remit.store_queries.query import Query


class StreamHead(NamedTuple):
    """The last event of a stream."""

    stream: str
    version: int
    hash: bytes


class StreamName(NamedTuple):
    """A stream."""

    stream: str


class PlacedEvent(NamedTuple):
    """An event and its position in the order of all events."""

    id: str
    stream: str
    version: int
    type: str
    at: str
    actor: str
    data: str
    hash: bytes
    position: str

    @property
    def stored(self) -> Stored:
        """The event without its position."""
        return Stored._make(self[:-1])


class OutputEvent(NamedTuple):
    """An event that changed the required outputs of a task."""

    type: str
    data: str


HEADS = Query("heads", ("streams",), StreamHead)
STREAMS = Query("streams", ("after_id", "limit"), StreamName)
EVENTS = Query("events", ("stream", "after", "limit"), PlacedEvent)
EVENTS_OF = Query("events_of", ("streams",), Stored)
OUTPUT_EVENTS = Query("output_events", ("stream",), OutputEvent)
