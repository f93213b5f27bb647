"""The rules for values from outside: for every JSON value, and for the marks of fields."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any, cast

from remit.domain.records.record import MEGABYTE, Items, Matches, Range, Text
from remit.errors import Problem

Problems = list[Problem]
Fault = tuple[str, str]
"""A problem and the expected value."""
Rule = Callable[[Any], Fault | None]

MAX_DEPTH = 32
INT64 = 2**63

_NAMES = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


_VALID_TEXT = "text in valid Unicode without NUL"
_TOO_DEEP = (f"is nested deeper than {MAX_DEPTH} levels", f"at most {MAX_DEPTH} levels")
_TOO_LARGE = (f"is larger than {MEGABYTE:,} bytes", f"at most {MEGABYTE:,} bytes")


def is_number(value: Any) -> bool:
    """Return True for a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return True for a whole number, also if it is written as 1.0."""
    return is_number(value) and value % 1 == 0


def describe(value: Any) -> str:
    """Return a value for an error message."""
    text = repr(value)
    if len(text) <= 60:
        return text
    return f"{text[:57]}..."


def describe_type(raw: Any) -> str:
    """Return the type of a value for an error message."""
    return _NAMES.get(cast("Any", type(raw)), f"a Python {type(raw).__name__}")


def as_mapping(value: Any) -> Mapping[Any, Any]:
    """Return an object whose keys may be of any type."""
    return cast("Mapping[Any, Any]", value)


def check_fields(raw: Any, problems: Problems) -> None:
    """Check an object and every value in it; problems name the field."""
    if not isinstance(raw, Mapping):
        problems.append(Problem("body", f"is {describe_type(raw)}", "an object"))
        return
    for name, value in as_mapping(raw).items():
        if fault := _key_fault(name):
            problems.append(Problem("body", *fault))
        else:
            check_value(value, name, problems)


def check_value(value: Any, field: str, problems: Problems) -> None:
    """Check depth, size, Unicode and numbers; stop at the first problem.

    The walk uses its own stack, so nesting cannot exhaust the call stack.
    """
    size = 0
    stack: list[tuple[Any, str, int]] = [(value, field, 1)]
    while stack:
        item, path, depth = stack.pop()
        if fault := _value_fault(item):
            problems.append(Problem(path, *fault))
            return
        if isinstance(item, str):
            size += len(item.encode())
        else:
            size += 8
        if depth >= MAX_DEPTH and isinstance(item, Mapping | list | tuple):
            problems.append(Problem(field, *_TOO_DEEP))
            return
        if isinstance(item, Mapping):
            named = as_mapping(item)
            if fault := next(filter(None, map(_key_fault, named)), None):
                problems.append(Problem(path, *fault))
                return
            stack.extend((inner, f"{path}.{key}", depth + 1) for key, inner in named.items())
            size += sum(map(len, named))
        elif isinstance(item, list | tuple):
            listed = enumerate(cast("list[Any]", item))
            stack.extend((inner, f"{path}[{index}]", depth + 1) for index, inner in listed)
        if size > MEGABYTE or size + 8 * len(stack) > MEGABYTE * 2:
            problems.append(Problem(field, *_TOO_LARGE))
            return


def _key_fault(key: Any) -> Fault | None:
    """Return the problem of the key of an object."""
    if isinstance(key, str) and not _text_fault(key):
        return None
    return f"has the key {describe(key)}", "keys that are text without NUL or lone surrogates"


def _value_fault(item: Any) -> Fault | None:
    """Return the problem of a single value, without the values in it."""
    if isinstance(item, str):
        return _text_fault(item)
    if isinstance(item, bool | Mapping | list | tuple | datetime | None):
        return None
    if isinstance(item, int):
        return _integer_fault(item)
    if not isinstance(item, float):
        return f"is {describe_type(item)}", "a JSON value"
    return None if isfinite(item) else (f"is {item}", "a finite number")


def _integer_fault(number: int) -> Fault | None:
    """Return the problem of the size of a whole number."""
    if -INT64 <= number < INT64:
        return None
    return f"is {describe(number)}", "a number within 64 bits"


def _text_fault(text: str) -> Fault | None:
    """Return the problem of the characters of a text."""
    if "\0" in text:
        return "contains a NUL character", _VALID_TEXT
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate", _VALID_TEXT
    return None


def _text_rule(mark: Text) -> Rule:
    """Return the rule for the length of a text."""

    def check_length(value: str) -> Fault | None:
        size = len(value) if mark.unit == "characters" else len(value.encode())
        if size > mark.high:
            return f"is {size:,} {mark.unit} long", f"at most {mark.high:,} {mark.unit}"
        if mark.low and not value.strip():
            return "is blank", f"{mark.low} to {mark.high:,} {mark.unit}"
        return None

    return check_length


def _range_rule(mark: Range) -> Rule:
    """Return the rule for a number."""

    def check_range(value: float) -> Fault | None:
        if mark.low <= value <= mark.high:
            return None
        return f"is {value}", f"{mark.low:,} to {mark.high:,}"

    return check_range


def _items_rule(mark: Items) -> Rule:
    """Return the rule for the number of entries."""
    expected = f"at most {mark.high:,}"
    if mark.low:
        expected = f"{mark.low:,} to {mark.high:,}"

    def check_count(value: Any) -> Fault | None:
        if mark.low <= len(value) <= mark.high:
            return None
        return f"has {len(value):,} entries", expected

    return check_count


def _pattern_rule(mark: Matches) -> Rule:
    """Return the rule for a text that must match a pattern."""
    pattern = re.compile(mark.pattern)

    def check_pattern(value: str) -> Fault | None:
        if pattern.fullmatch(value):
            return None
        return f"is {describe(value)}", mark.says

    return check_pattern


RULES: dict[type[Any], Callable[[Any], Rule]] = {
    Text: _text_rule,
    Range: _range_rule,
    Items: _items_rule,
    Matches: _pattern_rule,
}
"""Makes the rule of each mark of `record.py`."""
