"""Records as plain JSON values, without what is at its default."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from remit.domain.record import fields, is_record

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON has it; fields of a record that are at their default are left out."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Mapping):
        return cast("Any", value)
    assert is_record(value), f"{type(value).__name__} is no record"
    return {name: plain(item) for name, default in fields(value).items() if (item := getattr(value, name)) != default}


def dumps(value: Any) -> str:
    """The one JSON text of a plain value: what is stored, hashed and compared."""
    return _ENCODER.encode(value)


def instant(value: datetime) -> str:
    """A point in time, in UTC, in the one form that sorts as text."""
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
