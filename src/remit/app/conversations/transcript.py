"""The conversation of a task as people and programs read it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from remit.app.conversations.stored_message import StoredMessage, call_result
from remit.app.reading.stored_events import events_of
from remit.app.runs.run_handle import CallRecord
from remit.app.subagents.delegation_arguments import is_blocking, item_count, may_delegate
from remit.domain.delegation.result_envelope import result_of, status_of
from remit.domain.llm.messages import ToolCall, plain
from remit.domain.prompts import agent_prompts, headings, reports
from remit.domain.prompts.compaction import Mark
from remit.domain.records.pick import omit
from remit.domain.records.serialize import instant
from remit.domain.task import events as ev
from remit.domain.task.task import State, Task
from remit.ports import EventStore

ByPlace = Mapping[int, Task]
Reports = Mapping[str, Task]
"""Subtasks that ended, by the text of their report to the agent."""


async def reported_subtasks(
    store: EventStore,
    task_id: str,
    rows: Sequence[StoredMessage],
    load: Callable[[Iterable[str]], Awaitable[list[Task]]],
) -> dict[str, Task]:
    """Return the subtasks whose end these messages may report, by the text of the report."""
    if not any(map(_may_report, rows)):
        return {}
    ended = await events_of(store, task_id, ev.SubtaskSettled)
    messages = {
        event.child_id: reports.subtask_ended(event.report) for event in ended if event.report
    }
    return {messages[child.id]: child for child in await load(messages)}


def _may_report(item: StoredMessage) -> bool:
    """True for a message to the agent that has the heading of a report."""
    return item.message.role == "user" and headings.SUBTASK_ENDED in item.message.text


def transcript(
    rows: list[StoredMessage],
    calls: Mapping[str, CallRecord],
    children: Mapping[str, ByPlace],
    ended: Reports,
) -> list[dict[str, Any]]:
    """Return the conversation as people and programs read it.

    `children` are the subtasks of each call, `ended` those whose end was reported to the agent.
    """
    found: list[dict[str, Any]] = []
    for item in rows:
        if item.mark is not None:
            found.append(_mark_view(item, item.mark))
            continue
        found.append(_message_view(item, ended))
        for key, call in item.keyed_calls():
            if key in calls:
                found.append(_result_view(item, call, calls[key], children.get(key, {})))
    return found


def _message_view(item: StoredMessage, ended: Reports) -> dict[str, Any]:
    """Return the transcript entry of a message."""
    shape = plain(item.message)
    parts: list[dict[str, Any]] = []
    if shape["role"] == "user":
        parts = _report_parts(item.message.text, ended)
    more = omit(item.more, ("environment",))
    return {
        "role": shape["role"],
        "parts": parts or _shown_parts(shape["parts"]),
        "run_id": item.run_id,
        "turn": item.turn,
        "at": item.at,
        **more,
    }


def _report_parts(text: str, ended: Reports) -> list[dict[str, Any]]:
    """Split a text into task results and other text; empty if it contains no report."""
    places = sorted((text.find(report), report) for report in ended if report in text)
    if not places:
        return []
    parts: list[dict[str, Any]] = []
    start = 0
    for place, report in places:
        parts += _text_part(text[start:place])
        parts.append(_task_result(ended[report], report))
        start = place + len(report)
    return [*parts, *_text_part(text[start:])]


def _text_part(text: str) -> list[dict[str, Any]]:
    """Return a text part without the empty lines that separate it from its neighbors."""
    words = text.removeprefix("\n\n").removesuffix("\n\n")
    if not words:
        return []
    return [{"type": "text", "text": words}]


def _shown_parts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of a message without what only its provider can read."""
    return [_public_fields(part) for part in parts if part["type"] != "thinking" or part["text"]]


def _public_fields(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a message without the data of its provider."""
    return omit(part, ("provider", "data"))


def _mark_view(item: StoredMessage, mark: Mark) -> dict[str, Any]:
    """Return the transcript entry of a compaction mark."""
    text = f"[Context full] The model now reads shorter tool results up to message {mark.through}."
    if mark.kind == "summarized":
        text = (
            "[Context full] The model now reads this summary instead of the messages up to"
            f" {mark.through}:\n{item.message.text}"
        )
    return {
        "role": "system",
        "parts": [{"type": "text", "text": text}],
        "run_id": item.run_id,
        "turn": item.turn,
        "at": item.at,
    }


def may_have_subtasks(rows: list[StoredMessage]) -> bool:
    """True if a call in these messages may have created subtasks."""
    return any(may_delegate(call.name) for item in rows for call in item.calls)


def unanswered_prompt(task: Task) -> dict[str, Any] | None:
    """Return the first message of a task that ended before its first answer; else None.

    That message would have been stored with the answer.
    """
    if task.started_at is None or not task.state.terminal:
        return None
    return {
        "role": "user",
        "parts": [{"type": "text", "text": agent_prompts.first_message(task)}],
        "run_id": f"{task.id}-r{1:06d}",
        "turn": 0,
        "at": instant(task.started_at),
    }


def ending_entry(task: Task, rows: list[StoredMessage]) -> dict[str, Any] | None:
    """Return the last entry of a transcript whose task failed or was canceled: why it ended.

    None for any other task.
    """
    if task.state not in (State.FAILED, State.CANCELED):
        return None
    heading = f"[Task {task.state.value}: {task.reason}]"
    part = _task_result(task, f"{heading} {task.failure_reason or ''}".rstrip())
    run_id, turn = (rows[-1].run_id, rows[-1].turn) if rows else ("", 0)
    return {
        "role": "system",
        "parts": [part],
        "run_id": run_id,
        "turn": turn,
        "at": instant(task.archived_at or task.updated_at),
    }


def _result_view(
    item: StoredMessage, call: ToolCall, record: CallRecord, subtasks: ByPlace
) -> dict[str, Any]:
    """Return the transcript entry of a call with a result."""
    return {
        "role": "tool",
        "parts": _result_parts(call, record, subtasks),
        "run_id": record.run_id,
        "turn": item.turn,
        "at": record.ended_at or record.started_at,
    }


def _result_parts(call: ToolCall, record: CallRecord, subtasks: ByPlace) -> list[dict[str, Any]]:
    """Return the results of the sub-agents that a call waited for, or else its own result."""
    named = {"call_id": call.call_id, "name": record.tool}
    own = _own_result(record, named)
    awaited = [task for place, task in sorted(subtasks.items()) if is_blocking(call, place)]
    if not awaited or record.status == "started":
        return [own]
    results = [_task_result(task, result_of(task)) | named for task in awaited]
    wanted = item_count(call)
    if wanted == 1:
        return [results[0] | {"text": record.result or ""}]
    if len(results) == wanted:
        return results
    return [own, *results]


def _own_result(record: CallRecord, named: Mapping[str, str]) -> dict[str, Any]:
    """Return the result that a call itself returned."""
    text, media = call_result(record)
    result: dict[str, Any] = {"type": "tool_result", **named, "text": text}
    result["status"] = record.status
    if media is not None:
        result["media"] = {"type": media.type, "bytes": media.size}
    return result


def _task_result(task: Task, text: str) -> dict[str, Any]:
    """Return a part of an entry that holds the result of a task."""
    return {
        "type": "task_result",
        "task_id": task.id,
        "status": status_of(task),
        "state": task.state.value,
        "reason": task.reason,
        "text": text,
    }
