"""The one validator: reads plain JSON values into records by their type hints.

`parse` is for what comes from outside: every mark of a field holds, and each problem names the field and what would be
right. `restore` is for what remit stored itself: the same shapes without the marks, so that a limit that is tightened
later cannot make history unreadable.
"""

import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from remit.domain.record import MEGABYTE, MISSING, Coerce, Items, Matches, Range, Text, fields, is_record, wire_name
from remit.errors import InvalidParam, Problem, UnknownEvent

R = TypeVar("R")
Problems = list[Problem]
Reader = Callable[[Any, str, Problems], Any]

MAX_DEPTH = 32
MAX_PROBLEMS = 20
INT64 = 2**63
NOT_A_FIELD = "is not a field here"


def parse(kind: type[R], raw: Mapping[str, Any]) -> R:
    """Read what a caller sent; InvalidParam names every field that cannot be used."""
    problems: Problems = []
    _guard_fields(raw, problems)
    value = None if problems else _reader(cast("Any", kind), True)(raw, "", problems)
    if problems:
        raise InvalidParam(problems[:MAX_PROBLEMS])
    return cast("R", value)


def told_fields(refused: InvalidParam, shown: Collection[str]) -> str:
    """An error in words for a model, which lists only fields that the model was shown."""
    problems = [Problem(**field) for field in refused.details["fields"]]
    told = [_of_shown(problem, shown) for problem in problems]
    return str(refused) if told == problems else f"{' '.join(map(str, told))} {refused.hint}".rstrip()


def _of_shown(problem: Problem, shown: Collection[str]) -> Problem:
    is_unknown = problem.problem == NOT_A_FIELD and not re.search(r"[.\[]", problem.field)
    return problem._replace(expected=_nearest(problem.field, shown)) if is_unknown else problem


def restore(kind: type[R], raw: Mapping[str, Any]) -> R:
    """Read what remit stored; UnknownEvent where its shape is not one this version knows."""
    problems: Problems = []
    value = _reader(cast("Any", kind), False)(raw, "", problems)
    if problems:
        raise UnknownEvent(f"{kind.__name__} has a shape this version does not know: {problems[0]}", hint="Upgrade remit.")
    return cast("R", value)


def check(kind: Any, value: Any, field: str) -> Any:
    """Read one value by an annotated type, as `parse` would."""
    problems: Problems = []
    _guard(value, field, problems)
    read = value if problems else _reader(kind, True)(value, field, problems)
    if problems:
        raise InvalidParam(problems)
    return read


