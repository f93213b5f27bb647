"""`remit task watch`: events of all tasks or of one, as they happen."""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from remit.surfaces.cli.actions.exit_codes import ENDS
from remit.surfaces.cli.actions.wait_reports import late_quit_line, report_stopped
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Session, Told
from remit.surfaces.cli.output.next_steps import ENDED
from remit.surfaces.cli.output.terminal import write_notes
from remit.surfaces.text.display import display_line
from remit.surfaces.text.printed_commands import command_line

if TYPE_CHECKING:  # threads are imported only by commands that wait
    from remit.surfaces.cli.silence_reminder import Reminder
    from remit.surfaces.shutdown import StopDeadline

_EARLIER_EVENTS = 10


def watch(session: Session, fields: dict[str, Any]) -> Iterator[Result]:
    """Yield events as they happen.

    With a task: its latest events, then new ones until it or its last successor ends.
    """
    with _make_deadline(fields) as deadline:
        try:
            if "task_id" in fields:
                yield from _watch_chain(session, fields, deadline)
            else:
                yield from _watch_all(session, fields.get("after"), deadline)
        except KeyboardInterrupt as interrupt:
            _end_watch(session, fields, deadline)
            raise Told(*interrupt.args) from None


def tell_watch_ended(session: Session, fields: dict[str, Any]) -> None:
    """Print that `task watch` has stopped, and the state of its task.

    A store that does not respond must not delay it, and the next Ctrl-C ends it at once.
    """
    with _make_deadline(fields) as deadline:
        _end_watch(session, fields, deadline)


def _make_deadline(fields: dict[str, Any]) -> "StopDeadline":
    """Return the time limit for stopping, at which the process quits with a last line."""
    from remit.surfaces.cli.output.live_progress import INTERRUPTED
    from remit.surfaces.shutdown import StopDeadline

    task_ids = [fields["task_id"]] if "task_id" in fields else []
    return StopDeadline(lambda: late_quit_line(task_ids), INTERRUPTED)


def _watch_all(
    session: Session, after: str | None, deadline: "StopDeadline"
) -> Generator[Result, None, None]:
    """Yield the events of all tasks; print a reminder after each silence."""
    with (
        _make_reminder(session) as reminder,
        closing(_follow(session, None, after, _stopping_by(reminder, deadline))) as events,
    ):
        for event in events:
            reminder.hear()
            yield event


def _make_reminder(session: Session) -> "Reminder":
    """Says that all tasks are watched; of a server, only once it has answered."""
    from remit.surfaces.cli.silence_reminder import Reminder, waiting_for_server

    told = "Still watching all tasks"
    if session.host.server is None:
        return Reminder(told)

    def look() -> str:
        session.call("list_tasks", limit=1)
        return told

    return Reminder(waiting_for_server(session.host.server), look)


def _watch_chain(
    session: Session, fields: dict[str, Any], deadline: "StopDeadline"
) -> Generator[Result, None, None]:
    """Yield the events of a task and of its successors."""
    task_id, after = fields["task_id"], fields.get("after")
    while task_id is not None:
        successor = yield from _watch_one(session, task_id, after, deadline)
        if successor is not None:
            write_notes(f"#{task_id} was handed over and continues as #{successor}.")
        task_id, after = successor, None


def _watch_one(
    session: Session, task_id: str, after: str | None, deadline: "StopDeadline"
) -> Generator[Result, None, str | None]:
    """Yield the events of a task until it ends.

    Return the id of its successor, if there is one.
    """
    from remit.domain.task.event_position import check_position
    from remit.surfaces.cli.silence_reminder import Reminder

    if after is not None:
        check_position(after)  # a refused command records no wait
    task = session.call("get_task", task_id=task_id)
    if task["state"] not in ENDED:
        # This command waits for the task, so the task must not wait for a tick from now on.
        session.call("task_output", task_id=task_id)
    successor: str | None = None
    with (
        Reminder(_headline(task), lambda: _read_headline(session, task_id)) as reminder,
        closing(_events_of(session, task, after, _stopping_by(reminder, deadline))) as events,
    ):
        for event in events:
            reminder.hear()
            yield event
            if event["type"] == "TaskSuperseded":
                successor = event["data"]["by"]
            if event["type"] in ENDS:
                break
    return successor


def _stopping_by(reminder: "Reminder", deadline: "StopDeadline") -> Callable[[int], None]:
    """Return the handler of the first signal to a watching command."""

    def stop(number: int) -> None:
        deadline.exit_code = 128 + number
        deadline.begin()
        reminder.stop()

    return stop


def _events_of(
    session: Session, task: dict[str, Any], after: str | None, stopping: Callable[[int], None]
) -> Generator[Result, None, None]:
    """Yield the latest events of a task, then new ones.

    New events are followed from the position of the last read event, so none is missed.
    """
    if after is None:
        earlier = max(task["version"] - _EARLIER_EVENTS, 0)
        latest = session.call("get_events", task_id=task["id"], after=earlier)["events"]
        if earlier:
            see = command_line("task events", task["id"])
            write_notes(f"Earlier events are left out. See all with: {see}")
        yield from latest
        after = latest[-1]["position"]
    yield from _follow(session, task["id"], after, stopping)


def _follow(
    session: Session, task_id: str | None, after: str | None, stopping: Callable[[int], None]
) -> Generator[Result, None, None]:
    """Yield events after a position, one by one."""
    pages = session.host.follow(task_id, after, stopping, quit_line=_stopped_watching)
    with closing(pages):
        for page in pages:
            yield from page


def _read_headline(session: Session, task_id: str) -> str:
    """Return what a task does or waits for, in one line."""
    task = session.call("get_task", task_id=task_id)
    return "\n".join(filter(None, (_headline(task), session.outlook(task))))


def _headline(task: Result) -> str:
    """Return the mark, title, owner and state of a task, in one line."""
    from remit.surfaces.cli.output.progress_tree import MARKS

    parts = (f"#{task['id']} {task['title']}", task["owner"], task["state"])
    return display_line(f"{MARKS.get(task['state'], '·')} {' · '.join(filter(None, parts))}")


def _end_watch(session: Session, fields: dict[str, Any], deadline: "StopDeadline") -> None:
    """Print that the watch is stopping, and then the state of the task."""
    from remit.surfaces.cli.output.live_progress import stopping_line
    from remit.surfaces.shutdown import quitting_at_signals

    if not deadline.has_begun:
        deadline.begin()
        write_notes(stopping_line())
        sys.stderr.flush()
    with quitting_at_signals(_stopped_watching):
        _report_watched(session, fields)


def _stopped_watching() -> str:
    return "Stopped watching."


def _report_watched(session: Session, fields: dict[str, Any]) -> None:
    """Print that the watch has stopped, and the state of its task."""
    reported: list[str] = []
    if "task_id" in fields:
        task_ids = [fields["task_id"]]
        report_stopped(session, task_ids, lambda *lines: reported.extend(lines), session.unattended)
    plain = (line.removeprefix("Stopped waiting. ").removeprefix("Stopped. ") for line in reported)
    write_notes(_stopped_watching(), *plain)
