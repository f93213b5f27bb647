"""The OpenAPI document, generated from the table of operations."""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from remit.catalog import FOR_EVERYONE, Operation
from remit.catalog.output_schemas import SHAPES
from remit.domain.records.json_schema import Schema, record_schema
from remit.domain.records.record import summary
from remit.domain.records.serialize import dumps
from remit.domain.task import commands as cmd
from remit.domain.task import task as val
from remit.errors import (
    Conflict,
    Forbidden,
    Internal,
    InvalidParam,
    LimitExceeded,
    NotFound,
    RemitError,
    TimedOut,
    Unauthenticated,
    Unavailable,
)

ERRORS: tuple[type[RemitError], ...] = (
    Unauthenticated,
    Forbidden,
    NotFound,
    Conflict,
    InvalidParam,
    LimitExceeded,
    Internal,
    Unavailable,
    TimedOut,
)
HTTP_ONLY_ERRORS = {
    413: "The body is larger than 1,000,000 bytes.",
    415: "The body is not JSON.",
    421: "The Host header names another server.",
}
"""Refusals that only HTTP has; their code is INVALID_PARAM."""

QUERY_ALIASES: dict[str, dict[str, str]] = {"task_output": {"wait": "wait_seconds"}}
"""Additional query names for fields of an operation."""

IN_QUERY = ("format",)
"""Fields that choose the format of a response: accepted in the query even if all others are in the
body.
"""

TAGS = {
    "tasks": ("Tasks", "Create, follow, change and end tasks."),
    "delegate": ("Delegation", "Delegate work to sub-agents and get the results."),
    "sessions": ("Sessions", "Outside conversations that delegate or work on tasks."),
    "interactions": ("People", "Questions and notifications from agents."),
    "notifications": ("People", ""),
    "guides": ("Guides", "Troubleshooting guides that tasks link to."),
    "agents": ("Agents", "The agents that can do the work."),
    "events": ("Events", "Live event streams."),
    "": ("Server", "The server itself."),
}


