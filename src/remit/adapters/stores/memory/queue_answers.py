"""Answers of the memory store to queries about jobs, schedules, and unfinished work."""

from collections.abc import Iterator

from remit.adapters.stores.memory.data import Answer, MemoryData, Params
from remit.adapters.stores.memory.records import Record, Records
from remit.adapters.stores.memory.task_answers import ready

EVERY_TASK = {"priority": -1, "after": 0, "now": "9", "limit": None}


def _held(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield a task, and the worker that holds a job."""
    for task in data.records("task").where(id=params["id"]):
        yield {**task, "worker": data.jobs.worker(params["job"])}


def _queued(data: MemoryData, params: Params) -> Records:
    return data.jobs.records().among("key", params["names"])


def _jobs(data: MemoryData, _: Params) -> Records:
    return data.jobs.records()


def _job_count(data: MemoryData, _: Params) -> list[Record]:
    return data.jobs.count()


def _scheduled(data: MemoryData, params: Params) -> Records:
    """Return a page of the pending tasks with a calendar that have not started yet."""
    pending = data.records("task").where(state="pending", started_at=None)
    found = pending.containing("doc", '"cron"')
    return found.after(id=params["after"]).first(params["limit"])


def _recurring(data: MemoryData, params: Params) -> Records:
    """Return a page of the live tasks with a calendar that have started."""
    started = data.live_tasks().where(parent_id=None).known("started_at")
    found = started.containing("doc", '"cron"')
    return found.after(id=params["after"]).first(params["limit"])


def _series(data: MemoryData, params: Params) -> Records:
    """Return the live tasks of a series, the newest first."""
    text = params["pattern"].strip("%")
    found = data.live_tasks().filter(lambda task: task["id"] == params["id"] or text in task["doc"])
    found.reverse()
    return found


def _ticking(data: MemoryData, params: Params) -> Records:
    """Return tasks that wait for a tick of the scheduler."""
    waiting = data.records("task").where(state="waiting")
    return waiting.containing("wait", '"tick"').after(id=params["after"])


def _turning(data: MemoryData, params: Params) -> Records:
    """Return tasks that a tick has woken and that have not ended a run normally since."""
    tasks = data.records("task").among("state", ("pending", "running", "paused"))
    return tasks.after(id=params["after"]).filter(lambda task: _was_woken_by_tick(data, task))


def _was_woken_by_tick(data: MemoryData, task: Record) -> bool:
    for event in reversed(data.streams[str(task["id"])]):
        if event.type == "RunYielded":
            return False
        if '"cause":"tick"' in event.data:
            return True
    return False


def _documents(data: MemoryData, params: Params) -> Records:
    return data.records("task").after(id=params["after"]).first(params["limit"])


def _unheard(data: MemoryData, params: Params) -> Records:
    """Return waiting tasks with an unread update."""
    unread = data.records("task_update").where(status="queued")
    return _alarmed(data, params).among("id", unread.column("task_id"))


def _alarmed(data: MemoryData, _: Params) -> Records:
    """Return waiting tasks, which may wait for a time."""
    return data.records("task").where(state="waiting")


def _jobless(data: MemoryData, _: Params) -> Records:
    """Return tasks that could run and have no job."""
    return _without_job(data, "run", ready(data, EVERY_TASK))


def _runless(data: MemoryData, _: Params) -> Records:
    """Return runs that have not ended and have no job."""
    runs = data.records("run").where(outcome=None)
    return _without_job(data, "run", Records({"id": run["task_id"], **run} for run in runs))


def _untold(data: MemoryData, _: Params) -> Records:
    """Return live tasks with a child that has ended, and no job to inform them."""
    parents = data.ended_tasks().column("parent_id")
    return _without_job(data, "tell", data.live_tasks().among("id", parents))


def _unreleased(data: MemoryData, _: Params) -> Records:
    """Return failed and canceled tasks with dependents that could still start, and no job to inform
    these.
    """
    fresh = data.live_tasks().where(started_at=None).column("id")
    dependencies = data.records("task_dependency").where(rule="done").among("task_id", fresh)
    needed = data.records("task").among("id", dependencies.column("needs"))
    return _without_job(data, "release", needed.among("state", ("failed", "canceled")))


def _unchecked(data: MemoryData, _: Params) -> Records:
    """Return tasks to verify that have no job for it."""
    return _without_job(data, "check", data.records("task").where(state="verifying"))


def _without_job(data: MemoryData, kind: str, tasks: Records) -> Records:
    """Keep the tasks that have no job of a kind."""
    return tasks.filter(lambda task: not data.jobs.has(f"{kind}/{task['id']}"))


ANSWERS: dict[str, Answer] = {
    "held": _held,
    "queued": _queued,
    "jobs": _jobs,
    "job_count": _job_count,
    "scheduled": _scheduled,
    "recurring": _recurring,
    "series": _series,
    "ticking": _ticking,
    "turning": _turning,
    "documents": _documents,
    "unheard": _unheard,
    "alarmed": _alarmed,
    "jobless": _jobless,
    "runless": _runless,
    "untold": _untold,
    "unreleased": _unreleased,
    "unchecked": _unchecked,
}
