"""Import and export of the two files of other task tools: `tasks.json` and `history.jsonl`.

`tasks.json` holds drafts and active tasks as `{"tasks": [...], "nextId": n}`, `history.jsonl` one
ended task per line with `archivedAt`. Fields that only remit knows are added under their own names
and read back; every loss or change is reported.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Literal, NamedTuple

from remit.app.maintenance.task_files import NESTED, ForeignTask, ended_state, next_id, read_files
from remit.app.maintenance.verify import stream_rows
from remit.app.reading.query_handlers import Asking, ask, rows_of
from remit.codec import GENESIS, encode_event
from remit.domain.decisions.creation import build_resource
from remit.domain.projection.document import document_of
from remit.domain.records.pick import omit
from remit.domain.records.record import fields, record, replace
from remit.domain.records.serialize import instant
from remit.domain.task import events as ev
from remit.domain.task.stored_event import Stored
from remit.domain.task.task import Step
from remit.errors import invalid
from remit.ports import Clock, EventStore
from remit.store_queries.event_queries import STREAMS
from remit.store_queries.task_queries import TASKS

PAGE = 500
BOARD_FIELDS = ("tasks", "nextId")
"""The fields of `tasks.json`."""
NO_FIELD = "task files do not have this field"


TIMES = ("createdAt", "updatedAt", "archivedAt")
COMPARED = (
    *("title", "description", "instructions", "owner", "threadId", "priority", "labels"),
    *("hasDescription", "hasInstructions", "descriptionOnly", "titleOutdated"),
    *("summary", "failureReason", "awaited", "creatorTaskId", *TIMES),
)
"""Fields that are compared with the imported task.

The others are copied unchanged or have their own rules.
"""
ACTORS = ("user:", "agent:", "system:")
NOT_IN_FILES = (
    *("acceptance", "outputs", "completion", "depends_on", "schedule", "limits", "tools"),
    *("model", "effort", "guides", "metadata", "session_id", "completion_outputs"),
)
"""Fields of a task that the files do not have."""


Difference = tuple[str, Any, Any]
"""A field with its value in the files and its value after the import."""
DEFAULT_CHANNEL = "local"
_STATUSES = {"draft": "draft", "done": "done", "failed": "canceled", "canceled": "canceled"}
"""The status in the files by state; every other state is active."""


class Exported(NamedTuple):
    """The text of both files, the number of tasks, and what the files do not hold."""

    board: str
    history: str
    total: int
    changes: tuple["Change", ...]


async def export_tasks(store: EventStore) -> Exported:
    """Export all tasks, and report the fields that the files do not hold."""
    documents = await ask(_all_documents(), store.select)
    entries = list(map(_file_entry, documents))
    changes = chain.from_iterable(map(_unexported, documents))
    return Exported(_board_text(entries), _history_text(entries), len(entries), tuple(changes))


def _board_text(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return `tasks.json`: the tasks that have not ended, and the next id."""
    highest = 0
    live: list[dict[str, Any]] = []
    for entry in entries:
        highest = max(highest, int(entry["id"]))
        if entry["archivedAt"] is None:
            shown = dict(entry)
            del shown["archivedAt"]
            live.append(shown)
    board = json.dumps({"tasks": live, "nextId": highest + 1}, ensure_ascii=False, indent=2)
    return f"{board}\n"


