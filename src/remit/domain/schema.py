"""Records as JSON Schema: what callers may send, in the words of the fields themselves."""

import json
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from remit.domain.record import (
    MISSING,
    Alias,
    Coerce,
    Items,
    Matches,
    Range,
    Text,
    Wire,
    fields,
    is_record,
    wire_name,
)
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
def model_schema(kind: Any) -> Schema:
    """What a model reads of a record: types, choices, what is required, and one sentence about each field.

    What is not in it is still checked. Of a field with two names, one is shown.
    """
    exact = record_schema(kind)
    aliases = _aliases(kind)
    shown = {name: plain_schema(part) for name, part in exact["properties"].items()}
    required = [
        *exact.get("required", ()),
        *(mark.of for mark in aliases.values() if mark.required),
    ]
    order = dict.fromkeys((*required, *shown))
    properties = {name: shown[name] for name in order if name not in aliases}
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _aliases(kind: Any) -> dict[str, Alias]:
    """The fields of a record that are another name for a field."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: mark for name, hint in hints.items() for mark in _all_marks(hint) if isinstance(mark, Alias)}


def _all_marks(hint: Any) -> tuple[Any, ...]:
    """The marks of a field, also where it may be left out."""
    inner = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(mark for part in inner for mark in getattr(part, "__metadata__", ()))


_NOISE = frozenset(
    {
        "additionalProperties",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
    }
)
"""What code checks anyway, and what endpoints with grammars of their own may refuse."""


def plain_schema(schema: Schema) -> Schema:
    """A schema without limits and without what is said twice: of two forms, one where that is enough."""
    found = {name: part for name, part in schema.items() if name not in _NOISE}
    if not found.get("default", True) or isinstance(found.get("default"), Mapping | list):
        del found["default"]
    if "properties" in found:
        found["properties"] = {name: plain_schema(part) for name, part in found["properties"].items()}
    if "items" in found:
        found["items"] = _unnamed(plain_schema(found["items"]))
    if "anyOf" in found:
        forms = _enough([_unnamed(plain_schema(form)) for form in found.pop("anyOf")])
        found = (forms[0] if len(forms) == 1 else {"anyOf": forms}) | found
    return found


def _unnamed(schema: Schema) -> Schema:
    """A schema without a description: the field that it belongs to has one."""
    return {name: part for name, part in schema.items() if name != "description"}


def _enough(forms: list[Schema]) -> list[Schema]:
    """The forms that a model needs: a list of names instead of an object, a number instead of its names, and a
    word instead of an object that adds only choices with defaults to it."""
    kinds = [form.get("type") for form in forms]
    if kinds == ["string", "integer"]:
        return forms[1:]
    return forms[:1] if kinds == ["array", "object"] or _adds_defaults(forms[-1]) else forms


def _adds_defaults(schema: Schema) -> bool:
    optional = [part for name, part in schema.get("properties", {}).items() if name not in schema.get("required", ())]
    return bool(optional) and all("default" in part for part in optional)


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
        elif isinstance(mark, Wire | Alias):
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
