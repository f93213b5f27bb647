"""Whether a JSON value follows a JSON Schema: the part of 2020-12 that can be checked in bounded time, and nothing is ever fetched.

Schemas and values come from anybody. A checker that follows every reference, tries every branch and writes every value into a
message can be kept busy for ever; this one counts its steps and gives up.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, cast

from remit.domain.shape import describe
from remit.errors import Problem

MAX_SCHEMA = 65_536
MAX_STEPS = 150_000
MAX_NESTING = 120
MAX_FAULTS = 5
"""How many things that are wrong are told at once."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _number,
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
    *("patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"),
    *("contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems"),
    *("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
)
"""What would have to be checked and is not. Words that JSON Schema does not know mean nothing, as it says itself."""

Schema = Any


class Fault(NamedTuple):
    """What is wrong with a part of a value, and what would be right."""

    path: str
    problem: str
    expected: str


class _TooMuch(Exception):
    """More steps than anything honest takes."""


# Which schemas are taken.


def unusable(schema: Schema, field: str) -> Problem | None:
    """Why a schema cannot be used, by the place in it; nothing if it can."""
    size = len(json.dumps(schema))
    if size > MAX_SCHEMA:
        return Problem(field, f"is {size:,} characters long", f"at most {MAX_SCHEMA:,}")
    return next(_complaints(schema, field, schema), None)


def _complaints(schema: Schema, field: str, root: Schema) -> Iterator[Problem]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        yield Problem(field, f"is {describe(schema)}", "a schema: an object, true or false")
        return
    words = cast("Mapping[str, Any]", schema)
    for word, value in words.items():
        at = f"{field}.{word}"
        if word in REFUSED or (word == "$id" and schema is not root):
            yield Problem(at, "is not checked by remit", "a schema without it")
        elif (shape := _SHAPES.get(word)) and not shape.right(value):
            yield Problem(at, f"is {describe(value)}", shape.expected)
        elif word == "pattern":
            yield from _pattern_complaints(value, at)
        elif word == "$ref" and _target(root, value) is _NOWHERE:
            yield Problem(at, f"is {describe(value)}", "a place in this very schema, such as #/$defs/name; nothing is fetched")
        elif word in SCHEMAS:
            yield from _complaints(value, at, root)
        elif word in LISTS:
            for index, inner in enumerate(value):
                yield from _complaints(inner, f"{at}[{index}]", root)
        elif word in TABLES:
            for name, inner in value.items():
                yield from _complaints(inner, f"{at}.{name}", root)


