"""Untrusted JSON Schemas: results equal those of other validators, and no schema hangs, fetches or
crashes.
"""

import json
import random
from importlib import import_module
from typing import Any

import pytest

from remit.domain.outputs import schema_check
from remit.domain.outputs.accepted_schemas import MAX_SCHEMA, schema_problem
from remit.domain.outputs.schema_check import faults

REFERENCE: Any = import_module("jsonschema").Draft202012Validator
TREE: dict[str, Any] = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            "required": ["value"],
        }
    },
    "$ref": "#/$defs/node",
}
VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        1.0,
        1.5,
        0.3,
        10**12,
        "",
        "a",
        "abc",
        "été",
        [],
        [1],
        [1, 1.0],
        [True, 1],
        ["a", 1, None],
        {},
        {"a": 1},
    ),
    *(
        {"a": "x", "b": [1, 2]},
        {"a": {"a": {"a": 1}}},
        [{"a": 1}, {"a": 1}],
        {"value": 1, "next": {"value": "x"}},
        {"value": 1, "next": {"value": 2}},
    ),
]
SCHEMAS: list[Any] = [
    *({}, True, False, TREE, {"$ref": "#"}),
    *(
        {"type": kind}
        for kind in ("null", "boolean", "integer", "number", "string", "array", "object")
    ),
    *(
        {"type": ["string", "null"]},
        {"const": 1},
        {"const": {"a": 1.0}},
        {"enum": [1, "a", None, [True, 1]]},
    ),
    *(
        {"minLength": 1},
        {"maxLength": 2},
        {"pattern": "^a"},
        {"minimum": 1},
        {"maximum": 1},
        {"exclusiveMinimum": 1},
        {"exclusiveMaximum": 1},
    ),
    *(
        {"multipleOf": 0.5},
        {"multipleOf": 2},
        {"minItems": 1},
        {"maxItems": 1},
        {"uniqueItems": True},
    ),
    *(
        {"items": {"type": "integer"}},
        {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        {"prefixItems": [True], "items": False},
    ),
    *(
        {"required": ["a"]},
        {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
        {"additionalProperties": {"type": "string"}},
    ),
    *(
        {"minProperties": 1},
        {"maxProperties": 1},
        {"allOf": [{"type": "integer"}, {"minimum": 1}]},
        {"anyOf": [{"type": "string"}, {"minimum": 1}]},
    ),
    *({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, {"not": {"type": "integer"}}),
    {"if": {"type": "integer"}, "then": {"minimum": 1}, "else": {"type": "string"}},
    {
        "title": "T",
        "description": "D",
        "format": "color",
        "default": 1,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "x",
        "foo": 7,
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_values_are_judged_as_the_reference_judges_them(schema: Any) -> None:
    assert schema_problem(schema, "schema") is None
    if schema == {"$ref": "#"}:
        assert all(faults(schema, value, "") for value in VALUES)  # the reference never comes back
        return
    ours = [not faults(schema, value, "v") for value in VALUES]
    assert ours == [REFERENCE(schema).is_valid(value) for value in VALUES]


def _some(dice: random.Random, depth: int = 0) -> Any:
    if depth > 2 or dice.random() < 0.5:
        return dice.choice(SCHEMAS[7:])
    word = dice.choice(
        ("items", "not", "anyOf", "allOf", "oneOf", "properties", "additionalProperties")
    )
    if word == "properties":
        return {
            word: {name: _some(dice, depth + 1) for name in "ab"},
            "required": dice.sample("ab", dice.randint(0, 2)),
        }
    inner = _some(dice, depth + 1)
    return {word: [inner, _some(dice, depth + 1)] if word.endswith("Of") else inner}


def test_random_schemas_get_the_same_verdict_as_from_the_library() -> None:
    dice = random.Random(7)
    for _ in range(300):
        schema = _some(dice)
        for value in dice.sample(VALUES, 5):
            assert (not faults(schema, value, "v")) == REFERENCE(schema).is_valid(value), (
                f"{json.dumps(schema)} and {value!r}"
            )


def test_a_fault_names_the_place_what_is_wrong_and_what_would_be_right() -> None:
    schema = {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "items": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}},
            }
        },
        "required": ["rows", "total"],
        "additionalProperties": False,
    }
    found = faults(schema, {"rows": [{"n": 1}, {"n": "x"}, {"n": 0}], "extra": 1}, "outputs.data")
    assert [tuple(fault) for fault in found] == [
        ("outputs.data.total", "is missing", "a value"),
        ("outputs.data.rows[1].n", "is text", "integer"),
        ("outputs.data.rows[2].n", "is 0", "at least 1"),
        ("outputs.data.extra", "is not a field here", "one of rows"),
    ]
    assert (
        len(faults({"items": {"type": "string"}}, list(range(1000)), "v"))
        == schema_check.MAX_FAULTS
    )


@pytest.mark.parametrize(
    ("schema", "place", "expected"),
    [
        (7, "s", "a schema"),
        ({"type": "int"}, "s.type", "one or several of null, boolean"),
        (
            {"properties": {"a": {"type": ["string", 1]}}},
            "s.properties.a.type",
            "one or several of",
        ),
        ({"properties": []}, "s.properties", "an object of schemas"),
        ({"allOf": {"type": "string"}}, "s.allOf", "a list of schemas"),
        ({"items": [{"type": "string"}]}, "s.items", "a schema"),
        ({"required": "a"}, "s.required", "a list of names"),
        ({"minLength": -1}, "s.minLength", "a whole number from 0"),
        ({"minimum": "1"}, "s.minimum", "a number"),
        ({"multipleOf": 0}, "s.multipleOf", "a number above 0"),
        ({"pattern": "(a"}, "s.pattern", "a regular expression"),
        ({"pattern": r"(a)\1"}, "s.pattern", "without look-around or back references"),
        (
            {"anyOf": [True, {"patternProperties": {"(a+)+$": True}}]},
            "s.anyOf[1].patternProperties",
            "a schema without it",
        ),
        ({"unevaluatedProperties": False}, "s.unevaluatedProperties", "a schema without it"),
        ({"items": {"$id": "https://example.org"}}, "s.items.$id", "a schema without it"),
        ({"$ref": "https://example.org/schema.json"}, "s.$ref", "nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "s.$ref", "nothing is fetched"),
        ({"$ref": "#/$defs/nowhere"}, "s.$ref", "a place in this schema"),
        ({"$ref": "#/required/0", "required": ["a"]}, "s.$ref", "a place in this schema"),
        ({"enum": ["x" * MAX_SCHEMA]}, "s", "at most 65,536"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused_by_its_place(
    schema: Any, place: str, expected: str
) -> None:
    problem = schema_problem(schema, "s")
    assert problem is not None
    assert problem.field == place
    assert expected in problem.expected


_LAUGHS = {
    "$defs": (
        {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 10} for n in range(30)}
        | {"n30": {"type": "string"}}
    ),
    "$ref": "#/$defs/n0",
}
_DEEP = json.loads('{"a":' * 30 + "1" + "}" * 30)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_LAUGHS, "x"),
        ({"$ref": "#"}, 1),
        (
            {
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                "$ref": "#/$defs/a",
            },
            1,
        ),
        ({"not": {"$ref": "#"}}, _DEEP),
        ({"oneOf": [{"properties": {"a": {"$ref": "#"}}}] * 3}, _DEEP),
        ({"allOf": [{"uniqueItems": True}] * 1000}, [{"a": n} for n in range(20_000)]),
        ({"items": {"not": {"enum": list(range(5000))}}}, list(range(5000, 55_000))),
        ({"anyOf": [{"const": [n]} for n in range(3000)]}, ["x" * 1_000_000]),
        ({"allOf": [{"not": {"pattern": "^(a+)+$"}}] * 1500}, "a" * 500_000 + "!"),
    ],
    ids=(
        "laughs",
        "itself",
        "circle",
        "not itself",
        "branches",
        "unique",
        "enum",
        "large",
        "pattern",
    ),
)
def test_an_endless_check_is_given_up(schema: Any, value: Any) -> None:
    assert schema_problem(schema, "s") is None
    assert [fault.problem for fault in faults(schema, value, "v")] == [
        "is too large or too complex to be checked by its schema"
    ]


def test_a_large_honest_value_is_checked() -> None:
    rows = [{"id": n, "name": f"row {n}", "tags": ["a", "b"]} for n in range(5000)]
    row = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string", "maxLength": 20},
            "tags": {"items": {"enum": ["a", "b"]}},
        },
    }
    assert faults({"type": "array", "items": row, "uniqueItems": True}, rows, "v") == []
    assert faults({"type": "array", "items": row}, [*rows, {"id": "x"}], "v") == [
        schema_check.Fault("v[5000].id", "is text", "integer")
    ]
