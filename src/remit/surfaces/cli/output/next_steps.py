"""What happens next to a task, given its state and the live workers."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from remit.surfaces.cli.output.page_parts import by_number, join_ids
from remit.surfaces.cli.output.times import is_ahead, moment, upcoming
from remit.surfaces.text.display import surround
from remit.surfaces.text.printed_commands import command_line

Task = dict[str, Any]
Unattended = Callable[[str], bool]
"""Returns True if no live worker works on a task."""

ENDED = ("done", "failed", "canceled")
_START_ON_SERVER = "Start one on the server's machine with: remit worker"
NO_SERVER_WORKER = f"No worker is running for it. {_START_ON_SERVER}"
_OR_WORKER = "Or start a worker with: "
_NAMED = 5


def start_worker(server: str | None = None) -> str:
    """Return how to start a worker, on the server's machine if a server is used."""
    if server is not None:
        return _START_ON_SERVER
    return f"Start one with: {command_line('worker')}"


def outlook(task: Task, unattended: Unattended, now: Any, server: str | None) -> str:
    """Return what happens next to a task, and what a person can do about it. Each command ends a
    line, so that it can be copied.

    Only the server's workers continue a task of a server.

    Empty if the task has ended or a worker works on it.
    """
    describe = _OUTLOOKS.get(task["state"])
    if describe is None:
        return ""
    return describe(task, unattended, now, server)


def _draft(task: Task, _unattended: Unattended, now: Any, _server: str | None) -> str:
    return f"It is a draft. {how_to_activate(task, now)}"


def _paused(task: Task, _unattended: Unattended, _now: Any, _server: str | None) -> str:
    return f"It is paused. Continue it with: {command_line('task resume', task['id'])}"


def _running(task: Task, unattended: Unattended, _now: Any, server: str | None) -> str:
    """Return how a task continues whose worker is gone; empty while a worker runs it."""
    if not has_lost_worker(task, unattended):
        return ""
    return f"The worker that ran it is gone. {_how_to_continue(task, server)}"


def how_to_activate(task: Task, now: Any) -> str:
    """The command that activates a draft, and what keeps the task from starting afterwards."""
    activate = command_line("task update", task["id"], "--status active")
    return "\n".join([f"Activate it with: {activate}", *_holds_of_draft(task, now)])


def _holds_of_draft(task: Task, now: Any) -> list[str]:
    """What keeps a draft from starting when it is active."""
    holds: list[str] = []
    if task["session_id"] is not None:
        holds.append(f"Once active, session {task['session_id']} gets it with its next request.")
    elif task["owner"] is None:
        set_owner = command_line("task update", task["id"], "--owner AGENT")
        holds.append(f"It has no owner, so it will not start. Set one with: {set_owner}")
    if task["blocked_by"]:
        holds.append(f"Once active, it starts when {prerequisites(task)}.")
    not_before = _schedule(task).get("not_before")
    if not_before is not None and is_ahead(not_before, now):
        holds.append(f"Once active, it does not start before {upcoming(not_before, now)}.")
    return holds


def _how_to_continue(task: Task, server: str | None) -> str:
    """Return how to continue a task whose worker is gone."""
    if server is not None:
        return _START_ON_SERVER
    run = command_line("task run", task["id"])
    return f"Continue it with: {run}\n{_OR_WORKER}{command_line('worker')}"


def has_lost_worker(task: Task, unattended: Unattended) -> bool:
    """Return True for a task in state running whose worker is gone."""
    return task["state"] == "running" and task["session_id"] is None and unattended(task["id"])


_ASSIGNEES = {
    "session": (
        "It is assigned to session {ref}, which receives it with its next request. Workers do not"
        " run it."
    ),
    "owner": "It has no owner, so it will not start. Set one with: {set_owner}",
    "agent": (
        "Agent {ref} is unknown here, and no live worker works for it, so it does not start."
        " Restore the agent's file, or set another owner with: {set_owner}"
    ),
}
"""What keeps a task with this assignee from starting."""


