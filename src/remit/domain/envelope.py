"""The result of a delegation, in the form its caller knows."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from remit.domain.value import Task
from remit.domain.wire import dumps, instant, plain

STATUS = {"done": "completed", "failed": "failed", "canceled": "cancelled"}
FLAT = ("task_id", "objective", "agent_type", "status", "result", "error", "duration", "started_at", "completed_at")
LIMIT = 200_000
"""How many bytes of a result another agent is shown at once."""
CODES = {"timeout": "TIMEOUT", "budget": "LIMIT_EXCEEDED", "turns": "LIMIT_EXCEEDED", "rejected": "INVALID_PARAM"}
CAUSES = {"model_quota": "LIMIT_EXCEEDED", "model_context": "LIMIT_EXCEEDED"}
"""The codes of causes that the operator can do something about; all others are UNAVAILABLE."""


def status_of(task: Task) -> str:
    """How a delegation stands, in its caller's words."""
    if task.state.value == "failed" and task.reason == "timeout":
        return "timeout"
    return STATUS.get(task.state.value, "running")


def result_of(task: Task) -> str:
    """What came of a task, as text: the last word on it, and of one that was not done, why."""
    if task.state.value in ("failed", "canceled"):
        return task.failure_reason or ""
    return task.summary or task.final_message or ""


