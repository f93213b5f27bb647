"""Commands that change parts of a task: its plan, subtasks, resources, guides and criteria."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.answer_actions import tell_outlook
from remit.surfaces.cli.actions.delegation_actions import create_subtask
from remit.surfaces.cli.actions.exit_codes import work_exit_code
from remit.surfaces.cli.command import Argument, Command, note_no_change
from remit.surfaces.cli.commands.shared_arguments import TASK, TEXT
from remit.surfaces.cli.commands.task_arguments import BRIEF
from remit.surfaces.cli.output.tables import show_change, show_phrase
from remit.surfaces.cli.tool_options import resolve_tools

TASK_CONTENT_COMMANDS = (
    Command(
        "task steps",
        "Replace the plan. A step with a subtask keeps its place and title.",
        "update_steps",
        show_change("Planned"),
        (
            TASK,
            Argument(
                "STEP",
                "steps",
                "a step; start it with [x] if it is done",
                arguments.step,
                many="list",
            ),
        ),
        'remit task steps 3 "[x] Read" "Write"',
    ),
    Command(
        "task step",
        "Change one step of the plan.",
        "update_step",
        show_change("Planned"),
        (
            TASK,
            Argument(
                "INDEX", "index", "the number of the step in task show (from 0)", arguments.number
            ),
            Argument("--done", "done", "mark it as done", switch=True),
            Argument("--undone", "done", "mark it as not done", switch=False),
            Argument("--title", "title", "a new title", metavar="TITLE"),
            Argument("--details", "details", f"new details: {TEXT}", arguments.text, "TEXT"),
        ),
        "remit task step 3 0 --done",
        prepare=note_no_change,
    ),
    Command(
        "task subtask",
        "Create a subtask.",
        create_subtask,
        show_change("Created"),
        (
            TASK._replace(help="the parent task"),
            Argument("TITLE", "title", "a clear, actionable label"),
            Argument("OWNER", "owner", "the agent that works on it"),
            Argument(
                "--for-step",
                "step_index",
                "the step of the parent's plan that it implements (from 0)",
                arguments.number,
                "INDEX",
            ),
            Argument(
                "--wait",
                "wait",
                "wake (default): its end wakes the parent; block: wait for its end; none: neither",
                metavar="HOW",
                choices=("wake", "block", "none"),
            ),
            *BRIEF,
        ),
        'remit task subtask 3 "Look around" explore --for-step 0',
        code=work_exit_code,
        prepare=resolve_tools("owner"),
    ),
    Command(
        "task resource add",
        "Add a URL or a file to a task.",
        "add_resource",
        show_change("Attached it to"),
        (
            TASK,
            Argument("URL|FILE", "", "the URL or file", arguments.resource),
            Argument("--label", "label", "a display name", metavar="NAME"),
        ),
    ),
    Command(
        "task resource remove",
        "Remove a resource from a task.",
        "remove_resource",
        show_change("Removed it from"),
        (
            TASK,
            Argument(
                "INDEX",
                "index",
                "the number of the resource in task show (from 0)",
                arguments.number,
            ),
        ),
    ),
    Command(
        "task guide",
        "Add a troubleshooting guide to a task.",
        "attach_tsg",
        show_phrase("Linked."),
        (TASK, Argument("GUIDE", "tsg_id", "the guide's id")),
    ),
    Command(
        "task waive",
        "Waive an acceptance criterion.",
        "waive_criterion",
        show_change("Waived it for"),
        (
            TASK,
            Argument("CRITERION", "criterion_id", "the id of the criterion in task show"),
            Argument("REASON", "reason", TEXT, arguments.text),
        ),
    ),
    Command(
        "task message",
        "Send a message to the agent of a task.",
        "send_message",
        show_phrase("Sent {update_id}. The agent reads it {delivery}."),
        (TASK, Argument("TEXT", "message", TEXT, arguments.text)),
        then=tell_outlook,
    ),
)
