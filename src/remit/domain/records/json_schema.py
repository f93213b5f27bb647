"""JSON Schemas of records: the accepted input, with the descriptions of the fields."""

import json
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from remit.domain.records.pick import omit
from remit.domain.records.record import (
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
    required_part,
    summary,
    wire_name,
)
from remit.domain.records.serialize import plain

Schema = dict[str, Any]

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
}


@cache
def record_schema(kind: Any) -> Schema:
    """Return the schema for a record: flat, without additional properties."""
    hints = get_type_hints(kind, include_extras=True)
    properties: Schema = {}
    required: list[str] = []
    for name, default in fields(kind).items():
        sent = wire_name(name, hints[name])
        properties[sent] = _schema(hints[name])
        if default is MISSING:
            required.append(sent)
        elif default is not None:
            properties[sent] = properties[sent] | {"default": plain(default)}
    found: Schema = {
        "type": "object",
        "description": summary(kind),
        "properties": properties,
        "additionalProperties": False,
    }
    return _with_required(found, required)


def field_schema(kind: Any, name: str) -> Schema:
    """Return the schema of one field."""
    properties: Schema = record_schema(kind)["properties"]
    return cast("Schema", properties[name])


@cache
def model_schema(kind: Any) -> Schema:
    """Return the schema of a record for a model: types, choices, required fields, and one sentence
    per field.

    Limits that are left out are still checked. A field with two names is shown once.
    """
    exact = record_schema(kind)
    aliases = _aliases(kind)
    shown = {name: plain_schema(part) for name, part in exact["properties"].items()}
    required = list(exact.get("required", ()))
    required += [mark.of for mark in aliases.values() if mark.required]
    order = dict.fromkeys((*required, *shown))
    properties = {name: shown[name] for name in order if name not in aliases}
    return _with_required({"type": "object", "properties": properties}, required)


@cache
def output_schema(kind: Any) -> Schema:
    """Return the schema of a record in answers: nothing is required, and unset fields may
    be null.
    """
    hints = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "description": summary(kind),
        "properties": {name: _schema(hints[name], shown=True) for name in fields(kind)},
    }


def nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    return {"anyOf": [schema, {"type": "null"}]}


def plain_schema(schema: Schema) -> Schema:
    """Return a schema without limits and repetition; of two forms, only one if that is enough.

    A value of any type is shown as an object: grammars refuse a schema without a type.
    """
    found = omit(schema, _NOISE)
    if _TYPED.isdisjoint(found):
        found = _OBJECT | found
    if "default" in found and not _is_telling(found["default"]):
        del found["default"]
    if "properties" in found:
        properties = found["properties"].items()
        found["properties"] = {name: plain_schema(part) for name, part in properties}
    if "items" in found:
        found["items"] = _plain_inner_schema(found["items"])
    if "anyOf" not in found:
        return found
    forms = _needed_forms(list(map(_plain_inner_schema, found.pop("anyOf"))))
    if len(forms) == 1:
        return forms[0] | found
    return {"anyOf": forms} | found


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
"""Keywords that code checks anyway and that endpoints with their own grammars may refuse."""
_OBJECT: Schema = {"type": "object"}
_TYPED = frozenset({"type", "anyOf"})
"""The keywords that give a schema its type."""


def _with_required(schema: Schema, required: list[str]) -> Schema:
    """Add the names of required fields to a schema, if there are any."""
    if not required:
        return schema
    return schema | {"required": required}


