"""Exit codes of commands that report an outcome."""

from typing import Any

from remit.surfaces.cli.cli_host import Result

ENDS = {"TaskCompleted": "done", "TaskFailed": "failed", "TaskCanceled": "canceled"}
"""The events that end a task, with the resulting state."""
_CODES = {"completed": 0, "running": 0, "failed": 1, "timeout": 124, "cancelled": 130}
_STATUSES = {"done": "completed", "failed": "failed", "canceled": "cancelled"}


def work_exit_code(answer: Result) -> int:
    """Return the exit code for the outcome of delegations, a task or its events; of several, the
    worst.
    """
    results = answer.get("results", [answer])
    return max((_CODES[_find_status(result)] for result in results), default=0)


def _find_status(answer: Result) -> str:
    """Return the outcome in an answer, as the status of a delegation."""
    if isinstance(answer.get("task"), dict):
        return _status_of_state(answer["task"]["state"], answer["task"]["reason"])
    if "type" in answer:
        return _status_of_state(ENDS.get(answer["type"], ""), answer["data"].get("reason"))
    return str(answer.get("data", answer)["status"])


def _status_of_state(state: str, reason: str | None) -> str:
    """Return the delegation status for a state and its reason."""
    if (state, reason) == ("failed", "timeout"):
        return "timeout"
    return _STATUSES.get(state, "running")


def health_exit_code(answer: Result) -> int:
    """Return 1 if a fault was found and not repaired."""
    rollback = answer.get("rollback")
    is_behind = rollback and not rollback["accepted"]
    verified: dict[str, Any] = answer.get("verified", {})
    faults = (is_behind, answer.get("faults"), verified.get("faults"), _has_unrepaired(answer))
    return int(any(faults))


def _has_unrepaired(answer: Result) -> bool:
    """Return True if a mismatch was found and not repaired."""
    found: dict[str, Any] = answer.get("left_behind", {}) | {"orphans": answer.get("orphans")}
    left = {name for name, ids in found.items() if ids}
    if "fixed" in answer:
        left.intersection_update(answer["beyond_repair"])
    return bool(left)


def check_exit_code(answer: Result) -> int:
    """Return 1 if a file or a setting has a problem."""
    return int(answer["problems"] > 0)
