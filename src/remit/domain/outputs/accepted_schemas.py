"""The accepted JSON Schemas: the part of 2020-12 that needs bounded time and fetches nothing.

Schemas are untrusted. One that cannot be checked is refused when it is given, not when it is used.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, cast

from remit.domain.records.json_rules import is_number, is_whole
from remit.domain.records.validate import describe
from remit.errors import Problem

MAX_SCHEMA = 65_536

Schema = Any


TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_whole,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
}
SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else")
LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
TABLES = ("properties", "$defs", "definitions")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
REFUSED = (
    *(
        "patternProperties",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
    ),
    *("contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems"),
    *("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
)
"""Keywords that restrict a value and are not supported.

Unknown keywords are ignored, as JSON Schema requires.
"""


def schema_problem(schema: Schema, field: str) -> Problem | None:
    """Return why a schema cannot be used, with the place in it; None if it can."""
    size = len(json.dumps(schema))
    if size > MAX_SCHEMA:
        return Problem(field, f"is {size:,} characters long", f"at most {MAX_SCHEMA:,}")
    return next(_find_problems(schema, field, schema), None)


def _find_problems(schema: Schema, field: str, root: Schema) -> Iterator[Problem]:
    """Yield the problems of a schema and of the schemas in it."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        yield Problem(field, f"is {describe(schema)}", "a schema: an object, true or false")
        return
    keywords = cast("Mapping[str, Any]", schema)
    for keyword, value in keywords.items():
        at = f"{field}.{keyword}"
        shape = _SHAPES.get(keyword)
        if keyword in REFUSED or (keyword == "$id" and schema is not root):
            yield Problem(at, "is not checked by remit", "a schema without it")
        elif shape is not None and not shape.fits(value):
            yield Problem(at, f"is {describe(value)}", shape.expected)
        else:
            yield from _find_inner_problems(keyword, value, at, root)


def _find_inner_problems(keyword: str, value: Any, at: str, root: Schema) -> Iterator[Problem]:
    """Return problems in the value of a keyword whose type is right."""
    if keyword == "pattern":
        yield from _find_pattern_problems(value, at)
    if keyword == "$ref" and find_target(root, value) is NOWHERE:
        expected = "a place in this schema, such as #/$defs/name; nothing is fetched"
        yield Problem(at, f"is {describe(value)}", expected)
    for place, inner in _inner_schemas(keyword, value, at):
        yield from _find_problems(inner, place, root)


def _inner_schemas(keyword: str, value: Any, at: str) -> Iterable[tuple[str, Schema]]:
    """Return the schemas in the value of a keyword, each with its place."""
    if keyword in SCHEMAS:
        return [(at, value)]
    if keyword in LISTS:
        return [(f"{at}[{index}]", inner) for index, inner in enumerate(value)]
    if keyword in TABLES:
        return [(f"{at}.{name}", inner) for name, inner in value.items()]
    return ()


class _Shape(NamedTuple):
    """The values that a keyword may have."""

    fits: Callable[[Any], bool]
    expected: str


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_names(value: Any) -> bool:
    """Return True for a list of texts."""
    return _is_list(value) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    """Return True for the name of a type, or a list of such names."""
    if isinstance(value, str):
        return value in TYPES
    return _is_names(value) and TYPES.keys() >= set(value)


def _is_count(value: Any) -> bool:
    """Return True for a whole number from 0; 1.0 is not accepted."""
    return isinstance(value, int) and is_whole(value) and value >= 0


def _is_part(value: Any) -> bool:
    """Return True for a number above 0."""
    return is_number(value) and value > 0


_SHAPES: dict[str, _Shape] = {
    "type": _Shape(_is_type, f"one or several of {', '.join(TYPES)}"),
    "required": _Shape(_is_names, "a list of names"),
    "enum": _Shape(_is_list, "a list of values"),
    "format": _Shape(TYPES["string"], "the name of a format"),
    "pattern": _Shape(TYPES["string"], "a regular expression"),
    "$ref": _Shape(TYPES["string"], "a place in this schema"),
    "uniqueItems": _Shape(TYPES["boolean"], "true or false"),
    "multipleOf": _Shape(_is_part, "a number above 0"),
    **dict.fromkeys(COUNTS, _Shape(_is_count, "a whole number from 0")),
    **dict.fromkeys(BOUNDS, _Shape(is_number, "a number")),
    **dict.fromkeys(LISTS, _Shape(_is_list, "a list of schemas")),
    **dict.fromkeys(TABLES, _Shape(TYPES["object"], "an object of schemas")),
}


def _find_pattern_problems(pattern: str, at: str) -> Iterator[Problem]:
    found = compile_pattern(pattern)
    if isinstance(found, str):
        yield Problem(
            at,
            f"is {describe(pattern)}, which cannot be used: {found}",
            "a regular expression without look-around or back references",
        )


@cache
def _re2() -> Any:
    """Return RE2, whose time is linear in the text; Python's own engine can run forever."""
    return import_module("re2")


def compile_pattern(pattern: str) -> Any:
    """Return a compiled pattern, or the reason why it is invalid."""
    engine = _re2()
    options = engine.Options()
    options.log_errors = False
    try:
        return engine.compile(pattern, options)
    except engine.error as error:
        return _read_reason(error)


def _read_reason(error: Exception) -> str:
    message = next(iter(error.args), "it is not valid")
    if isinstance(message, bytes):
        return message.decode(errors="replace")
    return str(message)


NOWHERE = object()
"""The target of a reference that leads out of its schema."""


def find_target(root: Schema, ref: str) -> Any:
    """Return the target of a reference within a schema, or `NOWHERE`."""
    start, *parts = ref.split("/")
    if start != "#":
        return NOWHERE
    found: Any = root
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        found = _get_member(found, name)
    if isinstance(found, Mapping | bool):
        return cast("Any", found)
    return NOWHERE


def _get_member(container: Any, name: str) -> Any:
    """Return a value of an object by its name, or of a list by its index."""
    if isinstance(container, Mapping):
        return cast("Mapping[str, Any]", container).get(name, NOWHERE)
    if not isinstance(container, list) or not name.isdecimal():
        return NOWHERE
    items: list[Any] = cast("Any", container)
    index = int(name)
    return next(iter(items[index : index + 1]), NOWHERE)
