"""Tools in a form that every endpoint accepts: their number, their names, and plain schemas."""

import hashlib
import logging
import re
from collections.abc import Mapping
from typing import Any, cast

from remit.domain.llm.messages import Tool
from remit.domain.prompts.offered_tools import LONGEST_TOOL
from remit.domain.text.truncation import beginning

log = logging.getLogger("remit.models")

MAX_TOOLS = 128
MAX_REPEATS = 2_000
"""The highest bound that the grammars of llama.cpp take."""
MAX_DEPTH = 16
MAX_CALL_ID = 40

_OFFERED = f"at most {MAX_TOOLS} tools, with names of 1 to 64 letters, digits, _ and -"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_CALL_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_CALL_ID}}}")
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_PLAIN_PATTERN = re.compile(r"\^[\w\[\]{}+*.,: -]*\$")
_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems")
_NOISE = frozenset({"$schema", "$id", "$comment", "examples"})
_NESTED = frozenset({"items", "additionalProperties"})
_FIELDS = frozenset({"properties", "$defs", "definitions"})
_COMBINED = frozenset({"oneOf", "anyOf", "allOf", "not", "if", "then", "else"})
_WITH_SCHEMAS = _NESTED | _COMBINED
"""Keywords whose value is a schema, or a list of schemas."""
_NOT_AT_ROOT = _COMBINED | {"enum", "const"}
_IMPLIED = {"properties": "object", "items": "array"}
_TYPES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_KNOWN_TYPES = (*_TYPES.values(), *_IMPLIED.values())
_BARE = ("type", "description", "properties", "required", "items", "enum")

Schema = dict[str, Any]


