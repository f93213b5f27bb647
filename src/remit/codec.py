"""Events as they are stored: JSON in, JSON out, the chain of hashes, and old shapes brought up to date."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, get_args

from remit.domain import event as ev
from remit.domain.document import document_of
from remit.domain.shape import restore
from remit.domain.value import Task
from remit.domain.wire import dumps, instant, plain
from remit.errors import UnknownEvent

EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (*get_args(ev.Event), ev.GuideCreated, ev.KeyClaimed)}
"""Every event by the name it is stored under."""

UPCASTERS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]] = {}
"""For each event whose shape has changed: what turns shape 1 into 2, 2 into 3, and so on. A stored shape says `"v": n`."""

GENESIS = bytes(32)
"""What the first event of a stream is chained to."""


def seal(entry: ev.Entry, previous: bytes) -> ev.Stored:
    """An event ready to be stored after the one whose hash is given."""
    kind = type(entry.event).__name__
    shapes = len(UPCASTERS.get(kind, ()))
    data = dumps({"v": shapes + 1, **plain(entry.event)} if shapes else plain(entry.event))
    at = instant(entry.at)
    digest = chained(previous, entry.id, entry.stream, entry.version, kind, at, entry.actor, data)
    return ev.Stored(entry.id, entry.stream, entry.version, kind, at, entry.actor, data, digest)


def chained(previous: bytes, *fields: str | int) -> bytes:
    """The hash of an event: over the one before it and all its own fields, none of which holds a raw line break."""
    return hashlib.sha256(previous + "\n".join(map(str, fields)).encode()).digest()


def opened(stored: ev.Stored) -> ev.Entry:
    """A stored event as the domain knows it; UnknownEvent if this version does not."""
    return ev.Entry(
        id=stored.id,
        stream=stored.stream,
        version=stored.version,
        at=datetime.fromisoformat(stored.at),
        actor=stored.actor,
        event=event_of(stored.type, json.loads(stored.data)),
    )


def event_of(kind: str, data: Mapping[str, Any]) -> Any:
    """An event from its name and its stored data."""
    if kind not in EVENTS:
        raise UnknownEvent(f"The event {kind} is not one this version knows.", hint="Upgrade remit.")
    steps = UPCASTERS.get(kind, ())
    shape = {**data}
    version = shape.pop("v", 1)
    if not isinstance(version, int) or not 1 <= version <= len(steps) + 1:
        raise UnknownEvent(f"The event {kind} has shape {version}; this version knows {len(steps) + 1}.", hint="Upgrade remit.")
    for step in steps[version - 1 :]:
        shape = step(shape)
    return restore(EVENTS[kind], shape)


def task_of(document: str, task_id: object = "?") -> Task:
    """A task from its row; Corrupt if that cannot be read, UnknownEvent if something happened to it that this version does not know."""
    raw = document_of(document, task_id)
    if raw.get("language", 1) > ev.LANGUAGE:
        message = f"Task {raw.get('id')} has events of language {raw['language']}; this version knows {ev.LANGUAGE}."
        raise UnknownEvent(message, hint="Upgrade remit.")
    return restore(Task, raw)
