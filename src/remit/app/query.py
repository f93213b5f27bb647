"""Reading: each question is a generator that yields what it wants to know of the store and returns the answer.

So the same code serves asyncio (`ask`) and commands that must start fast (`ask_now`, on `SqliteReader.select`). Nothing
is imported here that would slow such a command down.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

from remit.app.view import CLOSED, LIVE, STATES, Start, event_view, held_by, interaction_view, summary_view, task_view, update_view
from remit.domain.document import document_of
from remit.errors import invalid, no_guide, no_task

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Asking = Generator[tuple[str, dict[str, Any]], Rows, T]
Page = dict[str, Any]

FIRST_PAGE = 2**62
MAX_LIMIT = 1000


def ask_now(question: Asking[T], select: Callable[[str, Mapping[str, Any]], Rows]) -> T:
    """Answer a question from a store that answers at once."""
    answer: Rows | None = None
    while True:
        try:
            query, params = question.send(answer) if answer is not None else next(question)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = select(query, params)


async def ask(question: Asking[T], select: Callable[[str, Mapping[str, Any]], Awaitable[Rows]]) -> T:
    """Answer a question from a store that is awaited."""
    answer: Rows | None = None
    while True:
        try:
            query, params = question.send(answer) if answer is not None else next(question)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = await select(query, params)


def get_task(ref: str, *, now: str) -> Asking[dict[str, Any]]:
    """The whole task, active or ended, by id or uid; readiness is computed for an instant."""
    task_id, document = yield from _document(ref)
    unmet = (yield "unmet", {"ids": [task_id]}) if "depends_on" in document else []
    start = Start(session_id=document.get("session_id"), started_at=document.get("started_at"))
    if document["state"] in ("pending", "waiting") and ("schedule" in document or "started_at" in document):
        (row,) = yield "starts", {"ids": [task_id]}
        start = Start(*row[1:])
    successors = (yield "successor", {"id": task_id}) if "archived_at" in document else []
    needs = [(str(other), state) for _, other, state in unmet]
    after = [str(first if _was_continued(document) else newest) for first, newest in successors]
    return task_view(document, start, needs, after[0] if after else None, now)


def _was_continued(document: dict[str, Any]) -> bool:
    """True for a task of a series whose end created the next one: no rerun takes its place."""
    has_calendar = "cron" in (document.get("schedule") or {}) and "parent_id" not in document
    is_canceled = document["state"] == "canceled"
    return has_calendar and not is_canceled and document.get("reason") != "dependency"


def list_tasks(
    *,
    status: str | None = None,
    state: str | None = None,
    owner: str | None = None,
    parent_session: str | None = None,
    session: str | None = None,
    parent: str | None = None,
    label: str | None = None,
    tree: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    now: str | None = None,
) -> Asking[Page]:
    """A page of task summaries, newest first; drafts and active tasks unless states are named.

    With an instant, they also say what holds tasks then.
    """
    states = _states(status, state)
    (before,) = _position(cursor, "tasks", (FIRST_PAGE,))
    filters: dict[str, Any] = {
        "owner": owner,
        "parent": None if parent is None else (yield from _document(parent))[0],
        "parent_session": parent_session,
        "session": session,
        "root": None if tree is None else int((yield from _document(tree))[1]["root_id"]),
        "label": label,
    }
    rows = yield (
        _driver(states, filters),
        filters | {"states": states, "state": states[0] if states else "", "before": before, "limit": _limit(limit) + 1},
    )
    page = _page("tasks", rows, limit, summary_view, lambda row: ("tasks", row[0]))
    if now is not None:
        yield from _add_holds(page["tasks"], now)
    return page


def _add_holds(summaries: list[dict[str, Any]], now: str) -> Asking[None]:
    """Add to each summary what keeps its task from starting; nothing to one that could start, or that has started."""
    found = {int(view["id"]): view for view in summaries if view["state"] == "pending" or _waits_for_tick(view)}
    if not found:
        return
    unmet: dict[int, list[tuple[str, str]]] = {}
    for task_id, other, state in (yield "unmet", {"ids": list(found)}):
        unmet.setdefault(task_id, []).append((str(other), state))
    for task_id, *start in (yield "starts", {"ids": list(found)}):
        if holds := held_by(found[task_id], Start(*start), unmet.get(task_id, []), now):
            found[task_id]["held_by"] = holds


def _waits_for_tick(view: dict[str, Any]) -> bool:
    awaited: list[dict[str, str]] = view["wait"]["on"] if view["wait"] else []
    return view["state"] == "waiting" and any(item["kind"] == "tick" for item in awaited)


def list_session_tasks(
    session_id: str, *, role: str = "assigned", status: str | None = None, limit: int = 50, cursor: str | None = None, now: str | None = None
) -> Asking[Page]:
    """A page of the tasks that a session works on, or has created."""
    if role not in ("assigned", "created"):
        raise invalid("role", f"is {role!r}", "one of assigned, created")
    whose = {"session": session_id} if role == "assigned" else {"parent_session": session_id}
    return (yield from list_tasks(status=status, limit=limit, cursor=cursor, now=now, **whose))


def list_history(*, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """A page of ended tasks, the newest first."""
    before_at, before = _position(cursor, "history", ("~", FIRST_PAGE))
    rows = yield "history", {"before_at": before_at, "before": before, "limit": _limit(limit) + 1}
    return _page("tasks", rows, limit, lambda row: summary_view(row) | {"archived_at": row[8]}, lambda row: ("history", row[8], row[0]))


def list_ready(*, now: str, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """A page of tasks that could start at an instant, the most urgent first."""
    priority, after = _position(cursor, "ready", (-1, 0))
    rows = yield "ready", {"now": now, "priority": priority, "after": after, "limit": _limit(limit) + 1}
    return _page("tasks", rows, limit, summary_view, lambda row: ("ready", row[6], row[0]))


def get_events(ref: str, *, after: int = 0, limit: int = 500) -> Asking[Page]:
    """Events of a task after a version; `next` is where the following page begins, if there is one."""
    task_id, _ = yield from _document(ref)
    rows = yield "events", {"stream": str(task_id), "after": after, "limit": _limit(limit) + 1}
    return {"events": [event_view(row) for row in rows[:limit]], "next": rows[limit - 1][2] if len(rows) > limit else None}


def list_updates(ref: str, *, after: int = 0, limit: int = 500) -> Asking[Page]:
    """What the agent was or will be told, with its receipt."""
    task_id, _ = yield from _document(ref)
    rows = yield "updates", {"id": task_id, "after": after, "limit": _limit(limit)}
    return {"updates": [update_view(row) for row in rows]}


def list_runs(ref: str) -> Asking[Page]:
    """The runs of a task."""
    task_id, _ = yield from _document(ref)
    rows = yield "runs", {"id": task_id}
    names = ("run_id", "worker", "started_at", "ended_at", "outcome", "error")
    return {"runs": [dict(zip(names, row, strict=True)) for row in rows]}


def list_interactions(*, status: str | None = "open", task_id: str | None = None, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """Questions to people, the open ones unless told otherwise, each with its path from the root."""
    if status not in (None, "open", *CLOSED):
        raise invalid("status", f"is {status!r}", f"one of open, {', '.join(CLOSED)}")
    task = None if task_id is None else (yield from _document(task_id))[0]
    after, number = _position(cursor, "interactions", (0, 0))
    statuses = [status] if status else ["open", *CLOSED]
    rows = yield "interactions", {"statuses": statuses, "task": task, "after": after, "number": number, "limit": _limit(limit) + 1}
    paths: dict[int, list[str]] = {}
    for row in rows:
        if row[1] not in paths:
            paths[row[1]] = [str(above[0]) for above in (yield "path", {"id": row[1]})]
    return _page(
        "interactions",
        rows,
        limit,
        lambda row: interaction_view(row, paths[row[1]]),
        lambda row: ("interactions", row[1], int(row[0].rpartition("-q")[2])),
    )


def list_notifications(*, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """What agents told people, in order."""
    after_at, after_id = _position(cursor, "notifications", ("", ""))
    rows = yield "notifications", {"after_at": after_at, "after_id": after_id, "limit": _limit(limit) + 1}
    names = ("id", "task_id", "message", "actor", "at")
    return _page(
        "notifications",
        rows,
        limit,
        lambda row: dict(zip(names, row, strict=True)) | {"task_id": str(row[1])},
        lambda row: ("notifications", row[4], row[0]),
    )


def get_guide(guide_id: str) -> Asking[dict[str, Any]]:
    """A guide with its text."""
    rows = yield "guide", {"names": [guide_id]}
    if not rows:
        raise no_guide(guide_id)
    return dict(zip(("id", "title", "body", "created_by", "created_at"), rows[0], strict=True))


def list_guides(*, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """A page of guides by id, without their texts."""
    (after_id,) = _position(cursor, "guides", ("",))
    rows = yield "guides", {"after_id": after_id, "limit": _limit(limit) + 1}
    return _page(
        "guides", rows, limit, lambda row: dict(zip(("id", "title", "created_by", "created_at"), row, strict=True)), lambda row: ("guides", row[0])
    )


def in_flight() -> Asking[list[str]]:
    """Ids of the tasks that somebody is at."""
    return [str(row[0]) for row in (yield "in_flight", {})]


def counts() -> Asking[dict[str, int]]:
    """How many tasks there are in each state."""
    found: dict[str, int] = {row[0]: row[1] for row in (yield "counts", {})}
    return {state: found.get(state, 0) for state in STATES}


def _document(ref: str) -> Asking[tuple[int, dict[str, Any]]]:
    plain = str(ref).strip().removeprefix("#").lower()
    if plain.isascii() and plain.isdigit() and len(plain) <= 18:
        rows = [(row[0], row[2]) for row in (yield "tasks", {"ids": [int(plain)]})]
    else:
        rows = [(row[0], row[3]) for row in (yield "tasks_by_uid", {"uids": [plain]})]
    if not rows:
        raise no_task(str(ref))
    return rows[0][0], document_of(rows[0][1], rows[0][0])


_DRIVERS = {"parent": "list_parent", "root": "list_tree", "parent_session": "list_session", "session": "list_assigned", "label": "list_label"}


def _driver(states: list[str], filters: Mapping[str, Any]) -> str:
    """Which index serves a list best; every filter holds in any case."""
    for name, query in _DRIVERS.items():
        if filters[name] is not None:
            return query
    if all(state in LIVE for state in states):
        return "list_live" if filters["owner"] is None else "list_owner"
    return "list_ended" if len(states) == 1 else "list_any"


def _states(status: str | None, state: str | None) -> list[str]:
    """The states that a status or state means; a status may also be given as a state."""
    for field, value in (("status", status), ("state", state)):
        if value is not None and value not in (*STATES, "active"):
            raise invalid(field, f"is {value!r}", f"one of {', '.join((*STATES, 'active'))}")
    active = [name for name in LIVE if name != "draft"]
    wanted = list(LIVE) if status is None and state is None else (active if status == "active" else [status] if status else list(STATES))
    return [name for name in wanted if state in (None, name) or (state == "active" and name in active)]


def _limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise invalid("limit", f"is {limit}", f"1 to {MAX_LIMIT}")
    return limit


def _page(
    name: str, rows: Rows, limit: int, view: Callable[[tuple[Any, ...]], dict[str, Any]], key: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> Page:
    cursor = _cursor(key(rows[limit - 1])) if len(rows) > limit else None
    return {name: [view(row) for row in rows[:limit]], "next_cursor": cursor}


def _cursor(key: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _position(cursor: str | None, name: str, start: tuple[Any, ...]) -> tuple[Any, ...]:
    """Where a page begins; a cursor is only good for the list that gave it."""
    if cursor is None:
        return start
    try:
        found = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if found[0] == name and [type(part) for part in found[1:]] == [type(part) for part in start]:
            return tuple(found[1:])
    except (ValueError, TypeError, IndexError, KeyError):
        pass
    raise invalid("cursor", "is not one that this list gave", "the next_cursor of an earlier page")
