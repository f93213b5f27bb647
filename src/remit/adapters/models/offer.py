"""Tools as every endpoint takes them: how many, by which names, and with schemas that are plain."""

import hashlib
import logging
import re
from collections.abc import Mapping
from typing import Any, cast

from remit.domain.message import Tool

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
_COMBINED = frozenset({"oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else"})
_BARE = ("type", "description", "properties", "required", "items", "enum")

Schema = dict[str, Any]


def acceptable(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools that can be offered.

    A name that endpoints refuse, or that is there twice, is left out. Of more than 128 tools the
    first 64 and the last 64 are kept: file tools come first and operations last, so what is left
    out is between them. What is left out is logged.
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
    return tuple(kept)


def tool_name(name: str) -> str:
    """The name of a call as it is sent back: a model may have called what no endpoint takes as a name."""
    return name if _NAME.fullmatch(name) else _NOT_IN_NAMES.sub("_", name)[:64] or "unnamed"


def call_id(given: str, *, short: bool = False) -> str:
    """The id of a call as it is sent back; an endpoint takes few ids that another endpoint gave."""
    if (_SHORT_ID if short else _CALL_ID).fullmatch(given):
        return given
    digest = hashlib.sha256(given.encode()).hexdigest()
    return digest[:9] if short else digest[:MAX_CALL_ID]


def plain(schema: Mapping[str, Any]) -> Schema:
    """A schema that every grammar takes: an object with properties, no high bounds, no groups in patterns."""
    root = {name: value for name, value in schema.items() if name not in _COMBINED}
    found = _plain(root)
    return {**found, "type": "object", "properties": found.get("properties") or {}}


def _plain(schema: Mapping[str, Any], depth: int = 0) -> Schema:
    found = {name: _inner(name, value, depth) for name, value in schema.items() if name not in _NOISE and not _is_refused(name, value)}
    if found.get("type") == "array":
        found.setdefault("items", {})
    return found


def _is_refused(name: str, value: Any) -> bool:
    if name in _BOUNDS:
        return not isinstance(value, int) or value > MAX_REPEATS
    return name == "pattern" and not (isinstance(value, str) and _PLAIN_PATTERN.fullmatch(value))


def _inner(name: str, value: Any, depth: int) -> Any:
    if depth >= MAX_DEPTH * 2:
        return value
    if name in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: _nested(item, depth) for key, item in fields.items()}
    if name in ("items", "additionalProperties") or name in _COMBINED - {"enum", "const"}:
        return _nested(value, depth)
    return value


def _nested(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _plain(cast("Mapping[str, Any]", value), depth + 1)
    if isinstance(value, list):
        items = cast("Any", value)
        return [_nested(item, depth) for item in items]
    return value


def bare(schema: Mapping[str, Any]) -> Schema:
    """A schema in the few words that every endpoint knows; references are written out."""
    return {
        **_bare(schema, schema, 0),
        "type": "object",
        "properties": _properties(schema, schema, 0),
    }


def _bare(schema: Any, root: Mapping[str, Any], depth: int) -> Schema:
    given = _chosen(schema, root)
    found = {name: given[name] for name in _BARE if name in given}
    kind = found.get("type")
    if isinstance(kind, list):
        kinds = [item for item in cast("list[str]", kind) if item != "null"]
        found["type"] = kinds[0] if kinds else "string"
    if depth >= MAX_DEPTH:
        return {name: value for name, value in found.items() if name in ("type", "description")}
    if found.get("type") == "array":
        found["items"] = _bare(given.get("items") or {"type": "string"}, root, depth + 1)
    if "properties" in found:
        found["properties"] = _properties(given, root, depth)
    return found


def _properties(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Schema:
    fields = cast("Mapping[str, Any]", schema.get("properties") or {})
    return {name: _bare(item, root, depth + 1) for name, item in fields.items()}


def _chosen(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema itself, what it refers to, or the first of its alternatives that is not null."""
    given = _object(schema)
    for _ in range(MAX_DEPTH):
        reference = given.get("$ref")
        options: Any = given.get("anyOf") or given.get("oneOf") or given.get("allOf") or ()
        if isinstance(reference, str):
            inner = _referred(reference, root)
        elif options and "type" not in given:
            inner = next((_object(item) for item in options if item != {"type": "null"}), _object(None))
        else:
            break
        given = {**inner, **_described(given)}
    return given


def _described(schema: Mapping[str, Any]) -> Schema:
    return {"description": schema["description"]} if "description" in schema else {}


def _referred(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found = root
    for step in reference.removeprefix("#/").split("/"):
        found = _object(found.get(step))
    return found


def _object(value: Any) -> Mapping[str, Any]:
    """A JSON object, or an empty one in place of anything else."""
    empty: Mapping[str, Any] = {}
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else empty
