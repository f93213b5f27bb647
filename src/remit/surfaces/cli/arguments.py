"""Converts typed arguments to the fields of an operation."""

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remit.errors import InvalidParam, Problem, invalid
from remit.surfaces.cli.command import Argument, WrongUse
from remit.surfaces.text.display import surround

_KINDS = ("text", "json", "file", "url")
# One more than the catalog accepts, so that a longer text is refused there and not cut here.
_MOST = 2**20 + 1


def fields_of(arguments: tuple[Argument, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the arguments set."""
    fields: dict[str, Any] = {}
    for argument in arguments:
        raw = given.get(argument.key)
        if raw is not None:
            _put(fields, argument.field, _value(argument, raw))
    return fields


def as_typed(
    error: InvalidParam, arguments: tuple[Argument, ...], given: dict[str, Any]
) -> InvalidParam:
    """Return an error about fields as an error about the arguments that set them."""
    told = [Problem(**field) for field in error.details.get("fields", ())]
    before = " ".join(map(str, told))
    if not told or not error.message.startswith(before):
        return error
    named = [_as_option(problem, arguments, given) for problem in told]
    typed = InvalidParam(named, hint=error.hint)
    typed.message += error.message[len(before) :]  # a server's message includes its hint
    return typed


def _as_option(problem: Problem, arguments: tuple[Argument, ...], given: dict[str, Any]) -> Problem:
    """Return a problem with a field, under the name of its argument."""
    missing = problem.problem.partition("missing required output")[2].partition(": ")[2]
    if problem.field == "outputs" and missing:
        options = " ".join(map("--output {}=…".format, missing.split(", ")))
        return problem._replace(field="--output", expected=f"Add {options}")
    return problem._replace(field=_typed(problem.field, arguments, given))


def _typed(field: str, arguments: tuple[Argument, ...], given: dict[str, Any]) -> str:
    """Return `--limits, max_turn` for limits.max_turn.

    Of several values, `--depends-on (no. 2)` for depends_on[1].
    """
    for argument in arguments:
        if given.get(argument.key) is not None and _fills(argument, field):
            rest = field.removeprefix(argument.field)
            return argument.name + _place_in(argument, rest, given[argument.key])
    return field


def _fills(argument: Argument, field: str) -> bool:
    """Return True if an argument sets a field or its parent field."""
    rest = field.removeprefix(argument.field)[:1]
    return bool(argument.field) and field.startswith(argument.field) and rest in ("", ".", "[")


def _place_in(argument: Argument, rest: str, values: Any) -> str:
    """Return the number of the value, and the part of it."""
    index = re.match(r"(?:\[(\d+)\])?\.?(.*)", rest, re.DOTALL)
    assert index is not None, "every text matches"
    number, inner = index.groups()
    part = surround(inner, ", ")
    if number is None or argument.read is names or (argument.many and len(values) == 1):
        return part
    return f" (no. {int(number) + 1}){part}"


def _value(argument: Argument, raw: Any) -> Any:
    """Return the value of an argument: a switch, one value, or several as a list or a mapping."""
    if argument.switch is not None:
        return argument.switch
    if not argument.many:
        return _one(argument, raw)
    values = [_one(argument, item) for item in raw]
    if argument.many == "list":
        return values
    merged: dict[str, Any] = {}
    for part in values:
        merged |= part
    return merged


def _one(argument: Argument, raw: str) -> Any:
    """Return one value of an argument, checked against its choices."""
    if argument.choices and raw not in argument.choices:
        raise invalid(argument.name, f"unknown value {raw!r}", _advice(raw, argument.choices))
    return argument.read(raw, argument.name)


def _advice(word: str, known: tuple[str, ...]) -> str:
    """Return the closest choice, and all of them in their own order."""
    from difflib import get_close_matches

    available = f"Available: {', '.join(known)}."
    if close := get_close_matches(word, known, n=1):
        return f"Did you mean {close[0]}? {available}"
    return available


def _put(fields: dict[str, Any], name: str, value: Any) -> None:
    """Set a field; a dotted name sets a part of one, and an empty name several fields."""
    if not name:
        fields.update(value)
        return
    head, _, rest = name.partition(".")
    if rest:
        _put(fields.setdefault(head, {}), rest, value)
    elif isinstance(value, dict):
        fields.setdefault(head, {}).update(value)
    else:
        fields[head] = value


# One value each; the name is for the error.


def text(value: str, name: str) -> str:
    """Return TEXT, the content of @FILE, or standard input for -.

    @@ at the beginning stands for @.
    """
    if value == "-":
        with usable(name, "standard input"):
            return sys.stdin.read(_MOST).rstrip("\n")
    if not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    with usable(name, value[1:]), Path(value[1:]).open(encoding="utf-8") as file:
        return file.read(_MOST).rstrip("\n")


def number(value: str, name: str) -> int:
    """Parse a whole number."""
    with _only(value, name, "a whole number"):
        return int(value)


def seconds(value: str, name: str) -> float:
    """A number of seconds, maybe with a fraction."""
    with _only(value, name, "a number of seconds"):
        return _any_number(value)


@contextmanager
def _only(value: str, name: str, expected: str) -> Generator[None]:
    """Turn a ValueError about a value into an error about an argument."""
    try:
        yield
    except ValueError:
        raise invalid(name, f"is {value!r}", expected) from None


def _any_number(value: str) -> float:
    """Parse a number; a whole one stays whole."""
    if value.isdigit():
        return int(value)
    return float(value)


def amounts(value: str, name: str) -> dict[str, float]:
    """Parse NAME=NUMBER."""
    expected = "NAME=NUMBER, such as max_turns=20"
    key, found = _pair(value, name, expected)
    with _only(value, name, expected):
        return {key.replace("-", "_"): _any_number(found)}


def names(value: str, _name: str) -> list[str]:
    """Parse names separated by commas."""
    return list(filter(None, map(str.strip, value.split(","))))


def priority(value: str, _name: str) -> str | int:
    """Parse a priority: a number or a name."""
    return int(value) if value.isdecimal() and value.isascii() else value


def setting(value: str, name: str) -> dict[str, Any]:
    """Parse KEY=JSON; other values are text."""
    key, found = _pair(value, name, "KEY=VALUE")
    if found[:1] in ("{", "[", '"'):
        return {key: _json(found, name)}
    return {key: _json_or_text(found)}


def handed_over(value: str, name: str) -> dict[str, Any]:
    """Parse NAME=TEXT, NAME=@FILE or NAME:=JSON."""
    key, found = _pair(value, name, "NAME=TEXT, NAME=@FILE or NAME:=JSON")
    if key.endswith(":"):
        return {key[:-1]: _json(found, name)}
    return {key: text(found, name)}


def criterion(value: str, name: str) -> Any:
    """Parse an acceptance criterion: text, or JSON if it begins with {, which may have a check."""
    found = text(value, name)
    if found.startswith("{"):
        return _json(found, name)
    return found


def output(value: str, name: str) -> Any:
    """Parse NAME or NAME:KIND, or JSON if it begins with {; a ? after the name makes it
    optional.
    """
    if value.startswith("{"):
        return _json(value, name)
    title, colon, kind = value.rpartition(":")
    if not colon:
        title, kind = value, "text"
    if kind not in _KINDS:
        raise invalid(
            name, f"has the kind {kind!r}", f"NAME or NAME:KIND with a kind of {', '.join(_KINDS)}"
        )
    is_required = not title.endswith("?")
    return {"name": title.removesuffix("?"), "kind": kind, "required": is_required}


def step(value: str, _name: str) -> dict[str, Any]:
    """Parse TITLE, or [x] TITLE for a step that is done."""
    if value[:3].lower() == "[x]":
        return {"title": value[3:].strip(), "done": True}
    return {"title": value.removeprefix("[ ]").strip(), "done": False}


def dependency(value: str, _name: str) -> dict[str, str]:
    """Parse TASK, or TASK:settled if it may also fail."""
    task, colon, rule = value.partition(":")
    if not colon:
        return {"task_id": task}
    return {"task_id": task, "on": rule}


def resource(value: str, _name: str) -> dict[str, str]:
    """Return a URL, or the absolute path of a file."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value):
        return {"type": "url", "value": value}
    from remit.home import in_home

    named = in_home(value, os.environ)
    return {"type": "file", "value": os.path.abspath(named)}  # noqa: PTH100 - keeps links


def path(value: str, _name: str) -> Any:
    """Return the path of a file or folder."""
    return Path(value)


def emptied(value: str, _name: str) -> dict[str, Any]:
    """Return the field to clear."""
    field = value.replace("-", "_")
    return {field: {} if field in ("metadata", "limits") else []}


@contextmanager
def usable(name: str, place: str, verb: str = "read") -> Generator[None]:
    """Turn an OSError about a file into an error about an argument."""
    try:
        yield
    except UnicodeDecodeError:
        raise WrongUse(f"{name}: cannot read {place}: it is not text in UTF-8.") from None
    except OSError as error:
        if error.filename is None:
            raise
        raise WrongUse(
            f"{name}: cannot {verb} {place}: {(error.strerror or str(error)).lower()}."
        ) from None


def _pair(value: str, name: str, expected: str) -> tuple[str, str]:
    """Split `KEY=VALUE`."""
    key, equals, found = value.partition("=")
    if not equals or not key.strip(":"):
        raise invalid(name, f"is {value!r}", expected)
    return key, found


def _json_or_text(value: str) -> Any:
    """Parse JSON; return other text as it is."""
    try:
        return _loads(value)
    except ValueError:
        return value


def _json(value: str, name: str) -> Any:
    """Parse JSON; an error names the argument."""
    try:
        return _loads(value)
    except (ValueError, RecursionError) as error:
        raise invalid(
            name, f"is not valid JSON ({error})", """JSON such as 3, true, "text" or {"a": 1}"""
        ) from None


def _loads(value: str) -> Any:
    """Parse JSON; the parser is imported on first use."""
    from json import loads

    return loads(value)
