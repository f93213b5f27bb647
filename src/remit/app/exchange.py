"""Tasks as the two files that other task tools keep: `tasks.json` (drafts and active) and `history.jsonl` (ended).

`tasks.json` is `{"tasks": [...], "nextId": n}`, `history.jsonl` one task per line with `archivedAt`. What remit knows beyond their
fields is added under names of its own and read back; what is not kept as it was is reported.
"""

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, NamedTuple, cast

from remit.app.query import Asking, ask
from remit.app.verify import stream_rows
from remit.codec import GENESIS, seal
from remit.domain import event as ev
from remit.domain.create import resource
from remit.domain.document import document_of
from remit.domain.record import Coerce, Items, Matches, fields, record
from remit.domain.shape import parse
from remit.domain.value import TASK_ID, AgentId, Body, Labels, Priority, Resource, Step, StepTitle, Title, plain_id
from remit.domain.wire import instant
from remit.errors import InvalidParam, Problem, invalid
from remit.ports import Clock, EventStore

PAGE = 500
NO_FIELD = "the files of tasks have no such field"
Number = Annotated[str, Coerce(plain_id), Matches(TASK_ID, "a whole number above 0")]


@record
class ForeignStep:
    """A step as the files have it."""

    title: StepTitle
    details: Body | None = None
    done: bool = False
    taskId: Number | None = None  # noqa: N815 - the files' own spelling


@record
class ForeignTask:
    """A task as the files have it."""

    id: Number
    title: Title
    description: Body = ""
    instructions: Body = ""
    owner: AgentId | None = None
    createdBy: str | None = None  # noqa: N815
    createdByKind: str | None = None  # noqa: N815
    status: Literal["draft", "active", "done", "canceled"] = "active"
    state: str | None = None
    steps: Annotated[tuple[ForeignStep, ...], Items(1000)] = ()
    resources: Annotated[tuple[Resource, ...], Items(1000)] = ()
    threadId: str | None = None  # noqa: N815
    priority: Priority = 2
    labels: Labels = ()
    summary: Body | None = None
    failureReason: Body | None = None  # noqa: N815
    createdAt: datetime | None = None  # noqa: N815
    updatedAt: datetime | None = None  # noqa: N815
    archivedAt: datetime | None = None  # noqa: N815
    awaited: bool = False
    creatorTaskId: Number | None = None  # noqa: N815


TIMES = ("createdAt", "updatedAt", "archivedAt")
COMPARED = (
    *("title", "description", "instructions", "owner", "threadId", "priority", "labels"),
    *("summary", "failureReason", "awaited", "creatorTaskId", *TIMES),
)
"""Fields that are compared with the imported task; the others are kept as they are or have rules of their own."""
ACTORS = ("user:", "agent:", "system:")
NESTED: dict[str, type[Any]] = {"steps": ForeignStep, "resources": Resource}
"""Fields that are lists of objects."""
NOT_IN_FILES = (
    *("acceptance", "outputs", "completion", "depends_on", "schedule", "limits", "tools"),
    *("model", "effort", "guides", "metadata", "session_id"),
)
"""What a task may have and the files have no field for."""


class Exported(NamedTuple):
    """The text of both files, how many tasks they hold, and what of the active ones they do not."""

    board: str
    history: str
    total: int
    changes: tuple["Change", ...]


async def export_tasks(store: EventStore) -> Exported:
    """All tasks as the two files, and which terms of active tasks are not in them."""
    documents = await ask(_all_documents(), store.select)
    shown = [_outward(document) for document in documents]
    live = [task for task in shown if task["archivedAt"] is None]
    ended = sorted((task for task in shown if task["archivedAt"] is not None), key=lambda task: str(task["archivedAt"]))
    for task in live:
        del task["archivedAt"]
    next_id = max((int(task["id"]) for task in shown), default=0) + 1
    board = json.dumps({"tasks": live, "nextId": next_id}, ensure_ascii=False, indent=2)
    history = "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in ended)
    active = [document for document in documents if "archived_at" not in document]
    changes = tuple(change for document in active for change in _left_out(document))
    return Exported(board + "\n", history, len(shown), changes)


def _left_out(document: Mapping[str, Any]) -> list["Change"]:
    """The terms of a task that the files have no field for."""
    names = [name for name in NOT_IN_FILES if document.get(name)]
    is_loose = "parent_id" in document and "step_index" not in document
    names += ["parent_id"] if is_loose else []
    return [Change(document["id"], name, "dropped", NO_FIELD) for name in names]


