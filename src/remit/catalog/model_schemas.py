"""Operations for models: small schemas, and answers without repetition.

MCP clients and running agents get these. REST, the library and the CLI use the exact schemas and
full answers.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from remit.app.reading.views import PARTS, TASK
from remit.catalog.operations import Operation, Result
from remit.catalog.output_schemas import SHAPES, shape
from remit.domain.delegation.result_envelope import lean_envelope, outputs_notice
from remit.domain.prompts.offered_tools import one_line
from remit.domain.records.json_schema import Schema, model_schema
from remit.domain.records.pick import omit, omit_empty, pick

CHANGE_FIELDS = ("id", "state", "version")
"""The task fields in the answer to a change."""
RESULTS = ("task", "task_output")
"""Operations that return the result of a delegation; `Task` keeps its envelope."""
RARE_FIELDS = frozenset({"uid", "thread_id", "run_id", "idempotency_key", "instructions_version"})
"""Task fields that a running agent does not need."""
REPEATED = {"description": "instructions", "final_message": "summary", "root_id": "id"}
"""Task fields that are left out if they repeat another one."""
HIDDEN = frozenset({"format"})
"""Fields that are accepted but not shown to models."""
UNENDED = "Get its result with task_output; wait_seconds waits for it."
ASKED = (
    "It waits for a person. Give the answer with respond, by interaction_id; then get the result"
    " with task_output."
)
"""Notes for callers outside a run about work that has not ended."""


def lean_input(operation: Operation) -> Schema:
    """Return the input schema for a model."""
    schema = model_schema(cast("Any", operation.input))
    return schema | {"properties": omit(schema["properties"], HIDDEN)}


Given = Mapping[str, Any]
AGENTS_PER_PAGE = 100
"""The number of agents in a list for a model that asks for no other number."""


def lean_fields(operation: Operation, fields: Given) -> Given:
    """Return the fields of a call by a model; a list of agents is a page unless it has a limit."""
    if operation.name == "list_agents" and fields.get("limit") is None:
        return {**fields, "limit": AGENTS_PER_PAGE}
    return fields


def lean_answer(operation: Operation, fields: Given, answer: Given) -> Result:
    """Return an answer for a model; a caller that names a `format` gets that form."""
    keeps_form = bool(fields.get("format"))
    if operation.name in RESULTS:
        return _lean_result(answer, keeps_form=keeps_form)
    if operation.name == "task_parallel":
        results = [_lean_result(each, keeps_form=keeps_form) for each in answer["results"]]
        return {"results": results}
    if operation.name == "list_agents":
        return _lean_agents(answer)
    task = answer.get("task")
    if operation.effect == "read" or not isinstance(task, Mapping):
        return dict(answer)
    is_awaited = fields.get("wait") == "block"
    return {**answer, **change_summary(cast("Given", task), is_awaited=is_awaited)}


def _lean_result(found: Given, *, keeps_form: bool) -> Result:
    """Return the result of one task, unless it keeps the form that the caller named."""
    if keeps_form or "data" not in found:
        return dict(found)
    return lean_envelope(found, UNENDED, ASKED)


def change_summary(task: Mapping[str, Any], *, is_awaited: bool = False) -> Result:
    """Return what a change reports about its task, and its result if the caller waited for it."""
    summary: Result = {"task": pick(task, CHANGE_FIELDS)}
    if not is_awaited:
        return summary
    summary |= omit_empty({"outputs": task["completion_outputs"]})
    summary["result"] = _result_text(task)
    return summary


def _result_text(task: Mapping[str, Any]) -> str:
    """Return what an ended task says about its result."""
    if task["state"] in ("failed", "canceled"):
        return str(task["failure_reason"] or "")
    notice = outputs_notice(task["completion_outputs"]) if task["state"] == "done" else ""
    return str(task["summary"] or task["final_message"] or notice)


UNSET: tuple[Any, ...] = (None, "", [], {})
"""Values of fields that are not set."""
MANY_AGENTS = 20
"""The most agents that a list of tasks names."""


def lean_read(operation: Operation, answer: Mapping[str, Any]) -> Result:
    """Return the answer to a read for a running agent: without unset fields, but with every
    list.
    """
    if operation.name == "get_task":
        return _lean_task(answer)
    if operation.name == "list_agents":
        answer = _lean_agents(answer)
    short = {name: _lean_part(part) for name, part in answer.items() if _is_shown(part)}
    if len(short.get("agents", ())) > MANY_AGENTS and "tasks" in answer:
        del short["agents"]
    return short


def _lean_agents(answer: Given) -> Result:
    """Return a list of agents with one line for each; get_agent returns the rest."""
    lines = [
        {"id": agent["id"], "description": one_line(agent["description"])}
        for agent in answer["agents"]
    ]
    return {**answer, "agents": lines}


def _is_shown(part: Any) -> bool:
    """Return True for a field that is set, and for every list."""
    return isinstance(part, list) or part not in UNSET


def _lean_part(part: Any) -> Any:
    """Return a field of an answer; the items of a list without unset fields."""
    is_list = isinstance(part, list)
    if not is_list:
        return part
    return list(map(_without_unset, cast("list[Any]", part)))


def _lean_task(view: Mapping[str, Any]) -> Result:
    """Return a task without unset fields, defaults and repeated values."""
    short = _without_defaults(_without_unset(view), TASK)
    for name in PARTS.keys() & short.keys():
        short[name] = [_without_defaults(item, PARTS[name]) for item in short[name]]
    if "usage" in short:
        short["usage"] = omit_empty(short["usage"])
    repeated = {name for name, other in REPEATED.items() if short.get(name) == short.get(other)}
    return omit(short, RARE_FIELDS | repeated)


def _without_defaults(fields: Given, defaults: Given) -> Result:
    """Return the fields that differ from their defaults."""
    return {name: value for name, value in fields.items() if value != defaults.get(name)}


def _without_unset(item: Any) -> Any:
    """Return an object without unset fields."""
    if not isinstance(item, Mapping):
        return item
    found = cast("Mapping[str, Any]", item)
    return {name: value for name, value in found.items() if value not in UNSET}


def lean_refusal(operation: Operation, refusal: Mapping[str, Any]) -> Result:
    """Return a refusal for a model: the error, and the task if there is one."""
    if operation.name not in (*RESULTS, "task_parallel") or "data" not in refusal:
        return dict(refusal)
    data = refusal["data"]
    return {"task_id": data["task_id"], "status": data["status"], "error": refusal["error"]}


# Answers as JSON Schema

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
        "questions": {"type": "array", "items": _OBJECT},
        "note": _TEXT,
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
"""Shapes that differ for models."""


@cache
def _lean_shapes() -> dict[int, Schema]:
    return {id(SHAPES[name]): found for name, found in _LEAN.items()}


def lean_output(operation: Operation) -> Schema:
    """Return the schema of an answer for a model."""
    found = _lean_shapes().get(id(operation.output))
    if found is None or operation.name == "Task":
        found = _outline(operation.output)
    return _or_error(found)


def _or_error(schema: Schema) -> Schema:
    """Return a schema that also allows an error: some clients check failed calls against it too."""
    fields = schema["properties"] | {"error": {}}
    required = schema.get("required", [])
    return {
        "type": "object",
        "properties": fields,
        "anyOf": [{"required": required}, {"required": ["error"]}],
    }


def _outline(schema: Schema) -> Schema:
    """Return the fields of an answer with their types, without nested fields."""
    fields = {name: pick(part, ("type",)) for name, part in schema["properties"].items()}
    return {"type": "object", "properties": fields} | pick(schema, ("required",))
