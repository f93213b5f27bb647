"""Records as plain JSON values, without what is at its default."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from json import encoder
from typing import Any, cast

from remit.domain.record import RECORDS, fields

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_make: Any = getattr(encoder, "c_make_encoder", None)  # not every Python has it
_encode: Any = _make(None, _ENCODER.default, encoder.encode_basestring, None, ":", ",", False, False, False) if _make else None
"""What the encoder makes anew for each text, which takes as long as a short text itself."""
_ATOMS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """A value as JSON has it; fields of a record that are at their default are left out."""
    kind = value.__class__
    if kind in _ATOMS:
        return value
    if kind is datetime:
        return instant(value)
    if kind is tuple or kind is list:
        return [plain(item) for item in value]
    if kind in RECORDS:
        given: dict[str, Any] = value.__dict__
        return {
            name: item if type(item) in _ATOMS else plain(item)
            for name, default in fields(kind).items()
            if name in given and (item := given[name]) is not default and item != default
        }
    if isinstance(value, str):
        return str(value)
    assert isinstance(value, Mapping), f"{kind.__name__} is no record"
    return cast("Any", value)


def dumps(value: Any) -> str:
    """The one JSON text of a plain value: what is stored, hashed and compared."""
    return "".join(_encode(value, 0)) if _encode else _ENCODER.encode(value)


@lru_cache(4096)
def instant(value: datetime) -> str:
    """A point in time, in UTC, in the one form that sorts as text."""
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return f"{value.isoformat(timespec='microseconds')[:-6]}Z"
