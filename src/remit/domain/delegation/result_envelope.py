"""The result of a delegation as an envelope, in the nested and in the flat form."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from remit.domain.records.pick import omit, omit_empty
from remit.domain.records.serialize import dumps, instant_or_none, plain
from remit.domain.task.task import State, Task
from remit.domain.text.truncation import beginning, written_out

STATUS = {"done": "completed", "failed": "failed", "canceled": "cancelled"}
LIMIT = 200_000
"""The maximum size in bytes of a result in another agent's context."""
CODES = {
    "timeout": "TIMEOUT",
    "budget": "LIMIT_EXCEEDED",
    "turns": "LIMIT_EXCEEDED",
    "rejected": "INVALID_PARAM",
}
CAUSES = {"model_quota": "LIMIT_EXCEEDED", "model_context": "LIMIT_EXCEEDED"}
"""Error codes by failure cause; the code of every other cause is UNAVAILABLE."""


def status_of(task: Task) -> str:
    """Return the status of a delegation: running, completed, failed, timeout or cancelled."""
    if (task.state, task.reason) == (State.FAILED, "timeout"):
        return "timeout"
    return STATUS.get(task.state.value, "running")


def result_of(task: Task) -> str:
    """Return the result of a task as text; for a failed or canceled task, the reason."""
    if task.state in (State.FAILED, State.CANCELED):
        return task.failure_reason or ""
    notice = outputs_notice(task.completion_outputs) if task.state is State.DONE else ""
    return task.summary or task.final_message or notice


def refused_result(task: Task) -> str:
    """Return the last claimed result of a task that failed because it was not accepted.

    An answer to earlier instructions is not its result.
    """
    if (task.state, task.reason) != (State.FAILED, "acceptance"):
        return ""
    answer = None if task.outdated_answer else task.final_message
    return task.summary or answer or ""


def _returned_text(task: Task) -> str:
    """Return the result of a task; a refused one follows a long reason."""
    result, refused = result_of(task), refused_result(task)
    if refused and len(result) >= LONG_ERROR:
        return f"{result}\n\n{refused}"
    return refused or result


def _with_reason(task: Task, result: str) -> str:
    """Return a result after the reason why it was refused, if it was."""
    if result != refused_result(task) or not task.failure_reason:
        return result
    return f"{task.failure_reason}\n\n{result}"


def outputs_notice(outputs: Mapping[str, Any] | None) -> str:
    """Return the result text of a task that has outputs and no message."""
    return f"The result is in the outputs: {', '.join(outputs)}." if outputs else ""


def envelope(
    task: Task,
    *,
    model: str | None,
    tier: str,
    cwd: str,
    params: Mapping[str, Any],
    offset: int = 0,
) -> dict[str, Any]:
    """Return the nested envelope of a delegated task.

    `model` is the model that answered, None if none did. `offset` skips characters of the result.
    """
    status, result = status_of(task), _returned_text(task)[offset:]
    used = model_used(tier, model)
    data: dict[str, Any] = {
        "status": status,
        "task_id": task.id,
        "result": result,
        "tool_summary": plain(task.tool_summary),
        "model_used": used,
        "subagent_type": task.owner,
    }
    if task.completion_outputs:
        data["outputs"] = dict(task.completion_outputs)
    data |= omit_empty({"questions": open_questions([task])})
    found: dict[str, Any] = {
        "status": "error" if status in ("failed", "timeout", "cancelled") else "success",
        "data": data,
        "text": f"Subagent ({task.owner}, {tier}) {status}.\n\n{_with_reason(task, result)}",
        "stats": {
            "time_ms": round(task.duration * 1000),
            "tool_calls": task.usage.tool_calls,
            "model": used,
            "tokens": task.usage.input_tokens + task.usage.output_tokens,
        },
        "context": {"cwd": cwd, "params_input": dict(params)},
    }
    if found["status"] == "error":
        found["error"] = _error(task)
    return found