def document(version: str) -> dict[str, Any]:
    """Return the whole API as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in FOR_EVERYONE.values():
        if operation.has_route:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
        if operation.stream is not None:
            _add_progress(paths[operation.path][operation.method.lower()])
    _add_stream(paths[FOR_EVERYONE["get_events"].path]["get"])
    # Copy: the parts are shared with the catalog, and callers may change the document.
    return deepcopy(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "remit",
                "version": version,
                "description": "Delegate work to agents under a durable contract.",
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "tags": [{"name": name, "description": text} for name, text in TAGS.values() if text],
            "paths": paths | _server_paths(),
            "components": {
                "securitySchemes": {
                    "token": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "`remit token show` prints it.",
                    }
                },
                "schemas": (
                    {name: _inside(schema) for name, schema in _NAMED.items()} | {"Error": _ERROR}
                ),
                "examples": {
                    name: {"value": example(schema)}
                    for name, schema in _NAMED.items()
                    if name not in _GIVEN
                },
                "responses": {
                    _name(status): _error_response(status) for status in _error_statuses()
                },
            },
        }
    )


def _operation(operation: Operation) -> dict[str, Any]:
    """Return an operation with its parameters, its body and its responses."""
    kind: Any = operation.input
    schema = record_schema(kind)
    in_path = re.findall(r"{(\w+)}", operation.path)
    rest = {name: field for name, field in schema["properties"].items() if name not in in_path}
    required = [name for name in schema.get("required", ()) if name in rest]
    parameters = [
        _parameter("path", name, schema["properties"][name], required=True) for name in in_path
    ]
    for name, field in _query_fields(operation, rest).items():
        parameters.append(_parameter("query", name, field, required=name in required))
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.description.partition("\n")[0],
        "description": operation.description,
        "tags": [_tag(operation.path)],
        "parameters": parameters,
        "responses": _responses(operation.output, "application/json"),
    }
    if _has_body(operation) and rest:
        found["requestBody"] = _request_body(operation.name, rest, required)
    return found


def _has_body(operation: Operation) -> bool:
    """Return True if the fields of an operation are sent in a body."""
    return operation.method not in ("GET", "DELETE")


def _query_fields(operation: Operation, rest: Schema) -> Schema:
    """Return the fields that the query can have, with their short names."""
    fields = dict(rest)
    for name, field in QUERY_ALIASES.get(operation.name, {}).items():
        fields[name] = rest[field] | {"description": f"The same as {field}."}
    if not _has_body(operation):
        return fields
    return {name: field for name, field in fields.items() if name in IN_QUERY}


def _parameter(place: str, name: str, schema: Schema, *, required: bool) -> dict[str, Any]:
    """Return a parameter in the path or the query."""
    text = schema.get("description", "")
    bare = {key: part for key, part in schema.items() if key != "description"}
    found: dict[str, Any] = {
        "name": name,
        "in": place,
        "required": required,
        "description": text,
        "schema": _refs(bare),
    }
    if place == "path":
        found["example"] = _PATHS[name]
    return found


def _request_body(name: str, properties: Schema, required: list[str]) -> dict[str, Any]:
    schema: Schema = {
        "type": "object",
        "properties": _refs(properties),
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return {
        "required": bool(required),
        "content": {"application/json": {"schema": schema, "example": REQUESTS[name]}},
    }


def _responses(output: Schema, kind: str) -> dict[str, Any]:
    """Return the answer and every error that can come instead."""
    name = _NAME_OF.get(_key(output))
    content: Schema = {"schema": _refs(output)}
    if name:
        content["examples"] = {"answer": {"$ref": f"#/components/examples/{name}"}}
    else:
        content["example"] = example(output)
    found: dict[str, Any] = {"200": {"description": "Done.", "content": {kind: content}}}
    for status in _error_statuses():
        found[str(status)] = {"$ref": f"#/components/responses/{_name(status)}"}
    return found


def _tag(path: str) -> str:
    if not path.startswith("/api/"):
        return TAGS[""][0]
    return TAGS[path.removeprefix("/api/").partition("/")[0]][0]


# Errors: one shape, and one shared response for each status

_ERROR: Schema = {
    "type": "object",
    "description": (
        "The problem and the expected value. Delegations return it in their result envelope."
    ),
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "enum": sorted(kind.code for kind in ERRORS)},
                "message": {
                    "type": "string",
                    "description": "What is wrong with which field, and what to do next.",
                },
                "details": {"type": "object", "description": "The details for programs."},
            },
            "required": ["code", "message"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
}


def _error_statuses() -> list[int]:
    return sorted([kind.status for kind in ERRORS] + list(HTTP_ONLY_ERRORS))


def _kind(status: int) -> type[RemitError]:
    """Return the error class of a status; InvalidParam for statuses of HTTP only."""
    return next((kind for kind in ERRORS if kind.status == status), InvalidParam)


def _name(status: int) -> str:
    """Return the name of a shared error response."""
    return {413: "TooLarge", 415: "NotJson", 421: "WrongHost"}.get(status) or _kind(status).__name__


def _error_response(status: int) -> dict[str, Any]:
    """Return the shared response for an error status."""
    text = HTTP_ONLY_ERRORS.get(status) or summary(_kind(status))
    shown = {"error": {"code": _kind(status).code, "message": text}}
    found: dict[str, Any] = {
        "description": text,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Error"}, "example": shown}
        },
    }
    if status in _ERROR_HEADERS:
        found["headers"] = _ERROR_HEADERS[status]
    return found


_ERROR_HEADERS: dict[int, Schema] = {
    Unavailable.status: {
        "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
    },
    Unauthenticated.status: {
        "WWW-Authenticate": {
            "description": "The authentication scheme.",
            "schema": {"type": "string"},
        }
    },
}


# HTTP only

_RESUME = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": (
        "The position of the last received event; it overrides `after`. For streams only."
    ),
    "schema": {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,18})?$"},
}


def _add_stream(operation: dict[str, Any]) -> None:
    """Add the stream of one task's events."""
    operation["description"] += (
        "\n\nWith `Accept: text/event-stream` the events are streamed live, as at /api/events."
    )
    operation["parameters"].append(_RESUME)
    operation["responses"]["200"]["content"] |= _stream_content()


