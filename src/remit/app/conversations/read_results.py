"""Which results of subtasks an agent has read as the answers to its calls."""

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, cast

from remit.app.runs.run_handle import CallRecord
from remit.app.subagents.delegation_arguments import DELEGATING
from remit.domain.task.task import State

READING = ("get_task", "task_output", *DELEGATING)
"""Tools whose answer contains the results of tasks that have ended."""
ANSWERED = ("done", "failed")
"""The statuses of calls whose answer the agent has read."""
ENDED = frozenset(state.value for state in State if state.terminal)
RESULTS = frozenset({"completed", "failed", "timeout", "cancelled"})
"""The statuses that `task_output` returns for tasks that have ended."""


def results_read(calls: Iterable[CallRecord]) -> set[str]:
    """Return the tasks whose result one of these calls returned."""
    results = [call.result or "" for call in calls if _may_have_results(call)]
    return set(chain.from_iterable(map(_ended_tasks, results)))


def _may_have_results(call: CallRecord) -> bool:
    """True for a call whose answer the agent has read, and which may contain results of tasks."""
    return call.tool in READING and call.status in ANSWERED


def _ended_tasks(result: str) -> set[str]:
    """Return the ids of the ended tasks whose results an answer contains."""
    try:
        answer: Any = json.loads(result)
    except ValueError:  # an error text, or a long answer that was truncated
        return set()
    if not isinstance(answer, dict):
        return set()
    found = cast("Mapping[str, Any]", answer)
    task_ids = set(map(_ended_task, found.get("results", (found,))))
    return task_ids - {""}


def _ended_task(answer: Mapping[str, Any]) -> str:
    """Return the id of the ended task whose result an answer contains; empty if there is none."""
    shown = answer.get("data", answer)
    has_ended = shown.get("state") in ENDED or shown.get("status") in RESULTS
    if not has_ended:
        return ""
    task_id = shown.get("task_id") or shown.get("id") or ""
    return str(task_id)