def envelope(task: Task, *, model: str | None, tier: str, cwd: str, params: Mapping[str, Any], offset: int = 0) -> dict[str, Any]:
    """How a delegated task ended: what came of it, by which tools and model (none if none has answered), and what
    it took; its result from so many characters on.
    """
    status, result = status_of(task), result_of(task)[offset:]
    used = model_used(tier, model)
    data: dict[str, Any] = {
        "status": status,
        "task_id": task.id,
        "result": result,
        "tool_summary": [plain(item) for item in task.tool_summary],
        "model_used": used,
        "subagent_type": task.owner,
    }
    if task.completion_outputs:
        data["outputs"] = dict(task.completion_outputs)
    found: dict[str, Any] = {
        "status": "error" if status in ("failed", "timeout", "cancelled") else "success",
        "data": data,
        "text": f"Subagent ({task.owner}, {tier}) {status}.\n\n{result}",
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


def model_used(tier: str, model: str | None) -> str | None:
    """The tier that was asked for, with the model that answered beside it: `light (gpt-5-mini)`."""
    if model is None or model == tier or tier.endswith(f":{model}"):
        return model and tier
    return f"{tier} ({model})"


def _error(task: Task) -> dict[str, Any]:
    message = task.failure_reason or f"Task {task.id} was {task.state.value}."
    if task.cause is not None:
        return {"code": CAUSES.get(task.cause, "UNAVAILABLE"), "message": message, "details": {"cause": task.cause}}
    code = "CONFLICT" if task.state.value == "canceled" else CODES.get(task.reason or "", "INTERNAL_ERROR")
    return {"code": code, "message": message}


LONG_ERROR = 1000
"""A longer message of an error stands in the result, which can be read in parts."""


def lean(found: Mapping[str, Any]) -> dict[str, Any]:
    """An envelope as a model reads it, each thing once: what is known of the work first, and its text last."""
    data, error = found["data"], found.get("error")
    told: dict[str, Any] = {
        "task_id": data["task_id"],
        "status": data["status"],
        "duration": found["stats"]["time_ms"] / 1000,
        "tool_summary": data["tool_summary"],
        "model_used": data["model_used"],
        **{name: data[name] for name in ("outputs", "notice", "cached", "not_cached", "note") if name in data},
    }
    if error is None:
        return told | {"result": data["result"]}
    if len(error["message"]) < LONG_ERROR:
        return told | {"error": error, "result": ""}
    return told | {"error": {**error, "message": "The result says why."}, "result": data["result"]}


class TaskResult(dict[str, Any]):
    """What came of a delegation, in the form that was asked for: the envelope unless it is flat. `to_dict()` is always flat."""

    def __init__(self, found: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> None:
        super().__init__(found)
        self.about: dict[str, Any] = dict(about or {})
        """What an envelope does not say of its task: `objective`, `started_at` and `completed_at`."""

    def to_dict(self) -> dict[str, Any]:
        """The same in one level: `task_id, objective, agent_type, status, result, error, duration, started_at, completed_at`."""
        if "data" not in self:
            return {name: self[name] for name in FLAT}
        data, error = self["data"], self.get("error")
        return {
            "task_id": data["task_id"],
            "objective": self.about.get("objective"),
            "agent_type": data["subagent_type"],
            "status": data["status"],
            "result": data["result"] if data["status"] == "completed" else None,
            "error": error["message"] if error else None,
            "duration": self["stats"]["time_ms"] / 1000,
            "started_at": self.about.get("started_at"),
            "completed_at": self.about.get("completed_at"),
        }

    def shown(self, form: str) -> "TaskResult":
        """The same in the form that is asked for."""
        return TaskResult(self.to_dict(), self.about) if form == "flat" else self


def about(task: Task) -> dict[str, Any]:
    """What an envelope does not say of its task."""
    return {
        "objective": task.instructions,
        "started_at": instant(task.started_at) if task.started_at else None,
        "completed_at": instant(task.archived_at) if task.archived_at else None,
    }


# What another agent reads of it.


class Passage(NamedTuple):
    """As much of a result as fits into another's context; the whole is kept in the store."""

    text: str
    note: str = ""
    """How to read on, where there is more."""
    outputs: Mapping[str, Any] | None = None
    """What was handed over, where it stands beside the text."""

    def __str__(self) -> str:
        """All of it, as one text."""
        return "\n".join(part for part in (self.text, self.note) if part) + (_heading(self.outputs) if self.outputs else "")


def passage(
    result: str, outputs: Mapping[str, Any] | None, task_id: str, offset: int = 0, *, size: Callable[[str], int] | None = None, read_on: bool = True
) -> Passage:
    """The part of a result that begins so many characters into it, with what was handed over beside the first one.

    Outputs that would leave too little room are read on to like the rest, behind the result. `size` measures a text in the form it will be
    shown in; who cannot `read_on` is not told how.
    """
    size = size or _bytes
    beside = _heading(outputs) if outputs else ""
    if outputs and size(beside) > LIMIT // 2:
        result, outputs, beside = result + beside, None, ""
    room = LIMIT - (size(beside) if offset == 0 else 0)
    text = _fitting(result[offset : offset + room], room, size)
    end, note = offset + len(text), ""
    if end < len(result):
        on = f' The rest is kept: task_output with task_id "{task_id}" and offset {end} goes on.' if read_on else ""
        note = f"[Cut at {LIMIT // 1000} KB: characters {offset} to {end} of {len(result)}.{on}]"
    return Passage(text, note, outputs if offset == 0 else None)


def in_part(found: dict[str, Any], offset: int) -> dict[str, Any]:
    """A result in either form, from so many characters on and not longer than fits into a conversation as JSON; a note says how to go on."""
    if not offset and _bytes(dumps(found)) <= LIMIT:
        return found
    flat_form = "data" not in found
    told = dict(found if flat_form else found["data"])
    part = passage(told["result"] or "", told.pop("outputs", None), told["task_id"], offset, size=in_json)
    told["result"] = part.text if told["result"] is not None else None
    told |= {"outputs": part.outputs} if part.outputs else {}
    told |= {"note": part.note} if part.note else {}
    if flat_form:
        return told
    error = {"error": found["error"] | {"message": found["error"]["message"][:LONG_ERROR]}} if "error" in found else {}
    return found | {"data": told, "text": f"{_head(found)}\n\n{part.note}".strip()} | error


def _head(found: Mapping[str, Any]) -> str:
    return str(found["text"]).partition("\n\n")[0]


def _heading(outputs: Mapping[str, Any]) -> str:
    return f"\n\nOutputs: {dumps(outputs)}"


def _fitting(text: str, room: int, size: Callable[[str], int]) -> str:
    while (much := size(text)) > room:
        text = text[: len(text) * room // much]
    return text


def in_json(text: str) -> int:
    """How many bytes a text takes inside of a JSON text."""
    return _bytes(dumps(text)) - 2


def _bytes(text: str) -> int:
    return len(text.encode())
