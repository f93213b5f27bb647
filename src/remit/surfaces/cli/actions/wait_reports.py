"""Reports of a command about its awaited tasks: progress, and their state at the end."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from remit.errors import NotFound, RemitError, RolledBack
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Session, Told
from remit.surfaces.cli.output.next_steps import (
    kept_by_server,
    named,
    quit_at_once,
    start_worker,
    stopped,
)
from remit.surfaces.cli.output.page_parts import by_number
from remit.surfaces.text.printed_commands import command_line

if TYPE_CHECKING:  # threads are imported only by commands that wait
    from remit.surfaces.cli.output.live_progress import Progress

Say = Callable[..., None]
"""Writes lines for a person."""


@contextmanager
def show_progress(
    session: Session, expected: int = 1, known: str | None = None
) -> Generator["Progress"]:
    """Show the progress of awaited tasks, and their state if the wait is interrupted.

    `known` is the task of a command that names one.
    """
    from remit.surfaces.cli.output.live_progress import INTERRUPTED, Progress
    from remit.surfaces.shutdown import StopDeadline

    def is_first_unattended() -> bool:
        is_unattended = _attendance(session, progress)
        return any(map(is_unattended, progress.tree.awaited[:1]))

    def awaited() -> list[str]:
        if progress.created or known is None:
            return progress.created
        return [known]

    def quit_line() -> str:
        created = awaited()
        left, server = progress.tree.left_of(created), session.host.server
        return quit_at_once(created, left, server, has_begun=bool(created) or progress.has_begun)

    deadline = StopDeadline(lambda: late_quit_line(awaited()), INTERRUPTED)

    def begin(number: int) -> None:
        deadline.exit_code = 128 + number
        deadline.begin()

    progress = Progress(
        is_first_unattended,
        on_stop=begin,
        quit_line=quit_line,
        server=session.host.server,
    )
    with deadline, _report_end(session, progress, expected, awaited), progress:
        yield progress


def late_quit_line(task_ids: Sequence[str]) -> str:
    """Return the last line of a command that did not stop in time."""
    from remit.surfaces.shutdown import STOP_SECONDS

    how = f"See your tasks later with: {command_line('task list')}"
    if len(task_ids) == 1:
        how = f"See #{task_ids[0]} later with: {command_line('task show', task_ids[0])}"
    return f"Quit after {STOP_SECONDS:g} seconds: the store or the server did not answer. {how}"


def report_stopped(
    session: Session, task_ids: Sequence[str], say: Say, unattended: Callable[[str], bool]
) -> None:
    """Print the state of the tasks that this command stopped waiting for."""
    session.host.hurry()
    try:
        lines = _describe_stopped(session, task_ids, unattended)
    except RolledBack:
        lines = _describe_rollback(task_ids)
    except RemitError:  # the store or the server is gone
        lines = [
            f"Stopped waiting. See the state of #{task_ids[0]} with:"
            f" {command_line('task show', task_ids[0])}"
        ]
    say(*lines)


def report_unfinished(session: Session, tasks: Sequence[Result], say: Say) -> None:
    """Print the tasks below the answer that have not ended, and whether a worker continues them."""
    if not tasks:
        return
    first, names = tasks[0]["id"], named([task["id"] for task in tasks])
    verb, them = by_number(len(tasks), ("has", "it"), ("have", "them"))
    if session.host.server is not None:
        how = f"The server keeps {them}."
    elif any(session.unattended(task["id"]) for task in tasks):
        how = f"No worker is running for {them}. {start_worker()}"
    else:
        how = f"A worker is running for {them}."
    say(f"{names} {verb} not ended. {how}", f"Cancel with: {command_line('task cancel', first)}")


@contextmanager
def _report_end(
    session: Session,
    progress: "Progress",
    expected: int,
    awaited: Callable[[], list[str]],
) -> Generator[None]:
    """Print the state of the tasks if the wait ends by Ctrl-C or an error."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        progress.end()
        if task_ids := awaited():
            report_stopped(session, task_ids, progress.say, _attendance(session, progress))
        else:
            progress.say(quit_at_once((), (), None, has_begun=progress.has_begun))
        if 0 < len(progress.created) < expected:  # interrupted before all were shown
            see = command_line("task list")
            progress.say(f"More tasks may have been created. See all with: {see}")
        raise Told(*interrupt.args) from None
    except RemitError as error:
        if task_ids := progress.created or error.details.get("task_ids", ()):
            _report_failed(session, task_ids, progress)
        raise


def _report_failed(session: Session, task_ids: Sequence[str], progress: "Progress") -> None:
    """Print what an error leaves: a server that ends a wait may be gone, with its workers."""
    if session.host.server is None:
        report_stopped(session, task_ids, progress.say, session.unattended)
        return
    progress.say(*kept_by_server(task_ids, session.host.server))


def _attendance(session: Session, progress: "Progress") -> Callable[[str], bool]:
    """Return a function that tells whether no live worker works on a task.

    With a server, the last items tell.
    """
    if session.host.server is None:
        return session.unattended
    return progress.is_unattended


def _describe_stopped(
    session: Session, task_ids: Sequence[str], unattended: Callable[[str], bool]
) -> list[str]:
    """Return lines about each task. A rollback may have lost some of them."""
    from datetime import UTC, datetime

    tasks: list[Result] = []
    lines: list[str] = []
    for task_id in task_ids:
        try:
            tasks.append(session.call("get_task", task_id=task_id))
        except NotFound:
            lost = f"#{task_id} is not in the store. It may have been lost with a rollback."
            lines.append(lost)
    return lines + stopped(tasks, unattended, datetime.now(UTC), session.host.server)


def _describe_rollback(task_ids: Sequence[str]) -> list[str]:
    """Return lines about tasks whose store went back in time or was replaced."""
    verb, they_are = by_number(len(task_ids), ("continues", "it is"), ("continue", "they are"))
    told = f"{named(task_ids)} {verb} only if {they_are} in the store that is used from now on."
    return [
        f"Stopped waiting. The store went back in time or was replaced: {told}",
        f"See what is wrong with: {command_line('doctor')}",
    ]