def acceptable(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return the tools that can be offered.

    A tool with a duplicate name, or with a name that endpoints refuse, is omitted. Of more than 128
    tools, the first 64 and the last 64 are kept: file tools come first and operations last. Omitted
    tools are logged. A long description is cut.
    """
    found: dict[str, Tool] = {}
    for tool in tools:
        if _NAME.fullmatch(tool.name):
            found.setdefault(tool.name, tool)
    kept = list(found.values())
    if len(kept) > MAX_TOOLS:
        half = MAX_TOOLS // 2
        kept = [*kept[:half], *kept[-half:]]
    left_out = [tool.name[:80] for tool in tools if tool not in kept]
    if left_out:
        log.warning("Left out of the request (%s): %s", _OFFERED, ", ".join(left_out))
    return tuple(tool._replace(description=_cut(tool.description)) for tool in kept)


def _cut(description: str) -> str:
    """Return a description of at most the length that endpoints take."""
    if len(description) <= LONGEST_TOOL:
        return description
    return f"{beginning(description, LONGEST_TOOL - 2).rstrip()} …"


def tool_name(name: str) -> str:
    """Return the name of a call in the form in which it is sent back: a model may have called a
    name that no endpoint accepts.
    """
    return _NOT_IN_NAMES.sub("_", name)[:64] or "unnamed"


def call_id(given: str, *, short: bool = False) -> str:
    """Return the id of a call in the form in which it is sent back: endpoints accept few ids of
    other endpoints.
    """
    pattern, length = (_SHORT_ID, 9) if short else (_CALL_ID, MAX_CALL_ID)
    if pattern.fullmatch(given):
        return given
    return hashlib.sha256(given.encode()).hexdigest()[:length]


def plain_schema(schema: Mapping[str, Any]) -> Schema:
    """Return a schema that every grammar accepts: an object with properties, without high bounds
    and without groups in patterns.
    """
    root = {name: value for name, value in schema.items() if name not in _NOT_AT_ROOT}
    found = _simplify(root)
    return {**found, "type": "object", "properties": found.get("properties") or {}}


def bare_schema(schema: Mapping[str, Any]) -> Schema:
    """Return a schema in the few words that every endpoint knows; references are written out."""
    return {
        **_reduce(schema, schema, 0),
        "type": "object",
        "properties": _reduce_properties(schema, schema, 0),
    }


def _simplify(schema: Mapping[str, Any], depth: int = 0) -> Schema:
    """Return a schema without noise and without limits that grammars refuse."""
    found = {
        name: _simplify_keyword(name, value, depth)
        for name, value in schema.items()
        if not _is_refused(name, value)
    }
    if found.get("type") == "array":
        found.setdefault("items", {})
    return found


def _is_refused(name: str, value: Any) -> bool:
    """Return True for a keyword without meaning, for a bound that is too high for a grammar, and
    for a pattern with groups.
    """
    if name in _NOISE:
        return True
    if name in _BOUNDS:
        return not isinstance(value, int) or value > MAX_REPEATS
    return name == "pattern" and _PLAIN_PATTERN.fullmatch(str(value)) is None


def _simplify_keyword(name: str, value: Any, depth: int) -> Any:
    """Return the value of a keyword; schemas inside it are simplified too."""
    if depth >= MAX_DEPTH * 2:
        return value
    if name in _FIELDS and isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: _simplify_nested(item, depth) for key, item in fields.items()}
    if name in _WITH_SCHEMAS:
        return _simplify_nested(value, depth)
    return value


def _simplify_nested(value: Any, depth: int) -> Any:
    """Simplify a schema, or each schema of a list."""
    if isinstance(value, Mapping):
        return _simplify(cast("Mapping[str, Any]", value), depth + 1)
    if isinstance(value, list):
        items = cast("Any", value)
        return [_simplify_nested(item, depth) for item in items]
    return value


def _reduce(schema: Any, root: Mapping[str, Any], depth: int) -> Schema:
    """Return a schema with the few keywords that every endpoint knows, up to a depth."""
    given = _resolve(schema, root)
    found = _pick(given, *_BARE)
    found["type"] = _type_of(given)
    if depth >= MAX_DEPTH:
        return _pick(found, "type", "description")
    if found["type"] == "array":
        found["items"] = _reduce(given.get("items"), root, depth + 1)
    if "properties" in found:
        found["properties"] = _reduce_properties(given, root, depth)
    return found


def _pick(schema: Mapping[str, Any], *names: str) -> Schema:
    """Return some keywords of a schema, as far as it has them."""
    return {name: schema[name] for name in names if name in schema}


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema: the first one that is not null, or the one that its other
    keywords imply; endpoints refuse a schema without a type.
    """
    given: Any = schema.get("type")
    if isinstance(given, str):
        return given
    implied = [name for word, name in _IMPLIED.items() if word in schema]
    found = (*_list(given), *implied, *map(_type_of_value, _list(schema.get("enum"))))
    return next((name for name in found if name in _KNOWN_TYPES), "string")


def _type_of_value(value: object) -> str:
    return _TYPES.get(type(value), "null")


def _reduce_properties(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Schema:
    """Reduce the schema of every property."""
    fields = _object(schema.get("properties"))
    return {name: _reduce(item, root, depth + 1) for name, item in fields.items()}


def _resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema itself, the schema it refers to, or its first alternative that is not
    null.
    """
    given = _object(schema)
    for _ in range(MAX_DEPTH):
        inner = _resolve_once(given, root)
        if inner is None:
            break
        given = {**inner, **_pick(given, "description")}
    return given


def _resolve_once(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema that a schema refers to, or its first alternative; None if it has
    neither.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _follow(reference, root)
    options: Any = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if not options or "type" in schema:
        return None
    chosen = next((item for item in options if item != {"type": "null"}), None)
    return _object(chosen)


def _follow(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference names; empty if it does not exist."""
    found = root
    for step in reference.removeprefix("#/").split("/"):
        found = _object(found.get(step))
    return found


def _object(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one in place of anything else."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


def _list(value: Any) -> list[Any]:
    """Return a JSON array, or an empty one in place of anything else."""
    if not isinstance(value, list):
        return []
    return list(cast("Any", value))