class Change(NamedTuple):
    """What a field of an exported or imported task lost, or was changed to."""

    task_id: str
    field: str
    change: Literal["dropped", "changed"]
    text: str


@record
class Imported:
    """How many tasks were imported, and in what they differ from the files."""

    count: int
    changes: tuple[Change, ...]


async def import_tasks(store: EventStore, clock: Clock, board: str, history: str, folder: str = "") -> Imported:
    """Take the tasks of both files into an empty store, with their ids; relative paths begin in the folder."""
    found = _object("tasks.json", _json("tasks.json", board))
    entries = _entries(found)
    tasks = _read("tasks.json", enumerate(entries), folder)
    lines = [(number, _json(f"history.jsonl line {number + 1}", line)) for number, line in enumerate(history.splitlines()) if line.strip()]
    tasks |= _read("history.jsonl", lines, folder, known=tasks)
    given = [*entries, *(entry for _, entry in lines)]
    streams = _streams(tasks, clock)
    await store.import_events([event for events in streams for event in events], [row for events in streams for row in stream_rows(events)])
    highest, wanted = max(map(int, tasks), default=0), _next_id(found) - 1
    if wanted > highest:
        await store.new_ids(wanted - highest)
    made = {document["id"]: _outward(document) for document in await ask(_all_documents(), store.select)}
    pairs = zip(given, tasks.values(), strict=True)
    changes = [change for entry, task in pairs for change in _changes(entry, task, tasks, made[task.id])]
    return Imported(count=len(tasks), changes=tuple(changes))


def _changes(
    given: Mapping[str, Any],
    task: ForeignTask,
    tasks: Mapping[str, ForeignTask],
    made: Mapping[str, Any],
) -> list[Change]:
    """In what an imported task differs from its entry in the files."""
    unknown = [Change(task.id, name, "dropped", NO_FIELD) for name in _unknown(given)]
    dropped = _dropped(task, tasks)
    left_out = {change.field for change in dropped}
    differences = [item for item in _differences(given, task, made) if item[0] not in left_out]
    changed = [
        Change(task.id, name, "changed", f"from {json.dumps(was, ensure_ascii=False)} to {json.dumps(now, ensure_ascii=False)}")
        for name, was, now in differences
    ]
    return [*unknown, *dropped, *changed]


def _unknown(given: Mapping[str, Any]) -> Iterator[str]:
    """The fields of an entry, its steps and its resources that are not kept."""
    yield from (name for name in given if name not in fields(ForeignTask))
    for name, kind in NESTED.items():
        items: list[dict[str, Any]] = given.get(name) or []
        for index, item in enumerate(items):
            yield from (f"{name}[{index}].{field}" for field in item if field not in fields(kind))


def _dropped(task: ForeignTask, tasks: Mapping[str, ForeignTask]) -> list[Change]:
    found = [
        Change(task.id, f"steps[{index}].taskId", "dropped", f"task {step.taskId} is not in the files")
        for index, step in enumerate(task.steps)
        if step.taskId is not None and step.taskId not in tasks
    ]
    end = _end(task)
    if task.summary and end != "done":
        found.append(Change(task.id, "summary", "dropped", "only a task that is done has one"))
    if task.failureReason and end in (None, "done"):
        found.append(Change(task.id, "failureReason", "dropped", "the task has not failed and was not canceled"))
    if task.archivedAt is not None and end is None:
        found.append(Change(task.id, "archivedAt", "dropped", f"the task is {task.status}"))
    return found


