"""The answers to delegation calls, as the model of the parent reads them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from remit.app.subagents.delegation_arguments import is_blocking, item_count, requested_tools
from remit.app.subagents.delegation_call import DelegatingRun, DelegationCall, failed
from remit.app.subagents.last_models import last_models
from remit.domain.agents.tools import ToolOutcome
from remit.domain.delegation.result_envelope import (
    LIMIT,
    envelope,
    json_bytes,
    lean_envelope,
    passage,
    refused_result,
    result_of,
    result_part,
    shares_of,
)
from remit.domain.llm.messages import ToolCall
from remit.domain.prompts.offered_tools import SUBTASK
from remit.domain.records.pick import by_id, omit_empty, omit_none
from remit.domain.records.serialize import dumps, plain
from remit.domain.task.task import State, Task

RECEIPT = "Get its result with task_output; wait_seconds waits for it. Its end also wakes you."
UNDER_WAY = "It has not ended yet."
ASKED = "It waits for a person to answer, and then continues."
_STATUSES = {"done": "Success", "failed": "Error"}
"""The status that `create_subtask_<agent>` returns by the state of the task; else Cancel."""


class ReusedResults(NamedTuple):
    """Tasks whose results answer items of a call, and the models that worked on its tasks."""

    tasks: Mapping[str, Task]
    models: Mapping[str, str]


async def answer_to(
    run: DelegatingRun, delegation: DelegationCall, unended: str = RECEIPT
) -> ToolOutcome:
    """Return the answer to a call whose items have ended or need no waiting.

    `unended` is the note on items that have not ended.
    """
    call, children = delegation.call, delegation.children
    places = range(item_count(call))
    if all(delegation.note(place, "refused") for place in places):
        return _refused_answer(delegation)
    if call.name.startswith(SUBTASK):
        return ToolOutcome(_subtask_result(children[0], _notice(run, children[0], call)))
    if call.name == "create_subtask":
        return ToolOutcome(_created_answer(run, children[0], call))
    reused = await _reused_results(run, delegation)
    whole = [_item_answer(run, delegation, place, reused, LIMIT) for place in places]
    results = [
        _item_answer(run, delegation, place, reused, limit) if limit < LIMIT else whole[place]
        for place, limit in zip(places, shares_of(whole), strict=True)
    ]
    if call.name != "Task":
        _add_notes(results, unended)
    if call.name == "task_parallel":
        return ToolOutcome(dumps({"results": results}))
    return ToolOutcome(dumps(results[0]), is_error=_has_failed(children.get(0)))


def _refused_answer(delegation: DelegationCall) -> ToolOutcome:
    """Return the answer to a call whose items were all refused: the reasons, in order."""
    reasons = [note.text for _, note in sorted(delegation.notes.items())]
    return failed("\n\n".join(reasons))._replace(denied=True)


def _has_failed(task: Task | None) -> bool:
    """True for a task that ended without its result."""
    return task is not None and task.state in (State.FAILED, State.CANCELED)


def _add_notes(results: list[dict[str, Any]], unended: str) -> None:
    """Add what the items that have not ended wait for."""
    for item in results:
        if item["status"] == "running":
            item["note"] = ASKED if "questions" in item else unended


async def _reused_results(run: DelegatingRun, delegation: DelegationCall) -> ReusedResults:
    """Load the tasks whose results are reused, and the models of all tasks of a call."""
    known = [note.text for note in delegation.notes.values() if note.kind == "found"]
    tasks = by_id(await run.handle.tasks(known))
    task_ids = [*tasks, *(task.id for task in delegation.children.values())]
    return ReusedResults(tasks, await last_models(run.store, task_ids))


def _notice(run: DelegatingRun, child: Task, call: ToolCall, place: int = 0) -> str:
    """Explain which requested tools a subtask did not get; empty if it got all."""
    asked = requested_tools(call, place)
    return run.agents.not_granted(child, asked, "your own task", run.task)


def _item_answer(
    run: DelegatingRun, delegation: DelegationCall, place: int, reused: ReusedResults, limit: int
) -> dict[str, Any]:
    """Return the answer for one item, with a result of at most `limit` bytes."""
    child = delegation.children.get(place)
    if child is not None:
        more = _notes_on(run, delegation, place, child)
        return _result(run, child, reused, delegation.call, more, limit)
    note = delegation.note(place, "found", "refused")
    if note is None:
        return {"status": "running"}
    if note.kind == "found":
        return _result(
            run, reused.tasks[note.text], reused, delegation.call, {"cached": True}, limit
        )
    error = {"code": note.code or "INVALID_PARAM", "message": note.text}
    return {"status": "failed", "error": error}


def _notes_on(
    run: DelegatingRun, delegation: DelegationCall, place: int, child: Task
) -> dict[str, Any]:
    """Return what a subtask did not get: requested tools, or the use of the cache."""
    notes = omit_empty({"notice": _notice(run, child, delegation.call, place)})
    uncached = delegation.note(place, "uncached")
    if uncached is not None:
        notes["not_cached"] = uncached.text
    return notes


def _result(
    run: DelegatingRun,
    task: Task,
    reused: ReusedResults,
    call: ToolCall,
    more: Mapping[str, Any],
    limit: int,
) -> dict[str, Any]:
    """Return the result envelope of a task with more data: for `Task` whole, else its lean form."""
    is_whole = call.name == "Task"
    found = envelope(
        task,
        model=reused.models.get(task.id),
        tier=run.agents.tier(task),
        cwd=run.operations.folder,
        params=call.arguments if is_whole else {},
    )
    found["data"] |= more
    part = result_part(found, 0, limit)
    return part if is_whole else lean_envelope(part)


def _created_answer(run: DelegatingRun, task: Task, call: ToolCall) -> str:
    """Return the answer of `create_subtask`, with the result if the call waited for it."""
    changed = {"id": task.id, "state": task.state.value, "version": task.version}
    answer: dict[str, Any] = {"task_id": task.id, "task": changed}
    answer |= omit_empty({"notice": _notice(run, task, call)})
    if is_blocking(call, 0):
        answer |= _awaited_result(task)
    return dumps(answer)


def _awaited_result(task: Task) -> dict[str, Any]:
    """Return the result of a subtask that `create_subtask` waited for."""
    found: dict[str, Any] = {}
    refused = refused_result(task)
    if refused:
        found["failure_reason"] = task.failure_reason
    found["duration"] = task.duration
    found["tool_summary"] = list(map(plain, task.tool_summary))
    part = passage(refused or result_of(task), task.completion_outputs, task.id, size=json_bytes)
    found |= omit_empty({"outputs": part.outputs, "note": part.note})
    found["result"] = part.text
    return found


def _subtask_result(task: Task, notice: str) -> str:
    """Return the answer of `create_subtask_<agent>`."""
    result = result_of(task)
    part = passage(result, task.completion_outputs, task.id, size=json_bytes)
    found = {
        "taskId": task.id,
        "agentId": task.owner,
        "subTaskStatus": _status_of(task),
        "duration": task.duration,
        "toolSummary": list(map(plain, task.tool_summary)) or None,
        "outputs": part.outputs,
        "note": part.note or None,
        "notice": notice or None,
        **_distinct_texts(task, result, part.text),
    }
    return dumps(omit_none(found))


def _status_of(task: Task) -> str | None:
    """Return the status that `create_subtask_<agent>` returns; None for a live task."""
    if not task.state.terminal:
        return None
    return _STATUSES.get(task.state.value, "Cancel")


def _distinct_texts(task: Task, result: str, passage_text: str) -> dict[str, str | None]:
    """Return the texts of a task, each under the first of its names.

    The result is replaced by the passage of it that is shown.
    """
    texts = {
        "summary": task.summary,
        "failureReason": task.failure_reason,
        "finalAssistantMessage": task.final_message,
    }
    first_names = {text: name for name, text in reversed(texts.items())}
    found = {name: text for text, name in first_names.items()}
    if result in first_names:
        found[first_names[result]] = passage_text
    return found