class _Shape(NamedTuple):
    right: Callable[[Any], bool]
    expected: str


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_names(value: Any) -> bool:
    return _is_list(value) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    return value in TYPES if isinstance(value, str) else _is_names(value) and all(name in TYPES for name in value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_part(value: Any) -> bool:
    return _number(value) and value > 0


_SHAPES: dict[str, _Shape] = {
    "type": _Shape(_is_type, f"one or several of {', '.join(TYPES)}"),
    "required": _Shape(_is_names, "a list of names"),
    "enum": _Shape(_is_list, "a list of values"),
    "pattern": _Shape(TYPES["string"], "a regular expression"),
    "$ref": _Shape(TYPES["string"], "a place in this schema"),
    "uniqueItems": _Shape(TYPES["boolean"], "true or false"),
    "multipleOf": _Shape(_is_part, "a number above 0"),
    **dict.fromkeys(COUNTS, _Shape(_is_count, "a whole number from 0")),
    **dict.fromkeys(BOUNDS, _Shape(_number, "a number")),
    **dict.fromkeys(LISTS, _Shape(_is_list, "a list of schemas")),
    **dict.fromkeys(TABLES, _Shape(TYPES["object"], "an object of schemas")),
}


def _pattern_complaints(pattern: str, at: str) -> Iterator[Problem]:
    found = _compiled(pattern)
    if isinstance(found, str):
        yield Problem(at, f"is {describe(pattern)}, which cannot be used: {found}", "a regular expression without look-around or back references")


@cache
def _re2() -> Any:
    """An engine whose time grows with the text alone; Python's own can be kept busy for ever."""
    return import_module("re2")


def _compiled(pattern: str) -> Any:
    """A pattern that is ready to be used, or the reason why it cannot be."""
    engine = _re2()
    options = engine.Options()
    options.log_errors = False
    try:
        return engine.compile(pattern, options)
    except engine.error as error:
        said = error.args[0] if error.args else "it is none"
        return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


_NOWHERE = object()


def _target(root: Schema, ref: str) -> Any:
    """What a reference within a schema points at."""
    if ref != "#" and not ref.startswith("#/"):
        return _NOWHERE
    found: Any = root
    for part in ref.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = cast("Mapping[str, Any]", found)[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(cast("Any", found)):
            found = cast("Any", found)[int(name)]
        else:
            return _NOWHERE
    return cast("Any", found) if isinstance(found, Mapping | bool) else _NOWHERE


# Which values follow one.


def faults(schema: Schema, value: Any, path: str) -> list[Fault]:
    """What of a value does not follow a usable schema, at most a few; what is too involved to be checked is a fault too."""
    found: list[Fault] = []
    try:
        for fault in _Check(schema).faults(schema, value, path, 0):
            found.append(fault)
            if len(found) == MAX_FAULTS:
                break
    except _TooMuch:
        return [Fault(path, "is too large or too involved to be checked by its schema", "a smaller value, or a simpler schema")]
    return found


class _Check:
    """One value against one schema, with all steps counted."""

    def __init__(self, root: Schema) -> None:
        self._root, self._steps = root, 0
        self._patterns: dict[str, Any] = {}

    def faults(self, schema: Schema, value: Any, path: str, depth: int) -> Iterator[Fault]:
        self._pay(1)
        if schema is False:
            yield Fault(path, "is there", "nothing here")
        if isinstance(schema, bool):
            return
        if depth > MAX_NESTING:
            raise _TooMuch
        if "$ref" in schema:
            target = _target(self._root, schema["$ref"])
            if target is not _NOWHERE:
                yield from self.faults(target, value, path, depth + 1)
        if "type" in schema and not self._typed(schema["type"], value):
            wanted = schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])
            yield Fault(path, f"is {_name(value)}", wanted)
            return
        yield from self._plain(schema, value, path)
        if isinstance(value, list):
            yield from self._items(schema, cast("Any", value), path, depth)
        if isinstance(value, Mapping):
            yield from self._properties(schema, cast("Mapping[str, Any]", value), path, depth)
        yield from self._combined(schema, value, path, depth)

    def _pay(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise _TooMuch

    def _typed(self, wanted: Any, value: Any) -> bool:
        return TYPES[wanted](value) if isinstance(wanted, str) else any(TYPES[name](value) for name in wanted)

    def _plain(self, schema: Mapping[str, Any], value: Any, path: str) -> Iterator[Fault]:
        if "const" in schema and self._key(value) != self._key(schema["const"]):
            yield Fault(path, f"is {describe(value)}", describe(schema["const"]))
        if "enum" in schema:
            mine = self._key(value)
            if not any(mine == self._key(item) for item in schema["enum"]):
                yield Fault(path, f"is {describe(value)}", f"one of {', '.join(describe(item) for item in schema['enum'][:20])}")
        if isinstance(value, str):
            yield from self._text(schema, value, path)
        if _number(value):
            yield from self._numeric(schema, value, path)

    def _key(self, value: Any) -> str:
        """A value as text that is the same for the same JSON, whatever the order of its keys and however its numbers are written."""
        if isinstance(value, str):
            self._pay(1 + len(value) // 50)
            return f'"{value}'
        key = json.dumps(_even(value), sort_keys=True)
        self._pay(3 + len(key) // 50)
        return key

    def _text(self, schema: Mapping[str, Any], value: str, path: str) -> Iterator[Fault]:
        yield from _counted(schema, "Length", len(value), path, "characters")
        if "pattern" in schema:
            self._pay(1 + len(value) // 50)
            if schema["pattern"] not in self._patterns:
                self._patterns[schema["pattern"]] = _compiled(schema["pattern"])
            pattern = self._patterns[schema["pattern"]]
            if not (pattern is None or isinstance(pattern, str) or pattern.search(value)):
                yield Fault(path, f"is {describe(value)}", f"text that matches {describe(schema['pattern'])}")

    def _numeric(self, schema: Mapping[str, Any], value: Any, path: str) -> Iterator[Fault]:
        for word, wrong, said in _LIMITS:
            if word in schema and wrong(value, schema[word]):
                yield Fault(path, f"is {value}", f"{said} {schema[word]}")
        if "multipleOf" in schema and not _divides(schema["multipleOf"], value):
            yield Fault(path, f"is {value}", f"a multiple of {schema['multipleOf']}")

    def _items(self, schema: Mapping[str, Any], value: list[Any], path: str, depth: int) -> Iterator[Fault]:
        yield from _counted(schema, "Items", len(value), path, "items")
        if schema.get("uniqueItems") and len({self._key(item) for item in value}) < len(value):
            yield Fault(path, "has an item twice", "each item once")
        first = schema.get("prefixItems", [])
        for index, item in enumerate(value):
            inner = first[index] if index < len(first) else schema.get("items", True)
            yield from self.faults(inner, item, f"{path}[{index}]", depth + 1)

    def _properties(self, schema: Mapping[str, Any], value: Mapping[str, Any], path: str, depth: int) -> Iterator[Fault]:
        yield from _counted(schema, "Properties", len(value), path, "fields")
        named, required = schema.get("properties", {}), schema.get("required", [])
        self._pay(len(required))
        for name in required:
            if name not in value:
                yield Fault(f"{path}.{name[:60]}", "is missing", "a value")
        for name, item in value.items():
            if name in named:
                yield from self.faults(named[name], item, f"{path}.{name[:60]}", depth + 1)
            elif schema.get("additionalProperties", True) is False:
                yield Fault(f"{path}.{name[:60]}", "is not a field here", f"one of {', '.join(list(named)[:20]) or 'none'}")
            else:
                yield from self.faults(schema.get("additionalProperties", True), item, f"{path}.{name[:60]}", depth + 1)

    def _combined(self, schema: Mapping[str, Any], value: Any, path: str, depth: int) -> Iterator[Fault]:
        for inner in schema.get("allOf", ()):
            yield from self.faults(inner, value, path, depth + 1)
        if "anyOf" in schema and not any(self._follows(inner, value, depth) for inner in schema["anyOf"]):
            yield Fault(path, f"is {_name(value)} that follows none of the {len(schema['anyOf'])} schemas of anyOf", "what one of them asks for")
        if "oneOf" in schema and (fitting := sum(self._follows(inner, value, depth) for inner in schema["oneOf"])) != 1:
            yield Fault(path, f"is {_name(value)} that follows {fitting} of the schemas of oneOf", "what exactly one of them asks for")
        if "not" in schema and self._follows(schema["not"], value, depth):
            yield Fault(path, f"is {_name(value)} that the schema rules out", "something else")
        if "if" in schema:
            branch = schema.get("then" if self._follows(schema["if"], value, depth) else "else", True)
            yield from self.faults(branch, value, path, depth + 1)

    def _follows(self, schema: Schema, value: Any, depth: int) -> bool:
        return next(self.faults(schema, value, "", depth + 1), None) is None


def _even(value: Any) -> Any:
    """A whole number is the same however it is written."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_even(item) for item in cast("Any", value)]
    if isinstance(value, Mapping):
        return {name: _even(item) for name, item in cast("Mapping[str, Any]", value).items()}
    return value


def _divides(part: float, value: float) -> bool:
    from fractions import Fraction  # exact where floats are not: 0.3 is a multiple of 0.1

    return Fraction(str(value)) % Fraction(str(part)) == 0


_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", lambda value, bound: value < bound, "at least"),
    ("maximum", lambda value, bound: value > bound, "at most"),
    ("exclusiveMinimum", lambda value, bound: value <= bound, "more than"),
    ("exclusiveMaximum", lambda value, bound: value >= bound, "less than"),
)


def _counted(schema: Mapping[str, Any], what: str, count: int, path: str, unit: str) -> Iterator[Fault]:
    if count < schema.get(f"min{what}", 0):
        yield Fault(path, f"has {count} {unit}", f"at least {schema[f'min{what}']}")
    if f"max{what}" in schema and count > schema[f"max{what}"]:
        yield Fault(path, f"has {count} {unit}", f"at most {schema[f'max{what}']}")


_NAMES = {"null": "null", "boolean": "true or false", "integer": "a number", "number": "a number", "string": "text", "array": "a list"}


def _name(value: Any) -> str:
    return next((said for kind, said in _NAMES.items() if TYPES[kind](value)), "an object")
