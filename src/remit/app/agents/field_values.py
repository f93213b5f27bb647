"""Values of agent files: storable values, and the conversion of remit's fields."""

import re
from collections.abc import Callable
from typing import Any

from remit.app.agents.front_matter import MAX_DEPTH
from remit.app.agents.tool_names import is_list, is_map
from remit.domain.agents.agent import EFFORTS

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_INT64 = 2**63
_YEAR_SECONDS = 31_536_000


def is_storable(value: Any, depth: int = 0) -> bool:
    """Return True for a value that can be stored and displayed."""
    if isinstance(value, str):
        return _UNSTORABLE.search(value) is None
    if isinstance(value, int | float):
        return -_INT64 <= value < _INT64
    if depth > MAX_DEPTH:
        return False
    if is_map(value):
        return is_storable([*value, *value.values()], depth)
    if is_list(value):
        return all(is_storable(item, depth + 1) for item in value)
    return value is None


# Each function below raises a ValueError that says what it expects.


def read_text(value: Any) -> str:
    """Return a text without the spaces around it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value.strip()


def read_flag(value: Any) -> bool:
    """Return a boolean, which may be written as a word."""
    flag = _flag(value)
    if flag is None:
        raise ValueError("true or false")
    return flag


def is_off(value: Any) -> bool:
    """Return True for false and for a word that means it."""
    return _flag(value) is False


def _flag(value: Any) -> bool | None:
    """Return a boolean, which may be written as a word; None for anything else."""
    return _FLAGS.get(str(value).lower())


def read_turns(value: Any) -> int:
    """Return a number of turns, which may be written as text."""
    number = _read_number(value, r"[0-9]{1,5}", int)
    if not isinstance(number, int) or not 1 <= number <= 10_000:
        raise ValueError("a whole number from 1 to 10,000")
    return number


def read_seconds(value: Any) -> float:
    """Return a time that is written in seconds."""
    return _read_time(value, 1)


def read_minutes(value: Any) -> float:
    """Return a time that is written in minutes, in seconds."""
    return _read_time(value, 60)


def _read_time(value: Any, unit: int) -> float:
    """Return a time in seconds; `unit` is how many seconds its number counts."""
    number = _read_number(value, r"[0-9]{1,9}(?:\.[0-9]{1,9})?", float)
    if number is None or not 0.001 <= number * unit <= _YEAR_SECONDS:
        raise ValueError("a number above 0, at most a year")
    return number * unit


def _read_number(value: Any, pattern: str, convert: Callable[[str], float]) -> float | None:
    """Return a number, which may be written as a text of this pattern; None for anything else."""
    if isinstance(value, str) and re.fullmatch(pattern, value.strip()):
        return convert(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def read_effort(value: Any) -> str:
    """Return how hard a model is to think."""
    if value == "med":
        return "medium"
    if not isinstance(value, str) or value not in EFFORTS:
        raise ValueError(f"one of {', '.join(EFFORTS)}")
    return value


def read_mode(value: Any) -> str:
    """Return how an agent may be used."""
    if value not in ("subagent", "primary", "all"):
        raise ValueError("subagent, primary or all")
    return str(value)
