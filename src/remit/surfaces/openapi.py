"""The OpenAPI document, made from the table of operations."""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from remit.catalog import FOR_EVERYONE, Operation
from remit.catalog.output import SHAPES
from remit.domain import command as cmd
from remit.domain import value as val
from remit.domain.schema import Schema, record_schema
from remit.domain.wire import dumps
from remit.errors import Conflict, Forbidden, Internal, InvalidParam, LimitExceeded, NotFound, RemitError, TimedOut, Unauthenticated, Unavailable

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
AT_THE_EDGE = {413: "The body is larger than 1,000,000 bytes.", 415: "The body is not JSON.", 421: "The Host header names another server."}
"""Refusals that only HTTP has; their code is INVALID_PARAM."""

SHORTER: dict[str, dict[str, str]] = {"task_output": {"wait": "wait_seconds"}}
"""Names that the query of an operation takes beside those of its fields."""

IN_QUERY = ("format",)
"""Fields that say how an answer looks: the query takes them too where all others are in the body."""

TAGS = {
    "tasks": ("Tasks", "Units of work: create, follow, change and end them."),
    "delegate": ("Delegation", "Hand work to sub-agents and get what comes of it."),
    "sessions": ("Sessions", "Outside conversations that hand out or work on tasks."),
    "interactions": ("People", "Questions of agents to people, and what agents tell them."),
    "notifications": ("People", ""),
    "guides": ("Guides", "Troubleshooting guides that tasks link to."),
    "agents": ("Agents", "Who can be given work."),
    "events": ("Events", "What happens, as it happens."),
    "": ("Server", "The server itself."),
}


