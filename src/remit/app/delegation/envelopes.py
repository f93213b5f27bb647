"""The results of delegated tasks, and of work that was refused, for callers from outside."""

from collections.abc import Mapping
from typing import Any

from remit.app.context import AppContext
from remit.app.delegation.waiting import last_successor
from remit.app.subagents.last_models import last_models
from remit.codec import task_of
from remit.domain.delegation.result_envelope import Envelope, about, envelope, open_questions
from remit.domain.records.pick import omit_empty
from remit.domain.task.task import State, Task
from remit.errors import RemitError, Unavailable
from remit.store_queries.tree_queries import TREE


async def task_envelope(
    core: AppContext, task_id: str, form: str, params: Mapping[str, Any], offset: int = 0
) -> Envelope:
    """Return a task in the form of a delegation result.

    After a handoff, return that of its last successor.
    """
    task = await last_successor(core, task_id)
    models: Mapping[str, str] = {}
    if form == "envelope":
        models = await last_models(core.store, [task.id])
    found = envelope(
        task,
        model=models.get(task.id),
        tier=core.agents.tier(task),
        cwd=core.folder,
        params=params,
        offset=offset,
    )
    found["data"] |= omit_empty({"questions": await _questions_below(core, task)})
    return Envelope(found, about(task)).shown(form)


async def _questions_below(core: AppContext, task: Task) -> list[dict[str, Any]]:
    """Return the open questions of a waiting task and its subtasks; empty for any other task."""
    if task.state is not State.WAITING:
        return []
    return open_questions(await _live_subtree(core, task))


async def _live_subtree(core: AppContext, task: Task) -> list[Task]:
    """Return a waiting task and the live tasks below it."""
    if all(child.settled is not None for child in task.children):
        return [task]
    rows = await core.store.select(TREE, {"id": int(task.root_id)})
    line = {task.id: task}
    for row in rows:
        other = task_of(row.doc)
        if other.parent_id in line and not other.state.terminal:
            line[other.id] = other
    return list(line.values())


def refusal(error: RemitError, params: Mapping[str, Any]) -> Envelope:
    """Return the envelope for work that was refused, or whose wait ended early."""
    kept: Mapping[str, Any] = error.details if isinstance(error, Unavailable) else {}
    task_id = kept.get("task_id")
    # The tasks of a wait that ends early continue.
    is_running = bool(task_id or kept.get("task_ids"))
    data: dict[str, Any] = {
        "status": "running" if is_running else "failed",
        "task_id": task_id,
        "result": "",
        "tool_summary": [],
        "model_used": None,
        "subagent_type": _text_or_none(params.get("subagent_type")),
    }
    found = {
        "status": "error",
        "data": data,
        "text": f"{error.message} {error.hint}".rstrip(),
        "stats": {"time_ms": 0, "tool_calls": 0, "model": None, "tokens": 0},
        "context": {"params_input": dict(params)},
        "error": error.wire()["error"],
    }
    objective = params.get("objective") or params.get("prompt")
    return Envelope(found, {"objective": _text_or_none(objective)})


def _text_or_none(value: Any) -> str | None:
    """Return a text; None for any other value."""
    if isinstance(value, str):
        return value
    return None
