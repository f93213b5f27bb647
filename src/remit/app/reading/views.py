"""Views of stored rows: plain dictionaries as callers see them."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from remit.domain.records.pick import among, beyond, pick
from remit.store_queries.task_queries import EndedSummary, TaskStart, TaskSummary

if TYPE_CHECKING:  # most commands do not need these rows
    from remit.store_queries.event_queries import OutputEvent, PlacedEvent
    from remit.store_queries.record_queries import InteractionRow, NotificationRow


STATES = (
    "draft",
    "pending",
    "running",
    "waiting",
    "paused",
    "verifying",
    "done",
    "failed",
    "canceled",
)
LIVE = STATES[:6]
ACTIVE = STATES[1:6]
CLOSED = ("answered", "closed")

TASK: dict[str, Any] = {
    "id": None,
    "uid": None,
    "title": None,
    "description": "",
    "instructions": "",
    "instructions_version": 1,
    "acceptance": [],
    "completion": "auto",
    "verification": "none",
    "outputs": [],
    "completion_outputs": None,
    "guides": [],
    "steps": [],
    "resources": [],
    "owner": None,
    "created_by": None,
    "parent_id": None,
    "child_ids": [],
    "step_index": None,
    "root_id": None,
    "depth": 0,
    "depends_on": [],
    "schedule": None,
    "rerun_of": None,
    "superseded_by": None,
    "series_id": None,
    "status": None,
    "state": None,
    "ready": False,
    "blocked_by": [],
    "held_by": [],
    "wait": None,
    "reason": None,
    "failure_reason": None,
    "thread_id": None,
    "channel": "local",
    "session_id": None,
    "parent_session_id": None,
    "model": None,
    "effort": None,
    "tools": {},
    "priority": 2,
    "limits": {},
    "summary": None,
    "final_message": None,
    "usage": {},
    "tool_summary": [],
    "duration": 0.0,
    "run_id": None,
    "created_at": None,
    "updated_at": None,
    "started_at": None,
    "completed_at": None,
    "archived_at": None,
    "version": None,
    "labels": [],
    "metadata": {},
    "idempotency_key": None,
}
"""Every field of a task as callers see it, with its default."""

PARTS: dict[str, dict[str, Any]] = {
    "acceptance": {
        "id": None,
        "text": None,
        "check": None,
        "status": "unchecked",
        "evidence": None,
        "by": None,
    },
    "outputs": {"name": None, "kind": "text", "schema": None, "required": True},
    "steps": {"title": None, "details": None, "done": False, "task_id": None},
    "resources": {"type": None, "value": None, "label": None},
    "depends_on": {"task_id": None, "on": "done"},
}
"""The fields of its list entries, with their defaults."""

USAGE = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "tool_calls": 0, "cost": 0.0}


def status_of(state: str) -> str:
    """Return the status that boards show for a state."""
    if state in ACTIVE:
        return "active"
    return state


Hold = dict[str, str]
"""A reason why a task cannot start: `{kind, ref}`, with the state of a dependency."""


def held_by(
    view: dict[str, Any], start: TaskStart, unmet: list[tuple[str, str]], now: str
) -> list[Hold]:
    """Return the reasons why a task cannot start at a given time.

    Empty if it can start, or if its state does not depend on anything else. `unmet` has the
    dependencies that are not met, by id, with their states.
    """
    if view["state"] == "waiting":
        return _slot_hold(start, now)
    if view["state"] != "pending":
        return []
    holds = _assignee_hold(view, start)
    if start.started_at is None:
        holds += _dependency_holds(unmet)
    due = max(start.at or "", start.not_before or "")
    if due > now:
        holds.append({"kind": _time(view, start, due), "ref": due})
    return holds


def _dependency_holds(unmet: list[tuple[str, str]]) -> list[Hold]:
    """Return the dependencies that are not met."""
    return [{"kind": "dependency", "ref": other, "state": state} for other, state in unmet]


def awaited_kinds(view: Mapping[str, Any]) -> set[str]:
    """Return the kinds of what a task waits for; empty if it does not wait."""
    if view["wait"] is None:
        return set()
    return {item["kind"] for item in view["wait"]["on"]}


def _slot_hold(start: TaskStart, now: str) -> list[Hold]:
    """Return the cron slot that a task waits for, if it is in the future."""
    if start.at and start.at > now:
        return [{"kind": "slot", "ref": start.at}]
    return []


def _assignee_hold(view: dict[str, Any], start: TaskStart) -> list[Hold]:
    """Return the session that has a task, or that it has no owner."""
    if start.session_id is not None:
        return [{"kind": "session", "ref": start.session_id}]
    if view["owner"] is None:
        return [{"kind": "owner", "ref": ""}]
    return []


def _time(view: dict[str, Any], start: TaskStart, due: str) -> str:
    """Return the kind of time that a task waits for.

    The slot of a task in a series is stored as its earliest start.
    """
    is_own_time = due == start.not_before
    if start.started_at is None and (view.get("series_id") or not is_own_time):
        return "slot"
    if is_own_time:
        return "not_before"
    return "retry"


def with_unknown_agent(
    views: Iterable[dict[str, Any]], known: Collection[str]
) -> list[dict[str, Any]]:
    """Return the tasks that could start but have an unknown agent."""
    return [view for view in views if _needs_agent(view) and view["owner"] not in known]


def _needs_agent(view: dict[str, Any]) -> bool:
    """Return whether a worker with the agent of a task has to start it."""
    is_assigned = any(hold["kind"] == "session" for hold in view.get("held_by", ()))
    return view["state"] == "pending" and bool(view["owner"]) and not is_assigned


def hold_for_agent(view: dict[str, Any]) -> None:
    """Record in a view that the agent of a task is unknown."""
    view["held_by"] = [{"kind": "agent", "ref": view["owner"]}, *view.get("held_by", ())]
    if "ready" in view:
        view["ready"] = False


def task_view(
    document: dict[str, Any],
    start: TaskStart,
    unmet: list[tuple[str, str]],
    successor: str | None,
    now: str,
) -> dict[str, Any]:
    """Return a whole task."""
    view = _complete_fields(document)
    blocked: list[str] = []
    if document.keys().isdisjoint(("started_at", "archived_at")):
        blocked = [other for other, _ in unmet]
    run = document.get("run", {})
    holds = held_by(view, start, unmet, now)
    view |= {
        "status": status_of(document["state"]),
        "child_ids": [child["id"] for child in document.get("children", ())],
        "blocked_by": blocked,
        "held_by": holds,
        "ready": document["state"] == "pending" and not holds,
        "superseded_by": document.get("superseded_by") or successor,
        "usage": USAGE | view["usage"],
        "run_id": run.get("id"),
    }
    return view


def _complete_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that callers see, with the defaults that a document leaves out."""
    view = TASK | pick(document, TASK)
    for name, entry in PARTS.items():
        view[name] = [entry | item for item in view[name]]
    return view


