"""The task files of other tools: their records, and how their texts are read."""

import json
import posixpath
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, NamedTuple, cast

from remit.domain.records.pick import pick
from remit.domain.records.record import Coerce, Items, Matches, fields, record
from remit.domain.records.validate import parse
from remit.domain.task.task import (
    TASK_ID,
    AgentId,
    Body,
    Labels,
    Priority,
    Resource,
    StepTitle,
    Title,
    plain_id,
)
from remit.errors import InvalidParam, invalid

Number = Annotated[str, Coerce(plain_id), Matches(TASK_ID, "a whole number above 0")]


@record
class ForeignStep:
    """A step in the files."""

    title: StepTitle
    details: Body | None = None
    done: bool = False
    taskId: Number | None = None  # noqa: N815 - the files' own spelling


@record
class ForeignTask:
    """A task in the files."""

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
    hasDescription: bool = False  # noqa: N815
    hasInstructions: bool = False  # noqa: N815
    descriptionOnly: bool = False  # noqa: N815
    titleOutdated: bool = False  # noqa: N815


NESTED: dict[str, type[Any]] = {"steps": ForeignStep, "resources": Resource}
"""Fields that are lists of objects."""


class TaskFiles(NamedTuple):
    """The tasks of both files by id, their entries in the same order, and `tasks.json`."""

    tasks: dict[str, ForeignTask]
    entries: list[dict[str, Any]]
    board: dict[str, Any]


def read_files(board: str, history: str, folder: str) -> TaskFiles:
    """Read `tasks.json` and `history.jsonl`; relative paths start in the folder."""
    found = _object("tasks.json", _json("tasks.json", board))
    entries = _board_entries(found)
    tasks: dict[str, ForeignTask] = {}
    _read_into(tasks, "tasks.json", enumerate(entries), folder)
    lines = _history_entries(history)
    _read_into(tasks, "history.jsonl", lines, folder)
    entries += [entry for _, entry in lines]
    return TaskFiles(tasks, entries, found)


def next_id(board: Mapping[str, Any]) -> int:
    """Return the next free id; the files may reserve ids beyond their tasks."""
    found = board.get("nextId", 1)
    if not isinstance(found, int) or not 1 <= found < 10**18:
        raise invalid("tasks.json: nextId", f"is {found!r}", "a whole number above 0")
    return found


def ended_state(task: ForeignTask) -> str | None:
    """Return the state that a task ended in; None for a draft or an active task."""
    if task.status not in ("done", "canceled"):
        return None
    return "failed" if task.state == "failed" else task.status


def _json(where: str, text: str) -> Any:
    """Parse a text; errors name its place."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise invalid(where, f"is not JSON ({error})", "valid JSON") from error


def _object(where: str, value: Any) -> dict[str, Any]:
    """Return a JSON object; errors name its place."""
    if not isinstance(value, dict):
        raise invalid(where, "is not an object", "an object")
    return cast("dict[str, Any]", value)


def _board_entries(board: Mapping[str, Any]) -> list[Any]:
    """Return the entries of `tasks.json`."""
    if not isinstance(board.get("tasks"), list):
        raise invalid(
            "tasks.json: tasks", "is not a list", 'a list, as in {"tasks": [], "nextId": 1}'
        )
    return list(cast("list[Any]", board["tasks"]))


def _history_entries(history: str) -> list[tuple[int, Any]]:
    """Return the entries of `history.jsonl` with their line numbers, from 0; skip blank lines."""
    return [
        (number, _json(f"history.jsonl line {number + 1}", line))
        for number, line in enumerate(history.splitlines())
        if line.strip()
    ]


def _read_into(
    tasks: dict[str, ForeignTask], where: str, entries: Iterable[tuple[int, Any]], folder: str
) -> None:
    """Add the tasks of one file to those that are known; refuse an id that is in use."""
    for number, entry in entries:
        place = f"{where} task {number + 1}"
        task = _parse_task(place, _object(place, entry), folder)
        if task.id in tasks:
            raise invalid(place, f"has the id {task.id}, which is already in use", "each id once")
        tasks[task.id] = task


def _parse_task(place: str, entry: dict[str, Any], folder: str) -> ForeignTask:
    """Return the task of an entry, without its unknown fields; errors name its place."""
    given = _known_fields(ForeignTask, entry)
    for name, kind in NESTED.items():
        if isinstance(given.get(name), list):
            given[name] = [_read_nested(kind, item, folder) for item in given[name]]
    try:
        return parse(ForeignTask, given)
    except InvalidParam as error:
        problems = [
            problem._replace(field=f"{place}: {problem.field}") for problem in error.problems
        ]
        raise InvalidParam(problems) from error


def _read_nested(kind: type[Any], item: Any, folder: str) -> Any:
    """Return a step or a resource without unknown fields, its path made absolute."""
    known = _known_fields(kind, item)
    if not folder or not _is_relative_file(known):
        return known
    path = posixpath.join(folder, known["value"])
    return known | {"value": posixpath.normpath(path)}


def _known_fields(kind: type[Any], value: Any) -> Any:
    """Return an object without unknown fields; any other value unchanged."""
    if not isinstance(value, dict):
        return value
    return pick(cast("dict[str, Any]", value), fields(kind))


def _is_relative_file(item: Any) -> bool:
    """Return whether an item is a file resource with a relative path."""
    if not isinstance(item, dict):
        return False
    given = cast("dict[str, Any]", item)
    path = given.get("value")
    is_named = given.get("type") == "file" and isinstance(path, str) and path != ""
    return is_named and not _is_absolute(str(path))


def _is_absolute(path: str) -> bool:
    """Return whether a path is absolute on any operating system."""
    return PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()
