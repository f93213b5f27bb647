"""Positions in the feed of all events: one number on SQLite, two with a dot on PostgreSQL."""

import re
from typing import Any

from remit.domain.records.validate import describe
from remit.errors import InvalidParam, invalid

BEGINNING = "0"
"""The position before the first event in every store."""

_NUMBER = re.compile(r"[0-9]{1,18}")


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
    numbers = after.split(".") if isinstance(after, str) else []
    if not numbers or not all(map(_NUMBER.fullmatch, numbers)):
        raise _refused(after)
    return numbers


def _refused(after: Any) -> InvalidParam:
    return invalid("after", f"is {describe(after)}", "the position of an event of this store")
