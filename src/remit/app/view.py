"""What callers are shown of stored rows: plain dictionaries in the words of the contract."""

import json
from typing import Any

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
    "status": None,
    "state": None,
    "ready": False,
    "blocked_by": [],
    "wait": None,
    "reason": None,
    "failure_reason": None,
    "thread_id": None,
    "channel": "local",
    "session_id": None,
    "parent_session_id": None,
    "model": None,
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

USAGE = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "tool_calls": 0, "cost": 0.0}


def status_of(state: str) -> str:
    """What boards show for a state."""
    return "active" if state in LIVE and state != "draft" else state


def task_view(document: dict[str, Any], blocked_by: list[str], successor: str | None, now: str) -> dict[str, Any]:
    """The whole task."""
    view = TASK | {name: value for name, value in document.items() if name in TASK}
    for name, entry in PARTS.items():
        view[name] = [entry | item for item in view[name]]
    blocked = [] if "started_at" in document or "archived_at" in document else blocked_by
    schedule: dict[str, str] = document.get("schedule") or {}
    early = schedule.get("not_before", "") > now
    free = document["state"] == "pending" and "owner" in document and "session_id" not in document
    view |= {
        "status": status_of(document["state"]),
        "child_ids": [child["id"] for child in document.get("children", ())],
        "blocked_by": blocked,
        "ready": free and not blocked and not early,
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
    names = ("id", "task_id", "question", "options", "blocking", "asked_by", "asked_at", "status", "answer", "answered_by", "answered_at")
    view = dict(zip(names, row, strict=True))
    options = json.loads(view["options"]) if view["options"] else None
    return view | {"task_id": str(view["task_id"]), "options": options, "blocking": bool(view["blocking"]), "path": path}


def worker_view(row: Any, lease_seconds: float) -> dict[str, Any]:
    """A worker as people see it; who was silent for longer than a lease has lost its runs."""
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
        "alive": row.age_seconds < lease_seconds,
        "models": json.loads(row.models) if row.models else [],
    }
