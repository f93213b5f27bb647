"""Commands that create, list, show, change and end tasks."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.delegation_actions import run_task
from remit.surfaces.cli.actions.exit_codes import work_exit_code
from remit.surfaces.cli.command import Argument, Command, note_no_change
from remit.surfaces.cli.commands.shared_arguments import ALL, PAGE, STATUSES, TASK, TEXT
from remit.surfaces.cli.commands.task_arguments import BRIEF, LISTS, TRAITS, WORDS
from remit.surfaces.cli.list_filters import check_filters
from remit.surfaces.cli.output.tables import (
    show_canceled_tasks,
    show_change,
    show_completion,
    show_phrase,
    show_run,
    show_tasks,
)
from remit.surfaces.cli.output.task_page import show_task
from remit.surfaces.cli.tool_options import resolve_tools

TASK_COMMANDS = (
    Command(
        "task create",
        "Create a task.",
        "create_task",
        show_change("Created"),
        (
            Argument("TITLE", "title", "a clear, actionable label"),
            Argument("--owner", "owner", "the agent that works on it", metavar="AGENT"),
            *BRIEF,
        ),
        'remit task create "Write the report" --owner general --instructions @brief.md --accept "It'
        ' is short." --output report',
        prepare=resolve_tools("owner"),
    ),
    Command(
        "task list",
        "List draft and active tasks, newest first.",
        "list_tasks",
        show_tasks(
            "No tasks to show. Create one with: `remit task create TITLE --owner AGENT`."
            " See ended ones with: `remit task history`"
        ),
        (
            Argument(
                "--status",
                "status",
                "only this status or state",
                metavar="STATUS",
                choices=STATUSES,
            ),
            Argument("--state", "state", "only this state", metavar="STATE", choices=STATUSES),
            Argument("--owner", "owner", "only tasks of this agent", metavar="AGENT"),
            Argument("--parent", "parent", "only subtasks of this task", metavar="TASK"),
            Argument(
                "--parent-session",
                "parent_session",
                "only tasks that this session created",
                metavar="SESSION",
            ),
            Argument("--label", "label", "only tasks with this label", metavar="WORD"),
            Argument(
                "--scope",
                "scope",
                "tree: the whole tree of --parent",
                metavar="SCOPE",
                choices=("all", "mine", "tree"),
            ),
            *PAGE,
        ),
        "remit task list --status waiting",
        prepare=check_filters,
    ),
    Command("task show", "Show a task.", "get_task", show_task, (TASK,), "remit task show 3"),
    Command(
        "task update",
        "Change a task. Its agent receives new instructions, criteria and outputs.",
        "update_task",
        show_change("Updated"),
        (
            TASK,
            Argument("--title", "title", "a new label", metavar="TITLE"),
            *WORDS,
            Argument(
                "--status",
                "status",
                "active starts a draft; done completes; canceled cancels",
                metavar="STATUS",
                choices=("active", "done", "canceled"),
            ),
            Argument(
                "--owner",
                "owner",
                "another agent; a started task gets a successor",
                metavar="AGENT",
            ),
            *TRAITS,
            Argument(
                "--clear",
                "",
                f"empty one of {', '.join(LISTS)}; repeatable",
                arguments.emptied,
                "FIELD",
                LISTS,
                many="map",
            ),
            Argument(
                "--expected-version",
                "expected_version",
                "refuse the change if the task has another version",
                arguments.number,
                "N",
            ),
        ),
        'remit task update 3 --instructions "Write it in English." --priority high',
        prepare=note_no_change,
    ),
    Command(
        "task complete",
        "Complete a task and provide its outputs.",
        "complete_task",
        show_completion,
        (
            TASK,
            Argument(
                "--output",
                "outputs",
                "NAME=TEXT, NAME=@FILE or NAME:=JSON; repeatable",
                arguments.handed_over,
                "NAME=VALUE",
                many="map",
            ),
            Argument("--summary", "summary", f"the result: {TEXT}", arguments.text, "TEXT"),
        ),
        "remit task complete 3 --output report=@report.md",
    ),
    Command(
        "task fail",
        "End a task as failed.",
        "fail_task",
        show_change("Failed"),
        (TASK, Argument("WHY", "message", TEXT, arguments.text)),
    ),
    Command(
        "task cancel",
        "Cancel a task and its subtasks.",
        "cancel_task",
        show_canceled_tasks,
        (TASK, Argument("--message", "message", f"why: {TEXT}", arguments.text, "TEXT")),
    ),
    Command(
        "task run",
        "Run a task now and wait until it ends or waits. Without a worker, it runs in this"
        " process.",
        run_task,
        show_run,
        (TASK, ALL),
        code=work_exit_code,
    ),
    Command("task pause", "Pause a task.", "pause_task", show_change("Paused"), (TASK,)),
    Command("task resume", "Resume a paused task.", "resume_task", show_change("Resumed"), (TASK,)),
    Command(
        "task rerun",
        "Run an ended task again as a new task.",
        "rerun_task",
        show_change("Created"),
        (TASK,),
    ),
    Command(
        "task assign",
        "Assign a task to a session of another agent program.",
        "assign_task",
        show_phrase("Assigned; the session gets it with its next request."),
        (TASK, Argument("SESSION", "subagent_session_id", "the session that will work on it")),
    ),
)
