"""Turns requests to delegate work, from inside and outside a run, into the fields of tasks."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from remit.domain.delegation.requests import LaunchTask
from remit.domain.llm.messages import ToolCall
from remit.domain.prompts.offered_tools import SUBTASK
from remit.domain.records.serialize import plain
from remit.domain.records.validate import check, parse
from remit.domain.task.commands import Grant
from remit.domain.task.task import ChildWait, Task, Tools, plain_id
from remit.domain.task.titles import title_of
from remit.errors import RemitError, invalid

TIMEOUT_SECONDS = {"task": 120.0, "task_parallel": 120.0, "Task": 3600.0}
"""The default time limit of delegated work, by tool."""
FIELDS = (
    "model",
    "effort",
    "tools",
    "acceptance",
    "outputs",
    "priority",
    "depends_on",
)
"""Fields of an item that are fields of its task."""
KNOWN = {
    "objective",
    "prompt",
    "description",
    "subagent_type",
    "context",
    "limits",
    "timeout_seconds",
    "cache",
    *FIELDS,
}
"""All fields of an item."""

DELEGATING = ("task", "task_parallel", "Task")


def is_task(task: Task, named: Any) -> bool:
    """True if a task id in the arguments of a call names a task."""
    return plain_id(named) in (task.id, task.uid)


def names_own_task(task: Task, arguments: Mapping[str, Any]) -> bool:
    """True if the arguments of a call name this task, or no task."""
    named = arguments.get("task_id")
    return named is None or is_task(task, named)


def may_delegate(name: str) -> bool:
    """True for tools that create subtasks."""
    return name in (*DELEGATING, "create_subtask") or name.startswith(SUBTASK)


def item_count(call: ToolCall) -> int:
    """Return how many subtasks a call asks for."""
    items = call.arguments.get("tasks") if call.name == "task_parallel" else None
    return len(cast("Any", items)) or 1 if isinstance(items, list) else 1


def wait_mode(call: ToolCall, place: int = 0) -> ChildWait:
    """Return whether a call blocks on the subtask at a position or is woken by its end."""
    at = f"tasks[{place}]." if call.name == "task_parallel" else ""
    return "block" if boolean_field(item_of(call, place), "wait", at, default=True) else "wake"


def is_blocking(call: ToolCall, place: int) -> bool:
    """True if a call waits for the result of its subtask at a position."""
    wait = item_of(call, place).get("wait")
    return wait == "block" if call.name == "create_subtask" else wait is not False


def item_of(call: ToolCall, place: int) -> Mapping[str, Any]:
    """Return the item at a position of a call; empty if it is not an object."""
    if call.name in ("task", "create_subtask"):
        return call.arguments
    item: Any = call.arguments["tasks"][place] if call.name == "task_parallel" else None
    return cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}


def requested_tools(call: ToolCall, place: int) -> Tools:
    """Return the tools that an item asks for; an invalid grant counts as none."""
    try:
        return cast("Tools", check(Grant, item_of(call, place).get("tools") or {}, "tools"))
    except RemitError:
        return Tools()


def boolean_field(fields: Mapping[str, Any], name: str, at: str = "", *, default: bool) -> bool:
    """Return a boolean field; raise `InvalidParam` for any other type."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"{at}{name}", f"is {value!r}", "true or false")
    return value


def resource_from(item: Any, folder: str) -> Any:
    """Return a resource given as a string: a URL, or a path, which is made absolute."""
    if not isinstance(item, str):
        return item
    return (
        {"type": "url", "value": item}
        if "://" in item
        else {"type": "file", "value": str(PurePath(folder or "/") / item)}
    )


def _non_blank(text: Any) -> Any:
    """Return a text, or None if it is blank."""
    return None if isinstance(text, str) and not text.strip() else text


class RequestedWork(NamedTuple):
    """An item of a delegation: the fields of its task, and whether it may use the result cache."""

    fields: dict[str, Any]
    cache: bool


def item_at(call: ToolCall, place: int) -> tuple[Any, str, float]:
    """Return an item of a call, the path of its fields, and its default time limit."""
    if call.name == "Task":
        return plain(parse(LaunchTask, call.arguments)), "", TIMEOUT_SECONDS["Task"]
    if call.name == "task":
        return _without_wait(call.arguments), "", TIMEOUT_SECONDS["task"]
    items: Any = call.arguments.get("tasks")
    if not isinstance(items, list) or not items:
        raise invalid("tasks", "is not a list of tasks", "a list of objects with an objective each")
    item: Any = cast("Any", items)[place]
    seconds = call.arguments.get("timeout_seconds") or TIMEOUT_SECONDS["task_parallel"]
    at = f"tasks[{place}]."
    if isinstance(item, Mapping):
        return _without_wait(cast("Mapping[str, Any]", item)), at, seconds
    return ({"objective": item} if isinstance(item, str) else item), at, seconds


def _without_wait(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item without the field that `wait_mode` reads."""
    return {name: value for name, value in item.items() if name != "wait"}


def requested_work(item: Any, at: str = "", seconds: float | None = None) -> RequestedWork:
    """Return the task that an item of a delegation asks for.

    `seconds` is the time limit if the item does not give one.
    """
    if not isinstance(item, Mapping):
        raise invalid(at.rstrip("."), "is not an object", "an object with an objective")
    work = cast("Mapping[str, Any]", item)
    if unknown := sorted(work.keys() - KNOWN):
        raise invalid(
            f"{at}{unknown[0]}", "is not a field here", f"one of {', '.join(sorted(KNOWN))}"
        )
    objective = work.get("objective") or work.get("prompt")
    if not isinstance(objective, str) or not objective.strip():
        raise invalid(f"{at}objective", "is missing", "what the sub-agent has to do, as text")
    description = _non_blank(work.get("description"))
    limits = dict(work.get("limits") or {})
    timeout = work.get("timeout_seconds") or limits.get("timeout_seconds") or seconds
    if timeout is not None:
        limits["timeout_seconds"] = timeout
    fields: dict[str, Any] = {
        "title": title_of(description or objective),
        "instructions": objective,
        "owner": work.get("subagent_type") or "general",
        "limits": limits,
        **{name: work[name] for name in FIELDS if work.get(name) is not None},
    }
    if description is not None:
        fields["description"] = description
    if work.get("context") is not None:
        fields["metadata"] = {"context": work["context"]}
    return RequestedWork(fields, boolean_field(work, "cache", at, default=False))
