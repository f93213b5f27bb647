"""Encode and decode stored events: JSON, the chain of hashes, and upcasts of old shapes."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, get_args

from remit.domain.projection.document import document_of
from remit.domain.records.serialize import dumps, instant, plain
from remit.domain.records.validate import restore
from remit.domain.task import events as ev
from remit.domain.task.stored_event import Stored
from remit.domain.task.task import Task
from remit.errors import UnknownEvent

EVENTS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*get_args(ev.Event), ev.GuideCreated, ev.KeyClaimed)
}
"""Event classes by their stored name."""

UPCASTERS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]] = {}
"""For each event whose shape changed: the functions from shape 1 to 2, from 2 to 3, and so on.

Stored data contains its shape as `"v": n`.
"""

GENESIS = bytes(32)
"""The hash before the first event of a stream."""


def encode_event(entry: ev.Entry, previous: bytes) -> Stored:
    """Encode an event for storage; `previous` is the hash of the event before it."""
    kind = type(entry.event).__name__
    shapes = len(UPCASTERS.get(kind, ()))
    data = dumps({"v": shapes + 1, **plain(entry.event)} if shapes else plain(entry.event))
    at = instant(entry.at)
    digest = chain_hash(
        previous, entry.id, entry.stream, entry.version, kind, at, entry.actor, data
    )
    return Stored(entry.id, entry.stream, entry.version, kind, at, entry.actor, data, digest)


def chain_hash(previous: bytes, *fields: str | int) -> bytes:
    """Return the hash of an event over the previous hash and all its fields.

    No field contains a raw line break, which separates the fields.
    """
    return hashlib.sha256(previous + "\n".join(map(str, fields)).encode()).digest()


def decode_event(stored: Stored) -> ev.Entry:
    """Decode a stored event; raise UnknownEvent if this version does not know it."""
    return ev.Entry(
        id=stored.id,
        stream=stored.stream,
        version=stored.version,
        at=datetime.fromisoformat(stored.at),
        actor=stored.actor,
        event=event_of(stored.type, json.loads(stored.data)),
    )


def event_of(kind: str, data: Mapping[str, Any]) -> Any:
    """Return an event from its stored name and data; raise UnknownEvent for an unknown one."""
    if kind not in EVENTS:
        raise UnknownEvent(f"This version does not know the event {kind}.", hint="Upgrade remit.")
    steps = UPCASTERS.get(kind, ())
    shape = {**data}
    version = shape.pop("v", 1)
    if not isinstance(version, int) or not 1 <= version <= len(steps) + 1:
        raise UnknownEvent(
            f"The event {kind} has shape {version}; this version knows shape {len(steps) + 1}.",
            hint="Upgrade remit.",
        )
    for step in steps[version - 1 :]:
        shape = step(shape)
    return restore(EVENTS[kind], shape)


def task_of(document: str, task_id: object = "?") -> Task:
    """Return a task from its stored document.

    Raise Corrupt if the document is damaged, and UnknownEvent if a newer version wrote the task.
    """
    raw = document_of(document, task_id)
    if raw.get("language", 1) > ev.LANGUAGE:
        message = (
            f"Task {raw.get('id')} has events of language {raw['language']}; this version knows"
            f" language {ev.LANGUAGE}."
        )
        raise UnknownEvent(message, hint="Upgrade remit.")
    return restore(Task, raw)
