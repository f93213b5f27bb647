"""Commands that delegate work and wait for it."""

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from remit.errors import Conflict, RemitError
from remit.surfaces.cli.actions.wait_reports import report_unfinished, show_progress
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Session
from remit.surfaces.cli.output.next_steps import ENDED, how_to_activate, prerequisites
from remit.surfaces.text.printed_commands import command_line

if TYPE_CHECKING:  # threads are imported only by commands that wait
    from collections.abc import Iterable

    from remit.surfaces.cli.output.live_progress import Progress


def run_agent(session: Session, fields: dict[str, Any]) -> Result:
    """Run a sub-agent and wait for its result."""
    return _delegate(session, "task", fields)


def run_parallel(session: Session, fields: dict[str, Any]) -> Result:
    """Run a sub-agent for each item of a file.

    Options are defaults for the items.
    """
    from remit.surfaces.cli.work_file import read_work

    shared = ("subagent_type", "model", "effort")
    common = {name: fields.pop(name) for name in shared if name in fields}
    return _delegate(
        session, "task_parallel", fields | {"tasks": read_work(fields["tasks"], common)}
    )


def read_result(session: Session, fields: dict[str, Any]) -> Result:
    """Return the result or the state of a task; show progress while waiting."""
    if not fields.get("wait_seconds"):
        return session.call("task_output", **fields)
    return _delegate(session, "task_output", fields)


def create_subtask(session: Session, fields: dict[str, Any]) -> Result:
    """Create a subtask; show progress while waiting for it."""
    if fields.get("wait") != "block":
        return session.call("create_subtask", **fields)
    return _delegate(session, "create_subtask", fields)


def run_task(session: Session, fields: dict[str, Any]) -> Result:
    """Run a task now and wait until it ends or waits; in this process if no worker does."""
    everything = bool(fields.pop("all", False))
    task = session.call("get_task", **fields)
    try:
        last_id = _attend(session, task["id"], everything=everything)
    except Conflict as refused:
        refused.hint = _how_to_run(session, task) or refused.hint
        raise
    return {"success": True, "task": session.call("get_task", task_id=last_id)}


def _attend(session: Session, task_id: str, *, everything: bool) -> str:
    """Show the progress of a task until it ends or waits; return the id of its last successor."""
    with (
        show_progress(session, known=task_id) as progress,
        closing(
            session.host.attend(
                task_id,
                progress.stop,
                everything=everything,
                quit_line=progress.quit_line,
            )
        ) as items,
    ):
        for item in items:
            progress.take(item)
            if item.get("task_id") == task_id:
                task_id = item.get("superseded_by") or task_id
    return task_id


def _how_to_run(session: Session, task: Result) -> str:
    """Return how to make a task runnable, or how to follow it; empty if that is unknown."""
    if task["state"] in ("running", "verifying"):
        watch = command_line("task watch", task["id"])
        return session.outlook(task) or f"Follow it with: {watch}"
    if task["state"] == "draft":
        from datetime import UTC, datetime

        return how_to_activate(task, datetime.now(UTC))
    if task["state"] == "paused":
        return f"Resume it with: {command_line('task resume', task['id'])}"
    if task["session_id"] is not None and task["state"] == "pending":
        return f"Session {task['session_id']} works on it; no worker runs it."
    if task["owner"] is None and task["state"] == "pending":
        return f"Set one with: {command_line('task update', task['id'], '--owner AGENT')}"
    can_start = not any(item.get("state") in ENDED for item in task["held_by"])
    if task["blocked_by"] and can_start:
        first = task["blocked_by"][0]
        see = command_line("task show", first)
        return f"It starts when {prerequisites(task)}. See #{first} with: {see}"
    return ""


def _delegate(session: Session, operation: str, fields: dict[str, Any]) -> Result:
    """Show the progress of an operation that waits; return its answer."""
    everything = bool(fields.pop("all", False))
    expected = len(fields["tasks"]) if operation == "task_parallel" else 1
    known = fields["task_id"] if operation == "task_output" else None
    with (
        show_progress(session, expected, known) as progress,
        closing(
            session.host.delegate(
                operation,
                fields,
                progress.stop,
                everything=everything,
                quit_line=progress.quit_line,
            )
        ) as items,
    ):
        answer = _await_answer(items, progress)
        left = progress.done()
    if operation == "task_output":  # its answer has the state of the task
        return answer
    with suppress(RemitError):  # the answer counts even if the store goes away
        tasks = [session.call("get_task", task_id=task_id) for task_id in left]
        unfinished = [task for task in tasks if task["state"] not in ENDED]
        report_unfinished(session, unfinished, progress.say)
    return answer


def _await_answer(items: "Iterable[Result]", progress: "Progress") -> Result:
    """Show progress until the answer arrives; return it."""
    for item in items:
        if item["type"] == "end":
            answer: Result = item["answer"]
            return answer
        progress.take(item)
    raise Conflict("The work ended without a result.")