def summary_view(row: TaskSummary | EndedSummary) -> dict[str, Any]:
    """Return a task in a list."""
    parent_id = row.parent_id
    return {
        "id": str(row.id),
        "title": row.title,
        "status": status_of(row.state),
        "state": row.state,
        "owner": row.owner,
        "parent_id": None if parent_id is None else str(parent_id),
        "wait": _parsed(row.wait),
        "priority": row.priority,
        "updated_at": row.updated_at,
    }


def _parsed(text: str | None) -> Any:
    """Return a stored JSON value; None for a missing or an empty text."""
    if not text:
        return None
    return json.loads(text)


def event_view(row: "PlacedEvent") -> dict[str, Any]:
    """Return an event of a task."""
    return {
        "position": row.position,
        "task_id": row.stream,
        "version": row.version,
        "type": row.type,
        "at": row.at,
        "actor": row.actor,
        "data": json.loads(row.data),
    }


def output_changes(rows: "Iterable[OutputEvent]") -> dict[str, str]:
    """Describe what each update of outputs changed, by its id.

    The rows are the events that set the outputs of a task.
    """
    texts: dict[str, str] = {}
    before: dict[str, dict[str, Any]] = {}
    for row in rows:
        event = json.loads(row.data)
        after = {item["name"]: item for item in event.get("outputs") or ()}
        if row.type == "OutputsUpdated":
            texts[event["update_id"]] = _outputs_text(before, after)
        before = after
    return texts


def _outputs_text(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> str:
    """Return the required, optional, added, removed and changed outputs, one group per line."""
    kept = among(after, before)
    groups = {
        "Required": _output_names(after, required=True) or ["none"],
        "Optional": _output_names(after, required=False),
        "Added": beyond(after, before),
        "Removed": beyond(before, after),
        "Changed": [name for name in kept if before[name] != after[name]],
    }
    return "\n".join(f"{group}: {', '.join(names)}" for group, names in groups.items() if names)


def _output_names(outputs: dict[str, dict[str, Any]], *, required: bool) -> list[str]:
    """Return the names and kinds of the required or the optional outputs."""
    chosen = [item for item in outputs.values() if bool(item.get("required", True)) is required]
    return list(map(_output_name, chosen))


def _output_name(item: dict[str, Any]) -> str:
    """Return the name of an output, with its kind unless it is text."""
    name: str = item["name"]
    kind = item.get("kind", "text")
    if kind == "text":
        return name
    return f"{name} ({kind})"


def interaction_view(row: "InteractionRow", path: list[str]) -> dict[str, Any]:
    """Return a question to a person."""
    options = _parsed(row.options)
    return {
        "id": row.interaction_id,
        "task_id": str(row.task_id),
        "question": row.question,
        "options": options,
        "blocking": bool(row.blocking),
        "asked_by": row.asked_by,
        "asked_at": row.asked_at,
        "status": row.status,
        "answer": row.answer,
        "answered_by": row.answered_by,
        "answered_at": row.answered_at,
        "allow_other": bool(row.allow_other) or options is None,
        "path": path,
    }


def notification_view(row: "NotificationRow") -> dict[str, Any]:
    """Return a notification of an agent to people."""
    return {
        "id": row.notification_id,
        "task_id": str(row.task_id),
        "message": row.message,
        "actor": row.actor,
        "at": row.at,
    }


def worker_view(row: Any, *, alive: bool) -> dict[str, Any]:
    """Return a worker as people see it.

    `scope` has the roots of the trees that it serves; None means all trees.
    """
    return {
        "worker": row.worker,
        "host": row.host,
        "pid": row.pid,
        "version": row.version,
        "agents": row.agents.split(",") if row.agents else [],
        "concurrency": row.concurrency,
        "since": row.since,
        "running": row.running,
        "heartbeat_seconds_ago": round(row.age_seconds, 3),
        "alive": alive,
        "scope": None if row.roots is None else list(map(str, row.roots)),
        "models": _parsed(row.models) or [],
    }
