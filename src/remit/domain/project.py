"""The query rows that events add up to; a store writes them in the same transaction."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from remit.domain import event as ev
from remit.domain.table import TABLES
from remit.domain.value import Interaction, Run, State, Task, Update
from remit.domain.wire import dumps, instant, plain

Value = str | int | bytes | None
Key = tuple[Value, ...]


class Change(NamedTuple):
    """A row to write (`values` are all its columns) or, without values, to remove."""

    table: str
    key: Key
    values: tuple[Value, ...] | None


class Rows:
    """What events of one task change, event by event: of a thousand that come together no task in between is kept."""

    def __init__(self, before: Task | None) -> None:
        self._before = self._latest = before
        self._changes: dict[tuple[str, Key], Change] = {}

    def add(self, entry: ev.Entry, after: Task) -> None:
        """Take one more event, with the task after it."""
        for change in _parts(self._latest, entry, after):
            self._changes[change.table, change.key] = change
        self._latest = after

    def changes(self, head: bytes) -> list[Change]:
        """All of it; `head` is the hash of the last event."""
        before, after = self._before, self._latest
        if after is None or after is before:
            return []
        return [task_row(after, head), *_cached(after), *_labels(before, after), *_dependencies(before, after), *self._changes.values()]


def guide_row(entry: ev.Entry) -> Change:
    """The row of a guide."""
    assert isinstance(entry.event, ev.GuideCreated)
    event = entry.event
    return _put("guide", event.id, event.title, event.body, entry.actor, instant(entry.at))


def task_row(task: Task, head: bytes) -> Change:
    """The row of a task: what lists filter and show, and the whole task as a document."""
    return _put(
        "task",
        int(task.id),
        task.uid,
        task.title,
        task.state.value,
        task.owner,
        int(task.parent_id) if task.parent_id else None,
        int(task.root_id),
        task.session_id,
        task.parent_session_id,
        task.priority,
        dumps(plain(task.wait)) if task.wait else None,
        instant(task.schedule.not_before) if task.schedule and task.schedule.not_before else None,
        int(task.rerun_of) if task.rerun_of else None,
        instant(task.started_at) if task.started_at else None,
        instant(task.updated_at),
        instant(task.archived_at) if task.archived_at else None,
        task.via,
        task.version,
        head,
        dumps(plain(task)),
    )


def _put(table: str, *values: Value) -> Change:
    return Change(table, values[: TABLES[table].key], values)


def _cached(task: Task) -> list[Change]:
    """A result that answers for identical tasks: done, by a run that has vouched for it."""
    return [_put("task_result", int(task.id), task.cache_key)] if task.vouched and task.state is State.DONE else []


def _labels(before: Task | None, after: Task) -> list[Change]:
    old = before.labels if before else ()
    if old == after.labels:
        return []
    number = int(after.id)
    return _differences("task_label", [(number, label) for label in old], [(number, label) for label in after.labels])


def _dependencies(before: Task | None, after: Task) -> list[Change]:
    old = before.depends_on if before else ()
    if old == after.depends_on:
        return []
    number = int(after.id)
    rows = ([(number, int(item.task_id), item.on) for item in items] for items in (old, after.depends_on))
    return _differences("task_dependency", *rows)


def _differences(table: str, old: Sequence[tuple[Value, ...]], new: Sequence[tuple[Value, ...]]) -> list[Change]:
    key = TABLES[table].key
    kept = {values[:key] for values in new}
    gone = [Change(table, values[:key], None) for values in old if values[:key] not in kept]
    return gone + [_put(table, *values) for values in new if values not in old]


def _parts(before: Task | None, entry: ev.Entry, after: Task) -> list[Change]:
    """Rows of updates, questions, notices and runs; each is written whole from what the task knew before."""
    if before is None:
        return []
    changes: list[Change] = []
    match entry.event:
        case ev.UpdateDelivered(update_ids=ids, run_id=run_id, turn=turn):
            changes += [_update(after, item, "delivered", run_id, turn) for item in before.queued if item.update_id in ids]
            known = {*ids, *(item.update_id for item in after.queued)}
            changes += [_update(after, item, "undelivered") for item in before.queued if item.update_id not in known]
        case ev.UserInteractionResponded(interaction_id=interaction_id, answer=answer):
            found = [item for item in before.questions if item.id == interaction_id]
            changes += [_interaction(after, item, "answered", answer, entry.actor, instant(entry.at)) for item in found]
        case ev.UserNotified(notification_id=notification_id, message=message):
            number = _number(notification_id, "n")
            changes.append(_put("notification", int(after.id), number, notification_id, message, entry.actor, instant(entry.at)))
        case ev.RunStarted():
            assert after.run is not None
            changes.append(_run(after, after.run))
        case _:
            pass
    if before.run is not None and after.run is None:
        changes.append(_run(after, before.run, entry))
    if not (before.queued or before.questions or after.queued or after.questions):
        return changes
    if after.state.terminal:
        changes += [_update(after, item, "undelivered") for item in before.queued]
        changes += [_interaction(after, item, "closed") for item in before.questions]
    else:
        changes += [_update(after, item, "queued") for item in after.queued[len(before.queued) :]]
        changes += [_interaction(after, item, "open") for item in after.questions[len(before.questions) :]]
    return changes


def _number(part_id: str, kind: str) -> int:
    """The number in an id such as 42-u7."""
    return int(part_id.rpartition(f"-{kind}")[2])


def _update(task: Task, item: Update, status: str, run_id: str | None = None, turn: int | None = None) -> Change:
    number = _number(item.update_id, "u")
    return _put("task_update", int(task.id), number, item.update_id, item.type, item.content, status, run_id, turn, instant(item.at))


def _interaction(task: Task, item: Interaction, status: str, *answer: str) -> Change:
    options = dumps(item.options) if item.options else None
    asked = (int(task.id), _number(item.id, "q"), item.id, item.question, options, int(item.blocking), item.asked_by, instant(item.asked_at))
    return _put("interaction", *asked, status, *(answer or (None, None, None)), int(item.allow_other))


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
"""How a live run ended, by the event that ended it."""


def _run(task: Task, run: Run, end: ev.Entry | None = None) -> Change:
    ended, outcome, error = (instant(end.at), OUTCOMES[type(end.event)], getattr(end.event, "error", None)) if end else (None, None, None)
    return _put("run", int(task.id), _number(run.id, "r"), run.id, run.worker, instant(run.started_at), ended, outcome, error)