def document(version: str) -> dict[str, Any]:
    """The whole API as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in FOR_EVERYONE.values():
        if operation.path and not operation.alias_of:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
        if operation.stream is not None:
            _add_progress(paths[operation.path][operation.method.lower()])
    _add_stream(paths[FOR_EVERYONE["get_events"].path]["get"])
    # A copy, since its parts are shared with the catalogue: whoever gets the document may change it.
    return deepcopy(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "remit",
                "version": version,
                "description": "Hand work to agents under a durable contract.",
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "tags": [{"name": name, "description": text} for name, text in TAGS.values() if text],
            "paths": paths | _server_paths(),
            "components": {
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "`remit token show` prints it."}},
                "schemas": {name: _inside(schema) for name, schema in _NAMED.items()} | {"Error": _ERROR},
                "examples": {name: {"value": example(schema)} for name, schema in _NAMED.items() if name not in _GIVEN},
                "responses": {_name(status): _error_response(status) for status in _error_statuses()},
            },
        }
    )


def _operation(operation: Operation) -> dict[str, Any]:
    kind: Any = operation.input
    schema = record_schema(kind)
    in_path = re.findall(r"{(\w+)}", operation.path)
    rest = {name: field for name, field in schema["properties"].items() if name not in in_path}
    required = [name for name in schema.get("required", ()) if name in rest]
    has_body = operation.method not in ("GET", "DELETE")
    path_parameters = [_parameter("path", name, schema["properties"][name], required=True) for name in in_path]
    query = rest | {name: rest[field] | {"description": f"The same as {field}."} for name, field in SHORTER.get(operation.name, {}).items()}
    query = {name: field for name, field in query.items() if name in IN_QUERY} if has_body else query
    query_parameters = [_parameter("query", name, field, required=name in required) for name, field in query.items()]
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.description.partition("\n")[0],
        "description": operation.description,
        "tags": [_tag(operation.path)],
        "parameters": path_parameters + query_parameters,
        "responses": _responses(operation.output, "application/json"),
    }
    return found | ({"requestBody": _request_body(operation.name, rest, required)} if has_body and rest else {})


def _parameter(place: str, name: str, schema: Schema, *, required: bool) -> dict[str, Any]:
    text = schema.get("description", "")
    bare = {key: part for key, part in schema.items() if key != "description"}
    found: dict[str, Any] = {"name": name, "in": place, "required": required, "description": text, "schema": _refs(bare)}
    return found | ({"example": _PATHS[name]} if place == "path" else {})


def _request_body(name: str, properties: Schema, required: list[str]) -> dict[str, Any]:
    schema: Schema = {"type": "object", "properties": _refs(properties), "additionalProperties": False}
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema, "example": REQUESTS[name]}}}


def _responses(output: Schema, kind: str) -> dict[str, Any]:
    name = _NAME_OF.get(_key(output))
    shown = {"examples": {"answer": {"$ref": f"#/components/examples/{name}"}}} if name else {"example": example(output)}
    good: dict[str, Any] = {"description": "Done.", "content": {kind: {"schema": _refs(output), **shown}}}
    return {"200": good} | {str(status): {"$ref": f"#/components/responses/{_name(status)}"} for status in _error_statuses()}


def _tag(path: str) -> str:
    part = path.removeprefix("/api/").partition("/")[0] if path.startswith("/api/") else ""
    return TAGS[part][0]


# Errors: one shape, one shared response for each status.

_ERROR: Schema = {
    "type": "object",
    "description": "What went wrong, and what would be right; for a delegation, in the envelope that its result would have.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "enum": sorted(kind.code for kind in ERRORS)},
                "message": {"type": "string", "description": "Which field or thing, what is wrong with it, what to do next."},
                "details": {"type": "object", "description": "The same for programs."},
            },
            "required": ["code", "message"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
}


def _error_statuses() -> list[int]:
    return sorted([kind.status for kind in ERRORS] + list(AT_THE_EDGE))


def _kind(status: int) -> type[RemitError]:
    return next((kind for kind in ERRORS if kind.status == status), InvalidParam)


def _name(status: int) -> str:
    return {413: "TooLarge", 415: "NotJson", 421: "WrongHost"}.get(status) or _kind(status).__name__


def _error_response(status: int) -> dict[str, Any]:
    text = AT_THE_EDGE.get(status) or str(_kind(status).__doc__)
    shown = {"error": {"code": _kind(status).code, "message": text}}
    found: dict[str, Any] = {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}, "example": shown}},
    }
    if status == Unavailable.status:
        found["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    if status == Unauthenticated.status:
        found["headers"] = {"WWW-Authenticate": {"description": "How to say who calls.", "schema": {"type": "string"}}}
    return found


# What only HTTP has.

_RESUME = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The position of the last event that arrived; it stands above `after`. For streams alone.",
    "schema": {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,18})?$"},
}


def _add_stream(operation: dict[str, Any]) -> None:
    """One task's events can be had as a stream too."""
    operation["description"] += "\n\nWith `Accept: text/event-stream` they come as they happen, as at /api/events."
    operation["parameters"].append(_RESUME)
    operation["responses"]["200"]["content"] |= _stream_content()


def _add_progress(operation: dict[str, Any]) -> None:
    """What may wait can be listened to while it does."""
    operation["description"] += (
        "\n\nWith `Accept: text/event-stream` what goes on while it waits comes as server-sent events: `task_started`, `task_progress` and"
        " `task_updated` for the tasks it waits for and those below them, repeated while nothing happens,"
        " `waiting` while there is no task yet, `result` (index, task_id, result, about) for each piece of work as it"
        " settles, `error` if the wait breaks, and last `end`, whose answer is what the plain call returns. What is refused is answered"
        " as ever. Who stops listening ends the wait and nothing else."
        "\n\nA plain answer that is not ready after some seconds begins with status 200 and sends line breaks before its JSON. An error"
        " that comes after that is in the body, in the one error shape."
    )
    names = ["waiting", "task_started", "task_progress", "task_updated", "result", "error", "end"]
    shown = example(SHAPES["progress"]) | {"type": "task_started"}
    sample = f"event: {shown['type']}\ndata: {dumps(shown)}\n\n"
    operation["responses"]["200"]["content"] |= _streamed({"event": {"type": "string", "enum": names}}, "Progress", sample)


