"""Turns requests to delegate work, from inside and outside a run, into the fields of tasks."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from remit.domain.delegation.requests import LaunchTask
from remit.domain.llm.messages import ToolCall
from remit.domain.prompts.offered_tools import SUBTASK
from remit.domain.records.pick import omit, omit_none, pick
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
    """Return how many subtasks a call asks for; without a valid list it is one."""
    if call.name != "task_parallel":
        return 1
    items: Any = call.arguments.get("tasks")
    if not isinstance(items, list):
        return 1
    return max(1, len(cast("Any", items)))


def _field_path(call: ToolCall, place: int) -> str:
    """Return what precedes the names of an item's fields in errors."""
    if call.name == "task_parallel":
        return f"tasks[{place}]."
    return ""


def wait_mode(call: ToolCall, place: int = 0) -> ChildWait:
    """Return whether a call blocks on the subtask at a position or is woken by its end."""
    item = item_of(call, place)
    is_awaited = boolean_field(item, "wait", _field_path(call, place), default=True)
    if is_awaited:
        return "block"
    return "wake"


def is_blocking(call: ToolCall, place: int) -> bool:
    """True if a call waits for the result of its subtask at a position."""
    wait = item_of(call, place).get("wait")
    if call.name == "create_subtask":
        return wait == "block"
    return wait is not False


def item_of(call: ToolCall, place: int) -> Mapping[str, Any]:
    """Return the item at a position of a call; empty if it is not an object."""
    if call.name in ("task", "create_subtask"):
        return call.arguments
    if call.name != "task_parallel":
        return {}
    item: Any = call.arguments["tasks"][place]
    if not isinstance(item, Mapping):
        return {}
    return cast("Mapping[str, Any]", item)


def requested_tools(call: ToolCall, place: int) -> Tools:
    """Return the tools that an item asks for; an invalid grant counts as none."""
    asked = item_of(call, place).get("tools")
    if asked is None:  # an empty list asks for no tools
        return Tools()
    try:
        return cast("Tools", check(Grant, asked, "tools"))
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
    if "://" in item:
        return {"type": "url", "value": item}
    path = PurePath(folder or "/") / item
    return {"type": "file", "value": str(path)}


def _non_blank(text: Any) -> Any:
    """Return a text, or None if it is blank."""
    return None if isinstance(text, str) and not text.strip() else text


class RequestedWork(NamedTuple):
    """An item of a delegation: the fields of its task, and whether it may use the result cache."""

    fields: dict[str, Any]
    cache: bool


def item_at(call: ToolCall, place: int) -> tuple[Any, str, float]:
    """Return an item of a call, the path of its fields, and its default time limit."""
    seconds = TIMEOUT_SECONDS[call.name]
    if call.name == "Task":
        return plain(parse(LaunchTask, call.arguments)), "", seconds
    if call.name == "task":
        return _work_fields(call.arguments), "", seconds
    item = _listed_item(call.arguments.get("tasks"), place)
    shared_seconds = call.arguments.get("timeout_seconds") or seconds
    return item, _field_path(call, place), shared_seconds


def _listed_item(items: Any, place: int) -> Any:
    """Return an item of a list of tasks; a text is the objective of its task."""
    if not isinstance(items, list) or not items:
        raise invalid("tasks", "is not a list of tasks", "a list of objects with an objective each")
    item: Any = cast("Any", items)[place]
    if isinstance(item, str):
        return {"objective": item}
    if isinstance(item, Mapping):
        return _work_fields(cast("Mapping[str, Any]", item))
    return item


def _work_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item without the fields about its answer: `wait_mode` reads `wait`, and `format`
    has no effect, because every answer to an agent has the same form.
    """
    return omit(item, ("wait", "format"))


def requested_work(item: Any, at: str = "", seconds: float | None = None) -> RequestedWork:
    """Return the task that an item of a delegation asks for.

    `seconds` is the time limit if the item does not give one.
    """
    if not isinstance(item, Mapping):
        raise invalid(at.rstrip("."), "is not an object", "an object with an objective")
    work = cast("Mapping[str, Any]", item)
    _refuse_unknown_fields(work, at)
    objective = _objective_of(work, at)
    description = _non_blank(work.get("description"))
    fields: dict[str, Any] = {
        "title": title_of(description or objective),
        "instructions": objective,
        "owner": work.get("subagent_type") or "general",
        "limits": _limits_of(work, seconds),
        **_task_fields(work),
        **omit_none({"description": description}),
    }
    if work.get("context") is not None:
        fields["metadata"] = {"context": work["context"]}
    return RequestedWork(fields, boolean_field(work, "cache", at, default=False))


def _task_fields(work: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that its task has too, unless they are null."""
    return omit_none(pick(work, FIELDS))


def _refuse_unknown_fields(work: Mapping[str, Any], at: str) -> None:
    """Raise `InvalidParam` for a field that an item does not have."""
    unknown = sorted(work.keys() - KNOWN)
    if unknown:
        expected = f"one of {', '.join(sorted(KNOWN))}"
        raise invalid(f"{at}{unknown[0]}", "is not a field here", expected)


def _objective_of(work: Mapping[str, Any], at: str) -> str:
    """Return what an item asks for; raise `InvalidParam` without a text."""
    objective = work.get("objective") or work.get("prompt")
    if not isinstance(objective, str) or not objective.strip():
        raise invalid(f"{at}objective", "is missing", "what the sub-agent has to do, as text")
    return objective


def _limits_of(work: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
    """Return the limits of an item, with its own time limit or the one given here."""
    limits = dict(work.get("limits") or {})
    timeout = work.get("timeout_seconds") or limits.get("timeout_seconds") or seconds
    if timeout is not None:
        limits["timeout_seconds"] = timeout
    return limits
