"""Read queries: each is a generator that yields store queries and returns the answer.

The same code serves asyncio (`ask`) and commands that must start fast (`ask_now`, on
`SqliteReader.select`). Slow imports are avoided here: queries that few commands need are imported
where they are used.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast

from remit.app.reading.views import (
    ACTIVE,
    CLOSED,
    LIVE,
    STATES,
    awaited_kinds,
    event_view,
    held_by,
    interaction_view,
    notification_view,
    output_changes,
    summary_view,
    task_view,
)
from remit.domain.projection.document import document_of
from remit.domain.records.pick import among
from remit.errors import invalid, no_guide, no_task
from remit.store_queries.query import Query, R, task_ids
from remit.store_queries.task_queries import (
    HISTORY,
    IN_FLIGHT,
    LIST_ANY,
    LIST_ASSIGNED,
    LIST_ENDED,
    LIST_LABEL,
    LIST_LIVE,
    LIST_OWNER,
    LIST_PARENT,
    LIST_SESSION,
    LIST_TREE,
    PATH,
    READY,
    STARTS,
    SUCCESSOR,
    TASKS,
    TASKS_BY_UID,
    UNMET,
    TaskStart,
    TaskSummary,
)

if TYPE_CHECKING:
    from remit.domain.agents.agent import Agent

T = TypeVar("T")
Asking = Generator[tuple[Query[Any], dict[str, Any]], list[Any], T]
Select = Callable[[Query[Any], Mapping[str, Any]], list[Any]]
Page = dict[str, Any]

FIRST_PAGE = 2**62
MAX_LIMIT = 1000


class TaskFilters(TypedDict, total=False):
    """The filters of a list of tasks; a missing one, or None, does not restrict the list."""

    status: str | None
    state: str | None
    owner: str | None
    parent_session: str | None
    session: str | None
    parent: str | None
    label: str | None
    tree: str | None


def ask_now(question: Asking[T], select: Select) -> T:
    """Run a query on a synchronous store."""
    answer: Any = None
    while True:
        try:
            query, params = question.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = select(query, params)


async def ask(
    question: Asking[T], select: Callable[[Query[Any], Mapping[str, Any]], Awaitable[list[Any]]]
) -> T:
    """Run a query on an asynchronous store."""
    answer: Any = None
    while True:
        try:
            query, params = question.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = await select(query, params)


def rows_of(query: Query[R], **params: Any) -> Asking[list[R]]:
    """Return the rows of a store query."""
    rows: list[R] = yield query, params
    return rows


def get_task(ref: str, *, now: str) -> Asking[dict[str, Any]]:
    """Return a whole task, live or ended, by id or uid; readiness is computed for `now`."""
    task_id, document = yield from _document(ref)
    return (yield from show_task(task_id, document, now=now))


def show_task(task_id: int, document: dict[str, Any], *, now: str) -> Asking[dict[str, Any]]:
    """Return a whole task whose document is known; only what it depends on is read."""
    needs: list[tuple[str, str]] = []
    if "depends_on" in document:
        unmet = yield from _unmet([task_id])
        needs = unmet.get(task_id, [])
    start = TaskStart(
        id=task_id,
        session_id=document.get("session_id"),
        started_at=document.get("started_at"),
    )
    if _may_have_start(document):
        (start,) = yield from rows_of(STARTS, ids=[task_id])
    successor = None
    if "archived_at" in document:
        successor = yield from _successor(task_id, document)
    return task_view(document, start, needs, successor, now)


def _unmet(task_ids: list[int]) -> Asking[dict[int, list[tuple[str, str]]]]:
    """Return the dependencies that are not met, with their states, by task."""
    found: dict[int, list[tuple[str, str]]] = {}
    for row in (yield from rows_of(UNMET, ids=task_ids)):
        found.setdefault(row.id, []).append((str(row.needs), row.state))
    return found


def _may_have_start(document: dict[str, Any]) -> bool:
    """Return whether a task that is not running may have a scheduled start."""
    if document["state"] not in ("pending", "waiting"):
        return False
    return "schedule" in document or "started_at" in document


def _successor(task_id: int, document: dict[str, Any]) -> Asking[str | None]:
    """Return the task that replaces an ended one; None without one."""
    rows = yield from rows_of(SUCCESSOR, id=task_id)
    if not rows:
        return None
    if _was_continued(document):
        return str(rows[0].first)
    return str(rows[0].newest)


def _was_continued(document: dict[str, Any]) -> bool:
    """Return whether the end of a task created the next one of its series, so that no rerun
    replaces it.
    """
    schedule: dict[str, Any] = document.get("schedule") or {}
    return (
        "cron" in schedule
        and "parent_id" not in document
        and document["state"] != "canceled"
        and document.get("reason") != "dependency"
    )


def list_tasks(
    *,
    limit: int = 50,
    cursor: str | None = None,
    now: str | None = None,
    **wanted: Unpack[TaskFilters],
) -> Asking[Page]:
    """Return a page of task summaries, newest first.

    The default is drafts and active tasks. With `now`, summaries include why a task cannot start.
    """
    states = _states(wanted.get("status"), wanted.get("state"))
    (before,) = _position(cursor, "tasks", (FIRST_PAGE,))
    filters: dict[str, Any] = {
        "owner": wanted.get("owner"),
        "parent": (yield from _id_of(wanted.get("parent"))),
        "parent_session": wanted.get("parent_session"),
        "session": wanted.get("session"),
        "root": (yield from _root_of(wanted.get("tree"))),
        "label": wanted.get("label"),
    }
    rows = yield from rows_of(
        _driver(states, filters),
        **filters,
        states=states,
        state=states[0] if states else "",
        before=before,
        limit=_limit(limit) + 1,
    )
    page = _page("tasks", rows, limit, summary_view, lambda row: ("tasks", row.id))
    if now is not None:
        yield from _add_holds(page["tasks"], now)
    return page


def _id_of(ref: str | None) -> Asking[int | None]:
    """Return the id of a task that a filter names; None without a filter."""
    if ref is None:
        return None
    task_id, _ = yield from _document(ref)
    return task_id


def _root_of(ref: str | None) -> Asking[int | None]:
    """Return the root of the tree that a filter names by one of its tasks."""
    if ref is None:
        return None
    _, document = yield from _document(ref)
    return int(document["root_id"])


def _add_holds(summaries: list[dict[str, Any]], now: str) -> Asking[None]:
    """Add the reasons why a task cannot start to each summary that has any."""
    found = {int(view["id"]): view for view in summaries if _may_be_held(view)}
    if not found:
        return
    unmet = yield from _unmet(list(found))
    for start in (yield from rows_of(STARTS, ids=list(found))):
        holds = held_by(found[start.id], start, unmet.get(start.id, []), now)
        if holds:
            found[start.id]["held_by"] = holds


def _may_be_held(view: dict[str, Any]) -> bool:
    """Return whether a task waits to start, or for a tick."""
    is_parked = view["state"] == "waiting" and "tick" in awaited_kinds(view)
    return is_parked or view["state"] == "pending"


def list_session_tasks(
    session_id: str,
    *,
    role: str = "assigned",
    status: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    now: str | None = None,
) -> Asking[Page]:
    """Return a page of the tasks that a session works on or has created."""
    if role not in ("assigned", "created"):
        raise invalid("role", f"is {role!r}", "one of assigned, created")
    assigned = created = None
    if role == "assigned":
        assigned = session_id
    else:
        created = session_id
    page = yield from list_tasks(
        status=status,
        session=assigned,
        parent_session=created,
        limit=limit,
        cursor=cursor,
        now=now,
    )
    return page


def list_history(*, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """Return a page of ended tasks, newest first."""
    before_at, before = _position(cursor, "history", ("~", FIRST_PAGE))
    rows = yield from rows_of(HISTORY, before_at=before_at, before=before, limit=_limit(limit) + 1)
    return _page(
        "tasks",
        rows,
        limit,
        lambda row: summary_view(row) | {"archived_at": row.archived_at},
        lambda row: ("history", row.archived_at, row.id),
    )


def list_ready(*, now: str, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """Return a page of tasks that could start at a given time, most urgent first."""
    priority, after = _position(cursor, "ready", (-1, 0))
    rows = yield from rows_of(
        READY, now=now, priority=priority, after=after, limit=_limit(limit) + 1
    )
    return _page("tasks", rows, limit, summary_view, lambda row: ("ready", row.priority, row.id))


def get_events(ref: str, *, after: int = 0, limit: int = 500) -> Asking[Page]:
    """Return the events of a task after a version.

    `next` is the version after which the next page begins; None at the end.
    """
    from remit.store_queries.event_queries import EVENTS

    task_id, _ = yield from _document(ref)
    rows = yield from rows_of(EVENTS, stream=str(task_id), after=after, limit=_limit(limit) + 1)
    return {
        "events": list(map(event_view, rows[:limit])),
        "next": rows[limit - 1].version if len(rows) > limit else None,
    }


def list_updates(ref: str, *, after: int = 0, limit: int = 500) -> Asking[Page]:
    """Return the updates for the agent of a task, with their delivery."""
    from remit.store_queries.event_queries import OUTPUT_EVENTS
    from remit.store_queries.record_queries import UPDATES

    task_id, _ = yield from _document(ref)
    rows = yield from rows_of(UPDATES, id=task_id, after=after, limit=_limit(limit))
    updates = [row._asdict() for row in rows]
    if any(update["type"] == "outputs" for update in updates):
        events = yield from rows_of(OUTPUT_EVENTS, stream=str(task_id))
        texts = output_changes(events)
        for update in updates:
            update["content"] = texts.get(update["update_id"], update["content"])
    return {"updates": updates}


def list_interactions(
    *,
    status: str | None = "open",
    task_id: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Asking[Page]:
    """Return questions to people with their path from the root; open ones by default."""
    from remit.store_queries.record_queries import INTERACTIONS

    if status not in (None, "open", *CLOSED):
        raise invalid("status", f"is {status!r}", f"one of open, {', '.join(CLOSED)}")
    task = yield from _id_of(task_id)
    after, number = _position(cursor, "interactions", (0, 0))
    rows = yield from rows_of(
        INTERACTIONS,
        statuses=[status] if status else ["open", *CLOSED],
        task=task,
        after=after,
        number=number,
        limit=_limit(limit) + 1,
    )
    paths: dict[int, list[str]] = {}
    for asking_id in dict.fromkeys(row.task_id for row in rows):
        above = yield from rows_of(PATH, id=asking_id)
        paths[asking_id] = task_ids(above)
    return _page(
        "interactions",
        rows,
        limit,
        lambda row: interaction_view(row, paths[row.task_id]),
        lambda row: (
            "interactions",
            row.task_id,
            int(row.interaction_id.rpartition("-q")[2]),
        ),
    )


def list_notifications(*, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """Return the notifications of agents to people, in order."""
    from remit.store_queries.record_queries import NOTIFICATIONS

    after_at, after_id = _position(cursor, "notifications", ("", ""))
    rows = yield from rows_of(
        NOTIFICATIONS, after_at=after_at, after_id=after_id, limit=_limit(limit) + 1
    )
    return _page(
        "notifications",
        rows,
        limit,
        notification_view,
        lambda row: ("notifications", row.at, row.notification_id),
    )


def get_guide(guide_id: str) -> Asking[dict[str, Any]]:
    """Return a guide with its text."""
    from remit.store_queries.record_queries import GUIDE

    rows = yield from rows_of(GUIDE, names=[guide_id])
    if not rows:
        raise no_guide(guide_id)
    return rows[0]._asdict()


def list_guides(*, limit: int = 50, cursor: str | None = None) -> Asking[Page]:
    """Return a page of guides by id, without their texts."""
    from remit.store_queries.record_queries import GUIDES, GuideTitle

    (after_id,) = _position(cursor, "guides", ("",))
    rows = yield from rows_of(GUIDES, after_id=after_id, limit=_limit(limit) + 1)
    return _page(
        "guides",
        rows,
        limit,
        GuideTitle._asdict,
        lambda row: ("guides", row.id),
    )


def list_agents(
    agents: Sequence["Agent"],
    view: Callable[["Agent"], dict[str, Any]],
    *,
    limit: int | None,
    cursor: str | None,
) -> Page:
    """Return a page of agents, which are in the order of their ids; all of them without a limit."""
    (after_id,) = _position(cursor, "agents", ("",))
    left = [agent for agent in agents if agent.id > after_id]
    most = len(left) if limit is None else _limit(limit)
    return _page("agents", left, most, view, lambda agent: ("agents", agent.id))


def in_flight() -> Asking[list[str]]:
    """Return the ids of tasks that are being worked on."""
    return task_ids((yield from rows_of(IN_FLIGHT)))


def counts() -> Asking[dict[str, int]]:
    """Return the number of tasks in each state."""
    from remit.store_queries.tree_queries import COUNTS

    found = {row.state: row.tasks for row in (yield from rows_of(COUNTS))}
    return {state: found.get(state, 0) for state in STATES}


def _document(ref: str) -> Asking[tuple[int, dict[str, Any]]]:
    """Return the id and the document of a task; refuse an unknown one."""
    plain = str(ref).strip().removeprefix("#").lower()
    if plain.isascii() and plain.isdigit() and len(plain) <= 18:
        found = yield from rows_of(TASKS, ids=[int(plain)])
    else:
        found = yield from rows_of(TASKS_BY_UID, uids=[plain])
    if not found:
        raise no_task(str(ref))
    task = found[0]
    return task.id, document_of(task.doc, task.id)


_DRIVERS = {
    "parent": LIST_PARENT,
    "root": LIST_TREE,
    "parent_session": LIST_SESSION,
    "session": LIST_ASSIGNED,
    "label": LIST_LABEL,
}


def _driver(states: list[str], filters: Mapping[str, Any]) -> Query[TaskSummary]:
    """Return the query whose index serves a list best; all filters apply in any case."""
    for name, query in _DRIVERS.items():
        if filters[name] is not None:
            return query
    if not set(states) <= set(LIVE):
        return LIST_ENDED if len(states) == 1 else LIST_ANY
    if filters["owner"] is not None:
        return LIST_OWNER
    return LIST_LIVE


def _states(status: str | None, state: str | None) -> list[str]:
    """Return the states that a status or state stands for; `active` is also accepted as a state."""
    _must_be_state("status", status)
    _must_be_state("state", state)
    if status is None and state is None:
        return list(LIVE)
    return among(_states_of(status), _states_of(state))


def _must_be_state(field: str, value: str | None) -> None:
    """Refuse a filter that is neither a state nor `active`."""
    if value not in (None, *STATES, "active"):
        raise invalid(field, f"is {value!r}", f"one of {', '.join((*STATES, 'active'))}")


def _states_of(name: str | None) -> Sequence[str]:
    """Return the states that a filter stands for; all states without a filter."""
    if name is None:
        return STATES
    if name == "active":
        return ACTIVE
    return [name]


def _limit(limit: int) -> int:
    """Return the size of a page; refuse one that is too large."""
    if not 1 <= limit <= MAX_LIMIT:
        raise invalid("limit", f"is {limit}", f"1 to {MAX_LIMIT}")
    return limit


def _page(
    name: str,
    rows: Sequence[T],
    limit: int,
    view: Callable[[T], dict[str, Any]],
    key: Callable[[T], tuple[Any, ...]],
) -> Page:
    """Return a page of views; its cursor is None if there are no more rows."""
    cursor = None
    if len(rows) > limit:
        cursor = _cursor(key(rows[limit - 1]))
    return {name: list(map(view, rows[:limit])), "next_cursor": cursor}


def _cursor(key: tuple[Any, ...]) -> str:
    """Return a position in a list as an opaque text."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _position(cursor: str | None, name: str, start: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return where a page begins; a cursor is valid only for the list that returned it."""
    if cursor is None:
        return start
    found: list[Any] = []
    with suppress(ValueError):
        decoded = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if isinstance(decoded, list):
            found = cast("Any", decoded)
    if found[:1] == [name] and list(map(type, found[1:])) == list(map(type, start)):
        return tuple(found[1:])
    raise invalid("cursor", "is not a cursor of this list", "the next_cursor of an earlier page")
