"""The validator: reads plain JSON values into records by their type hints.

`parse` is for outside input: every mark of a field applies, and each problem names the field and
what would be right. `restore` is for stored data: the same shapes without the marks, so that a
stricter limit does not make history unreadable.
"""

import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from remit.domain.records.json_rules import (
    RULES,
    Problems,
    as_mapping,
    check_fields,
    check_value,
    describe,
    describe_type,
    is_number,
    is_whole,
)
from remit.domain.records.record import (
    MISSING,
    Coerce,
    fields,
    is_record,
    required_part,
    wire_name,
)
from remit.errors import InvalidParam, Problem, UnknownEvent

__all__ = ["check", "describe", "error_for_model", "parse", "restore"]

R = TypeVar("R")
Reader = Callable[[Any, str, Problems], Any]

MAX_PROBLEMS = 20
NOT_A_FIELD = "is not a field here"


def parse(kind: type[R], raw: Mapping[str, Any]) -> R:
    """Parse the input of a caller; raise `InvalidParam` with every invalid field."""
    problems: Problems = []
    check_fields(raw, problems)
    value = None
    if not problems:
        value = _reader(cast("Any", kind), True)(raw, "", problems)
    if problems:
        raise InvalidParam(problems[:MAX_PROBLEMS])
    return cast("R", value)


def error_for_model(refused: InvalidParam, tool: str, shown: Collection[str]) -> str:
    """Return an error of a tool for a model that lists only fields that the model was shown."""
    limited = [_limit_to_shown(problem, tool, shown) for problem in refused.problems]
    if limited == refused.problems:
        return str(refused)
    return f"{' '.join(map(str, limited))} {refused.hint}".rstrip()


def _limit_to_shown(problem: Problem, tool: str, shown: Collection[str]) -> Problem:
    """Name the tool that lacks a field, and suggest only fields that a model was shown."""
    if problem.problem != NOT_A_FIELD or re.search(r"[.\[]", problem.field):
        return problem
    expected = _nearest(problem.field, shown)
    return Problem(problem.field, f"is not a field of {tool}", expected)


def restore(kind: type[R], raw: Mapping[str, Any]) -> R:
    """Parse stored data; `UnknownEvent` if this version does not know its shape."""
    problems: Problems = []
    value = _reader(cast("Any", kind), False)(raw, "", problems)
    if problems:
        raise UnknownEvent(
            f"{kind.__name__} has an unknown shape: {problems[0]}",
            hint="Upgrade remit.",
        )
    return cast("R", value)


def check(kind: Any, value: Any, field: str) -> Any:
    """Parse one value by an annotated type, as `parse` would."""
    problems: Problems = []
    check_value(value, field, problems)
    if not problems:
        value = _reader(kind, True)(value, field, problems)
    if problems:
        raise InvalidParam(problems)
    return value


# Type hints to reader functions


@cache
def _reader(hint: Any, strict: bool) -> Reader:
    """Return the function that reads a value of a type; `strict` applies the marks of fields."""
    origin = get_origin(hint)
    if origin is not None:
        return _GENERICS[origin](hint, strict)
    if hint is Any:
        if strict:
            return _read_json
        return _read_anything
    if is_record(hint):
        return _record_reader(cast("type[Any]", hint), strict)
    if issubclass(hint, StrEnum):
        return _enum_reader(hint)
    return _SCALARS[hint]


def _annotated_reader(hint: Any, strict: bool) -> Reader:
    """Return a reader that converts a value, reads it and checks it by its marks."""
    inner, *marks = get_args(hint)
    read = _reader(inner, strict)
    if not strict:
        return read
    converts = [mark.convert for mark in marks if isinstance(mark, Coerce)]
    rules = [RULES[type(mark)](mark) for mark in marks if type(mark) in RULES]

    def read_annotated(raw: Any, path: str, problems: Problems) -> Any:
        for convert in converts:
            raw = convert(raw)
        before = len(problems)
        value = read(raw, path, problems)
        if len(problems) > before:
            return value
        for rule in rules:
            if problem := rule(value):
                problems.append(Problem(path, *problem))
                break
        return value

    return read_annotated


def _optional_reader(hint: Any, strict: bool) -> Reader:
    """Return a reader that also accepts null."""
    read = _reader(required_part(hint), strict)

    def read_optional(raw: Any, path: str, problems: Problems) -> Any:
        if raw is None:
            return None
        return read(raw, path, problems)

    return read_optional


def _choice_reader(options: Sequence[Any]) -> Reader:
    """Return a reader of text that is one of some options."""
    expected = f"one of {', '.join(options)}"

    def read_choice(raw: Any, path: str, problems: Problems) -> Any:
        if raw not in options:
            problems.append(Problem(path, f"is {describe(raw)}", expected))
        return raw

    return read_choice


def _enum_reader(kind: type[StrEnum]) -> Reader:
    """Return a reader of the members of an enum."""
    read_choice = _choice_reader(tuple(member.value for member in kind))

    def read_enum(raw: Any, path: str, problems: Problems) -> Any:
        before = len(problems)
        read_choice(raw, path, problems)
        if len(problems) > before:
            return None
        return kind(raw)

    return read_enum


def _literal_reader(hint: Any, _: bool) -> Reader:
    """Return a reader of one of the values of a literal."""
    return _choice_reader(get_args(hint))


def _tuple_reader(hint: Any, strict: bool) -> Reader:
    """Return a reader of a list of any length."""
    read = _reader(get_args(hint)[0], strict)

    def read_items(raw: Any, path: str, problems: Problems) -> Any:
        if not isinstance(raw, list | tuple):
            problems.append(Problem(path, f"is {describe_type(raw)}", "a list"))
            return ()
        return tuple(
            read(item, f"{path}[{index}]", problems)
            for index, item in enumerate(cast("list[Any]", raw))
        )

    return read_items