def _pending(task: Task, unattended: Unattended, now: Any, server: str | None) -> str:
    """Return what keeps a pending task from starting, and what a person can do about it."""
    holds: dict[str, str] = {item["kind"]: item["ref"] for item in task["held_by"]}
    for kind, text in _ASSIGNEES.items():
        if kind in holds:
            set_owner = command_line("task update", task["id"], "--owner AGENT")
            return text.format(ref=holds[kind], set_owner=set_owner)
    if ended := [item for item in task["held_by"] if item.get("state") in ENDED]:
        return _never(task, ended, unattended, server)
    if holds:
        return "\n".join(filter(None, _start(task, holds, now, _then(task, unattended, server))))
    if not unattended(task["id"]):
        return ""
    return _needs_worker(task, server)


def _needs_worker(task: Task, server: str | None) -> str:
    """Return how to start a task that only needs a worker."""
    if server is not None:
        return NO_SERVER_WORKER
    run = command_line("task run", task["id"])
    return (
        f"No worker is running for it. Run it here with: {run}"
        f"\n{_OR_WORKER}{command_line('worker')}"
    )


def _start(task: Task, holds: dict[str, str], now: Any, needs: str) -> tuple[str, str]:
    """Return lines on when a task starts that waits for other tasks, a time, or both; `needs` is
    what it needs then.
    """
    if "dependency" in holds:
        when = f"It starts when {prerequisites(task)}{_start_after_others(task, holds, now)}."
    elif "retry" in holds:
        when = f"It is tried again at {upcoming(holds['retry'], now)}."
    elif "slot" in holds:
        again = ", and again at each later slot until you cancel it" if recurs(task) else ""
        run = command_line("task run", task["id"])
        slot = upcoming(holds["slot"], now)
        return f"It starts at its next slot, {slot}{again}. Run it now with: {run}", needs
    else:
        when = f"It does not start before {upcoming(holds['not_before'], now)}."
    return f"{when} {needs}".rstrip(), ""


def _start_after_others(task: Task, holds: dict[str, str], now: Any) -> str:
    """Return what a task still waits for after its dependencies have ended."""
    if "not_before" in holds:
        return f", and not before {upcoming(holds['not_before'], now)}"
    calendar = _calendar(task)
    return surround(calendar, ", and then at the next slot of its calendar (", ")")


def recurs(task: Task) -> bool:
    """Return True for a task of a series, which continues at each slot of its schedule."""
    return bool(_calendar(task)) and task["parent_id"] is None


def _calendar(task: Task) -> str | None:
    """Return the cron expression of a task; None without one."""
    return _schedule(task).get("cron")


def _schedule(task: Task) -> dict[str, str]:
    """Return when a task runs; empty if it has no schedule."""
    return task["schedule"] or {}


def _never(
    task: Task, ended: Sequence[dict[str, str]], unattended: Unattended, server: str | None
) -> str:
    """Return what happens to a task whose dependencies ended without being done."""
    told = " and ".join(map("#{0[ref]} is {0[state]}".format, ended))
    follows = "A worker fails it soon. "
    if unattended(task["id"]):
        follows = f"A worker fails it when one runs. {start_worker(server)}\n"
    clear = command_line("task update", task["id"], "--clear depends-on")
    return (
        f"It can never start: {told}, and had to be done first. {follows}"
        f"Start it without its dependencies with: {clear}"
    )


def _then(task: Task, unattended: Unattended, server: str | None) -> str:
    """Return that a task will need a worker, if none is running now."""
    if not unattended(task["id"]):
        return ""
    return f"No worker is running for it now; it needs one then. {start_worker(server)}"


def prerequisites(task: Task) -> str:
    """Return the unmet dependencies of a task: `#3 is done and #4 has ended`."""
    words = {"done": "is done"}
    ends = {item["task_id"]: words.get(item["on"], "has ended") for item in task["depends_on"]}
    return " and ".join(f"#{other} {ends.get(other, 'is done')}" for other in task["blocked_by"])


def _waiting(task: Task, unattended: Unattended, _now: Any, server: str | None) -> str:
    """Return what a waiting task waits for, and whether a worker continues it."""
    from remit.app.reading.views import awaited_kinds

    kinds = awaited_kinds(task)
    if _asks(task):
        return f"It waits for an answer from you. See the question with: {command_line('inbox')}"
    said = _awaited(task, kinds)
    if not unattended(task["id"]):
        return said
    return f"{said}\nNo worker is running for it. {start_worker(server)}"


