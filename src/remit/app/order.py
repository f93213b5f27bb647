"""What a call that hands out work asks for, and the fields of the task that it would make."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, cast

from remit.domain.message import ToolCall
from remit.domain.value import ChildWait
from remit.errors import invalid

SECONDS = {"task": 120.0, "task_parallel": 120.0, "Task": 3600.0}
"""How long delegated work may take if nobody says so."""
FIELDS = ("model", "tools", "acceptance", "outputs", "priority", "depends_on", "resources")


def count(call: ToolCall) -> int:
    """How many pieces of work a call asks for."""
    items = call.arguments.get("tasks") if call.name == "task_parallel" else None
    return len(cast("Any", items)) or 1 if isinstance(items, list) else 1


def wait_of(call: ToolCall) -> ChildWait:
    """Whether a delegation waits for its subtask, or is woken by its end."""
    return "wake" if call.name == "task" and not flag(call.arguments, "wait", default=True) else "block"


def blocks(call: ToolCall) -> bool:
    """True for calls whose answer is what came of their subtasks."""
    return call.arguments.get("wait") == "block" if call.name == "create_subtask" else wait_of(call) == "block"


def flag(fields: Mapping[str, Any], name: str, at: str = "", *, default: bool) -> bool:
    """A field that says yes or no."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"{at}{name}", f"is {value!r}", "true or false")
    return value


def resource_of(item: Any, folder: str) -> Any:
    """A resource as it is given in a word: a URL, or a path, made absolute."""
    if not isinstance(item, str):
        return item
    return {"type": "url", "value": item} if "://" in item else {"type": "file", "value": str(PurePath(folder or "/") / item)}


def brief_of(item: Mapping[str, Any], at: str = "", seconds: float | None = None) -> dict[str, Any]:
    """The fields of a task that a delegation asks for; the time it may take is what it says, or else so many seconds."""
    known = {"objective", "prompt", "description", "subagent_type", "context", "limits", "timeout_seconds", "cache", *FIELDS}
    if unknown := sorted(item.keys() - known):
        raise invalid(f"{at}{unknown[0]}", "is not a field here", f"one of {', '.join(sorted(known))}")
    objective = item.get("objective") or item.get("prompt")
    if not isinstance(objective, str) or not objective.strip():
        raise invalid(f"{at}objective", "is missing", "what the sub-agent has to do, as text")
    description = item.get("description")
    limits = dict(item.get("limits") or {})
    timeout = item.get("timeout_seconds") or limits.get("timeout_seconds") or seconds
    if timeout is not None:
        limits["timeout_seconds"] = timeout
    fields: dict[str, Any] = {
        "title": _title(description or objective),
        "instructions": objective,
        "description": description or objective,
        "owner": item.get("subagent_type") or "general",
        "limits": limits,
        **{name: item[name] for name in FIELDS if item.get(name) is not None},
    }
    if item.get("context") is not None:
        fields["metadata"] = {"context": item["context"]}
    return fields


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"