def describe(value: Any) -> str:
    """A value as an error message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# What any JSON value must be, whatever field it is in.


def _guard_fields(raw: Any, problems: Problems) -> None:
    if not isinstance(raw, Mapping):
        problems.append(Problem("body", f"is {_kind(raw)}", "an object"))
        return
    for name, value in _pairs(raw):
        if isinstance(name, str) and not _bad_text(name):
            _guard(value, name, problems)
        else:
            problems.append(Problem("body", f"has the key {describe(name)}", "keys that are text without NUL or lone surrogates"))


def _guard(value: Any, field: str, problems: Problems) -> None:
    """Depth, size, Unicode and number rules; the walk keeps its own stack so that no nesting can exhaust ours."""
    size = 0
    stack: list[tuple[Any, str, int]] = [(value, field, 1)]
    while stack:
        item, path, depth = stack.pop()
        if problem := _bad_value(item):
            problems.append(Problem(path, *problem))
            return
        size += len(item.encode()) if isinstance(item, str) else 8
        if depth >= MAX_DEPTH and isinstance(item, Mapping | list | tuple):
            problems.append(Problem(field, f"is nested deeper than {MAX_DEPTH} levels", f"at most {MAX_DEPTH} levels"))
            return
        if isinstance(item, Mapping):
            for key, inner in _pairs(item):
                if not isinstance(key, str) or _bad_text(key):
                    problems.append(Problem(path, f"has the key {describe(key)}", "keys that are text without NUL or lone surrogates"))
                    return
                stack.append((inner, f"{path}.{key}", depth + 1))
                size += len(key)
        elif isinstance(item, list | tuple):
            stack.extend((inner, f"{path}[{index}]", depth + 1) for index, inner in enumerate(cast("list[Any]", item)))
        if size + 8 * len(stack) > MEGABYTE * 2 or size > MEGABYTE:
            problems.append(Problem(field, f"is larger than {MEGABYTE:,} bytes", f"at most {MEGABYTE:,} bytes"))
            return


def _pairs(item: Any) -> Iterable[tuple[Any, Any]]:
    return cast("Mapping[Any, Any]", item).items()


def _bad_value(item: Any) -> tuple[str, str] | None:
    if item is None or isinstance(item, bool | Mapping | list | tuple):
        return None
    if isinstance(item, str):
        return (bad, "text in valid Unicode without NUL") if (bad := _bad_text(item)) else None
    if isinstance(item, int):
        return None if -INT64 <= item < INT64 else (f"is {describe(item)}", "a number within 64 bits")
    if isinstance(item, float):
        return None if isfinite(item) else (f"is {item}", "a finite number")
    if isinstance(item, datetime):
        return None
    return f"is {_kind(item)}", "a JSON value"


def _bad_text(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    return None


# From a type hint to a function that reads it.


@cache
def _reader(hint: Any, strict: bool) -> Reader:
    origin = get_origin(hint)
    if origin is Annotated:
        return _annotated(hint, strict)
    if origin in (Union, types.UnionType):
        return _optional(hint, strict)
    if origin is Literal:
        return _choice(get_args(hint))
    if origin is tuple:
        return _items(_reader(get_args(hint)[0], strict))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping
    if hint is Any:
        return _json if strict else _anything
    if is_record(hint):
        return _record(cast("type[Any]", hint), strict)
    if issubclass(hint, StrEnum):
        return _enum(hint)
    return _SCALARS[hint]


def _annotated(hint: Any, strict: bool) -> Reader:
    inner, *marks = get_args(hint)
    read = _reader(inner, strict)
    if not strict:
        return read
    converts = [mark for mark in marks if isinstance(mark, Coerce)]
    rules = [_RULES[type(mark)](mark) for mark in marks if type(mark) in _RULES]

    def annotated(raw: Any, path: str, problems: Problems) -> Any:
        for mark in converts:
            raw = mark.convert(raw)
        before = len(problems)
        value = read(raw, path, problems)
        for rule in rules if len(problems) == before else ():
            if problem := rule(value):
                problems.append(Problem(path, *problem))
                break
        return value

    return annotated


def _optional(hint: Any, strict: bool) -> Reader:
    (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
    read = _reader(inner, strict)
    return lambda raw, path, problems: None if raw is None else read(raw, path, problems)


def _choice(options: Sequence[Any]) -> Reader:
    expected = f"one of {', '.join(options)}"

    def choice(raw: Any, path: str, problems: Problems) -> Any:
        if not isinstance(raw, str) or raw not in options:
            problems.append(Problem(path, f"is {describe(raw)}", expected))
        return raw

    return choice


def _enum(kind: type[StrEnum]) -> Reader:
    read = _choice(tuple(member.value for member in kind))

    def enum(raw: Any, path: str, problems: Problems) -> Any:
        before = len(problems)
        read(raw, path, problems)
        return kind(raw) if len(problems) == before else None

    return enum


def _items(read: Reader) -> Reader:
    def items(raw: Any, path: str, problems: Problems) -> Any:
        if not isinstance(raw, list | tuple):
            problems.append(Problem(path, f"is {_kind(raw)}", "a list"))
            return ()
        return tuple(read(item, f"{path}[{index}]", problems) for index, item in enumerate(cast("list[Any]", raw)))

    return items


def _mapping(raw: Any, path: str, problems: Problems) -> Any:
    if not isinstance(raw, Mapping):
        problems.append(Problem(path, f"is {_kind(raw)}", "an object"))
        return raw
    return _json(raw, path, problems)


def _record(kind: type[Any], strict: bool) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    wire = {name: wire_name(name, hints[name]) for name in fields(kind)}
    named = {sent: name for name, sent in wire.items() if sent != name}
    readers = {wire[name]: _reader(hints[name], strict) for name in fields(kind)}
    required = [wire[name] for name, default in fields(kind).items() if default is MISSING]
    as_they_are = {} if strict else {wire[name]: atom for name in fields(kind) if (atom := _atom(hints[name]))}

    def read_record(raw: Any, path: str, problems: Problems) -> Any:
        if not isinstance(raw, Mapping):
            problems.append(Problem(path or "body", f"is {_kind(raw)}", "an object"))
            return None
        given = cast("Mapping[str, Any]", raw)
        prefix = f"{path}." if path else ""
        before = len(problems)
        for name in given:
            if name not in readers:
                problems.append(Problem(prefix + name[:60], NOT_A_FIELD, _nearest(name[:60], readers)))
        for name in required:
            if given.get(name) is None:
                problems.append(Problem(prefix + name, "is missing", "a value"))
        values = {
            name: item if type(item) is as_they_are.get(name) else readers[name](item, prefix + name, problems)
            for name, item in given.items()
            if item is not None and name in readers
        }
        if named:
            values = {named.get(name, name): item for name, item in values.items()}
        return kind(**values) if len(problems) == before else None

    return read_record


def _atom(hint: Any) -> type[Any] | None:
    """The one type, if there is one, whose values need no reading once they were stored."""
    while get_origin(hint) in (Annotated, Union, types.UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    return hint if hint in (str, int, float, bool) else None


def _nearest(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # slow to import, and only wanted in an error

    if not known:
        return "no fields"
    close = get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"one of {', '.join(known)}"


def _json(raw: Any, path: str, problems: Problems) -> Any:
    """A copy that nobody else holds, in the types that JSON itself gives; `_guard` has seen that it is not too deep."""
    if isinstance(raw, Mapping):
        return {key: _json(item, f"{path}.{key}", problems) for key, item in _pairs(raw)}
    if isinstance(raw, list | tuple):
        return [_json(item, f"{path}[{index}]", problems) for index, item in enumerate(cast("list[Any]", raw))]
    if isinstance(raw, datetime):
        problems.append(Problem(path, f"is {_kind(raw)}", "a JSON value"))
    return raw


def _anything(raw: Any, _path: str, _problems: Problems) -> Any:
    return raw


def _text(raw: Any, path: str, problems: Problems) -> Any:
    if not isinstance(raw, str):
        problems.append(Problem(path, f"is {_kind(raw)}", "text"))
    return raw


def _int(raw: Any, path: str, problems: Problems) -> Any:
    if isinstance(raw, float) and raw.is_integer():
        return int(raw)
    if not isinstance(raw, int) or isinstance(raw, bool):
        problems.append(Problem(path, f"is {describe(raw)}", "a whole number"))
    return raw


def _float(raw: Any, path: str, problems: Problems) -> Any:
    if not isinstance(raw, int | float) or isinstance(raw, bool):
        problems.append(Problem(path, f"is {describe(raw)}", "a number"))
        return raw
    return float(raw)


def _bool(raw: Any, path: str, problems: Problems) -> Any:
    if not isinstance(raw, bool):
        problems.append(Problem(path, f"is {describe(raw)}", "true or false"))
    return raw


def _instant(raw: Any, path: str, problems: Problems) -> Any:
    try:
        value = raw if isinstance(raw, datetime) else datetime.fromisoformat(raw)
        if value.tzinfo is None:
            raise ValueError
        return value.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        problems.append(Problem(path, f"is {describe(raw)}", "an instant in ISO 8601 with a time zone, such as 2026-01-31T08:00:00Z"))
        return raw


_SCALARS: dict[Any, Reader] = {str: _text, int: _int, float: _float, bool: _bool, datetime: _instant}

_NAMES = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list", tuple: "a list", dict: "an object"}


def _kind(raw: Any) -> str:
    return "null" if raw is None else _NAMES.get(cast("Any", type(raw)), f"a Python {type(raw).__name__}")


# The marks of record.py as rules: a problem and what is expected, or nothing.

Rule = Callable[[Any], tuple[str, str] | None]


def _length(mark: Text) -> Rule:
    def length(value: str) -> tuple[str, str] | None:
        size = len(value) if mark.unit == "characters" else len(value.encode())
        if size > mark.high:
            return f"is {size:,} {mark.unit} long", f"at most {mark.high:,} {mark.unit}"
        if mark.low and not value.strip():
            return "is blank", f"{mark.low} to {mark.high:,} {mark.unit}"
        return None

    return length


def _range(mark: Range) -> Rule:
    return lambda value: None if mark.low <= value <= mark.high else (f"is {value}", f"{mark.low:,} to {mark.high:,}")


def _count(mark: Items) -> Rule:
    right = f"{mark.low:,} to {mark.high:,}" if mark.low else f"at most {mark.high:,}"
    return lambda value: None if mark.low <= len(value) <= mark.high else (f"has {len(value):,} entries", right)


def _pattern(mark: Matches) -> Rule:
    pattern = re.compile(mark.pattern)
    return lambda value: None if pattern.fullmatch(value) else (f"is {describe(value)}", mark.says)


_RULES: dict[type[Any], Callable[[Any], Rule]] = {Text: _length, Range: _range, Items: _count, Matches: _pattern}