def _awaited(task: Task, kinds: Collection[str]) -> str:
    """Return what a waiting task waits for, if it is not a person."""
    if "subtask" in kinds:
        subtasks = [item["ref"] for item in task["wait"]["on"] if item["kind"] == "subtask"]
        return f"It waits for {named(subtasks)}."
    if "tick" not in kinds:
        return "It waits for a timer."
    slots = [moment(item["ref"]) for item in task["held_by"]]
    run = f"Run it now with: {command_line('task run', task['id'])}"
    if slots:
        return f"It waits for its next scheduled turn, {', '.join(slots)}. {run}"
    schedule = command_line("schedule show")
    return f"It waits for its next scheduled turn. See when with: {schedule}\n{run}"


def _verifying(task: Task, unattended: Unattended, _now: Any, server: str | None) -> str:
    """Return who checks the acceptance criteria of a task."""
    if unattended(task["id"]):
        return (
            "No worker is running. Its acceptance criteria are checked when one starts."
            f" {start_worker(server)}"
        )
    watch = command_line("task watch", task["id"])
    return f"A worker checks its acceptance criteria. Follow it with: {watch}"


_OUTLOOKS: dict[str, Callable[[Task, Unattended, Any, str | None], str]] = {
    "draft": _draft,
    "pending": _pending,
    "waiting": _waiting,
    "paused": _paused,
    "verifying": _verifying,
    "running": _running,
}
"""Returns the outlook of a task, by its state; an ended task has none."""


def how_to_answer(question: dict[str, Any]) -> str:
    """Return the command that answers a question, with a placeholder for the answer."""
    return command_line("interact respond", question["id"], _typed_answer(question))


def _typed_answer(question: dict[str, Any]) -> str:
    """Return the placeholder for the answer in a command."""
    if not question["options"]:
        return "'YOUR ANSWER'"
    if any(option.strip().isdecimal() for option in question["options"]):
        return "--option N"
    return "'N OR YOUR ANSWER'" if question.get("allow_other") else "N"


# After a wait that was interrupted.


def stopped(
    tasks: Sequence[Task], unattended: Unattended, now: Any, server: str | None
) -> list[str]:
    """Return lines about tasks after an interrupted wait: which have ended, and how the others
    continue.
    """
    lines = [_has_ended(task) for task in tasks if task["state"] in ENDED]
    left = [task for task in tasks if task["state"] not in ENDED]
    if len(left) == 1:
        lines += _one_left(left[0], unattended, now, server)
    elif left:
        lines += _several_left(left, unattended, server)
    return lines


def _has_ended(task: Task) -> str:
    """Return that a task has ended, and how to see its result."""
    see = command_line("task result", task["id"])
    return f"#{task['id']} has ended: it is {task['state']}. See it with: {see}"


def quit_at_once(
    created: Sequence[str], left: Sequence[str], server: str | None, *, has_begun: bool = True
) -> str:
    """Return lines about the tasks of a wait that ends at once, without reading the store.

    `left` are the created tasks that have not ended. `has_begun` is False if none can exist.
    """
    if not has_begun:
        return "Stopped. No task was created."
    if not created:
        return f"Stopped. Tasks may have been created. See them with: {command_line('task list')}"
    if not left:
        see = command_line("task result", created[0])
        return f"Stopped. {named(created)} ended. See the result with: {see}"
    return _quit_lines(left, server)


def _quit_lines(task_ids: Sequence[str], server: str | None) -> str:
    """Return lines about tasks that have not ended, without reading the store."""
    first, names = task_ids[0], named(task_ids)
    is_one = len(task_ids) == 1
    which = by_number(len(task_ids), "it", "one")
    cancel = f"Cancel {which} with: {command_line('task cancel', first)}"
    if server is not None:
        kept = f"Stopped waiting. The server at {server} keeps {names}."
        how = f"See its state with: {command_line('task show', first)}"
    elif is_one:
        kept = f"Stopped. {names} is kept."
        run = command_line("task run", first)
        how = f"If no other worker is running for it, continue it with: {run}"
    else:
        kept = f"Stopped. {names} are kept."
        how = f"If no other worker is running for them, continue all with: {command_line('worker')}"
    return "\n".join([kept, how, cancel])


