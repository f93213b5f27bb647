"""Check a JSON value against an accepted JSON Schema.

Values are untrusted. A checker that follows every reference, tries every branch and prints every
value could run forever, so this one counts its steps and stops.
"""

import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any, NamedTuple, cast

from remit.domain.outputs.accepted_schemas import (
    NOWHERE,
    TYPES,
    Schema,
    compile_pattern,
    find_target,
)
from remit.domain.records.json_rules import is_number
from remit.domain.records.serialize import with_leaves
from remit.domain.records.validate import describe

MAX_STEPS = 150_000
MAX_NESTING = 120
MAX_FAULTS = 5
"""The maximum number of faults in one report."""


class Fault(NamedTuple):
    """A fault in a part of a value, and what would be right."""

    path: str
    problem: str
    expected: str


class _TooMuch(Exception):
    """More steps than any legitimate schema needs."""


def faults(schema: Schema, value: Any, path: str) -> list[Fault]:
    """Return the faults of a value under a usable schema, at most a few.

    A value that is too complex to check is a fault too.
    """
    try:
        return list(islice(_Check(schema).faults(schema, value, path, 0), MAX_FAULTS))
    except _TooMuch:
        return [
            Fault(
                path,
                "is too large or too complex to be checked by its schema",
                "a smaller value, or a simpler schema",
            )
        ]


