"""The query rows derived from events; a store writes them in the same transaction."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

from remit.domain.projection.tables import TABLES
from remit.domain.records.pick import beyond
from remit.domain.records.serialize import dumps, instant, instant_or_none, plain
from remit.domain.task import events as ev
from remit.domain.task.task import Interaction, Run, State, Task, Update

Value = str | int | bytes | None
Key = tuple[Value, ...]


class Change(NamedTuple):
    """A row to write (`values` are all its columns) or, without values, to remove."""

    table: str
    key: Key
    values: tuple[Value, ...] | None


class Rows:
    """Collects the row changes of one task event by event, without keeping intermediate tasks."""

    def __init__(self, before: Task | None) -> None:
        self._before = self._latest = before
        self._changes: dict[tuple[str, Key], Change] = {}

    def add(self, entry: ev.Entry, after: Task) -> None:
        """Add an event and the task after it."""
        for change in _part_rows(self._latest, entry, after):
            self._changes[change.table, change.key] = change
        self._latest = after

    def changes(self, head: bytes) -> list[Change]:
        """Return all row changes; `head` is the hash of the last event."""
        before, after = self._before, self._latest
        if after is None or after is before:
            return []
        return [
            task_row(after, head),
            *_result_rows(after),
            *_label_rows(before, after),
            *_dependency_rows(before, after),
            *self._changes.values(),
        ]


def guide_row(entry: ev.Entry) -> Change:
    """Return the row of a guide."""
    assert isinstance(entry.event, ev.GuideCreated)
    event = entry.event
    return _put("guide", event.id, event.title, event.body, entry.actor, instant(entry.at))


def task_row(task: Task, head: bytes) -> Change:
    """Return the row of a task: columns for lists, and the whole task as a document."""
    return _put(
        "task",
        int(task.id),
        task.uid,
        task.title,
        task.state.value,
        task.owner,
        _number_or_none(task.parent_id),
        int(task.root_id),
        task.session_id,
        task.parent_session_id,
        task.priority,
        dumps(plain(task.wait)) if task.wait else None,
        instant_or_none(task.not_before),
        _number_or_none(task.rerun_of),
        instant_or_none(task.started_at),
        instant(task.updated_at),
        instant_or_none(task.archived_at),
        task.via,
        task.version,
        head,
        dumps(plain(task)),
    )


def _number_or_none(task_id: str | None) -> int | None:
    return int(task_id) if task_id else None


def _put(table: str, *values: Value) -> Change:
    return Change(table, values[: TABLES[table].key], values)


def _result_rows(task: Task) -> list[Change]:
    """Return the row of a result that identical tasks may reuse: done and vouched for."""
    if task.vouched and task.state is State.DONE:
        return [_put("task_result", int(task.id), task.cache_key)]
    return []


def _label_rows(before: Task | None, after: Task) -> list[Change]:
    return _differences("task_label", _labels(before), _labels(after))


def _labels(task: Task | None) -> list[tuple[Value, ...]]:
    return [] if task is None else [(int(task.id), label) for label in task.labels]


def _dependency_rows(before: Task | None, after: Task) -> list[Change]:
    return _differences("task_dependency", _dependencies(before), _dependencies(after))


def _dependencies(task: Task | None) -> list[tuple[Value, ...]]:
    if task is None:
        return []
    return [(int(task.id), int(item.task_id), item.on) for item in task.depends_on]


def _differences(
    table: str, old: Sequence[tuple[Value, ...]], new: Sequence[tuple[Value, ...]]
) -> list[Change]:
    if old == new:
        return []
    key = TABLES[table].key
    kept = {values[:key] for values in new}
    gone = [Change(table, values[:key], None) for values in old if values[:key] not in kept]
    return gone + [_put(table, *values) for values in new if values not in old]


def _part_rows(before: Task | None, entry: ev.Entry, after: Task) -> list[Change]:
    """Return the changed rows of updates, questions, notifications and runs.

    Each row is written whole, from the task before the event.
    """
    if before is None:
        return []
    changes = _EVENT_ROWS.get(type(entry.event), _no_rows)(before, entry, after)
    if before.run is not None and after.run is None:
        changes.append(_run_row(after, before.run, entry))
    if after.state.terminal:
        return changes + _closed_rows(before, after)
    return changes + _opened_rows(before, after)


def _no_rows(_: Task, __: ev.Entry, ___: Task) -> list[Change]:
    return []


def _answer_rows(before: Task, entry: ev.Entry, after: Task) -> list[Change]:
    """Return the question that was answered."""
    event = cast("ev.UserInteractionResponded", entry.event)
    return [
        _interaction_row(after, item, "answered", event.answer, entry.actor, instant(entry.at))
        for item in before.questions
        if item.id == event.interaction_id
    ]


def _wake_rows(before: Task, entry: ev.Entry, after: Task) -> list[Change]:
    """Return the question that was closed without an answer."""
    event = cast("ev.TaskWoken", entry.event)
    return [
        _interaction_row(after, item, "closed") for item in before.questions if item.id == event.ref
    ]


def _started_rows(_: Task, __: ev.Entry, after: Task) -> list[Change]:
    """Return the run that was started."""
    assert after.run is not None
    return [_run_row(after, after.run)]


def _delivery_rows(before: Task, entry: ev.Entry, after: Task) -> list[Change]:
    """Return the delivered updates, and those that the delivery made obsolete."""
    event = cast("ev.UpdateDelivered", entry.event)
    delivered = [item for item in before.queued if item.update_id in event.update_ids]
    obsolete = beyond(before.queued, (*delivered, *after.queued))
    return [
        *_update_rows(after, delivered, "delivered", event.run_id, event.turn),
        *_update_rows(after, obsolete, "undelivered"),
    ]


def _notification_rows(before: Task, entry: ev.Entry, _: Task) -> list[Change]:
    """Return the notification that was sent."""
    event = cast("ev.UserNotified", entry.event)
    notification = _put(
        "notification",
        int(before.id),
        _number(event.notification_id, "n"),
        event.notification_id,
        event.message,
        entry.actor,
        instant(entry.at),
    )
    return [notification]


_EVENT_ROWS: dict[type[Any], Callable[[Task, ev.Entry, Task], list[Change]]] = {
    ev.UpdateDelivered: _delivery_rows,
    ev.UserInteractionResponded: _answer_rows,
    ev.TaskWoken: _wake_rows,
    ev.UserNotified: _notification_rows,
    ev.RunStarted: _started_rows,
}
"""The rows that an event itself names, by its type."""


def _closed_rows(before: Task, after: Task) -> list[Change]:
    """Return the updates and questions that the end of a task closes."""
    return [
        *_update_rows(after, before.queued, "undelivered"),
        *_interaction_rows(after, before.questions, "closed"),
    ]


def _opened_rows(before: Task, after: Task) -> list[Change]:
    """Return the updates and questions that an event added."""
    updates = after.queued[len(before.queued) :]
    questions = after.questions[len(before.questions) :]
    return [
        *_update_rows(after, updates, "queued"),
        *_interaction_rows(after, questions, "open"),
    ]


def _number(part_id: str, kind: str) -> int:
    """Return the number in an id such as 42-u7."""
    return int(part_id.rpartition(f"-{kind}")[2])


def _update_rows(
    task: Task,
    items: Iterable[Update],
    status: str,
    run_id: str | None = None,
    turn: int | None = None,
) -> list[Change]:
    return [_update_row(task, item, status, run_id, turn) for item in items]


def _update_row(
    task: Task, item: Update, status: str, run_id: str | None, turn: int | None
) -> Change:
    number = _number(item.update_id, "u")
    return _put(
        "task_update",
        int(task.id),
        number,
        item.update_id,
        item.type,
        item.content,
        status,
        run_id,
        turn,
        instant(item.at),
    )


def _interaction_rows(task: Task, items: Iterable[Interaction], status: str) -> list[Change]:
    return [_interaction_row(task, item, status) for item in items]


def _interaction_row(task: Task, item: Interaction, status: str, *answer: str) -> Change:
    options = dumps(item.options) if item.options else None
    asked = (
        int(task.id),
        _number(item.id, "q"),
        item.id,
        item.question,
        options,
        int(item.blocking),
        item.asked_by,
        instant(item.asked_at),
    )
    answered = answer or (None, None, None)
    return _put("interaction", *asked, status, *answered, int(item.allow_other), item.call_id)


OUTCOMES: dict[type[Any], str] = {
    ev.RunYielded: "yielded",
    ev.RunReleased: "released",
    ev.RunFailed: "failed",
    ev.RunTimedOut: "timeout",
    ev.RunLost: "lost",
    ev.CompletionClaimed: "completed",
    ev.TaskCompleted: "completed",
    ev.TaskFailed: "failed",
    ev.TaskCanceled: "canceled",
}
"""The outcome of a run, by the event that ended it."""


def _run_row(task: Task, run: Run, end: ev.Entry | None = None) -> Change:
    ended = outcome = error = None
    if end is not None:
        ended, outcome = instant(end.at), OUTCOMES[type(end.event)]
        error = getattr(end.event, "error", None)
    return _put(
        "run",
        int(task.id),
        _number(run.id, "r"),
        run.id,
        run.worker,
        instant(run.started_at),
        ended,
        outcome,
        error,
    )