def _history_text(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return `history.jsonl`: the tasks that have ended, in the order of their ends."""
    ended = [entry for entry in entries if entry["archivedAt"] is not None]
    ended.sort(key=lambda entry: str(entry["archivedAt"]))
    return "".join(f"{_shown(entry)}\n" for entry in ended)


def _unexported(document: Mapping[str, Any]) -> list["Change"]:
    """Return the fields of a task that the files do not have."""
    names = [name for name in NOT_IN_FILES if document.get(name)]
    if _has_unlinked_parent(document):
        names.append("parent_id")
    if document.get("channel", DEFAULT_CHANNEL) != DEFAULT_CHANNEL:
        names.append("channel")
    return [Change(document["id"], name, "dropped", NO_FIELD) for name in names]


def _has_unlinked_parent(document: Mapping[str, Any]) -> bool:
    """Return whether no step of the parent of a task links to it: the files know only steps."""
    return "parent_id" in document and "step_index" not in document


class Change(NamedTuple):
    """A field of an exported or imported task that was dropped or changed.

    The task id is empty for a field of `tasks.json` itself.
    """

    task_id: str
    field: str
    change: Literal["dropped", "changed"]
    text: str


@record
class Imported:
    """The number of imported tasks, and how they differ from the files."""

    count: int
    changes: tuple[Change, ...]


async def import_tasks(
    store: EventStore,
    clock: Clock,
    board: str,
    history: str,
    folder: str = "",
    agents: Collection[str] | None = None,
) -> Imported:
    """Import the tasks of both files into an empty store, with their ids.

    Relative paths start in the folder. If agents are given, a live task with an unknown owner loses
    its owner.
    """
    tasks, entries, found = read_files(board, history, folder)
    following = next_id(found)
    unowned = {task.id for task in tasks.values() if _has_unknown_owner(task, agents)}
    for task_id in unowned:
        tasks[task_id] = replace(tasks[task_id], owner=None)
    await _store_tasks(store, tasks, clock)
    await _reserve_ids(store, tasks, following)
    documents = await ask(_all_documents(), store.select)
    made = {document["id"]: _file_entry(document) for document in documents}
    changes = [Change("", name, "dropped", NO_FIELD) for name in found if name not in BOARD_FIELDS]
    for entry, task in zip(entries, tasks.values(), strict=True):
        is_unowned = task.id in unowned
        changes += _changes(entry, task, tasks, made[task.id], is_unowned=is_unowned)
    return Imported(count=len(tasks), changes=tuple(changes))


async def _reserve_ids(store: EventStore, task_ids: Iterable[str], following: int) -> None:
    """Use up the ids below the next one of the files, which may be beyond their tasks."""
    highest = max(map(int, task_ids), default=0)
    reserved = following - 1 - highest
    if reserved > 0:
        await store.new_ids(reserved)


async def _store_tasks(store: EventStore, tasks: Mapping[str, ForeignTask], clock: Clock) -> None:
    """Store the events of all tasks, and the rows that follow from them."""
    streams = _streams(tasks, clock)
    events = list(chain.from_iterable(streams))
    rows = list(chain.from_iterable(map(stream_rows, streams)))
    await store.import_events(events, rows)


def _has_unknown_owner(task: ForeignTask, agents: Collection[str] | None) -> bool:
    """Return whether a live task has an owner that is not among the given agents."""
    return (
        agents is not None
        and task.owner is not None
        and task.owner not in agents
        and ended_state(task) is None
    )


def _changes(
    given: Mapping[str, Any],
    task: ForeignTask,
    tasks: Mapping[str, ForeignTask],
    made: Mapping[str, Any],
    *,
    is_unowned: bool,
) -> list[Change]:
    """Return how an imported task differs from its entry in the files."""
    unknown = [Change(task.id, name, "dropped", NO_FIELD) for name in _unknown(given)]
    dropped = _dropped(task, tasks)
    if is_unowned:
        why = f"unknown agent {given['owner']}; the task has no owner"
        dropped.append(Change(task.id, "owner", "dropped", why))
    left_out = {change.field for change in dropped}
    changed = [
        Change(task.id, name, "changed", f"from {_shown(was)} to {_shown(now)}")
        for name, was, now in _differences(given, task, made)
        if name not in left_out
    ]
    return [*unknown, *dropped, *changed]


def _shown(value: Any) -> str:
    """Return a value as the files write it."""
    return json.dumps(value, ensure_ascii=False)


def _unknown(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the unknown fields of an entry, its steps and its resources."""
    yield from _unknown_names(given, ForeignTask)
    for name, kind in NESTED.items():
        items: list[dict[str, Any]] = given.get(name) or []
        for index, item in enumerate(items):
            for field in _unknown_names(item, kind):
                yield f"{name}[{index}].{field}"


def _unknown_names(given: Mapping[str, Any], kind: type[Any]) -> list[str]:
    """Return the names in an object that are not fields of its record."""
    return list(omit(given, fields(kind)))


def _dropped(task: ForeignTask, tasks: Mapping[str, ForeignTask]) -> list[Change]:
    """Return the known fields that do not apply to the imported task."""
    reasons = _missing_subtasks(task, tasks) | _inapplicable_fields(task)
    return [Change(task.id, field, "dropped", reason) for field, reason in reasons.items()]


def _missing_subtasks(task: ForeignTask, tasks: Mapping[str, ForeignTask]) -> dict[str, str]:
    """Return why steps lose their subtask, by field."""
    return {
        f"steps[{index}].taskId": f"task {step.taskId} is not in the files"
        for index, step in enumerate(task.steps)
        if step.taskId is not None and step.taskId not in tasks
    }


def _inapplicable_fields(task: ForeignTask) -> dict[str, str]:
    """Return why fields do not fit how the task ended, or that it is live, by field."""
    reasons: dict[str, str] = {}
    end = ended_state(task)
    is_failure = end in ("failed", "canceled")
    if task.summary and end != "done":
        reasons["summary"] = "only a task that is done has one"
    if task.failureReason and not is_failure:
        reasons["failureReason"] = "the task has not failed and was not canceled"
    if task.archivedAt is not None and end is None:
        reasons["archivedAt"] = f"the task is {task.status}"
    return reasons


def _differences(
    given: Mapping[str, Any], task: ForeignTask, made: Mapping[str, Any]
) -> Iterator[Difference]:
    """Yield each field whose value differs from the files, with both values."""
    if _has_bare_creator(task):
        yield "createdBy", task.createdBy, _creator(task)
    yield from _field_differences(given, task, made)
    if task.state and task.state != made["state"]:
        yield "state", task.state, made["state"]
    for name in NESTED:
        yield from _nested_differences(name, given.get(name) or (), made[name])


def _field_differences(
    given: Mapping[str, Any], task: ForeignTask, made: Mapping[str, Any]
) -> Iterator[Difference]:
    """Yield each compared field whose value differs, with both values."""
    return _changed((name, _comparable(name, given, task), made[name]) for name in COMPARED)


def _nested_differences(
    name: str, old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]
) -> Iterator[Difference]:
    """Yield each field of the steps or the resources whose value differs, with both values."""
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        yield from _item_differences(f"{name}[{index}]", before, after)


