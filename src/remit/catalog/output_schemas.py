"""JSON Schemas of what operations return: named shapes, shared by operations that return
the same.
"""

from typing import Any

from remit.app.agents.registry import Agent
from remit.app.reading.views import CLOSED, STATES, TASK
from remit.domain.records.json_schema import Schema, nullable, output_schema
from remit.domain.records.record import summary
from remit.domain.task.task import Task, Wait

_TEXT: Schema = {"type": "string"}
_NOTICE = _TEXT
"""The tools that were requested but not granted, and why."""
_IDS: Schema = {"type": "array", "items": _TEXT}
_INSTANT: Schema = {"type": "string", "format": "date-time"}
_STATUS: Schema = {"type": "string", "enum": ["draft", "active", "done", "failed", "canceled"]}
_STATE: Schema = {"type": "string", "enum": list(STATES)}


def shape(**properties: Schema) -> Schema:
    """Return an object schema with these properties."""
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
            "kind": {
                "type": "string",
                "enum": ["owner", "agent", "session", "dependency", "not_before", "slot", "retry"],
            },
            "ref": _TEXT,
            "state": _STATE,
        },
        "required": ["kind", "ref"],
    },
    "description": (
        "Why it cannot start now: a missing owner, an unknown agent, a session, dependencies, a"
        " time."
    ),
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
    return shape(**{name: computed.get(name) or stored[name] for name in TASK}) | {
        "description": summary(Task)
    }


_TASK = _task()
_SUMMARY = shape(
    id=_TEXT,
    title=_TEXT,
    status=_STATUS,
    state=_STATE,
    owner=nullable(_TEXT),
    parent_id=nullable(_TEXT),
    wait=nullable(output_schema(Wait)),
    priority={"type": "integer"},
    updated_at=_INSTANT,
)
_SUMMARY["properties"]["held_by"] = _HELD_BY
_EVENT = shape(
    position=_TEXT,
    task_id=_TEXT,
    version={"type": "integer"},
    type=_TEXT,
    at=_INSTANT,
    actor=_TEXT,
    data={"type": "object"},
)
_UPDATE = shape(
    update_id=_TEXT,
    type={
        "type": "string",
        "enum": [
            "instructions",
            "acceptance",
            "outputs",
            "message",
            "steps",
            "rejection",
            "subtask",
        ],
    },
    content=_TEXT,
    status={"type": "string", "enum": ["queued", "delivered", "undelivered"]},
    run_id=nullable(_TEXT),
    turn=nullable({"type": "integer"}),
    at=_INSTANT,
)
_INTERACTION = shape(
    id=_TEXT,
    task_id=_TEXT,
    question=_TEXT,
    options=nullable(_IDS),
    allow_other={"type": "boolean"},
    blocking={"type": "boolean"},
    asked_by=_TEXT,
    asked_at=_INSTANT,
    status={"type": "string", "enum": ["open", *CLOSED]},
    answer=nullable(_TEXT),
    answered_by=nullable(_TEXT),
    answered_at=nullable(_INSTANT),
    path=_IDS,
)
_NOTIFICATION = shape(id=_TEXT, task_id=_TEXT, message=_TEXT, actor=_TEXT, at=_INSTANT)
_GUIDE_LINE = shape(id=_TEXT, title=_TEXT, created_by=_TEXT, created_at=_INSTANT)
_AGENT = output_schema(Agent)
IN_LISTS = tuple(name for name in _AGENT["properties"] if name not in ("prompt", "extra"))
"""The fields of an agent in a list."""
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
        "at": _INSTANT,
    },
    "required": ["role", "parts", "run_id", "turn", "at"],
}
_ASKED = shape(interaction_id=_TEXT, task_id=_TEXT, question=_TEXT)
_ASKED["properties"]["options"] = _IDS
_DATA: Schema = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": ["running", "completed", "failed", "timeout", "cancelled"],
        },
        "task_id": nullable(_TEXT),
        "result": _TEXT,
        "tool_summary": _list_of(shape(tool=_TEXT, count={"type": "integer"})),
        "model_used": nullable(_TEXT),
        "subagent_type": nullable(_TEXT),
        "outputs": {"type": "object"},
        "cached": {"type": "boolean"},
        "not_cached": _TEXT,
        "notice": _NOTICE,
        "questions": _list_of(_ASKED),
    },
    "required": ["status", "task_id", "result", "tool_summary", "model_used", "subagent_type"],
}
_ENVELOPE: Schema = {
    "type": "object",
    "description": (
        "The result of a delegation; with format flat, task_id and later fields on one level."
    ),
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
        "started_at": nullable(_INSTANT),
        "completed_at": nullable(_INSTANT),
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
    questions=_list_of(
        shape(id=_TEXT, question=_TEXT, options=_IDS, allow_other={"type": "boolean"})
    ),
    waits_for=nullable(_TEXT),
    seconds={"type": "number"},
) | {
    "description": (
        "The progress of an awaited task or one of its subtasks; index is the position of its task"
        " in the request."
    )
}

_PROGRESS["properties"]["superseded_by"] = _TEXT
_PROGRESS["properties"]["unattended"] = {"type": "boolean"}

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
        "properties": {
            "success": {"type": "boolean"},
            "update_id": _TEXT,
            "update_ids": _IDS,
            "task": _TASK,
        },
        "required": ["success", "task"],
    },
    "canceled": shape(success={"type": "boolean"}, canceled=_IDS),
    "success": shape(success={"type": "boolean"}),
    "sent": shape(success={"type": "boolean"}, update_id=_TEXT, delivery=_TEXT),
    "tasks": _page("tasks", _SUMMARY, agents=_IDS, in_flight=_IDS),
    "ready": _page("tasks", _SUMMARY),
    "told": shape(context=_TEXT, task_ids=_IDS, update_ids=_IDS),
    "history": _page(
        "tasks", _SUMMARY | {"properties": _SUMMARY["properties"] | {"archived_at": _INSTANT}}
    ),
    "updates": shape(updates=_list_of(_UPDATE)),
    "events": shape(events=_list_of(_EVENT), next=nullable({"type": "integer"})),
    "interactions": _page("interactions", _INTERACTION),
    "notifications": _page("notifications", _NOTIFICATION),
    "guide_created": shape(guide_id=_TEXT),
    "guide": shape(id=_TEXT, title=_TEXT, body=_TEXT, created_by=_TEXT, created_at=_INSTANT),
    "guides": _page("guides", _GUIDE_LINE),
    "agents": _page("agents", _AGENT_LINE),
    "agent": _AGENT,
}

RESULT_CLASSES = {
    "envelope": "TaskResult",
    "progress": "Progress",
    "results": "TaskResults",
    "transcript": "Transcript",
    "task": "Task",
    "created": "Created",
    "changed": "Changed",
    "updated": "Updated",
    "canceled": "Canceled",
    "success": "Success",
    "sent": "Sent",
    "tasks": "TaskPage",
    "ready": "TaskSummaryPage",
    "told": "SessionContext",
    "history": "HistoryPage",
    "updates": "UpdateList",
    "events": "EventPage",
    "interactions": "InteractionPage",
    "notifications": "NotificationPage",
    "guide_created": "GuideCreated",
    "guide": "Guide",
    "guides": "GuidePage",
    "agents": "AgentPage",
    "agent": "Agent",
}
"""The class in `remit.results` for each shape."""


def result_class(output: Schema) -> str:
    """Return the name of the class that an operation returns."""
    return next(RESULT_CLASSES[name] for name, found in SHAPES.items() if found is output)
