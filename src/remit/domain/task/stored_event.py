"""The stored form of an event. This module imports nothing slow because readers use it."""

from typing import NamedTuple


class Stored(NamedTuple):
    """A stored event: its data as JSON text, and a hash that chains it to the previous event."""

    id: str
    stream: str
    version: int
    type: str
    at: str
    actor: str
    data: str
    hash: bytes
