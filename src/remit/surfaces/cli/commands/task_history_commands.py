"""Commands that show the history of tasks and follow their events."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.delegation_actions import read_result
from remit.surfaces.cli.actions.exit_codes import work_exit_code
from remit.surfaces.cli.actions.watch_actions import tell_watch_ended, watch
from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.commands.shared_arguments import PAGE, TASK
from remit.surfaces.cli.output.result_pages import show_result, show_transcript
from remit.surfaces.cli.output.tables import show_event, show_events, show_tasks, show_updates

TASK_HISTORY_COMMANDS = (
    Command(
        "task history",
        "List ended tasks, newest first.",
        "list_history",
        show_tasks("No task has ended yet."),
        PAGE,
    ),
    Command(
        "task events",
        "Show the events of a task, in order.",
        "get_events",
        show_events,
        (
            TASK,
            Argument(
                "--after", "after", "only events after this version", arguments.number, "VERSION"
            ),
            PAGE[0],
        ),
    ),
    Command(
        "task transcript",
        "Show the conversation of a task with its model and tools.",
        "get_transcript",
        show_transcript,
        (
            TASK,
            Argument("--after", "after", "only messages after this number", arguments.number, "N"),
        ),
    ),
    Command(
        "task result",
        "Show the result of a task, or its state.",
        read_result,
        show_result,
        (
            TASK,
            Argument(
                "--wait", "wait_seconds", "wait up to N seconds for its end", arguments.seconds, "N"
            ),
            Argument(
                "--offset",
                "offset",
                "skip the first N characters of the result",
                arguments.number,
                "N",
            ),
        ),
        code=work_exit_code,
    ),
    Command(
        "task updates",
        "Show the updates of a task and whether they were delivered.",
        "list_updates",
        show_updates,
        (
            TASK,
            Argument("--after", "after", "only updates after this number", arguments.number, "N"),
        ),
    ),
    Command(
        "task watch",
        "Follow events of all tasks, or of one task until it ends.",
        watch,
        show_event,
        (
            TASK._replace(
                help="only this task, which then counts as awaited; the exit code shows how it"
                " ended",
                optional=True,
            ),
            Argument("--after", "after", "start after this event position", metavar="POSITION"),
        ),
        code=work_exit_code,
        interrupted=tell_watch_ended,
    ),
)