def _aliases(kind: Any) -> dict[str, Alias]:
    """Return the fields of a record that are another name for a field."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: mark
        for name, hint in hints.items()
        for mark in _all_marks(hint)
        if isinstance(mark, Alias)
    }


def _all_marks(hint: Any) -> Iterator[Any]:
    """Yield the marks of a field, also if it is optional."""
    parts = (hint,)
    if get_origin(hint) in (Union, types.UnionType):
        parts = get_args(hint)
    for part in parts:
        yield from getattr(part, "__metadata__", ())


def _is_telling(default: Any) -> bool:
    """Return True for a default that says more than that nothing is set."""
    return bool(default) and not isinstance(default, Mapping | list)


def _plain_inner_schema(schema: Schema) -> Schema:
    """Return a plain schema without a description, because its field has one."""
    found = plain_schema(schema)
    found.pop("description", None)
    return found


def _needed_forms(forms: list[Schema]) -> list[Schema]:
    """Return the forms that a model needs: a list of names instead of an object, a number instead
    of its names, and a word instead of an object that only adds choices with defaults.
    """
    kinds = [form.get("type") for form in forms]
    if kinds == ["string", "integer"]:
        return forms[1:]
    if kinds == ["array", "object"] or _adds_defaults(forms[-1]):
        return forms[:1]
    return forms


def _adds_defaults(schema: Schema) -> bool:
    """Return True for an object with optional fields that all have a default."""
    required = schema.get("required", ())
    properties = schema.get("properties", {}).items()
    optional = [part for name, part in properties if name not in required]
    return bool(optional) and all("default" in part for part in optional)


def _schema(hint: Any, *, shown: bool = False) -> Schema:
    """Return the schema of a type; `shown` is True for answers."""
    origin = get_origin(hint)
    if origin is not None:
        return _GENERICS[origin](hint, shown)
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    if is_record(hint):
        schema_of = output_schema if shown else record_schema
        return dict(schema_of(hint))
    assert issubclass(hint, StrEnum), f"{hint} is not a type of a field"
    return {"type": "string", "enum": [member.value for member in hint]}


def _optional_schema(hint: Any, shown: bool) -> Schema:
    """Return the schema of a type that may be left out, and is null in answers."""
    found = _schema(required_part(hint), shown=shown)
    return nullable(found) if shown else found


def _literal_schema(hint: Any, _: bool) -> Schema:
    return {"type": "string", "enum": list(get_args(hint))}


def _tuple_schema(hint: Any, shown: bool) -> Schema:
    return {"type": "array", "items": _schema(get_args(hint)[0], shown=shown)}


def _mapping_schema(_: Any, __: bool) -> Schema:
    return {"type": "object"}


def _annotated_schema(hint: Any, shown: bool) -> Schema:
    """Return the schema of a type with its description and the limits of its marks."""
    inner, *marks = get_args(hint)
    found = _schema(inner, shown=shown)
    for mark in marks:
        if isinstance(mark, Coerce):
            found = _with_short_form(found, mark, shown=shown)
        else:
            found = found | _MARKS[type(mark)](mark)
    return found


_GENERICS: dict[Any, Callable[[Any, bool], Schema]] = {
    Annotated: _annotated_schema,
    Union: _optional_schema,
    types.UnionType: _optional_schema,
    Literal: _literal_schema,
    tuple: _tuple_schema,
    Mapping: _mapping_schema,
}
"""The schema of a type with parameters, such as `tuple[str, ...]`, by its origin."""


def _with_short_form(found: Schema, mark: Coerce, *, shown: bool) -> Schema:
    """Add the short form that callers may send; answers always have the full form."""
    if shown or not mark.short:
        return found
    return {"anyOf": [json.loads(mark.short), found]}


def _text_limits(mark: Text) -> Schema:
    return _limits(mark, "minLength", "maxLength")


def _number_limits(mark: Range) -> Schema:
    return {"minimum": mark.low, "maximum": mark.high}


def _count_limits(mark: Items) -> Schema:
    return _limits(mark, "minItems", "maxItems")


def _limits(mark: Text | Items, lowest: str, highest: str) -> Schema:
    """Return both limits of a mark under these words; a lower limit of 0 is left out."""
    if not mark.low:
        return {highest: mark.high}
    return {lowest: mark.low, highest: mark.high}


def _pattern_limit(mark: Matches) -> Schema:
    return {"pattern": f"^(?:{mark.pattern})$"}


def _description(mark: str) -> Schema:
    return {"description": mark}


def _no_limit(_: Wire | Alias) -> Schema:
    return {}


_MARKS: dict[type[Any], Callable[[Any], Schema]] = {
    str: _description,
    Wire: _no_limit,
    Alias: _no_limit,
    Text: _text_limits,
    Range: _number_limits,
    Items: _count_limits,
    Matches: _pattern_limit,
}