def _one_left(task: Task, unattended: Unattended, now: Any, server: str | None) -> list[str]:
    """Return lines about the only task that has not ended."""
    cancel = f"Cancel it with: {command_line('task cancel', task['id'])}"
    follow = f"Follow it with: {command_line('task watch', task['id'])}"
    how = outlook(task, unattended, now, server)
    if server is not None:
        kept = f"Stopped waiting. The server at {server} keeps #{task['id']} ({task['state']})"
        if how:
            return [f"{kept}.", *how.split("\n"), cancel]
        return [f"{kept}; its workers continue it.", follow, cancel]
    if how:
        if _is_idle(task, unattended):
            how = _how_to_continue_idle(task)
        return [f"Stopped. #{task['id']} is kept ({task['state']}).", *how.split("\n"), cancel]
    goes_on = (
        f"Stopped waiting. #{task['id']} continues ({task['state']}): a worker is running"
        " elsewhere."
    )
    return [goes_on, follow, cancel]


def _is_idle(task: Task, unattended: Unattended) -> bool:
    """Return True if a task could start and no worker is running for it."""
    return task["state"] == "pending" and task["ready"] and unattended(task["id"])


def _how_to_continue_idle(task: Task) -> str:
    run = command_line("task run", task["id"])
    return f"No worker is running for it now. Continue it with: {run}"


def _several_left(tasks: Sequence[Task], unattended: Unattended, server: str | None) -> list[str]:
    """Return lines about several tasks that have not ended."""
    names = named([task["id"] for task in tasks])
    cancel = f"Cancel one with: {command_line('task cancel', tasks[0]['id'])}"
    asks = [task["id"] for task in tasks if _asks(task)]
    idle = [task["id"] for task in tasks if task["id"] not in asks and unattended(task["id"])]
    lines = [f"Stopped. {names} are kept."]
    if server is not None:
        lines = [f"Stopped waiting. The server at {server} keeps {names}."]
    elif not asks and not idle:
        lines = [f"Stopped waiting. {names} continue: a worker is running elsewhere."]
    if asks:
        lines.append(_questions_of(asks))
    if idle:
        lines += _how_to_continue_several(idle, server)
    elif len(asks) < len(tasks) and (asks or server is not None):
        lines.append(f"Workers continue {'the others' if asks else 'them'}.")
    attended = [task["id"] for task in tasks if task["id"] not in (*asks, *idle)]
    for task_id in attended[:1]:
        lines.append(f"Follow one with: {command_line('task watch', task_id)}")
    return [*lines, cancel]


def _asks(task: Task) -> bool:
    """Return True if a task waits for an answer of a person."""
    from remit.app.reading.views import awaited_kinds

    return "user" in awaited_kinds(task)


def _questions_of(task_ids: Sequence[str]) -> str:
    verb, questions = by_number(len(task_ids), ("waits", "question"), ("wait", "questions"))
    see = command_line("inbox")
    return f"{named(task_ids)} {verb} for an answer from you. See the {questions} with: {see}"


def _how_to_continue_several(idle: Sequence[str], server: str | None) -> list[str]:
    """Return lines on how to continue tasks for which no worker is running."""
    missing = f"No worker is running for {named(idle)} now."
    if server is not None:
        return [f"{missing} {_START_ON_SERVER}"]
    return [
        missing,
        f"Continue one with: {command_line('task run', idle[0])}",
        f"Continue all with: {command_line('worker')}",
    ]


def kept_by_server(task_ids: Sequence[str], server: str) -> list[str]:
    """Return lines about tasks of a server that ended the wait for them and may be gone."""
    them, how = "them", f"See them there with: {command_line('task list')}"
    if len(task_ids) == 1:
        them, how = "it", f"Follow it there with: {command_line('task watch', task_ids[0])}"
    kept = (
        f"The server at {server} keeps {named(task_ids)}. A worker continues {them} when one runs."
    )
    return [kept, how]


def named(task_ids: Sequence[str]) -> str:
    """Return task ids as `#1, #2 and 3 more`."""
    names = join_ids(task_ids[:_NAMED])
    if len(task_ids) <= _NAMED:
        return names
    return f"{names} and {len(task_ids) - _NAMED} more"
