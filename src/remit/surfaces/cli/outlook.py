"""What happens next to a task, in words that are true for its state and for the workers that are alive."""

from collections.abc import Callable, Sequence
from typing import Any

from remit.surfaces.cli.when import ago, moment

Task = dict[str, Any]
Unattended = Callable[[str], bool]
"""Whether no live worker works on a task, by its id."""

ENDED = ("done", "failed", "canceled")
_START = "remit worker, or remit serve"
_NAMED = 5


def outlook(task: Task, unattended: Unattended, now: Any) -> str:
    """What happens next to a task and what a person can do about it; empty if it has ended or a worker is on it."""
    match task["state"]:
        case "draft":
            return f"It is a draft. Start it with: remit task update {task['id']} --status active"
        case "pending":
            return _pending(task, unattended, now)
        case "waiting":
            return _waiting(task, unattended)
        case "paused":
            return f"It is paused. Continue it with: remit task resume {task['id']}"
        case "verifying":
            return _verifying(task, unattended)
        case "running" if task["session_id"] is None and unattended(task["id"]):
            return f"The worker that ran it is gone. Continue it with: remit task run {task['id']}. Or start a worker: {_START}."
        case _:
            return ""


def _pending(task: Task, unattended: Unattended, now: Any) -> str:
    holds: dict[str, str] = {item["kind"]: item["ref"] for item in task["held_by"]}
    if "session" in holds:
        return f"Session {holds['session']} works on it and gets it with its next request; workers leave it alone."
    if "owner" in holds:
        return f"No agent owns it, so it does not start. Give it one with: remit task update {task['id']} --owner AGENT"
    if "agent" in holds:
        return (
            f"Agent {holds['agent']} is not known here, and no live worker works for it, so it does not start. "
            f"Restore the agent's file, or set another owner with: remit task update {task['id']} --owner AGENT"
        )
    if never := [item for item in task["held_by"] if item.get("state") in ENDED]:
        return _never(task, never, unattended)
    if not holds:
        if not unattended(task["id"]):
            return ""
        return f"No worker is running for it. Run it here with: remit task run {task['id']}. Or start a worker: {_START}."
    return f"{_start(task, holds, now)} {_then(task, unattended)}".rstrip()


def _start(task: Task, holds: dict[str, str], now: Any) -> str:
    """When a task starts that waits for others, for a time, or for both."""
    times = {kind: f"{moment(ref)} ({ago(ref, now)})" for kind, ref in holds.items() if kind in ("not_before", "slot", "retry")}
    if "dependency" in holds:
        schedule: dict[str, str] = task["schedule"] or {}
        calendar = schedule.get("cron")
        then = f", and then at the next slot of its calendar ({calendar})" if calendar else ""
        early = f", and not before {times['not_before']}" if "not_before" in times else ""
        return f"It starts when {_awaited(task)}{early or then}."
    if "retry" in holds:
        return f"It is tried again at {times['retry']}."
    if "slot" in holds:
        again = ", and again at each later slot until you cancel it" if recurs(task) else ""
        return f"It starts at its next slot, {times['slot']}{again}. Run it now with: remit task run {task['id']}."
    return f"It does not start before {times['not_before']}."


def recurs(task: Task) -> bool:
    """True for a task of a series, which continues at each slot of a calendar."""
    schedule: dict[str, str] = task["schedule"] or {}
    return bool(schedule.get("cron")) and task["parent_id"] is None


def _never(task: Task, ended: Sequence[dict[str, str]], unattended: Unattended) -> str:
    """What follows for a task whose dependencies have ended and were not done."""
    told = " and ".join(f"#{item['ref']} is {item['state']}" for item in ended)
    follows = f"A worker fails it when one runs ({_START})" if unattended(task["id"]) else "A worker fails it soon"
    return (
        f"It can never start: {told}, and had to be done first. {follows}. "
        f"Start it without its dependencies with: remit task update {task['id']} --clear depends-on"
    )


def _then(task: Task, unattended: Unattended) -> str:
    return f"No worker is running for it now; it needs one then ({_START})." if unattended(task["id"]) else ""


