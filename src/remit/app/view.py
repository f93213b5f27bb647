"""What callers are shown of stored rows: plain dictionaries in the words of the contract."""

import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

STATES = ("draft", "pending", "running", "waiting", "paused", "verifying", "done", "failed", "canceled")
LIVE = STATES[:6]
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
"""Every field of a task as callers see it, with what stands there if nothing was stored."""

PARTS: dict[str, dict[str, Any]] = {
    "acceptance": {"id": None, "text": None, "check": None, "status": "unchecked", "evidence": None, "by": None},
    "outputs": {"name": None, "kind": "text", "schema": None, "required": True},
    "steps": {"title": None, "details": None, "done": False, "task_id": None},
    "resources": {"type": None, "value": None, "label": None},
    "depends_on": {"task_id": None, "on": "done"},
}
"""The same for the entries of its lists."""

INTERACTION = (
    "id",
    "task_id",
    "question",
    "options",
    "blocking",
    "asked_by",
    "asked_at",
    "status",
    "answer",
    "answered_by",
    "answered_at",
    "allow_other",
)
"""The fields of a question to a person."""

USAGE = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "tool_calls": 0, "cost": 0.0}


def status_of(state: str) -> str:
    """What boards show for a state."""
    return "active" if state in LIVE and state != "draft" else state


Hold = dict[str, str]
"""What keeps a task from starting: `{kind, ref}`, and of a dependency its state."""


def held_by(view: dict[str, Any], start: "Start", unmet: list[tuple[str, str]], now: str) -> list[Hold]:
    """What keeps a task from starting at an instant; empty if it could start, and in states in which nothing but its work is open.

    `unmet` has the dependencies that are not met, by id, with their states.
    """
    if view["state"] == "waiting":
        return [{"kind": "slot", "ref": start.at}] if start.at and start.at > now else []
    if view["state"] != "pending":
        return []
    holds = [{"kind": "dependency", "ref": other, "state": state} for other, state in unmet] if start.started_at is None else []
    if start.session_id is not None:
        holds.insert(0, {"kind": "session", "ref": start.session_id})
    elif view["owner"] is None:
        holds.insert(0, {"kind": "owner", "ref": ""})
    due = max(start.at or "", start.not_before or "")
    if due > now:
        holds.append({"kind": _time(view, start, due), "ref": due})
    return holds


def _time(view: dict[str, Any], start: "Start", due: str) -> str:
    """What kind of time a task waits for; the slot of a task in a series is stored as its earliest start."""
    if start.started_at is None and (due != start.not_before or view.get("series_id")):
        return "slot"
    return "not_before" if due == start.not_before else "retry"


class Start(NamedTuple):
    """What is stored of when a task may start; `at` is when its job is due."""

    session_id: str | None = None
    not_before: str | None = None
    started_at: str | None = None
    at: str | None = None


def of_unknown_agents(views: Iterable[dict[str, Any]], known: Collection[str]) -> list[dict[str, Any]]:
    """The tasks of a list that no agent among the known ones could start."""
    return [view for view in views if view["state"] == "pending" and view["owner"] and view["owner"] not in known and not _assigned(view)]


def _assigned(view: dict[str, Any]) -> bool:
    return any(hold["kind"] == "session" for hold in view.get("held_by", ()))


def hold_for_agent(view: dict[str, Any]) -> None:
    """Record in a view that the agent of a task is not known."""
    view["held_by"] = [{"kind": "agent", "ref": view["owner"]}, *view.get("held_by", ())]
    if "ready" in view:
        view["ready"] = False


def task_view(document: dict[str, Any], start: Start, unmet: list[tuple[str, str]], successor: str | None, now: str) -> dict[str, Any]:
    """The whole task."""
    view = TASK | {name: value for name, value in document.items() if name in TASK}
    for name, entry in PARTS.items():
        view[name] = [entry | item for item in view[name]]
    blocked = [] if "started_at" in document or "archived_at" in document else [other for other, _ in unmet]
    holds = held_by(view, start, unmet, now)
    view |= {
        "status": status_of(document["state"]),
        "child_ids": [child["id"] for child in document.get("children", ())],
        "blocked_by": blocked,
        "held_by": holds,
        "ready": document["state"] == "pending" and not holds,
        "superseded_by": document.get("superseded_by") or successor,
        "usage": USAGE | view["usage"],
        "run_id": document["run"]["id"] if "run" in document else None,
    }
    return view


def summary_view(row: tuple[Any, ...]) -> dict[str, Any]:
    """A task in a list."""
    task_id, title, state, owner, parent_id, wait, priority, updated_at = row[:8]
    return {
        "id": str(task_id),
        "title": title,
        "status": status_of(state),
        "state": state,
        "owner": owner,
        "parent_id": str(parent_id) if parent_id is not None else None,
        "wait": json.loads(wait) if wait else None,
        "priority": priority,
        "updated_at": updated_at,
    }


def event_view(row: tuple[Any, ...]) -> dict[str, Any]:
    """An event of a task."""
    _, stream, version, kind, at, actor, data, _, position = row
    return {"position": position, "task_id": stream, "version": version, "type": kind, "at": at, "actor": actor, "data": json.loads(data)}


def update_view(row: tuple[Any, ...]) -> dict[str, Any]:
    """An update and its receipt."""
    return dict(zip(("update_id", "type", "content", "status", "run_id", "turn", "at"), row, strict=True))


def interaction_view(row: tuple[Any, ...], path: list[str]) -> dict[str, Any]:
    """A question to a person."""
    view = dict(zip(INTERACTION, row, strict=True))
    options = json.loads(view["options"]) if view["options"] else None
    return view | {
        "task_id": str(view["task_id"]),
        "options": options,
        "allow_other": bool(view["allow_other"]) or options is None,
        "blocking": bool(view["blocking"]),
        "path": path,
    }


def worker_view(row: Any, *, alive: bool) -> dict[str, Any]:
    """A worker as people see it; `scope` has the roots of the trees that it works on, and is null for everything."""
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
        "scope": None if row.roots is None else [str(root) for root in row.roots],
        "models": json.loads(row.models) if row.models else [],
    }