def _differences(given: Mapping[str, Any], task: ForeignTask, made: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each field whose value is not the one of the files, with both values."""
    is_bare = task.createdBy and task.createdByKind is None and not task.createdBy.startswith(ACTORS)
    if is_bare:
        yield "createdBy", task.createdBy, _creator(task)
    for name in COMPARED:
        was, now = _comparable(name, given, task), made[name]
        if was not in (None, "", []) and was != now:
            yield name, was, now
    if task.state and task.state != made["state"]:
        yield "state", task.state, made["state"]
    for name in NESTED:
        for index, (old, new) in enumerate(zip(given.get(name) or (), made[name], strict=True)):
            wanted = ((field, old.get(field)) for field in ("title", "details", "done", "value", "label"))
            yield from ((f"{name}[{index}].{field}", was, new.get(field)) for field, was in wanted if was not in (None, "") and was != new.get(field))


def _comparable(name: str, given: Mapping[str, Any], task: ForeignTask) -> Any:
    """A value of the files in the form in which an export writes it."""
    if name in TIMES:
        at = getattr(task, name)
        return None if at is None else instant(at)
    return getattr(task, name) if name == "creatorTaskId" else given.get(name)


def _all_documents() -> Asking[list[dict[str, Any]]]:
    """Every task's document, by id."""
    found: list[dict[str, Any]] = []
    after = ""
    while streams := [row[0] for row in (yield "streams", {"after_id": after, "limit": PAGE})]:
        rows = yield "tasks", {"ids": [int(name) for name in streams if name.isdigit()]}
        found += [document_of(row[2], row[0]) for row in rows]
        after = streams[-1]
    return sorted(found, key=lambda document: int(document["id"]))


def _outward(document: Mapping[str, Any]) -> dict[str, Any]:
    state = document["state"]
    status = "draft" if state == "draft" else "done" if state == "done" else "canceled" if state in ("failed", "canceled") else "active"
    steps = [{key: value for key, value in step.items() if key != "task_id"} for step in document.get("steps", ())]
    for step, stored in zip(steps, document.get("steps", ()), strict=True):
        step["done"] = stored.get("done", False)
        if "task_id" in stored:
            step["taskId"] = stored["task_id"]
    return {
        "id": document["id"],
        "title": document["title"],
        "description": document["description"],
        "instructions": document["instructions"],
        "owner": document.get("owner"),
        "createdBy": document["created_by"].removeprefix("agent:"),
        "createdByKind": document["created_by"].partition(":")[0],
        "status": status,
        "state": state,
        "steps": steps,
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
    }


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise invalid(where, f"is no JSON ({error})", "valid JSON") from error


def _object(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(where, "is no object", "an object")
    return cast("dict[str, Any]", value)


def _entries(board: Mapping[str, Any]) -> list[Any]:
    if not isinstance(board.get("tasks"), list):
        raise invalid("tasks.json: tasks", "is no list", 'a list, as in {"tasks": [], "nextId": 1}')
    return cast("list[Any]", board["tasks"])


def _next_id(board: Mapping[str, Any]) -> int:
    found = board.get("nextId", 1)
    if not isinstance(found, int) or not 1 <= found < 10**18:
        raise invalid("tasks.json: nextId", f"is {found!r}", "a whole number above 0")
    return found


def _read(
    where: str,
    entries: Iterable[tuple[int, Any]],
    folder: str,
    known: Mapping[str, ForeignTask] | None = None,
) -> dict[str, ForeignTask]:
    tasks: dict[str, ForeignTask] = {}
    for number, entry in entries:
        place = f"{where} task {number + 1}"
        given = _known(ForeignTask, _object(place, entry))
        for name, kind in NESTED.items():
            if isinstance(given.get(name), list):
                given[name] = [_located(_known(kind, item), folder) for item in given[name]]
        try:
            task = parse(ForeignTask, given)
        except InvalidParam as error:
            problems = [Problem(f"{place}: {item['field']}", item["problem"], item["expected"]) for item in error.details["fields"]]
            raise InvalidParam(problems) from error
        if task.id in tasks or task.id in (known or {}):
            raise invalid(place, f"has the id {task.id}, which is there already", "each id once")
        tasks[task.id] = task
    return tasks


def _known(kind: type[Any], value: Any) -> Any:
    """An object without the fields that its kind does not have; anything else as it is."""
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, Any]", value)
    return {name: item for name, item in given.items() if name in fields(kind)}


def _located(item: Any, folder: str) -> Any:
    """A resource whose relative path begins in the folder of the files; anything else as it is."""
    if not folder or not isinstance(item, dict):
        return item
    given = cast("dict[str, Any]", item)
    path = given.get("value")
    if given.get("type") != "file" or not isinstance(path, str) or not path:
        return given
    is_absolute = PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()
    return given if is_absolute else given | {"value": posixpath.normpath(posixpath.join(folder, path))}


def _streams(tasks: Mapping[str, ForeignTask], clock: Clock) -> list[list[ev.Stored]]:
    parents = _parents(tasks)
    return [_sealed(task, _events(task, tasks, parents, clock), clock) for task in tasks.values()]


def _parents(tasks: Mapping[str, ForeignTask]) -> dict[str, tuple[str, int]]:
    """For each subtask the task whose step links to it, and which step."""
    parents: dict[str, tuple[str, int]] = {}
    for task in tasks.values():
        for index, step in enumerate(task.steps):
            if step.taskId is None or step.taskId not in tasks:
                continue
            if step.taskId in parents or step.taskId == task.id:
                raise invalid(f"task {task.id}, step {index}", f"links to task {step.taskId}, which is linked already", "one step for each subtask")
            parents[step.taskId] = (task.id, index)
    for task_id in parents:
        _path(task_id, parents)
    return parents


def _path(task_id: str, parents: Mapping[str, tuple[str, int]]) -> list[str]:
    """The task and all above it, the root last."""
    path = [task_id]
    while path[-1] in parents:
        above = parents[path[-1]][0]
        if above in path:
            raise invalid(f"task {task_id}", "is below itself", "a tree of subtasks")
        path.append(above)
    return path


def _events(task: ForeignTask, tasks: Mapping[str, ForeignTask], parents: Mapping[str, tuple[str, int]], clock: Clock) -> list[ev.Event]:
    path = _path(task.id, parents)
    parent_id, step_index = parents.get(task.id, (None, None))
    words = task.instructions or task.description or task.title
    created = ev.TaskCreated(
        id=task.id,
        uid=clock.uid(),
        thread_id=task.threadId or clock.uid(),
        title=task.title,
        description=task.description or words,
        instructions=words,
        draft=task.status == "draft",
        steps=tuple(Step(title=step.title, details=step.details, done=step.done) for step in task.steps),
        resources=tuple(resource(item.type, item.value, item.label, f"task {task.id}: resources") for item in task.resources),
        owner=task.owner,
        parent_id=parent_id,
        step_index=step_index,
        root_id=path[-1],
        depth=len(path) - 1,
        priority=task.priority,
        labels=tuple(dict.fromkeys(task.labels)),
        awaited=task.awaited or parent_id is not None,
        creator_task_id=task.creatorTaskId,
    )
    events: list[ev.Event] = [created]
    for index, step in enumerate(task.steps):
        if step.taskId is not None and (child := tasks.get(step.taskId)) is not None:
            events.append(ev.SubtaskLinked(child_id=child.id, step_index=index))
            if end := _end(child):
                events.append(ev.SubtaskSettled(child_id=child.id, state=end, summary=child.summary, failure_reason=child.failureReason))
    return events + _ending(task)


def _end(task: ForeignTask) -> str | None:
    if task.status not in ("done", "canceled"):
        return None
    return "failed" if task.state == "failed" else task.status


def _ending(task: ForeignTask) -> list[ev.Event]:
    match _end(task):
        case "done":
            return [ev.CompletionClaimed(summary=task.summary), ev.TaskCompleted(verification="none")]
        case "failed":
            return [ev.TaskFailed(reason="error", message=task.failureReason or "It had failed when it was imported.")]
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
    """The times of the files where they are in order; a task without a creation is as old as its oldest time."""
    is_ended = _end(task) is not None
    named = [at for at in (task.updatedAt, task.archivedAt if is_ended else None) if at is not None]
    created = task.createdAt or min(named, default=now)
    ended = max(created, task.archivedAt or task.updatedAt or created) if is_ended else None
    last = ended or created
    return _Times(created, ended, max(last, task.updatedAt or last))


def _creator(task: ForeignTask) -> str:
    author = task.createdBy or "system:import"
    return author if author.startswith(ACTORS) else f"agent:{author}"


def _sealed(task: ForeignTask, events: list[ev.Event], clock: Clock) -> list[ev.Stored]:
    times = _times(task, clock.now())
    first, *others = events
    dated = [(times.created, first), *((times.ended or times.updated, event) for event in others)]
    if dated[-1][0] < times.updated:
        dated.append((times.updated, ev.TaskRevised()))  # changes nothing but the time of the last change
    head, sealed = GENESIS, list[ev.Stored]()
    for version, (at, event) in enumerate(dated, 1):
        entry = ev.Entry(id=clock.uid(), stream=task.id, version=version, at=at, actor=_creator(task), event=event)
        sealed.append(seal(entry, head))
        head = sealed[-1].hash
    return sealed