def _stream_content() -> dict[str, Any]:
    event = example(_NAMED["Event"])
    sample = f"id: {event['position']}\nevent: {event['type']}\ndata: {dumps(event)}\n\n"
    return _streamed({"id": {"type": "string"}, "event": {"type": "string"}}, "Event", sample)


def _streamed(fields: Schema, name: str, sample: str) -> dict[str, Any]:
    data: Schema = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"$ref": f"#/components/schemas/{name}"}}
    item: Schema = {"type": "object", "properties": {**fields, "data": data}, "required": [*fields, "data"]}
    return {"text/event-stream": {"itemSchema": item, "example": sample}}


def _server_paths() -> dict[str, Any]:
    status: Schema = {"type": "object", "properties": {"status": {"type": "string", "enum": ["ok"]}}, "required": ["status"]}
    after = _RESUME | {
        "name": "after",
        "in": "query",
        "description": "Only events after this position, 0 being before the first; without one, from now on.",
    }
    events = _plain("follow_events", "Follow the events of all tasks as they happen.", "events", {})
    events["description"] += " Each has its position as `id`, its type as `event` and itself as `data`; comments keep an idle stream alive."
    events["responses"]["200"]["content"] = _stream_content()
    events["parameters"] = [after, _RESUME]
    return {
        "/api/events": {"get": events},
        "/healthz": {"get": _plain("healthz", "Say that the server runs; needs no token.", "", status) | {"security": []}},
        "/readyz": {"get": _plain("readyz", "Say that the store answers.", "", status)},
        "/metrics": {"get": _plain("metrics", "Figures for a Prometheus server.", "", _METRICS, "text/plain")},
        "/openapi.json": {"get": _plain("openapi", "This document.", "", {"type": "object"})},
    }


_METRICS: Schema = {"type": "string", "description": "Lines of the Prometheus text format.", "examples": ['remit_tasks{state="pending"} 1']}


def _plain(name: str, text: str, tag: str, output: Schema, media: str = "application/json") -> dict[str, Any]:
    return {"operationId": name, "summary": text, "description": text, "tags": [TAGS[tag][0]], "responses": _responses(output, media)}


# Shared shapes: said once, and referred to wherever they are found.


def _item(shape: str, name: str) -> Schema:
    return cast("Schema", SHAPES[shape]["properties"][name]["items"])


_PARTS: tuple[Any, ...] = (cmd.NewCriterion, cmd.NewStep, val.Output, val.Resource, val.Dependency, val.Schedule, val.Tools, val.Limits)
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
    return dumps({name: part for name, part in schema.items() if name not in ("description", "default")})


_NAME_OF = {_key(schema): name for name, schema in _NAMED.items()}