def open_questions(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the blocking questions of these tasks."""
    return [
        {
            "interaction_id": question.id,
            "task_id": task.id,
            "question": question.question,
            **({"options": list(question.options)} if question.options else {}),
        }
        for task in tasks
        for question in task.questions
        if question.blocking
    ]


def model_used(tier: str, model: str | None) -> str | None:
    """Return the requested tier and the model that answered: `light (gpt-5-mini)`."""
    if model is None or model == tier or tier.endswith(f":{model}"):
        return model and tier
    return f"{tier} ({model})"


def _error(task: Task) -> dict[str, Any]:
    message = task.failure_reason or f"Task {task.id} was {task.state.value}."
    if task.cause is not None:
        return {
            "code": CAUSES.get(task.cause, "UNAVAILABLE"),
            "message": message,
            "details": {"cause": task.cause},
        }
    code = CODES.get(task.reason or "", "INTERNAL_ERROR")
    if task.state.value == "canceled":
        code = "CONFLICT"
    return {"code": code, "message": message}


LONG_ERROR = 1000
"""A longer error message moves to the result, which can be read in parts."""


def lean_envelope(found: Mapping[str, Any], unended: str = "", asked: str = "") -> dict[str, Any]:
    """Return an envelope for a model: each fact once, details first and the text last.

    `unended` is the note for a running task, `asked` the note for one that waits for a person.
    """
    data, error = found["data"], found.get("error")
    if data["task_id"] is None:
        error = found["error"]
        return {
            "status": data["status"],
            "error": {"code": error["code"], "message": error["message"]},
        }
    fields: dict[str, Any] = {
        "task_id": data["task_id"],
        "status": data["status"],
        "duration": found["stats"]["time_ms"] / 1000,
        "tool_summary": data["tool_summary"],
        "model_used": data["model_used"],
        **{name: data[name] for name in _OPTIONAL_FIELDS if name in data},
    }
    if data["status"] == "running":
        return _lean_unended(fields | _result_and_error(data, error), unended, asked)
    return fields | _result_and_error(data, error)


_OPTIONAL_FIELDS = ("outputs", "notice", "cached", "not_cached", "note", "questions")
_OFTEN_EMPTY = ("duration", "tool_summary", "model_used", "result")


def _result_and_error(data: Mapping[str, Any], error: Mapping[str, Any] | None) -> dict[str, Any]:
    if error is None:
        return {"result": data["result"]}
    if len(error["message"]) < LONG_ERROR:
        is_repeated = error["message"].endswith(data["result"])
        return {"error": error, "result": "" if is_repeated else data["result"]}
    return {
        "error": {**error, "message": "The result says why."},
        "result": data["result"],
    }


def _lean_unended(fields: dict[str, Any], unended: str, asked: str) -> dict[str, Any]:
    """Return the known fields of a running task, with a note about how to continue."""
    empty = {name for name in _OFTEN_EMPTY if not fields[name]}
    known = omit(fields, empty)
    note = asked if "questions" in fields else unended
    if note:
        known.setdefault("note", note)
    return known


class Envelope(dict[str, Any]):
    """The result of a delegation as JSON, in the nested or in the flat form."""

    def __init__(self, found: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        super().__init__(found)
        self.about = dict(about)
        """Fields missing in the nested form: `objective`, `started_at`, `completed_at`, `cost`."""

    def shown(self, form: str) -> "Envelope":
        """Return the envelope in the requested form."""
        return Envelope(flat(self, self.about), self.about) if form == "flat" else self


def flat(found: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat form: `task_id, objective, agent_type, status, result, error, duration,
    started_at, completed_at`.
    """
    data, error = found["data"], found.get("error")
    return {
        "task_id": data["task_id"],
        "objective": about.get("objective"),
        "agent_type": data["subagent_type"],
        "status": data["status"],
        "result": _own_result(data, error),
        "error": error["message"] if error else None,
        "duration": found["stats"]["time_ms"] / 1000,
        "started_at": about.get("started_at"),
        "completed_at": about.get("completed_at"),
    }


def _own_result(data: Mapping[str, Any], error: Mapping[str, Any] | None) -> str | None:
    """Return the result that the agent gave; None if there is only the reason of a failure."""
    result: str = data["result"]
    if data["status"] == "completed":
        return result
    if error is None or error["message"] == result:
        return None
    return result or None


def about(task: Task) -> dict[str, Any]:
    """Return the fields of a task that are missing in the nested envelope."""
    return {
        "objective": task.instructions,
        "started_at": instant_or_none(task.started_at),
        "completed_at": instant_or_none(task.archived_at),
        "cost": task.usage.cost,
    }


# The result in the context of another agent.


class Passage(NamedTuple):
    """A part of a result that fits into another agent's context; the store keeps the whole."""

    text: str
    note: str = ""
    """How to read the rest, if there is more."""
    outputs: Mapping[str, Any] | None = None
    """The outputs, if they are not part of the text."""

    def __str__(self) -> str:
        """Return text, note and outputs as one text."""
        text = "\n".join(filter(None, (self.text, self.note)))
        return text + _outputs_text(self.outputs)


def _bytes(text: str) -> int:
    return len(text.encode())


def passage(
    result: str,
    outputs: Mapping[str, Any] | None,
    task_id: str,
    offset: int = 0,
    *,
    size: Callable[[str], int] = _bytes,
    read_on: bool = True,
    limit: int = LIMIT,
) -> Passage:
    """Return the part of a result that starts at `offset`; the first part includes the outputs.

    Large outputs are appended to the result and read in parts like it. `size` measures a text in
    the form in which it is shown, which has at most `limit`. Without `read_on`, the note does not
    say how to read the rest.
    """
    beside = _outputs_text(outputs)
    if size(beside) > limit // 2:
        result, outputs, beside = result + beside, None, ""
    if offset > 0:
        outputs, beside = None, ""
    room = limit - size(beside)
    rest = result[offset:]
    text = beginning(rest, len(_fit(rest[:room], room, size)))
    end, note = offset + len(text), ""
    if end < len(result):
        call = written_out("task_output", task_id=task_id, offset=end)
        on = f" Next: {call}" if read_on else ""
        note = f"[Characters {offset:,} to {end:,} of {len(result):,}.{on}]"
    return Passage(text, note, outputs)


def result_part(found: dict[str, Any], offset: int, limit: int = LIMIT) -> dict[str, Any]:
    """Return a result in either form from `offset` on, cut to `limit` bytes of JSON.

    A note says how to read the rest.
    """
    if not offset and _bytes(dumps(found)) <= limit:
        return found
    flat_form = "data" not in found
    data = dict(found.get("data", found))
    outputs = data.pop("outputs", None)
    part = passage(
        data["result"] or "", outputs, data["task_id"], offset, size=json_bytes, limit=limit
    )
    if data["result"] is not None:
        data["result"] = part.text
    data |= omit_empty({"outputs": part.outputs, "note": part.note})
    if flat_form:
        return data
    return _with_data(found, data, part.note)


def shares_of(results: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return a limit for each of the results of one call, which share `LIMIT` bytes of JSON.

    Short results leave their room to the others.
    """
    sizes = [_bytes(dumps(result)) for result in results]
    room, share = LIMIT, LIMIT
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            break
        room -= size
    return [LIMIT if size <= share else share for size in sizes]


def _with_data(found: dict[str, Any], data: dict[str, Any], note: str) -> dict[str, Any]:
    """Return a nested envelope with a part of its result; its text and its error become short."""
    whole = found | {"data": data, "text": f"{_first_line(found)}\n\n{note}".strip()}
    if "error" in found:
        message = found["error"]["message"][:LONG_ERROR]
        whole["error"] = found["error"] | {"message": message}
    return whole


def _first_line(found: Mapping[str, Any]) -> str:
    return str(found["text"]).partition("\n\n")[0]


def _outputs_text(outputs: Mapping[str, Any] | None) -> str:
    return f"\n\nOutputs: {dumps(outputs)}" if outputs else ""


def _fit(text: str, room: int, size: Callable[[str], int]) -> str:
    while (length := size(text)) > room:
        text = text[: len(text) * room // length]
    return text


def json_bytes(text: str) -> int:
    """Return the number of bytes of a text inside JSON."""
    return _bytes(dumps(text)) - 2
