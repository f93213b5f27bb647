"""Answers of the memory store to queries about tasks and their dependencies."""

from collections.abc import Iterator

from remit.adapters.stores.memory.data import Answer, MemoryData, Params
from remit.adapters.stores.memory.records import Record, Records

FILTERS = {
    "owner": "owner",
    "parent": "parent_id",
    "parent_session": "parent_session_id",
    "session": "session_id",
    "root": "root_id",
}
"""The columns that the parameters of a list are compared with."""


def by_id(data: MemoryData, params: Params) -> Records:
    """Return the tasks with these ids."""
    return data.records("task").among("id", params["ids"])


def _by_uid(data: MemoryData, params: Params) -> Records:
    return data.records("task").among("uid", params["uids"])


def _list_any(data: MemoryData, params: Params) -> Records:
    return _list(data, data.records("task"), params)


def _list_live(data: MemoryData, params: Params) -> Records:
    return _list(data, data.live_tasks(), params)


def _list_ended(data: MemoryData, params: Params) -> Records:
    return _list(data, data.ended_tasks(), params)


def _list(data: MemoryData, tasks: Records, params: Params) -> Records:
    """Return a page of tasks that pass all filters, the newest first."""
    found = tasks.among("state", params["states"])
    for name, column in FILTERS.items():
        if params[name] is not None:
            found = found.where(**{column: params[name]})
    if params["label"] is not None:
        labels = data.records("task_label").where(label=params["label"])
        found = found.among("id", labels.column("task_id"))
    found = found.filter(lambda task: task["id"] < params["before"])
    found.reverse()
    return found.first(params["limit"])


def _history(data: MemoryData, params: Params) -> Records:
    """Return a page of the tasks that have ended, the last first."""
    before = (params["before_at"], params["before"])

    def end(task: Record) -> tuple[str, int]:
        return task["archived_at"], task["id"]

    found = data.ended_tasks().filter(lambda task: end(task) < before)
    found.sort(key=end, reverse=True)
    return found.first(params["limit"])


def ready(data: MemoryData, params: Params) -> Records:
    """Return a page of the tasks that a worker may start now, the most urgent first."""
    pending = data.records("task").where(state="pending", session_id=None).known("owner")
    found = pending.filter(lambda task: _can_start(data, task, params["now"]))
    return found.after(priority=params["priority"], id=params["after"]).first(params["limit"])


def _can_start(data: MemoryData, task: Record, now: str) -> bool:
    """Return True if a task waits neither for a time nor for other tasks."""
    due_at = data.jobs.due(task["id"], "run/")
    start = max(filter(None, (task["not_before"], due_at)), default="")
    return start <= now and not _unmet_needs(data, task["id"])


def _in_flight(data: MemoryData, _: Params) -> list[Record]:
    """Return the tasks that run or are verified, or whose run has not ended."""
    tasks = data.records("task").among("state", ("running", "verifying"))
    runs = data.records("run").where(outcome=None)
    found = {*tasks.column("id"), *runs.column("task_id")}
    return [{"id": task_id} for task_id in sorted(found)]


def _unmet(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield the tasks that each task still waits for, and their states."""
    for task in by_id(data, params):
        for other in _unmet_needs(data, task["id"]):
            yield {"id": task["id"], "needs": other["id"], "state": other["state"]}


def _unmet_needs(data: MemoryData, task_id: int) -> list[Record]:
    """Return the tasks that a task still waits for."""
    unmet: list[Record] = []
    for dependency in data.records("task_dependency").where(task_id=task_id):
        needed = data.task(dependency["needs"])
        if needed is not None and not _is_met(dependency["rule"], needed["state"]):
            unmet.append(needed)
    return unmet


def _is_met(rule: str, state: str) -> bool:
    """Return True if a required task in this state no longer blocks its dependents."""
    if rule == "settled":
        return state in ("done", "failed", "canceled")
    return state == "done"


def _dependents(data: MemoryData, params: Params) -> list[Record]:
    """Return the tasks that wait for a task."""
    waiting = data.records("task_dependency").where(needs=params["id"])
    return [{"id": task_id} for task_id in waiting.column("task_id")]


def _starts(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield when the next job of each task is due."""
    for task in by_id(data, params):
        yield {**task, "at": data.jobs.due(task["id"])}


def _successor(data: MemoryData, params: Params) -> list[Record]:
    """Return the first and the newest rerun of a task."""
    reruns = data.records("task").where(rerun_of=params["id"]).column("id")
    if not reruns:
        return []
    return [{"first": reruns[0], "newest": reruns[-1]}]


def _path(data: MemoryData, params: Params) -> list[Record]:
    """Return a task and the tasks above it, from the root."""
    path: list[Record] = []
    task = data.task(params["id"])
    while task is not None:
        path.insert(0, task)
        task = data.task(task["parent_id"])
    return path


ANSWERS: dict[str, Answer] = {
    "tasks": by_id,
    "tasks_by_uid": _by_uid,
    "list_live": _list_live,
    "list_owner": _list_live,
    "list_ended": _list_ended,
    "list_any": _list_any,
    "list_parent": _list_any,
    "list_session": _list_any,
    "list_assigned": _list_any,
    "list_tree": _list_any,
    "list_label": _list_any,
    "history": _history,
    "ready": ready,
    "in_flight": _in_flight,
    "unmet": _unmet,
    "starts": _starts,
    "successor": _successor,
    "path": _path,
    "dependents": _dependents,
}
