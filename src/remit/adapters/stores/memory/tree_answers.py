"""Answers of the memory store to queries about trees of tasks, their workers and budgets."""

from collections import Counter
from collections.abc import Iterable, Iterator

from remit.adapters.stores.memory.data import Answer, MemoryData, Params
from remit.adapters.stores.memory.records import Record, Records
from remit.adapters.stores.memory.task_answers import by_id


def tree(data: MemoryData, params: Params) -> Records:
    """Return the tasks of a tree."""
    return data.records("task").where(root_id=params["id"])


def _head(data: MemoryData, params: Params) -> Records:
    return data.records("task").where(id=params["id"])


def _ended(data: MemoryData, params: Params) -> Records:
    return data.ended_tasks().among("id", params["ids"])


def _unended(data: MemoryData, params: Params) -> Records:
    return data.live_tasks().among("id", params["ids"])


def _ended_children(data: MemoryData, params: Params) -> Records:
    return data.ended_tasks().where(parent_id=params["id"])


def _needed_workers(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield the agent that must serve each task; None while it is verified."""
    for task in by_id(data, params):
        if task["state"] == "verifying":
            yield {**task, "agent": None}
        else:
            yield {**task, "agent": task["owner"]}


def _roots_in_use(data: MemoryData, params: Params) -> list[Record]:
    """Return the trees with a live task or a job."""
    used = {*data.live_tasks().column("root_id"), *data.jobs.records().column("root")}
    return _sort_roots(used.intersection(params["ids"]))


def _roots_needed(data: MemoryData, params: Params) -> list[Record]:
    """Return the trees that live tasks of these trees wait for."""
    waiting = data.live_tasks().among("root_id", params["ids"]).column("id")
    dependencies = data.records("task_dependency").among("task_id", waiting)
    others = data.records("task").among("id", dependencies.column("needs"))
    needed = others.filter(lambda task: _must_be_served(data, task))
    return _sort_roots(needed.column("root_id"))


def _must_be_served(data: MemoryData, task: Record) -> bool:
    """Return True if a task is live, or has not yet released those that wait for it."""
    return task["archived_at"] is None or data.jobs.has(f"release/{task['id']}")


def _roots_via(data: MemoryData, params: Params) -> list[Record]:
    """Return the trees with a live task of a surface."""
    return _sort_roots(data.live_tasks().where(via=params["via"]).column("root_id"))


def _sort_roots(roots: Iterable[int]) -> list[Record]:
    return [{"root_id": root} for root in sorted(set(roots))]


def _roots_due(data: MemoryData, params: Params) -> list[Record]:
    """Return the trees with a job that is claimed or due, and its queue."""
    found = {(job.root, job.queue) for job in data.jobs.claimed_or_due(params["now"])}
    return [{"root_id": root, "queue": queue} for root, queue in sorted(found) if root]


def _attended(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield when a worker last served each tree."""
    attendance = data.workers.attendance
    for root in sorted(attendance.keys() & params["ids"]):
        yield {"root_id": root, "at": attendance[root]}


def _clocks(data: MemoryData, params: Params) -> Records:
    return _running_clocks(data).after(id=params["after"]).first(params["limit"])


def _clocks_of(data: MemoryData, params: Params) -> Records:
    return _running_clocks(data).among("root_id", params["ids"])


def _running_clocks(data: MemoryData) -> Records:
    """Return the waiting tasks whose time runs, and when a worker last served their tree."""
    clocks = Records()
    attendance = data.workers.attendance
    waiting = data.records("task").where(state="waiting")
    for task in waiting.containing("doc", '"clock_since"'):
        roots = attendance.keys() & {0, task["root_id"]}
        seen_at = max((attendance[root] for root in roots), default=None)
        clocks.append({"id": task["id"], "root_id": task["root_id"], "at": seen_at})
    return clocks


def _owners(data: MemoryData, _: Params) -> list[Record]:
    """Return the number of live tasks of each owner, and the first of them."""
    owned = data.live_tasks().known("owner")
    tasks = Counter(owned.column("owner"))
    first = {task["owner"]: task["id"] for task in reversed(owned)}
    return [
        {"owner": owner, "id": first[owner], "tasks": count}
        for owner, count in sorted(tasks.items())
    ]


def _budget(data: MemoryData, params: Params) -> list[Record]:
    if params["id"] not in data.budgets:
        return []
    tokens, cost = data.budgets[params["id"]]
    return [{"tokens": tokens, "cost": cost}]


def _budgets(data: MemoryData, params: Params) -> Records:
    """Return the budgets of the trees after a root."""
    rows = Records(
        {"id": root, "tokens": tokens, "cost": cost}
        for root, (tokens, cost) in data.budgets.items()
    )
    return rows.after(id=params["after"])


def _counts(data: MemoryData, _: Params) -> list[Record]:
    """Return the number of tasks in each state."""
    states = Counter(data.records("task").column("state"))
    return [{"state": state, "tasks": count} for state, count in sorted(states.items())]


def _result(data: MemoryData, params: Params) -> list[Record]:
    """Return the newest task with a result key."""
    tasks = data.records("task_result").where(key=params["key"]).column("task_id")
    return [{"id": task_id} for task_id in tasks[-1:]]


ANSWERS: dict[str, Answer] = {
    "tree": tree,
    "roots": by_id,
    "states": by_id,
    "head": _head,
    "ended": _ended,
    "unended": _unended,
    "ended_children": _ended_children,
    "needed_workers": _needed_workers,
    "roots_in_use": _roots_in_use,
    "roots_needed": _roots_needed,
    "roots_via": _roots_via,
    "roots_due": _roots_due,
    "attended": _attended,
    "clocks": _clocks,
    "clocks_of": _clocks_of,
    "owners": _owners,
    "budget": _budget,
    "budgets": _budgets,
    "counts": _counts,
    "result": _result,
}