def _is_given(value: Any) -> bool:
    """Return whether the files give a value: anything but null, an empty text or an empty list."""
    return value not in (None, "", [])


def _has_bare_creator(task: ForeignTask) -> bool:
    """Return whether the creator is a name without the kind of actor, so that it is guessed."""
    return (
        bool(task.createdBy)
        and task.createdByKind is None
        and not str(task.createdBy).startswith(ACTORS)
    )


def _item_differences(
    place: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[Difference]:
    """Yield each field of a step or resource whose value differs, with both values."""
    fields = ("title", "details", "done", "value", "label")
    return _changed((f"{place}.{field}", old.get(field), new.get(field)) for field in fields)


def _changed(pairs: Iterable[Difference]) -> Iterator[Difference]:
    """Return those given values that are another value now."""
    return ((name, was, now) for name, was, now in pairs if _is_given(was) and was != now)


def _comparable(name: str, given: Mapping[str, Any], task: ForeignTask) -> Any:
    """Return a value of the files in the form that an export writes."""
    if name == "creatorTaskId":
        return task.creatorTaskId
    if name not in TIMES:
        return given.get(name)
    at = getattr(task, name)
    return None if at is None else instant(at)


def _all_documents() -> Asking[list[dict[str, Any]]]:
    """Return the documents of all tasks, by id."""
    found: list[dict[str, Any]] = []
    after = ""
    while streams := (yield from rows_of(STREAMS, after_id=after, limit=PAGE)):
        ids = [int(row.stream) for row in streams if row.stream.isdigit()]
        found += [document_of(row.doc, row.id) for row in (yield from rows_of(TASKS, ids=ids))]
        after = streams[-1].stream
    return sorted(found, key=lambda document: int(document["id"]))


def _file_entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task as an entry of the files."""
    state = document["state"]
    return {
        "id": document["id"],
        "title": document["title"],
        "description": document["description"],
        "instructions": document["instructions"],
        "owner": document.get("owner"),
        "createdBy": document["created_by"].removeprefix("agent:"),
        "createdByKind": document["created_by"].partition(":")[0],
        "status": _STATUSES.get(state, "active"),
        "state": state,
        "steps": list(map(_file_step, document.get("steps", ()))),
        "resources": document.get("resources", []),
        "threadId": document["thread_id"],
        "priority": document.get("priority", 2),
        "labels": document.get("labels", []),
        "summary": document.get("summary"),
        "failureReason": document.get("failure_reason"),
        "createdAt": document["created_at"],
        "updatedAt": document["updated_at"],
        "archivedAt": document.get("archived_at"),
        "awaited": document.get("awaited", False),
        "creatorTaskId": document.get("creator_task_id"),
        "hasDescription": document.get("has_description", False),
        "hasInstructions": document.get("has_instructions", False),
        "descriptionOnly": document.get("description_only", False),
        "titleOutdated": document.get("title_outdated", False),
    }


def _file_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step as the files hold it: with `done`, and its subtask as `taskId`."""
    shown = dict(step)
    linked = shown.pop("task_id", None)
    shown["done"] = step.get("done", False)
    if linked is not None:
        shown["taskId"] = linked
    return shown


def _streams(tasks: Mapping[str, ForeignTask], clock: Clock) -> list[list[Stored]]:
    """Return the sealed events of each task."""
    parents = _parents(tasks)
    streams: list[list[Stored]] = []
    for task in tasks.values():
        events = [
            _creation(task, parents, clock),
            *_subtask_events(task, tasks),
            *_ending(task),
        ]
        streams.append(_seal_events(task, events, clock))
    return streams


def _parents(tasks: Mapping[str, ForeignTask]) -> dict[str, tuple[str, int]]:
    """Return the parent of each subtask and the step that links to it."""
    parents: dict[str, tuple[str, int]] = {}
    for task in tasks.values():
        for index, child in _linked_subtasks(task, tasks):
            if child.id in parents or child.id == task.id:
                raise invalid(
                    f"task {task.id}, step {index}",
                    f"links to task {child.id}, which is linked already",
                    "one step for each subtask",
                )
            parents[child.id] = (task.id, index)
    for task_id in parents:
        _path(task_id, parents)
    return parents


def _linked_subtasks(
    task: ForeignTask, tasks: Mapping[str, ForeignTask]
) -> Iterator[tuple[int, ForeignTask]]:
    """Yield the subtasks of a task that are in the files, with the index of their step."""
    linked = ((index, tasks.get(step.taskId or "")) for index, step in enumerate(task.steps))
    return ((index, child) for index, child in linked if child is not None)


def _path(task_id: str, parents: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return the task and all its ancestors, the root last."""
    path = [task_id]
    while path[-1] in parents:
        above = parents[path[-1]][0]
        if above in path:
            raise invalid(f"task {task_id}", "is its own ancestor", "a tree of subtasks")
        path.append(above)
    return path


def _creation(
    task: ForeignTask, parents: Mapping[str, tuple[str, int]], clock: Clock
) -> ev.TaskCreated:
    """Return the event that creates a task of the files."""
    path = _path(task.id, parents)
    parent_id, step_index = parents.get(task.id, (None, None))
    words = task.instructions or task.description or task.title
    is_same_text = task.description == words
    is_description_alone = task.descriptionOnly or not task.instructions
    return ev.TaskCreated(
        id=task.id,
        uid=clock.uid(),
        thread_id=task.threadId or clock.uid(),
        title=task.title,
        description=task.description or words,
        instructions=words,
        draft=task.status == "draft",
        steps=tuple(
            Step(title=step.title, details=step.details, done=step.done) for step in task.steps
        ),
        resources=tuple(
            build_resource(item.type, item.value, item.label, f"task {task.id}: resources")
            for item in task.resources
        ),
        owner=task.owner,
        parent_id=parent_id,
        step_index=step_index,
        root_id=path[-1],
        depth=len(path) - 1,
        priority=task.priority,
        labels=tuple(dict.fromkeys(task.labels)),
        awaited=task.awaited or parent_id is not None,
        creator_task_id=task.creatorTaskId,
        has_description=task.hasDescription and is_same_text,
        has_instructions=task.hasInstructions,
        description_only=is_description_alone and is_same_text,
        title_outdated=task.titleOutdated,
    )


def _subtask_events(task: ForeignTask, tasks: Mapping[str, ForeignTask]) -> Iterator[ev.Event]:
    """Yield the links of a task to its subtasks, and their ends."""
    for index, child in _linked_subtasks(task, tasks):
        yield ev.SubtaskLinked(child_id=child.id, step_index=index)
        end = ended_state(child)
        if end is not None:
            yield ev.SubtaskSettled(
                child_id=child.id,
                state=end,
                summary=child.summary,
                failure_reason=child.failureReason,
            )


def _ending(task: ForeignTask) -> list[ev.Event]:
    """Return the events with which a task of the files ended; empty for a live one."""
    match ended_state(task):
        case "done":
            return [
                ev.CompletionClaimed(summary=task.summary),
                ev.TaskCompleted(verification="none"),
            ]
        case "failed":
            return [
                ev.TaskFailed(
                    reason="error",
                    message=task.failureReason or "It had failed before it was imported.",
                )
            ]
        case "canceled":
            return [ev.TaskCanceled(reason="user", message=task.failureReason)]
        case _:
            return []


class _Times(NamedTuple):
    """When a task was created, ended and last changed."""

    created: datetime
    ended: datetime | None
    updated: datetime


def _times(task: ForeignTask, now: datetime) -> _Times:
    """Return the times of the files, put in order.

    A task without a creation time is as old as its oldest time.
    """
    if ended_state(task) is None:
        created = _first_known(task.createdAt, task.updatedAt, now)
        return _Times(created, None, _latest(created, task.updatedAt))
    oldest = min(filter(None, [task.updatedAt, task.archivedAt]), default=now)
    created = _first_known(task.createdAt, oldest)
    ended = _latest(created, _first_known(task.archivedAt, task.updatedAt, created))
    return _Times(created, ended, _latest(ended, task.updatedAt))


def _first_known(*times: datetime | None) -> datetime:
    """Return the first time that is known; the last one always is."""
    return next(filter(None, times))


def _latest(*times: datetime | None) -> datetime:
    """Return the latest of the times that are known; at least one is."""
    return max(filter(None, times))


def _creator(task: ForeignTask) -> str:
    """Return the creator as an actor; a bare name is an agent."""
    author = task.createdBy or "system:import"
    return author if author.startswith(ACTORS) else f"agent:{author}"


def _seal_events(task: ForeignTask, events: list[ev.Event], clock: Clock) -> list[Stored]:
    """Chain the events of a task, with the times of the files."""
    head, sealed = GENESIS, list[Stored]()
    for version, (at, event) in enumerate(_dated_events(task, events, clock.now()), 1):
        entry = ev.Entry(
            id=clock.uid(),
            stream=task.id,
            version=version,
            at=at,
            actor=_creator(task),
            event=event,
        )
        sealed.append(encode_event(entry, head))
        head = sealed[-1].hash
    return sealed


def _dated_events(
    task: ForeignTask, events: Iterable[ev.Event], now: datetime
) -> list[tuple[datetime, ev.Event]]:
    """Return the events with their times: creation, end, and the time of the last change."""
    times = _times(task, now)
    first, *others = events
    later = times.ended or times.updated
    dated = [(times.created, first), *((later, event) for event in others)]
    if dated[-1][0] < times.updated:
        # Changes only the time of the last change.
        dated.append((times.updated, ev.TaskRevised()))
    return dated
