"""Records as JSON Schema: what callers may send, in the words of the fields themselves."""

import json
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from remit.domain.record import MISSING, Coerce, Items, Matches, Range, Text, Wire, fields, is_record, wire_name
from remit.domain.wire import plain

Schema = dict[str, Any]

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
}


@cache
def record_schema(kind: Any) -> Schema:
    """What a caller may send for a record: flat, with nothing beyond its fields."""
    hints = get_type_hints(kind, include_extras=True)
    properties: Schema = {}
    for name, default in fields(kind).items():
        sent = wire_name(name, hints[name])
        properties[sent] = _schema(hints[name])
        if default is not MISSING and default is not None:
            properties[sent] = properties[sent] | {"default": plain(default)}
    required = [wire_name(name, hints[name]) for name, default in fields(kind).items() if default is MISSING]
    found: Schema = {"type": "object", "description": _first_line(kind), "properties": properties, "additionalProperties": False}
    return found | ({"required": required} if required else {})


def field_schema(kind: Any, name: str) -> Schema:
    """The schema of one field."""
    properties: Schema = record_schema(kind)["properties"]
    return cast("Schema", properties[name])


@cache
def output_schema(kind: Any) -> Schema:
    """What callers are shown of a record: nothing is required, what is not set may be null."""
    hints = get_type_hints(kind, include_extras=True)
    return {"type": "object", "description": _first_line(kind), "properties": {name: _schema(hints[name], shown=True) for name in fields(kind)}}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def _first_line(kind: Any) -> str:
    return str(kind.__doc__).partition("\n")[0]


def _schema(hint: Any, *, shown: bool = False) -> Schema:
    origin = get_origin(hint)
    if origin is Annotated:
        return _annotated(hint, shown=shown)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return nullable(_schema(inner, shown=True)) if shown else _schema(inner)
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if origin is tuple:
        return {"type": "array", "items": _schema(get_args(hint)[0], shown=shown)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object"}
    if hint is Any:
        return {}
    if is_record(hint):
        return dict(output_schema(hint) if shown else record_schema(hint))
    if issubclass(hint, StrEnum):
        return {"type": "string", "enum": [member.value for member in hint]}
    return dict(_SCALARS[hint])


def _annotated(hint: Any, *, shown: bool) -> Schema:
    inner, *marks = get_args(hint)
    found = _schema(inner, shown=shown)
    for mark in marks:
        if isinstance(mark, str):
            found = found | {"description": mark}
        elif isinstance(mark, Wire):
            continue
        elif isinstance(mark, Coerce):
            found = found if shown else _with_short_form(found, mark)
        else:
            found = found | _MARKS[type(mark)](mark)
    return found


def _with_short_form(found: Schema, mark: Coerce) -> Schema:
    return {"anyOf": [json.loads(mark.short), found]} if mark.short else found


def _text(mark: Text) -> Schema:
    return ({"minLength": mark.low} if mark.low else {}) | {"maxLength": mark.high}


def _number(mark: Range) -> Schema:
    return {"minimum": mark.low, "maximum": mark.high}


def _count(mark: Items) -> Schema:
    return ({"minItems": mark.low} if mark.low else {}) | {"maxItems": mark.high}


def _pattern(mark: Matches) -> Schema:
    return {"pattern": f"^(?:{mark.pattern})$"}


_MARKS: dict[type[Any], Callable[[Any], Schema]] = {Text: _text, Range: _number, Items: _count, Matches: _pattern}
