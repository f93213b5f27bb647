"""What operations return, as JSON Schema: one shape by name, shared by those that return the same."""

from typing import Any

from remit.app.agents import Agent
from remit.app.view import CLOSED, STATES, TASK
from remit.domain.schema import Schema, nullable, output_schema
from remit.domain.value import Task

_TEXT: Schema = {"type": "string"}
_NOTICE = _TEXT
"""The tools that were asked for and not granted, and why."""
_IDS: Schema = {"type": "array", "items": _TEXT}
_STATUS: Schema = {"type": "string", "enum": ["draft", "active", "done", "failed", "canceled"]}
_STATE: Schema = {"type": "string", "enum": list(STATES)}


def shape(**properties: Schema) -> Schema:
    """An object with all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _page(name: str, item: Schema, **more: Schema) -> Schema:
    return shape(**{name: _list_of(item), "next_cursor": nullable(_TEXT)}, **more)


_HELD_BY: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["owner", "agent", "session", "dependency", "not_before", "slot", "retry"]},
            "ref": _TEXT,
            "state": _STATE,
        },
        "required": ["kind", "ref"],
    },
    "description": "What keeps it from starting now: an owner that it lacks, an agent that is not known, a session, dependencies, a time.",
}


def _task() -> Schema:
    stored: Schema = output_schema(Task)["properties"]
    computed: dict[str, Any] = {
        "status": _STATUS,
        "child_ids": _IDS,
        "blocked_by": _IDS,
        "held_by": _HELD_BY,
        "ready": {"type": "boolean"},
        "run_id": nullable(_TEXT),
        "metadata": {"type": "object"},
    }
    return shape(**{name: computed.get(name) or stored[name] for name in TASK}) | {"description": Task.__doc__}


_TASK = _task()
_SUMMARY = shape(
    id=_TEXT,
    title=_TEXT,
    status=_STATUS,
    state=_STATE,
    owner=nullable(_TEXT),
    parent_id=nullable(_TEXT),
    wait=nullable({"type": "object"}),
    priority={"type": "integer"},
    updated_at=_TEXT,
)
_SUMMARY["properties"]["held_by"] = _HELD_BY
_EVENT = shape(position=_TEXT, task_id=_TEXT, version={"type": "integer"}, type=_TEXT, at=_TEXT, actor=_TEXT, data={"type": "object"})
_UPDATE = shape(
    update_id=_TEXT,
    type={"type": "string", "enum": ["instructions", "acceptance", "outputs", "message", "steps", "rejection", "subtask"]},
    content=_TEXT,
    status={"type": "string", "enum": ["queued", "delivered", "undelivered"]},
    run_id=nullable(_TEXT),
    turn=nullable({"type": "integer"}),
    at=_TEXT,
)
_INTERACTION = shape(
    id=_TEXT,
    task_id=_TEXT,
    question=_TEXT,
    options=nullable(_IDS),
    allow_other={"type": "boolean"},
    blocking={"type": "boolean"},
    asked_by=_TEXT,
    asked_at=_TEXT,
    status={"type": "string", "enum": ["open", *CLOSED]},
    answer=nullable(_TEXT),
    answered_by=nullable(_TEXT),
    answered_at=nullable(_TEXT),
    path=_IDS,
)
_NOTIFICATION = shape(id=_TEXT, task_id=_TEXT, message=_TEXT, actor=_TEXT, at=_TEXT)
_GUIDE_LINE = shape(id=_TEXT, title=_TEXT, created_by=_TEXT, created_at=_TEXT)
_AGENT = output_schema(Agent)
IN_LISTS = tuple(name for name in _AGENT["properties"] if name not in ("prompt", "extra"))
"""What a list shows of an agent."""
_AGENT_LINE = _AGENT | {"properties": {name: _AGENT["properties"][name] for name in IN_LISTS}}

_PART = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": ["text", "thinking", "tool_call", "tool_result", "task_result"],
        },
        "text": _TEXT,
        "call_id": _TEXT,
        "name": _TEXT,
        "arguments": {"type": "object"},
        "task_id": _TEXT,
        "status": _TEXT,
        "media": shape(type=_TEXT, bytes={"type": "integer"}),
    },
    "required": ["type"],
}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["user", "assistant", "tool", "system"]},
        "parts": _list_of(_PART),
        "run_id": _TEXT,
        "turn": {"type": "integer"},
        "at": _TEXT,
    },
    "required": ["role", "parts", "run_id", "turn", "at"],
}
_DATA: Schema = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["running", "completed", "failed", "timeout", "cancelled"]},
        "task_id": nullable(_TEXT),
        "result": _TEXT,
        "tool_summary": _list_of(shape(tool=_TEXT, count={"type": "integer"})),
        "model_used": nullable(_TEXT),
        "subagent_type": nullable(_TEXT),
        "outputs": {"type": "object"},
        "cached": {"type": "boolean"},
        "not_cached": _TEXT,
        "notice": _NOTICE,
    },
    "required": ["status", "task_id", "result", "tool_summary", "model_used", "subagent_type"],
}
_ENVELOPE: Schema = {
    "type": "object",
    "description": "What came of a delegation; with format flat, the fields of the second half on one level.",
    "properties": {
        "status": _TEXT,
        "data": _DATA,
        "text": _TEXT,
        "stats": {"type": "object"},
        "context": {"type": "object"},
        "error": {"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]},
        "task_id": nullable(_TEXT),
        "objective": nullable(_TEXT),
        "agent_type": nullable(_TEXT),
        "result": nullable(_TEXT),
        "duration": {"type": "number"},
        "started_at": nullable(_TEXT),
        "completed_at": nullable(_TEXT),
        "cached": {"type": "boolean"},
        "not_cached": _TEXT,
        "notice": _NOTICE,
    },
    "required": ["status"],
}

_PROGRESS: Schema = shape(
    type={"type": "string", "enum": ["task_started", "task_progress", "task_updated"]},
    index={"type": "integer"},
    task_id=_TEXT,
    parent_id=nullable(_TEXT),
    title=_TEXT,
    owner=nullable(_TEXT),
    state=_STATE,
    tool=nullable(_TEXT),
    tool_calls={"type": "integer"},
    tokens={"type": "integer"},
    cost={"type": "number"},
    questions=_list_of(shape(id=_TEXT, question=_TEXT, options=_IDS, allow_other={"type": "boolean"})),
    waits_for=nullable(_TEXT),
    seconds={"type": "number"},
) | {"description": "How a task stands that somebody waits for, or one below it; index is the place of the piece of work it belongs to."}

SHAPES: dict[str, Schema] = {
    "envelope": _ENVELOPE,
    "progress": _PROGRESS,
    "results": shape(results=_list_of(_ENVELOPE)),
    "transcript": shape(messages=_list_of(_MESSAGE), next=nullable({"type": "integer"})),
    "task": _TASK,
    "created": {
        "type": "object",
        "properties": {"task_id": _TEXT, "task": _TASK, "notice": _NOTICE},
        "required": ["task_id", "task"],
    },
    "changed": shape(success={"type": "boolean"}, task=_TASK),
    "updated": {
        "type": "object",
        "properties": {"success": {"type": "boolean"}, "update_id": _TEXT, "update_ids": _IDS, "task": _TASK},
        "required": ["success", "task"],
    },
    "canceled": shape(success={"type": "boolean"}, canceled=_IDS),
    "success": shape(success={"type": "boolean"}),
    "sent": shape(success={"type": "boolean"}, update_id=_TEXT, delivery=_TEXT),
    "tasks": _page("tasks", _SUMMARY, agents=_IDS, in_flight=_IDS),
    "ready": _page("tasks", _SUMMARY),
    "told": shape(context=_TEXT, task_ids=_IDS, update_ids=_IDS),
    "history": _page("tasks", _SUMMARY | {"properties": _SUMMARY["properties"] | {"archived_at": _TEXT}}),
    "updates": shape(updates=_list_of(_UPDATE)),
    "events": shape(events=_list_of(_EVENT), next=nullable({"type": "integer"})),
    "interactions": _page("interactions", _INTERACTION),
    "notifications": _page("notifications", _NOTIFICATION),
    "guide_created": shape(guide_id=_TEXT),
    "guide": shape(id=_TEXT, title=_TEXT, body=_TEXT, created_by=_TEXT, created_at=_TEXT),
    "guides": _page("guides", _GUIDE_LINE),
    "agents": shape(agents=_list_of(_AGENT_LINE)),
    "agent": _AGENT,
}