def _refs(schema: Any) -> Any:
    """A schema with what is shared replaced by references; its own words stay beside them."""
    if isinstance(schema, list | tuple):
        return [_refs(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    found = cast("Schema", schema)
    name = _NAME_OF.get(_key(found))
    if name is None:
        return _inside(found)
    own = {part: found[part] for part in ("description", "default") if part in found and found[part] != _NAMED[name].get(part)}
    return {"$ref": f"#/components/schemas/{name}"} | own


def _inside(schema: Schema) -> Schema:
    return {name: part if name in ("default", "enum") else _refs(part) for name, part in schema.items()}


# Examples: requests as people would write them, answers made of the shapes and the words below.

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
        "instructions": "Summarise what changed since 1.4 for users, newest first.",
        "acceptance": ["Every breaking change is named", "At most one page"],
        "outputs": [{"name": "notes", "kind": "file"}],
        "owner": "general",
        "steps": ["Read the log", {"title": "Write the notes", "details": "Keep to one page."}],
        "priority": "high",
        "limits": {"timeout_seconds": 1800},
        "labels": ["release"],
    },
    "create_subtask": {"title": "Read the log", "owner": "explore", "step_index": 0, "instructions": "List the changes since 1.4."},
    "update_task": {"instructions": "Leave out what only concerns tests.", "expected_version": 7},
    "complete_task": {"summary": "The notes are written.", "outputs": {"notes": "/srv/docs/notes-1.5.md"}},
    "fail_task": {"message": "The log of this release is not in the repository."},
    "waive_criterion": {"reason": "There are no breaking changes in this release."},
    "cancel_task": {"message": "The release is off."},
    "assign_task": {"subagent_session_id": "session-7f3a"},
    "attach_tsg": {"tsg_id": "flaky-tests"},
    "update_steps": {"steps": [{"title": "Read the log", "done": True}, "Write the notes"]},
    "update_step": {"done": True},
    "add_resource": {"type": "url", "value": "https://example.com/changelog", "label": "The changelog"},
    "send_message": {"message": "The release moves to Friday."},
    "respond": {"answer": "Yes, name the contributors."},
    "task": {"objective": "Find where the retry policy is defined.", "subagent_type": "explore", "timeout_seconds": 120},
    "task_parallel": {"tasks": [{"objective": "List the public functions.", "subagent_type": "explore"}, {"objective": "Sum up the changelog."}]},
    "Task": {"description": "Find the policy", "prompt": "Find where the retry policy is defined.", "subagent_type": "explore", "model": "light"},
    "create_guide": {"title": "Flaky tests", "body": "Run the test alone a hundred times before you touch it.", "id": "flaky-tests"},
}
"""For each operation with a body, one that it takes."""

_WORDS: dict[str, Any] = {
    "id": "42",
    "task_id": "42",
    "root_id": "42",
    "uid": "01981f3e-7c1a-7b52-9d0c-3f5a8e1b2c4d",
    "thread_id": "01981f3e-7c1a-7b53-8a11-6b7c9d0e1f2a",
    "title": "Write the release notes",
    "description": "The release is on Friday.",
    "instructions": "Summarise what changed since 1.4 for users, newest first.",
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
    "Task.acceptance": [{"id": "c1", "text": "At most one page", "check": None, "status": "unchecked", "evidence": None, "by": None}],
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
    "Agent.prompt": "You are general. You do the task that you are given, from research to work in several steps.",
    **{
        f"{kind}.{name}": value
        for kind in ("Agent", "AgentLine")
        for name, value in {
            "id": "general",
            "description": "Works on whatever it is given, from research to several steps of doing.",
            "mode": "subagent",
            "model": "main",
            "tools": ["LS", "Glob", "Grep", "Read", "TodoWrite"],
            "source": "built in",
        }.items()
    },
}


def example(schema: Schema) -> Any:
    """A value of a schema, in the words of its fields."""
    of = _NAME_OF.get(_key(schema), "")
    if schema.get("type") == "object":
        return {field: _word(f"{of}.{field}", field, part) for field, part in schema.get("properties", {}).items()}
    if schema.get("type") == "array":
        return [example(schema["items"])] if _key(schema["items"]) in _NAME_OF else []
    if "examples" in schema:
        return schema["examples"][0]
    if "anyOf" in schema:
        return None
    return schema["enum"][0] if "enum" in schema else {"integer": 0, "number": 0.0, "boolean": False}.get(schema.get("type", ""), "")


def _word(exact: str, field: str, schema: Schema) -> Any:
    if exact in _WORDS:
        return _WORDS[exact]
    listed = schema.get("type") == "array" and _key(schema["items"]) in _NAME_OF
    fits = not listed and ("enum" not in schema or _WORDS.get(field) in schema["enum"])
    return _WORDS[field] if field in _WORDS and fits else example(schema)