def _add_progress(operation: dict[str, Any]) -> None:
    """Add the progress stream of an operation that may wait."""
    operation["description"] += (
        "\n\nWith `Accept: text/event-stream` the progress is streamed as server-sent events:"
        " `task_started`, `task_progress` and `task_updated` for the awaited tasks and their"
        " subtasks, repeated while nothing changes, `waiting` while there is no task yet, `result`"
        " (index, task_id, result, about) for each task as it settles, `error` if the wait fails,"
        " and finally `end`, whose answer is the plain response. Refused requests get a plain"
        " error. Disconnecting ends the wait and does not cancel the task.\n\nA plain response"
        " that is not ready after some seconds starts with status 200 and sends line breaks before"
        " its JSON. A later error is in the body, in the same error shape."
    )
    names = ["waiting", "task_started", "task_progress", "task_updated", "result", "error", "end"]
    shown = example(SHAPES["progress"]) | {"type": "task_started"}
    sample = f"event: {shown['type']}\ndata: {dumps(shown)}\n\n"
    operation["responses"]["200"]["content"] |= _streamed(
        {"event": {"type": "string", "enum": names}}, "Progress", sample
    )


def _stream_content() -> dict[str, Any]:
    event = example(_NAMED["Event"])
    sample = f"id: {event['position']}\nevent: {event['type']}\ndata: {dumps(event)}\n\n"
    return _streamed({"id": {"type": "string"}, "event": {"type": "string"}}, "Event", sample)


def _streamed(fields: Schema, name: str, sample: str) -> dict[str, Any]:
    """Return the content of a stream of server-sent events with these fields."""
    data: Schema = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": f"#/components/schemas/{name}"},
    }
    item: Schema = {
        "type": "object",
        "properties": {**fields, "data": data},
        "required": [*fields, "data"],
    }
    return {"text/event-stream": {"itemSchema": item, "example": sample}}


def _server_paths() -> dict[str, Any]:
    """Return the paths that are not operations."""
    status: Schema = {
        "type": "object",
        "properties": {"status": {"type": "string", "enum": ["ok"]}},
        "required": ["status"],
    }
    after = _RESUME | {
        "name": "after",
        "in": "query",
        "description": (
            "Only events after this position; 0 for all events. Default: new events only."
        ),
    }
    events = _plain_operation(
        "follow_events", "Follow the events of all tasks as they happen.", "events", {}
    )
    events["description"] += (
        " Each has its position as `id`, its type as `event` and its JSON as `data`; comments keep"
        " an idle stream alive."
    )
    events["responses"]["200"]["content"] = _stream_content()
    events["parameters"] = [after, _RESUME]
    return {
        "/api/events": {"get": events},
        "/healthz": {
            "get": (
                _plain_operation(
                    "healthz", "Check that the server runs; needs no token.", "", status
                )
                | {"security": []}
            )
        },
        "/readyz": {
            "get": _plain_operation("readyz", "Check that the store responds.", "", status)
        },
        "/metrics": {
            "get": _plain_operation(
                "metrics", "Metrics for Prometheus.", "", _METRICS, "text/plain"
            )
        },
        "/openapi.json": {
            "get": _plain_operation("openapi", "This document.", "", {"type": "object"})
        },
    }


_METRICS: Schema = {
    "type": "string",
    "description": "Lines of the Prometheus text format.",
    "examples": ['remit_tasks{state="pending"} 1'],
}


def _plain_operation(
    name: str, text: str, tag: str, output: Schema, media: str = "application/json"
) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": text,
        "description": text,
        "tags": [TAGS[tag][0]],
        "responses": _responses(output, media),
    }


# Shared shapes: defined once and referenced everywhere else


def _item(shape: str, name: str) -> Schema:
    """Return the shape of the items in a list."""
    return cast("Schema", SHAPES[shape]["properties"][name]["items"])