class _Check:
    """Checks one value against one schema and counts the steps."""

    def __init__(self, root: Schema) -> None:
        self._root, self._steps = root, 0
        self._patterns: dict[str, Any] = {}

    def faults(self, schema: Schema, value: Any, path: str, depth: int) -> Iterator[Fault]:
        self._count_steps(1)
        if schema is False:
            yield Fault(path, "is there", "nothing here")
        if isinstance(schema, bool):
            return
        if depth > MAX_NESTING:
            raise _TooMuch
        if "$ref" in schema:
            target = find_target(self._root, schema["$ref"])
            if target is not NOWHERE:
                yield from self.faults(target, value, path, depth + 1)
        if "type" in schema and not _has_type(schema["type"], value):
            yield Fault(path, f"is {_name(value)}", " or ".join(_list_types(schema["type"])))
            return
        yield from self._check_scalar(schema, value, path)
        if isinstance(value, list):
            yield from self._check_items(schema, cast("Any", value), path, depth)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            yield from self._check_properties(schema, fields, path, depth)
        yield from self._check_combinations(schema, value, path, depth)

    def _count_steps(self, steps: int) -> None:
        """Count steps; `_TooMuch` if there are too many."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise _TooMuch

    def _check_scalar(self, schema: Mapping[str, Any], value: Any, path: str) -> Iterator[Fault]:
        """Check a value as a whole, and the limits of a text or number."""
        if "const" in schema and not self._is_one_of(value, [schema["const"]]):
            yield Fault(path, f"is {describe(value)}", describe(schema["const"]))
        if "enum" in schema and not self._is_one_of(value, schema["enum"]):
            shown = ", ".join(map(describe, schema["enum"][:20]))
            yield Fault(path, f"is {describe(value)}", f"one of {shown}")
        if isinstance(value, str):
            yield from self._check_text(schema, value, path)
        if is_number(value):
            yield from _check_number(schema, value, path)

    def _is_one_of(self, value: Any, allowed: Iterable[Any]) -> bool:
        """Return True if a value equals one of the allowed values, as JSON."""
        return self._key(value) in map(self._key, allowed)

    def _key(self, value: Any) -> str:
        """Return a canonical text that is equal for equal JSON, whatever the key order and number
        format.
        """
        if isinstance(value, str):
            self._count_steps(1 + len(value) // 50)
            return f'"{value}'
        key = json.dumps(with_leaves(value, _normalize_number), sort_keys=True)
        self._count_steps(3 + len(key) // 50)
        return key

    def _check_text(self, schema: Mapping[str, Any], value: str, path: str) -> Iterator[Fault]:
        """Check the length, the format and the pattern of a text."""
        yield from _check_count(schema, "Length", len(value), path, "characters")
        if "format" in schema:
            self._count_steps(1 + len(value) // 50)
            yield from _check_format(schema["format"], value, path)
        if "pattern" not in schema:
            return
        self._count_steps(1 + len(value) // 50)
        pattern = self._compile(schema["pattern"])
        if not isinstance(pattern, str) and not pattern.search(value):
            expected = f"text that matches {describe(schema['pattern'])}"
            yield Fault(path, f"is {describe(value)}", expected)

    def _compile(self, pattern: str) -> Any:
        """Return a compiled pattern, or the reason why it is invalid; compile it once."""
        if pattern not in self._patterns:
            self._patterns[pattern] = compile_pattern(pattern)
        return self._patterns[pattern]

    def _check_items(
        self, schema: Mapping[str, Any], value: list[Any], path: str, depth: int
    ) -> Iterator[Fault]:
        """Check a list as a whole, and each item."""
        yield from _check_count(schema, "Items", len(value), path, "items")
        if schema.get("uniqueItems") and len(set(map(self._key, value))) < len(value):
            yield Fault(path, "has an item twice", "each item once")
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        schemas = chain(first, repeat(rest))
        for index, (inner, item) in enumerate(zip(schemas, value, strict=False)):
            yield from self.faults(inner, item, f"{path}[{index}]", depth + 1)

    def _check_properties(
        self, schema: Mapping[str, Any], value: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[Fault]:
        """Check an object as a whole, and each field."""
        yield from _check_count(schema, "Properties", len(value), path, "fields")
        yield from self._check_required(schema.get("required", []), value, path)
        named = schema.get("properties", {})
        other = schema.get("additionalProperties", True)
        for name, item in value.items():
            at = _join(path, name)
            if name in named:
                yield from self.faults(named[name], item, at, depth + 1)
            elif other is False:
                allowed = ", ".join(list(named)[:20]) or "none"
                yield Fault(at, "is not a field here", f"one of {allowed}")
            else:
                yield from self.faults(other, item, at, depth + 1)

    def _check_required(
        self, required: list[str], value: Mapping[str, Any], path: str
    ) -> list[Fault]:
        self._count_steps(len(required))
        return [
            Fault(_join(path, name), "is missing", "a value")
            for name in required
            if name not in value
        ]

    def _check_combinations(
        self, schema: Mapping[str, Any], value: Any, path: str, depth: int
    ) -> Iterator[Fault]:
        """Check the keywords that combine schemas: allOf, anyOf, oneOf, not, if."""
        for inner in schema.get("allOf", ()):
            yield from self.faults(inner, value, path, depth + 1)
        if "anyOf" in schema:
            yield from self._check_any(schema["anyOf"], value, path, depth)
        if "oneOf" in schema:
            yield from self._check_one(schema["oneOf"], value, path, depth)
        if "not" in schema and self._is_valid(schema["not"], value, depth):
            yield Fault(path, f"is {_name(value)} that the schema forbids", "something else")
        if "if" in schema:
            branch = "then" if self._is_valid(schema["if"], value, depth) else "else"
            yield from self.faults(schema.get(branch, True), value, path, depth + 1)

    def _check_any(
        self, schemas: list[Schema], value: Any, path: str, depth: int
    ) -> Iterator[Fault]:
        if any(self._is_valid(inner, value, depth) for inner in schemas):
            return
        yield Fault(
            path,
            f"is {_name(value)} that matches none of the {len(schemas)} schemas of anyOf",
            "a value that matches one of them",
        )

    def _check_one(
        self, schemas: list[Schema], value: Any, path: str, depth: int
    ) -> Iterator[Fault]:
        matches = sum(self._is_valid(inner, value, depth) for inner in schemas)
        if matches != 1:
            yield Fault(
                path,
                f"is {_name(value)} that matches {matches} of the schemas of oneOf",
                "a value that matches exactly one of them",
            )

    def _is_valid(self, schema: Schema, value: Any, depth: int) -> bool:
        return next(self.faults(schema, value, "", depth + 1), None) is None


def _list_types(types: Any) -> list[str]:
    """Return the types that a keyword names: one name, or a list of names."""
    if isinstance(types, str):
        return [types]
    return cast("list[str]", types)


def _has_type(types: Any, value: Any) -> bool:
    return any(TYPES[name](value) for name in _list_types(types))


def _join(path: str, name: str) -> str:
    """Return the path of a field; a long name is cut."""
    return f"{path}.{name[:60]}"


def _normalize_number(value: Any) -> Any:
    """Return a whole number as int, however it is written."""
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _check_format(name: str, value: str, path: str) -> Iterator[Fault]:
    """Check the format of a text; formats that remit does not know are not checked."""
    from remit.domain.outputs.text_formats import FORMATS  # few schemas need it

    text_format = FORMATS.get(name)
    if text_format is not None and not text_format.fits(value):
        yield Fault(path, f"is {describe(value)}", text_format.expected)


def _check_number(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[Fault]:
    """Check the limits of a number."""
    for keyword, is_wrong, expected in _LIMITS:
        if keyword in schema and is_wrong(value, schema[keyword]):
            yield Fault(path, f"is {value}", f"{expected} {schema[keyword]}")


def _is_no_multiple(value: float, part: float) -> bool:
    """Return True if a number is not a multiple of another one."""
    from fractions import Fraction  # exact where floats are not: 0.3 is a multiple of 0.1

    return Fraction(str(value)) % Fraction(str(part)) != 0


_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", operator.lt, "at least"),
    ("maximum", operator.gt, "at most"),
    ("exclusiveMinimum", operator.le, "more than"),
    ("exclusiveMaximum", operator.ge, "less than"),
    ("multipleOf", _is_no_multiple, "a multiple of"),
)


def _check_count(
    schema: Mapping[str, Any], what: str, count: int, path: str, unit: str
) -> Iterator[Fault]:
    """Check the length of a value against `min` and `max` of a kind."""
    lowest = schema.get(f"min{what}", 0)
    if count < lowest:
        yield Fault(path, f"has {count} {unit}", f"at least {lowest}")
    highest = schema.get(f"max{what}", math.inf)
    if count > highest:
        yield Fault(path, f"has {count} {unit}", f"at most {highest}")


_NAMES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a number",
    "number": "a number",
    "string": "text",
    "array": "a list",
}


def _name(value: Any) -> str:
    """Return the kind of a value in words."""
    return next((name for kind, name in _NAMES.items() if TYPES[kind](value)), "an object")
