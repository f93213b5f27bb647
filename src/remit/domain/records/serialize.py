"""Records as plain JSON values, without defaults."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from json import encoder
from typing import Any, cast

from remit.domain.records.record import RECORDS, fields

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_make: Any = getattr(encoder, "c_make_encoder", None)  # not every Python has it
_encode: Any = (
    _make(None, _ENCODER.default, encoder.encode_basestring, None, ":", ",", False, False, False)
    if _make
    else None
)
"""Created once: for a short text, creating an encoder takes as long as encoding."""
_ATOMS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """Return a value as plain JSON; record fields that equal their default are left out."""
    kind = value.__class__
    if kind in _ATOMS:
        return value
    if kind is datetime:
        return instant(value)
    if kind in (tuple, list):
        return [plain(item) for item in value]
    if kind in RECORDS:
        return _plain_record(value)
    if isinstance(value, str):
        return str(value)
    assert isinstance(value, Mapping), f"{kind.__name__} is not a record"
    return cast("Any", value)


def with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a JSON value with each part that is not an object or a list changed."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: with_leaves(item, change) for name, item in fields.items()}
    if isinstance(value, list):
        items = cast("Any", value)
        return [with_leaves(item, change) for item in items]
    return change(value)


def _plain_record(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults."""
    given: dict[str, Any] = record.__dict__
    found: dict[str, Any] = {}
    for name, default in fields(record.__class__).items():
        if name not in given:
            continue
        item = given[name]
        if item is default or item == default:
            continue
        if type(item) not in _ATOMS:
            item = plain(item)
        found[name] = item
    return found


def dumps(value: Any) -> str:
    """Return the canonical JSON text of a plain value, for storing, hashing and comparing."""
    if _encode:
        return "".join(_encode(value, 0))
    return _ENCODER.encode(value)


@lru_cache(4096)
def instant(value: datetime) -> str:
    """Format a time in UTC so that texts sort by time."""
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return f"{value.isoformat(timespec='microseconds')[:-6]}Z"


def instant_or_none(value: datetime | None) -> str | None:
    """Format a time; None if there is none."""
    return None if value is None else instant(value)