_PARTS: tuple[Any, ...] = (
    cmd.NewCriterion,
    cmd.NewStep,
    val.Output,
    val.Resource,
    val.Dependency,
    val.Schedule,
    val.Tools,
    val.Limits,
)
_GIVEN: dict[str, Schema] = {kind.__name__: record_schema(kind) for kind in _PARTS}
_NAMED: dict[str, Schema] = {
    "Task": SHAPES["task"],
    "TaskSummary": _item("tasks", "tasks"),
    "ArchivedTask": _item("history", "tasks"),
    "CreatedTask": SHAPES["created"],
    "ChangedTask": SHAPES["changed"],
    "Event": _item("events", "events"),
    "Progress": SHAPES["progress"],
    "Delegation": SHAPES["envelope"],
    "Update": _item("updates", "updates"),
    "Interaction": _item("interactions", "interactions"),
    "Notification": _item("notifications", "notifications"),
    "Guide": SHAPES["guide"],
    "GuideLine": _item("guides", "guides"),
    "Agent": SHAPES["agent"],
    "AgentLine": _item("agents", "agents"),
    "Success": SHAPES["success"],
    **_GIVEN,
}


def _key(schema: Mapping[str, Any]) -> str:
    """Return the same key for shapes that differ only in description and default."""
    return dumps(
        {name: part for name, part in schema.items() if name not in ("description", "default")}
    )


_NAME_OF = {_key(schema): name for name, schema in _NAMED.items()}


def _refs(schema: Any) -> Any:
    """Replace shared parts of a schema with references; its own description stays."""
    if isinstance(schema, list | tuple):
        return list(map(_refs, cast("list[Any]", schema)))
    if not isinstance(schema, Mapping):
        return schema
    found = cast("Schema", schema)
    name = _NAME_OF.get(_key(found))
    if name is None:
        return _inside(found)
    own = {
        part: found[part]
        for part in ("description", "default")
        if part in found and found[part] != _NAMED[name].get(part)
    }
    return {"$ref": f"#/components/schemas/{name}"} | own


def _inside(schema: Schema) -> Schema:
    """Return a schema with references to the shared parts inside it."""
    return {
        name: part if name in ("default", "enum") else _refs(part) for name, part in schema.items()
    }


# Examples: requests as people would write them, and responses built from the shapes and the words
# below

_PATHS = {
    "session_id": "session-7f3a",
    "task_id": "42",
    "criterion_id": "c1",
    "index": 0,
    "interaction_id": "42-q1",
    "guide_id": "flaky-tests",
    "agent_id": "general",
}

REQUESTS: dict[str, dict[str, Any]] = {
    "create_task": {
        "title": "Write the release notes",
        "instructions": "Summarize the changes since 1.4 for users, newest first.",
        "acceptance": ["Every breaking change is named", "At most one page"],
        "outputs": [{"name": "notes", "kind": "file"}],
        "owner": "general",
        "steps": ["Read the log", {"title": "Write the notes", "details": "Keep to one page."}],
        "priority": "high",
        "limits": {"timeout_seconds": 1800},
        "labels": ["release"],
    },
    "create_subtask": {
        "title": "Read the log",
        "owner": "explore",
        "step_index": 0,
        "instructions": "List the changes since 1.4.",
    },
    "update_task": {"instructions": "Leave out what only concerns tests.", "expected_version": 7},
    "complete_task": {
        "summary": "The notes are written.",
        "outputs": {"notes": "/srv/docs/notes-1.5.md"},
    },
    "fail_task": {"message": "The log of this release is not in the repository."},
    "waive_criterion": {"reason": "There are no breaking changes in this release."},
    "cancel_task": {"message": "The release is off."},
    "assign_task": {"subagent_session_id": "session-7f3a"},
    "attach_tsg": {"tsg_id": "flaky-tests"},
    "update_steps": {"steps": [{"title": "Read the log", "done": True}, "Write the notes"]},
    "update_step": {"done": True},
    "add_resource": {
        "type": "url",
        "value": "https://example.com/changelog",
        "label": "The changelog",
    },
    "send_message": {"message": "The release moves to Friday."},
    "respond": {"answer": "Yes, name the contributors."},
    "task": {
        "objective": "Find where the retry policy is defined.",
        "subagent_type": "explore",
        "timeout_seconds": 120,
    },
    "task_parallel": {
        "tasks": [
            {"objective": "List the public functions.", "subagent_type": "explore"},
            {"objective": "Sum up the changelog."},
        ]
    },
    "Task": {
        "description": "Find the policy",
        "prompt": "Find where the retry policy is defined.",
        "subagent_type": "explore",
        "model": "light",
    },
    "create_guide": {
        "title": "Flaky tests",
        "body": "Run the test alone a hundred times before you touch it.",
        "id": "flaky-tests",
    },
}
"""An example body for each operation that has one."""

