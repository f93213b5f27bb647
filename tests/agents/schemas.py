"""Keywords of JSON Schema that models do not need, and the fields of a result."""

from collections.abc import Iterator
from typing import Any

NOISE = {
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "minimum",
    "maximum",
    "additionalProperties",
}


RESULT = ["task_id", "status", "duration", "tool_summary", "model_used", "result"]


def keys(value: Any) -> Iterator[str]:
    """The keywords of a schema, but not the names of its fields."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key
            if key != "enum":
                yield from keys(list(part.values()) if key == "properties" else part)
