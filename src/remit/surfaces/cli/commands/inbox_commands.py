"""Commands for people: ready tasks, questions, notifications."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.answer_actions import answer_question, tell_outlook
from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.commands.shared_arguments import PAGE, TEXT
from remit.surfaces.cli.output.question_pages import show_inbox
from remit.surfaces.cli.output.tables import show_notifications, show_phrase, show_tasks

INBOX_COMMANDS = (
    Command(
        "ready",
        "List tasks that can start now, most urgent first.",
        "list_ready",
        show_tasks("No task can start now."),
        PAGE,
    ),
    Command(
        "inbox",
        "Show open questions and how to answer them.",
        "list_interactions",
        show_inbox,
        PAGE,
    ),
    Command(
        "notifications",
        "Show notifications from agents, oldest first.",
        "list_notifications",
        show_notifications,
        PAGE,
    ),
)

INTERACT_COMMANDS = (
    Command(
        "interact list",
        "List questions; by default the open ones.",
        "list_interactions",
        show_inbox,
        (
            Argument(
                "--status",
                "status",
                "only this status",
                metavar="STATUS",
                choices=("open", "answered", "closed"),
            ),
            Argument("--task", "task_id", "only questions of this task", metavar="TASK"),
            *PAGE,
        ),
    ),
    Command(
        "interact respond",
        "Answer a question. Only the first answer counts.",
        answer_question,
        show_phrase("Answered."),
        (
            Argument(
                "QUESTION",
                "ref",
                "the question, such as 3-q1, or the task if it has one open question",
            ),
            Argument(
                "ANSWER",
                "answer",
                f"the number of an option, or the answer: {TEXT}",
                arguments.text,
                optional=True,
            ),
            Argument(
                "--option",
                "option",
                "choose an option by its number; needed only if options are numbers themselves",
                arguments.number,
                "N",
            ),
        ),
        "remit interact respond 3-q1 1",
        then=tell_outlook,
    ),
)