_WORDS: dict[str, Any] = {
    "id": "42",
    "task_id": "42",
    "root_id": "42",
    "uid": "01981f3e-7c1a-7b52-9d0c-3f5a8e1b2c4d",
    "thread_id": "01981f3e-7c1a-7b53-8a11-6b7c9d0e1f2a",
    "title": "Write the release notes",
    "description": "The release is on Friday.",
    "instructions": "Summarize the changes since 1.4 for users, newest first.",
    "owner": "general",
    "created_by": "user:ann",
    "actor": "user:ann",
    "status": "active",
    "state": "pending",
    "ready": True,
    "success": True,
    "channel": "local",
    "labels": ["release"],
    "priority": 1,
    "version": 1,
    "at": "2026-02-03T09:30:00.000000Z",
    "created_at": "2026-02-03T09:30:00.000000Z",
    "updated_at": "2026-02-03T09:30:00.000000Z",
    "archived_at": "2026-02-03T11:05:00.000000Z",
    "asked_at": "2026-02-03T09:40:00.000000Z",
    "asked_by": "agent:general",
    "agents": ["build", "explore", "general", "plan", "summary"],
    "canceled": ["42", "43"],
    "path": ["42"],
    "update_id": "42-u1",
    "update_ids": ["42-u1"],
    "delivery": "with the next model request of the live run",
    "content": "Leave out what only concerns tests.",
    "question": "Shall I name the contributors?",
    "options": ["Yes", "No"],
    "allow_other": False,
    "blocking": True,
    "message": "The draft is ready to be read.",
    "guide_id": "flaky-tests",
    "body": "Run the test alone a hundred times before you touch it.",
    "Task.archived_at": None,
    "Task.instructions_version": 1,
    "Task.acceptance": [
        {
            "id": "c1",
            "text": "At most one page",
            "check": None,
            "status": "unchecked",
            "evidence": None,
            "by": None,
        }
    ],
    "Task.steps": [{"title": "Read the log", "details": None, "done": True, "task_id": "43"}],
    "Task.child_ids": ["43"],
    "Event.type": "TaskPaused",
    "Event.position": "17",
    "Event.version": 4,
    "Event.data": {"was": "running"},
    "Update.status": "queued",
    "Interaction.id": "42-q1",
    "Interaction.status": "open",
    "Notification.id": "42-n1",
    "Notification.actor": "agent:general",
    "Guide.id": "flaky-tests",
    "Guide.title": "Flaky tests",
    "GuideLine.id": "flaky-tests",
    "GuideLine.title": "Flaky tests",
    "Agent.prompt": (
        "You are general. You do the task that you are given, from research to work in several"
        " steps."
    ),
    **{
        f"{kind}.{name}": value
        for kind in ("Agent", "AgentLine")
        for name, value in {
            "id": "general",
            "description": ("Does any task, from research to multi-step work."),
            "mode": "subagent",
            "model": "main",
            "tools": ["LS", "Glob", "Grep", "Read", "TodoWrite"],
            "source": "built in",
        }.items()
    },
}


def example(schema: Schema) -> Any:
    """Return an example value for a schema."""
    of = _NAME_OF.get(_key(schema), "")
    if schema.get("type") == "object":
        return {
            field: _word(f"{of}.{field}", field, part)
            for field, part in schema.get("properties", {}).items()
        }
    if schema.get("type") == "array":
        return [example(schema["items"])] if _is_list_of_named(schema) else []
    if "examples" in schema:
        return schema["examples"][0]
    if "anyOf" in schema:
        return None
    if "enum" in schema:
        return schema["enum"][0]
    return {"integer": 0, "number": 0.0, "boolean": False}.get(schema.get("type", ""), "")


def _is_list_of_named(schema: Schema) -> bool:
    """Return True for a list of shared shapes."""
    return schema.get("type") == "array" and _key(schema["items"]) in _NAME_OF


def _word(exact: str, field: str, schema: Schema) -> Any:
    if exact in _WORDS:
        return _WORDS[exact]
    if field not in _WORDS or _is_list_of_named(schema):
        return example(schema)
    word = _WORDS[field]
    if word not in schema.get("enum", [word]):
        return example(schema)
    return word
