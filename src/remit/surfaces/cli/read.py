"""From what was typed to the fields of an operation."""

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remit.errors import InvalidParam, Problem, invalid
from remit.surfaces.cli.command import Argument, WrongUse

_KINDS = ("text", "json", "file", "url")
# One more than the catalogue takes, so that what is too long is refused there and not cut here.
_MOST = 2**20 + 1


def fields_of(arguments: tuple[Argument, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The fields that the given arguments fill."""
    fields: dict[str, Any] = {}
    for argument in arguments:
        raw = given.get(argument.key)
        if raw is not None:
            _put(fields, argument.field, _value(argument, raw))
    return fields


def as_typed(error: InvalidParam, arguments: tuple[Argument, ...], given: dict[str, Any]) -> InvalidParam:
    """An error about fields of an operation, in the names of the arguments that filled them."""
    told = [Problem(**field) for field in error.details.get("fields", ())]
    typed = InvalidParam([_as_option(problem, arguments, given) for problem in told], hint=error.hint)
    before = " ".join(map(str, told))
    if not told or not error.message.startswith(before):
        return error
    typed.message += error.message[len(before) :]  # what a server says has its hint in it
    return typed


def _as_option(problem: Problem, arguments: tuple[Argument, ...], given: dict[str, Any]) -> Problem:
    missing = problem.problem.partition("missing required output")[2].partition(": ")[2]
    if problem.field == "outputs" and missing:
        options = " ".join(f"--output {name}=…" for name in missing.split(", "))
        return problem._replace(field="--output", expected=f"Add {options}")
    return problem._replace(field=_typed(problem.field, arguments, given))


def _typed(field: str, arguments: tuple[Argument, ...], given: dict[str, Any]) -> str:
    """`--limits, max_turn` for limits.max_turn; of several values `--depends-on (no. 2)` for depends_on[1]."""
    for argument in arguments:
        rest = field.removeprefix(argument.field)
        if not argument.field or given.get(argument.key) is None or not re.match(r"[.\[]|$", rest) or rest == field:
            continue
        number, inner = re.match(r"(?:\[(\d+)\])?\.?(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]  # it matches anything
        single = argument.read is names or (argument.many and len(given[argument.key]) == 1)
        place = "" if number is None or single else f" (no. {int(number) + 1})"
        return f"{argument.name}{place}{', ' if inner else ''}{inner}"
    return field


def _value(argument: Argument, raw: Any) -> Any:
    if argument.switch is not None:
        return argument.switch
    if not argument.many:
        return _one(argument, raw)
    values = [_one(argument, item) for item in raw]
    return values if argument.many == "list" else {name: value for part in values for name, value in part.items()}


def _one(argument: Argument, raw: str) -> Any:
    if argument.choices and raw not in argument.choices:
        raise invalid(argument.name, f"unknown value {raw!r}", _advice(raw, argument.choices))
    return argument.read(raw, argument.name)


def _advice(word: str, known: tuple[str, ...]) -> str:
    """The choice that a word is closest to, and all of them in their own order."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1)
    return f"{f'Did you mean {close[0]}? ' if close else ''}Available: {', '.join(known)}."


def _put(fields: dict[str, Any], name: str, value: Any) -> None:
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
    """TEXT itself, what stands in @FILE, or standard input for -; @@ at the beginning is one @ of the text."""
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
    """A whole number."""
    try:
        return int(value)
    except ValueError:
        raise invalid(name, f"is {value!r}", "a whole number") from None


def amounts(value: str, name: str) -> dict[str, float]:
    """NAME=NUMBER."""
    key, found = _pair(value, name, "NAME=NUMBER, such as max_turns=20")
    try:
        return {key.replace("-", "_"): int(found) if found.isdigit() else float(found)}
    except ValueError:
        raise invalid(name, f"is {value!r}", "NAME=NUMBER, such as max_turns=20") from None


def names(value: str, _name: str) -> list[str]:
    """Names between commas."""
    return [part.strip() for part in value.split(",") if part.strip()]


def priority(value: str, _name: str) -> str | int:
    """A priority by number or by name."""
    return int(value) if value.isdecimal() and value.isascii() else value


def setting(value: str, name: str) -> dict[str, Any]:
    """KEY=JSON; what does not look like JSON is text."""
    key, found = _pair(value, name, "KEY=VALUE")
    return {key: _json(found, name) if found[:1] in ("{", "[", '"') else _json_or_text(found)}


def handed_over(value: str, name: str) -> dict[str, Any]:
    """NAME=TEXT, NAME=@FILE or NAME:=JSON."""
    key, found = _pair(value, name, "NAME=TEXT, NAME=@FILE or NAME:=JSON")
    return {key[:-1]: _json(found, name)} if key.endswith(":") else {key: text(found, name)}


def criterion(value: str, name: str) -> Any:
    """What must be true, as text; what begins with { is JSON and may have a check."""
    found = text(value, name)
    return _json(found, name) if found.startswith("{") else found


def output(value: str, name: str) -> dict[str, Any]:
    """NAME, or NAME:KIND; a ? behind the name makes it optional."""
    title, colon, kind = value.rpartition(":")
    if colon and kind not in _KINDS:
        raise invalid(name, f"has the kind {kind!r}", f"NAME or NAME:KIND with a kind of {', '.join(_KINDS)}")
    title = title if colon else value
    required = not title.endswith("?")
    return {"name": title.removesuffix("?"), "kind": kind if colon else "text", "required": required}


def step(value: str, _name: str) -> dict[str, Any]:
    """TITLE, or [x] TITLE for one that is done."""
    done = value[:3].lower() == "[x]"
    return {"title": value[3:].strip() if done else value.removeprefix("[ ]").strip(), "done": done}


def dependency(value: str, _name: str) -> dict[str, str]:
    """TASK, or TASK:settled where failing is fine too."""
    task, colon, rule = value.partition(":")
    return {"task_id": task, "on": rule} if colon else {"task_id": task}


def resource(value: str, _name: str) -> dict[str, str]:
    """A URL, or the path of a file, made absolute."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value):
        return {"type": "url", "value": value}
    # Not resolve(): a link is meant as it is named.
    return {"type": "file", "value": os.path.abspath(Path(value).expanduser())}  # noqa: PTH100 - resolve() would follow links


def path(value: str, _name: str) -> Any:
    """A file or folder."""
    return Path(value)


def emptied(value: str, _name: str) -> dict[str, Any]:
    """A field that is to be empty."""
    field = value.replace("-", "_")
    return {field: {} if field in ("metadata", "limits") else []}


@contextmanager
def usable(name: str, place: str, verb: str = "read") -> Generator[None]:
    """Turn what the system says about a file into an error about an argument."""
    try:
        yield
    except UnicodeDecodeError:
        raise WrongUse(f"{name}: cannot read {place}: it is not text in UTF-8.") from None
    except OSError as error:
        if error.filename is None:
            raise
        raise WrongUse(f"{name}: cannot {verb} {place}: {(error.strerror or str(error)).lower()}.") from None


def _pair(value: str, name: str, expected: str) -> tuple[str, str]:
    key, equals, found = value.partition("=")
    if not equals or not key.strip(":"):
        raise invalid(name, f"is {value!r}", expected)
    return key, found


def _json_or_text(value: str) -> Any:
    try:
        return _loads(value)
    except ValueError:
        return value


def _json(value: str, name: str) -> Any:
    try:
        return _loads(value)
    except (ValueError, RecursionError) as error:
        raise invalid(name, f"is not valid JSON ({error})", """JSON such as 3, true, "text" or {"a": 1}""") from None


def _loads(value: str) -> Any:
    from json import loads

    return loads(value)
