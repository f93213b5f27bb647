"""Operations as models read them: small schemas, and answers that say each thing once.

MCP clients and running agents get this. REST, the library and the CLI have the exact schemas and
whole answers.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from remit.app.view import PARTS, TASK
from remit.catalog.output import SHAPES, shape
from remit.catalog.table import Operation, Result
from remit.domain.envelope import lean
from remit.domain.schema import Schema, model_schema

HANDED = ("id", "state", "version")
"""What the answer to a change says of its task."""
RESULTS = ("task", "task_output")
"""Operations that answer with the result of a delegation; `Task` keeps its envelope."""
SELDOM = frozenset({"uid", "thread_id", "run_id", "idempotency_key", "instructions_version"})
"""What a running agent does not need to know of a task."""
HIDDEN = frozenset({"format"})
"""Fields that are accepted and that no model needs to know of."""


def lean_input(operation: Operation) -> Schema:
    """What a model is told to send."""
    schema = model_schema(cast("Any", operation.input))
    shown = {name: part for name, part in schema["properties"].items() if name not in HIDDEN}
    return schema | {"properties": shown}


Given = Mapping[str, Any]


def lean_answer(operation: Operation, fields: Given, answer: Given) -> Result:
    """An answer as a model reads it; a caller that names a `format` gets that form."""
    if operation.name in RESULTS:
        return dict(answer) if fields.get("format") or "data" not in answer else lean(answer)
    if operation.name == "task_parallel":
        results = answer["results"]
        keeps_form = bool(fields.get("format"))
        return {"results": [each if keeps_form or "data" not in each else lean(each) for each in results]}
    task = answer.get("task")
    if operation.effect == "read" or not isinstance(task, Mapping):
        return dict(answer)
    return {
        **answer,
        **handed(cast("Mapping[str, Any]", task), is_awaited=fields.get("wait") == "block"),
    }


def handed(task: Mapping[str, Any], *, is_awaited: bool = False) -> Result:
    """What a change says of its task; with the result of one that the caller has waited for."""
    told: Result = {"task": {name: task[name] for name in HANDED}}
    if not is_awaited:
        return told
    is_done = task["state"] not in ("failed", "canceled")
    result = task["summary"] or task["final_message"] if is_done else task["failure_reason"]
    outputs = {"outputs": task["completion_outputs"]} if task["completion_outputs"] else {}
    return told | outputs | {"result": result or ""}


MANY_AGENTS = 20
"""A list of tasks names no more agents than these."""


def lean_read(operation: Operation, answer: Mapping[str, Any]) -> Result:
    """An answer to a read for a running agent: without unset fields, but with every list."""
    if operation.name == "get_task":
        return _lean_task(answer)
    told: Result = {}
    for name, part in answer.items():
        is_list = isinstance(part, list)
        if is_list:
            told[name] = [_set(item) for item in cast("list[Any]", part)]
        elif not _is_unset(part):
            told[name] = part
    if len(told.get("agents", ())) > MANY_AGENTS and "tasks" in answer:
        del told["agents"]
    return told


def _lean_task(view: Mapping[str, Any]) -> Result:
    """A task without what is not set, what has its default, and what another field says too."""
    told = {name: value for name, value in _set(view).items() if value != TASK.get(name)}
    for name, defaults in PARTS.items():
        if name in told:
            told[name] = [_beside(item, defaults) for item in told[name]]
    if "usage" in told:
        told["usage"] = {name: value for name, value in told["usage"].items() if value}
    same = [("description", "instructions"), ("final_message", "summary"), ("root_id", "id")]
    twice = {name for name, other in same if told.get(name) == told.get(other)}
    return {name: value for name, value in told.items() if name not in twice | SELDOM}


def _beside(item: Given, defaults: Given) -> Result:
    """An entry of a list without what has its default."""
    return {name: value for name, value in item.items() if value != defaults[name]}


def _set(item: Any) -> Any:
    """An object without what is not set."""
    if not isinstance(item, Mapping):
        return item
    found = cast("Mapping[str, Any]", item)
    return {name: value for name, value in found.items() if not _is_unset(value)}


def _is_unset(value: Any) -> bool:
    return value in (None, "", [], {})


def lean_refusal(operation: Operation, told: Mapping[str, Any]) -> Result:
    """A refusal of work as a model reads it: the error, and the task where there is one."""
    if operation.name not in (*RESULTS, "task_parallel") or "data" not in told:
        return dict(told)
    data = told["data"]
    return {"task_id": data["task_id"], "status": data["status"], "error": told["error"]}


# What comes back, as JSON Schema.

_TEXT: Schema = {"type": "string"}
_YES: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}
_HANDED: Schema = shape(id=_TEXT, state=_TEXT, version={"type": "integer"})
_RESULT: Schema = {
    "type": "object",
    "properties": {
        "task_id": {"type": ["string", "null"]},
        "status": _TEXT,
        "result": {"type": ["string", "null"]},
        "outputs": _OBJECT,
        "tool_summary": {"type": "array", "items": _OBJECT},
        "duration": {"type": "number"},
        "model_used": {"type": ["string", "null"]},
    },
    "required": ["status"],
}
_LEAN: dict[str, Schema] = {
    "envelope": _RESULT,
    "results": shape(results={"type": "array", "items": _OBJECT}),
    "created": shape(task_id=_TEXT, task=_HANDED),
    "changed": shape(success=_YES, task=_HANDED),
    "updated": {
        "type": "object",
        "properties": {
            "success": _YES,
            "update_id": _TEXT,
            "update_ids": {"type": "array"},
            "task": _HANDED,
        },
        "required": ["success", "task"],
    },
}
"""Shapes that models read in another form than other callers."""


@cache
def _lean_shapes() -> dict[int, Schema]:
    return {id(SHAPES[name]): found for name, found in _LEAN.items()}


def lean_output(operation: Operation) -> Schema:
    """What a model may expect of an answer."""
    found = None if operation.name == "Task" else _lean_shapes().get(id(operation.output))
    return _or_error(found or _outline(operation.output))


def _or_error(schema: Schema) -> Schema:
    """The same, or an error: some clients check failed calls against the schema, too."""
    fields = schema["properties"] | {"error": {}}
    required = schema.get("required", [])
    return {
        "type": "object",
        "properties": fields,
        "anyOf": [{"required": required}, {"required": ["error"]}],
    }


def _outline(schema: Schema) -> Schema:
    """The fields of an answer with their types; of what is inside of them nothing."""
    fields = {name: _kind(part) for name, part in schema["properties"].items()}
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": fields} | required


def _kind(schema: Schema) -> Schema:
    return {"type": schema["type"]} if "type" in schema else {}
