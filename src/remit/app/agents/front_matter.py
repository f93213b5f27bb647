"""Front matter: the fields before a text.

It is read as strict YAML, else line by line. Anchors, aliases and tags are refused, so that a small
file cannot become large.
"""

import re
from collections.abc import Collection, Iterator
from itertools import takewhile
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # slow to import: only files that need it pay for it
    from yaml import Event, MarkedYAMLError

MAX_DEPTH = 12
MAX_CHARACTERS = 512 * 1024
Fields = dict[str, Any]
_SIMPLE_LINE = re.compile(r"([A-Za-z][\w-]*):[ ]+([A-Za-z0-9/](?:[^:#]|:(?=\S)|(?<=\S)#)*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_SECOND_COLON = "mapping values are not allowed here"
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""Plain scalars that stand for null, true and false."""


class Refused(Exception):
    """The text is not YAML that remit accepts."""


class FrontMatter(NamedTuple):
    """The fields, the text after them, and why they were read line by line, if they were."""

    fields: Fields
    body: str
    refusal: str = ""
    repeated: tuple[str, ...] = ()


def read(text: str, known: Collection[str]) -> FrontMatter:
    """Read a text with front matter.

    `known` are the keys to look for if the front matter is not valid YAML.
    """
    unix_text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    head, body, refusal = _split(unix_text)
    if not refusal:
        try:
            return FrontMatter(read_yaml(head), body)
        except Refused as why:
            refusal = str(why)
    fields, repeated = _read_lines(head, known)
    return FrontMatter(fields, body, refusal, repeated)


def _split(text: str) -> tuple[str, str, str]:
    """Return the front matter, the text after it, and what is wrong with its end."""
    lines = text.lstrip("\n").split("\n")
    if lines[0].rstrip() != "---":
        return "", text.strip(), ""
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() in ("---", "..."):
            return _join(lines[1:number]), _join(lines[number + 1 :]).strip(), ""
    return _split_unclosed(lines)


def _split_unclosed(lines: list[str]) -> tuple[str, str, str]:
    """Split a text whose front matter has no end: it ends at the first empty line."""
    head = list(takewhile(str.strip, lines))
    body = lines[len(head) :]
    return _join(head[1:]), _join(body).strip(), "the closing --- is missing"


def _join(lines: list[str]) -> str:
    return "\n".join(lines)


# Line by line: a known key at the beginning of a line starts a field, which ends at the next one.


def _read_lines(head: str, known: Collection[str]) -> tuple[Fields, tuple[str, ...]]:
    """Return the fields, and the keys that are given more than once."""
    found: dict[str, list[str]] = {}
    repeated: list[str] = []
    current: list[str] = []
    for line in head.split("\n"):
        key, _, value = line.partition(":")
        key = key.rstrip()
        if not _starts_field(line, key, known):
            current.append(line)
            continue
        current = [value.strip()]
        if key in found:
            repeated.append(key)
        else:
            found[key] = current
    return {key: _read_value(lines) for key, lines in found.items()}, tuple(repeated)


def _starts_field(line: str, key: str, known: Collection[str]) -> bool:
    """True for a line that begins with a known key, a colon and a space."""
    if key not in known:
        return False
    return re.match(r":(?:\s|$)", line[len(key) :].lstrip(" ")) is not None


def _read_value(lines: list[str]) -> Any:
    """Return a value as YAML, else as text without the quotes around it."""
    try:
        return read_yaml(_join([f"value: {lines[0]}", *lines[1:]]))["value"]
    except Refused:
        text = _join(lines).strip()
    quoted = re.fullmatch(r"(['\"])(.*)\1", text, re.DOTALL)
    if quoted is not None:
        return quoted[2]
    return text


# Strict YAML.


def read_yaml(text: str) -> Fields:
    """Parse a YAML map; raise `Refused` if it is not one."""
    simple = _read_simple_fields(text)
    if simple is None:
        return _read_yaml_fields(text)
    return simple


def _read_simple_fields(text: str) -> Fields | None:
    """Return the fields of a text whose lines are all `key: plain text`, as in most agent files.

    None for any other text. YAML gives the same result, and commands that only list agents do not
    have to import it.
    """
    found: Fields = {}
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        field = _SIMPLE_LINE.fullmatch(line.rstrip(" "))
        if field is None or not line.isprintable() or field[1] in found:
            return None
        found[field[1]] = _convert(field[2])
    return found


def _read_yaml_fields(text: str) -> Fields:
    """Parse a YAML map with the library; raise `Refused` if it is not one."""
    import yaml

    if len(text) > MAX_CHARACTERS:
        raise Refused(f"it is longer than {MAX_CHARACTERS:,} characters")
    parser: Any = yaml  # its events have no types
    try:
        found = _read_only_document(iter(parser.parse(f"{text}\n", Loader=yaml.BaseLoader)))
    except yaml.MarkedYAMLError as error:
        raise Refused(_explain(error)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # an escape can be no character
        raise Refused(f"it is not YAML: {error}".partition("\n")[0]) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Refused("it is not a list of keys with values")
    return _as_map(found)


def _read_only_document(events: "Iterator[Event]") -> Any:
    """Return the value of the only document in a stream; None if it is empty."""
    from yaml import DocumentEndEvent, DocumentStartEvent, StreamEndEvent, StreamStartEvent

    values = _Values(events)
    found: Any = None
    for event in events:
        if isinstance(event, DocumentStartEvent):
            found = values.next_value(0)
        elif isinstance(event, DocumentEndEvent):
            break
        else:
            assert isinstance(event, StreamStartEvent | StreamEndEvent)
    if any(isinstance(event, DocumentStartEvent) for event in events):
        raise Refused("it contains more than one document")
    return found


def _as_map(value: Any) -> Fields:
    return value  # type: ignore[no-any-return] # checked by the caller


def _explain(error: "MarkedYAMLError") -> str:
    """Return why a text is not YAML, with the line if it is known."""
    problem = error.problem or error.context or "is not YAML"
    if problem == _SECOND_COLON:
        problem = "has a second colon; quote text that contains a colon and a space"
    if error.problem_mark is None:
        return problem
    return f"line {error.problem_mark.line + 2}: {problem}"


class _Values:
    """Builds values from the events of a YAML parser."""

    def __init__(self, events: "Iterator[Event]") -> None:
        self._events = events

    def next_value(self, depth: int) -> Any:
        """Return the value that starts with the next event."""
        return self._value(next(self._events), depth)

    def _value(self, event: "Event", depth: int) -> Any:
        """Return the value that starts with an event."""
        from yaml import MappingStartEvent, ScalarEvent, SequenceStartEvent

        if depth > MAX_DEPTH:
            raise _refused(event, f"is nested deeper than {MAX_DEPTH} levels")
        _refuse_extras(event)
        match event:
            case ScalarEvent():
                return _scalar(event)
            case SequenceStartEvent():
                return self._list(depth)
            case MappingStartEvent():
                return self._map(depth)
            case _:
                raise _refused(event, "has no value")

    def _list(self, depth: int) -> list[Any]:
        """Return the items up to the end of a list."""
        from yaml import SequenceEndEvent

        found: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            found.append(self._value(event, depth + 1))
        return found

    def _map(self, depth: int) -> Fields:
        """Return the fields up to the end of a map."""
        from yaml import MappingEndEvent, ScalarEvent

        found: Fields = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise _refused(event, "has a key that is not a text")
            self._value(event, depth)  # a key must be valid as a value too
            key = str(event.value)
            if key in found:
                raise _refused(event, f"gives {key[:60]} a second time")
            found[key] = self.next_value(depth + 1)
        return found


def _refuse_extras(event: "Event") -> None:
    """Raise `Refused` for an anchor, an alias or a tag."""
    from yaml import AliasEvent

    if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
        raise _refused(event, "has an anchor or an alias; quote text that begins with & or *")
    if getattr(event, "tag", None) is not None:
        raise _refused(event, "has a tag; quote text that begins with !")


def _scalar(event: Any) -> Any:
    """Return the value of a scalar; only plain ones can be something other than text."""
    value: str = event.value
    if "\0" in value:
        raise _refused(event, "has NUL in a quoted text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(event, "has an unpaired surrogate in a quoted text") from None
    if event.style is None:
        return _convert(value)
    return value


def _refused(event: Any, why: str) -> Refused:
    return Refused(f"line {event.start_mark.line + 2}: {why}")


def _convert(text: str) -> Any:
    """Return a plain scalar as null, boolean, number or text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if re.fullmatch(r"[-+]?(?:0|[1-9][0-9]{0,17})", text):
        return int(text)
    if len(text) < 40 and _FLOAT.fullmatch(text):
        return _convert_float(text)
    return text


def _convert_float(text: str) -> float | str:
    """Return a decimal number, or its text if it is too large for a float."""
    number = float(text)
    if isfinite(number):
        return number
    return text