def _mapping_reader(_: Any, __: bool) -> Reader:
    return _read_mapping


def _read_mapping(raw: Any, path: str, problems: Problems) -> Any:
    """Read an object of any shape."""
    if not isinstance(raw, Mapping):
        problems.append(Problem(path, f"is {describe_type(raw)}", "an object"))
        return raw
    return _read_json(raw, path, problems)


def _record_reader(kind: type[Any], strict: bool) -> Reader:
    """Return a reader that makes a record of an object, by the wire names of its fields."""
    hints = get_type_hints(kind, include_extras=True)
    wire = {name: wire_name(name, hints[name]) for name in fields(kind)}
    named = {sent: name for name, sent in wire.items() if sent != name}
    readers = {wire[name]: _reader(hints[name], strict) for name in fields(kind)}
    required = [wire[name] for name, default in fields(kind).items() if default is MISSING]
    unchanged: dict[str, type[Any] | None] = {}
    if not strict:
        unchanged = {wire[name]: _unconverted_type(hints[name]) for name in wire}

    def read_record(raw: Any, path: str, problems: Problems) -> Any:
        if not isinstance(raw, Mapping):
            problems.append(Problem(path or "body", f"is {describe_type(raw)}", "an object"))
            return None
        given = cast("Mapping[str, Any]", raw)
        prefix = f"{path}." if path else ""
        before = len(problems)
        _check_names(given, readers, required, prefix, problems)
        values: dict[str, Any] = {}
        for name, item in given.items():
            if item is None or name not in readers:
                continue
            if type(item) is unchanged.get(name):
                values[name] = item
            else:
                values[name] = readers[name](item, prefix + name, problems)
        if len(problems) > before:
            return None
        if named:
            values = {named.get(name, name): item for name, item in values.items()}
        return kind(**values)

    return read_record


def _check_names(
    given: Mapping[str, Any],
    known: Collection[str],
    required: Iterable[str],
    prefix: str,
    problems: Problems,
) -> None:
    """Report unknown fields and missing required fields."""
    problems += [
        Problem(prefix + name[:60], NOT_A_FIELD, _nearest(name[:60], known))
        for name in given
        if name not in known
    ]
    problems += [
        Problem(prefix + name, "is missing", "a value")
        for name in required
        if given.get(name) is None
    ]


def _unconverted_type(hint: Any) -> type[Any] | None:
    """Return the type whose stored values need no conversion, if there is one."""
    while get_origin(hint) in (Annotated, Union, types.UnionType):
        hint = required_part(hint)
    if hint in (str, int, float, bool):
        return cast("type[Any]", hint)
    return None


def _nearest(name: str, known: Collection[str]) -> str:
    """Return the known field with the most similar name, or all of them."""
    from difflib import get_close_matches  # slow to import, and only needed for an error

    if not known:
        return "no fields"
    close = get_close_matches(name, known, n=1)
    if not close:
        return f"one of {', '.join(known)}"
    return f"Did you mean {close[0]}?"


def _read_json(raw: Any, path: str, problems: Problems) -> Any:
    """Return a private copy with JSON's own types; `check_value` has checked its depth."""
    if isinstance(raw, Mapping):
        items = as_mapping(raw).items()
        return {key: _read_json(item, f"{path}.{key}", problems) for key, item in items}
    if isinstance(raw, list | tuple):
        return [
            _read_json(item, f"{path}[{index}]", problems)
            for index, item in enumerate(cast("list[Any]", raw))
        ]
    if isinstance(raw, datetime):
        problems.append(Problem(path, f"is {describe_type(raw)}", "a JSON value"))
    return raw


def _read_anything(raw: Any, _path: str, _problems: Problems) -> Any:
    return raw


def _read_text(raw: Any, path: str, problems: Problems) -> Any:
    if not isinstance(raw, str):
        problems.append(Problem(path, f"is {describe_type(raw)}", "text"))
    return raw


def _read_int(raw: Any, path: str, problems: Problems) -> Any:
    """Read a whole number, also if it is written as a float."""
    if not is_whole(raw):
        problems.append(Problem(path, f"is {describe(raw)}", "a whole number"))
        return raw
    return int(raw)


def _read_float(raw: Any, path: str, problems: Problems) -> Any:
    """Read a number."""
    if not is_number(raw):
        problems.append(Problem(path, f"is {describe(raw)}", "a number"))
        return raw
    return float(raw)


def _read_bool(raw: Any, path: str, problems: Problems) -> Any:
    if not isinstance(raw, bool):
        problems.append(Problem(path, f"is {describe(raw)}", "true or false"))
    return raw


def _read_instant(raw: Any, path: str, problems: Problems) -> Any:
    """Read a time with a time zone."""
    try:
        value = raw if isinstance(raw, datetime) else datetime.fromisoformat(raw)
        if value.tzinfo is None:
            raise ValueError
        return value.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        expected = "a time in ISO 8601 with a time zone, such as 2026-01-31T08:00:00Z"
        problems.append(Problem(path, f"is {describe(raw)}", expected))
        return raw


_SCALARS: dict[Any, Reader] = {
    str: _read_text,
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    datetime: _read_instant,
}

_GENERICS: dict[Any, Callable[[Any, bool], Reader]] = {
    Annotated: _annotated_reader,
    Union: _optional_reader,
    types.UnionType: _optional_reader,
    Literal: _literal_reader,
    tuple: _tuple_reader,
    Mapping: _mapping_reader,
}
"""The reader of a type with parameters, such as `tuple[str, ...]`, by its origin."""