def _awaited(task: Task) -> str:
    """`#3 is done and #4 has ended`, for the dependencies that still hold a task."""
    ends = {item["task_id"]: "is done" if item["on"] == "done" else "has ended" for item in task["depends_on"]}
    return " and ".join(f"#{other} {ends.get(other, 'is done')}" for other in task["blocked_by"])


def _waiting(task: Task, unattended: Unattended) -> str:
    awaited: Sequence[dict[str, str]] = task["wait"]["on"] if task["wait"] else ()
    kinds = {item["kind"] for item in awaited}
    if "user" in kinds:
        return "It waits for an answer from you. See the question with: remit inbox"
    if "subtask" in kinds:
        said = f"It waits for {named([item['ref'] for item in awaited if item['kind'] == 'subtask'])}."
    elif "tick" in kinds:
        slot = "".join(f", {moment(item['ref'])}" for item in task["held_by"])
        said = f"It waits for its next scheduled turn{slot or ' (remit schedule show)'}. Run it now with: remit task run {task['id']}"
    else:
        said = "It waits for a timer."
    if unattended(task["id"]):
        said += f"{'' if said.endswith('.') else '.'} No worker is running for it ({_START})."
    return said


def _verifying(task: Task, unattended: Unattended) -> str:
    if unattended(task["id"]):
        return f"No worker is running. Its acceptance criteria are checked when one starts: {_START}."
    return f"A worker checks its acceptance criteria. Follow it with: remit task watch {task['id']}"


def typed_answer(question: dict[str, Any]) -> str:
    """What `remit interact respond` takes as the answer to a question."""
    if not question["options"]:
        return "'YOUR ANSWER'"
    return "N, or 'ANOTHER ANSWER'" if question.get("allow_other") else "N"


# After a wait that was interrupted.


def stopped(tasks: Sequence[Task], unattended: Unattended, now: Any, server: str | None) -> list[str]:
    """Lines about tasks after an interrupted wait: which have ended, and how the others continue."""
    lines = [f"#{task['id']} has ended: it is {task['state']}. See it with: remit task result {task['id']}" for task in tasks if _ended(task)]
    left = [task for task in tasks if not _ended(task)]
    for task in left if len(left) == 1 else ():
        return [*lines, *_one_left(task, unattended, now, server)]
    return [*lines, *(_several_left(left, unattended, server) if left else [])]


def _one_left(task: Task, unattended: Unattended, now: Any, server: str | None) -> list[str]:
    cancel = f"Cancel it with: remit task cancel {task['id']}"
    if server is not None:
        return [
            f"Stopped waiting. The server at {server} keeps #{task['id']} ({task['state']}); its workers continue it.",
            f"Follow it with: remit task watch {task['id']}. {cancel}",
        ]
    if said := outlook(task, unattended, now):
        kept = f"Stopped. #{task['id']} is kept ({task['state']})."
        idle = task["state"] == "pending" and task["ready"] and unattended(task["id"])
        how = f"No worker is running for it now. Continue it with: remit task run {task['id']}" if idle else said
        return [kept, how, cancel]
    return [
        f"Stopped waiting. #{task['id']} continues ({task['state']}): a worker is running elsewhere.",
        f"Follow it with: remit task watch {task['id']}. {cancel}",
    ]


def _several_left(tasks: Sequence[Task], unattended: Unattended, server: str | None) -> list[str]:
    first, names = tasks[0]["id"], named([task["id"] for task in tasks])
    cancel = f"Cancel one with: remit task cancel {first}"
    if server is not None:
        return [f"Stopped waiting. The server at {server} keeps {names}; its workers continue them.", cancel]
    if any(unattended(task["id"]) for task in tasks):
        return [
            f"Stopped. {names} are kept. No worker is running for all of them now.",
            f"Continue one with: remit task run {first}. Continue all with: {_START}.",
            cancel,
        ]
    return [f"Stopped waiting. {names} continue: a worker is running elsewhere.", cancel]


def named(task_ids: Sequence[str]) -> str:
    """`#1, #2 and 3 more`."""
    names = ", ".join(f"#{task_id}" for task_id in task_ids[:_NAMED])
    return f"{names} and {len(task_ids) - _NAMED} more" if len(task_ids) > _NAMED else names


def _ended(task: Task) -> bool:
    return task["state"] in ENDED
