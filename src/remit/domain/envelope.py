"""The result of a delegation, in the form its caller knows."""

from collections.abc import Mapping
from typing import Any

from remit.domain.value import Task
from remit.domain.wire import instant, plain

STATUS = {"done": "completed", "failed": "failed", "canceled": "cancelled"}
CODES = {"timeout": "TIMEOUT", "budget": "LIMIT_EXCEEDED", "turns": "LIMIT_EXCEEDED", "rejected": "INVALID_PARAM"}


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


def envelope(task: Task, *, model: str | None, tier: str, cwd: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """How a delegated task ended: what came of it, by which tools and model (none if none has answered), and what it took."""
    status, result = status_of(task), result_of(task)
    data: dict[str, Any] = {
        "status": status,
        "task_id": task.id,
        "result": result,
        "tool_summary": [plain(item) for item in task.tool_summary],
        "model_used": model,
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
            "model": model,
            "tokens": task.usage.input_tokens + task.usage.output_tokens,
        },
        "context": {"cwd": cwd, "params_input": dict(params)},
    }
    if found["status"] == "error":
        code = "CONFLICT" if status == "cancelled" else CODES.get(task.reason or "", "INTERNAL_ERROR")
        found["error"] = {"code": code, "message": task.failure_reason or f"Task {task.id} was {task.state.value}."}
    return found


def flat(task: Task) -> dict[str, Any]:
    """The same in one level."""
    status = status_of(task)
    return {
        "task_id": task.id,
        "objective": task.instructions,
        "agent_type": task.owner,
        "status": status,
        "result": result_of(task) if status == "completed" else None,
        "error": None if status in ("completed", "running") else task.failure_reason or f"Task {task.id} was {task.state.value}.",
        "duration": round(task.duration, 3),
        "started_at": instant(task.started_at) if task.started_at else None,
        "completed_at": instant(task.archived_at) if task.archived_at else None,
    }
