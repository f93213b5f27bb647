"""Positions in the feed of all events: one number on SQLite, two with a dot on PostgreSQL."""

import re
from typing import Any

from remit.domain.records.validate import describe
from remit.errors import InvalidParam, invalid

BEGINNING = "0"
"""The position before the first event in every store."""

_POSITION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*")


def parse_position(after: Any, parts: int) -> tuple[int, ...]:
    """Return the numbers of a position that has so many of them; "" is the beginning."""
    if after in ("", BEGINNING):
        return (0,) * parts
    numbers = _split(after)
    if len(numbers) != parts:
        raise _refused(after)
    return tuple(map(int, numbers))


def check_position(after: Any) -> None:
    """Refuse text that is not a position in any store."""
    if after != "" and len(_split(after)) > 2:
        raise _refused(after)


def _split(after: Any) -> list[str]:
    if not isinstance(after, str) or not _POSITION.fullmatch(after):
        raise _refused(after)
    return after.split(".")


def _refused(after: Any) -> InvalidParam:
    return invalid("after", f"is {describe(after)}", "the position of an event of this store")
