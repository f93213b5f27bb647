"""What a call that hands out work asks for, and the fields of the task that it would make."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, cast

from remit.domain.command import Grant
from remit.domain.create import title_of
from remit.domain.message import ToolCall
from remit.domain.offer import SUBTASK
from remit.domain.shape import check
from remit.domain.value import ChildWait, Tools
from remit.errors import RemitError, invalid

SECONDS = {"task": 120.0, "task_parallel": 120.0, "Task": 3600.0}
"""How long delegated work may take if nobody says so."""
FIELDS = ("model", "effort", "tools", "acceptance", "outputs", "priority", "depends_on", "resources")


DELEGATING = ("task", "task_parallel", "Task")


def may_delegate(name: str) -> bool:
    """True for calls that make subtasks."""
    return name in (*DELEGATING, "create_subtask") or name.startswith(SUBTASK)


def count(call: ToolCall) -> int:
    """How many pieces of work a call asks for."""
    items = call.arguments.get("tasks") if call.name == "task_parallel" else None
    return len(cast("Any", items)) or 1 if isinstance(items, list) else 1


def wait_of(call: ToolCall, place: int = 0) -> ChildWait:
    """Whether a delegation waits for its subtask in a place, or is woken by its end."""
    at = f"tasks[{place}]." if call.name == "task_parallel" else ""
    return "block" if flag(piece_of(call, place), "wait", at, default=True) else "wake"


def blocks(call: ToolCall, place: int) -> bool:
    """True where the answer to a call is what came of its subtask in a place."""
    wait = piece_of(call, place).get("wait")
    return wait == "block" if call.name == "create_subtask" else wait is not False


def piece_of(call: ToolCall, place: int) -> Mapping[str, Any]:
    """The piece of work in a place of a call, as far as it can be one."""
    if call.name in ("task", "create_subtask"):
        return call.arguments
    item: Any = call.arguments["tasks"][place] if call.name == "task_parallel" else None
    return cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}


def tools_of(call: ToolCall, place: int) -> Tools:
    """The tools that a piece of work was to have, as far as they can be read."""
    try:
        return cast("Tools", check(Grant, piece_of(call, place).get("tools") or {}, "tools"))
    except RemitError:
        return Tools()


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


def _words(text: Any) -> Any:
    """A text, or None for one without any words."""
    return None if isinstance(text, str) and not text.strip() else text


def brief_of(item: Mapping[str, Any], at: str = "", seconds: float | None = None) -> dict[str, Any]:
    """The fields of a task that a delegation asks for; the time it may take is what it says, or else so many seconds."""
    known = {"objective", "prompt", "description", "subagent_type", "context", "limits", "timeout_seconds", "cache", *FIELDS}
    if unknown := sorted(item.keys() - known):
        raise invalid(f"{at}{unknown[0]}", "is not a field here", f"one of {', '.join(sorted(known))}")
    objective = item.get("objective") or item.get("prompt")
    if not isinstance(objective, str) or not objective.strip():
        raise invalid(f"{at}objective", "is missing", "what the sub-agent has to do, as text")
    description = _words(item.get("description"))
    limits = dict(item.get("limits") or {})
    timeout = item.get("timeout_seconds") or limits.get("timeout_seconds") or seconds
    if timeout is not None:
        limits["timeout_seconds"] = timeout
    fields: dict[str, Any] = {
        "title": title_of(description or objective),
        "instructions": objective,
        "description": description or objective,
        "owner": item.get("subagent_type") or "general",
        "limits": limits,
        **{name: item[name] for name in FIELDS if item.get(name) is not None},
    }
    if item.get("context") is not None:
        fields["metadata"] = {"context": item["context"]}
    return fields
