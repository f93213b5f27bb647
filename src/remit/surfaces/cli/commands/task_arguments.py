"""Arguments of commands that create or change a task."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.command import Argument
from remit.surfaces.cli.commands.shared_arguments import ALLOW, EFFORT, MODEL, TEXT

PRIORITIES = ("urgent", "high", "normal", "low", "0", "1", "2", "3", "4")
LISTS = ("acceptance", "outputs", "depends-on", "labels", "metadata", "limits")

WORDS = (
    Argument("--instructions", "instructions", f"what to do: {TEXT}", arguments.text, "TEXT"),
    Argument(
        "--description", "description", f"background and context: {TEXT}", arguments.text, "TEXT"
    ),
    Argument(
        "--accept",
        "acceptance",
        "an acceptance criterion; {JSON} can have a check; repeatable",
        arguments.criterion,
        "TEXT",
        many="list",
    ),
    Argument(
        "--output",
        "outputs",
        "a required output: NAME or NAME:json|file|url; NAME? is optional; {JSON} can have a"
        " schema; repeatable",
        arguments.output,
        "NAME",
        many="list",
    ),
)
TRAITS = (
    Argument(
        "--priority",
        "priority",
        "urgent, high, normal, low, or 0 to 4",
        arguments.priority,
        "WHICH",
        PRIORITIES,
    ),
    Argument(
        "--depends-on",
        "depends_on",
        "a task that must be done first; TASK:settled accepts any ending; repeatable",
        arguments.dependency,
        "TASK",
        many="list",
    ),
    Argument("--label", "labels", "a label; repeatable", metavar="WORD", many="list"),
    Argument(
        "--set",
        "metadata",
        "metadata: KEY=JSON, or KEY=text; repeatable",
        arguments.setting,
        "KEY=VALUE",
        many="map",
    ),
    Argument(
        "--limits",
        "limits",
        "a limit, such as max_turns=20 or timeout_seconds=600; repeatable",
        arguments.amounts,
        "NAME=N",
        many="map",
    ),
)
BRIEF = (
    *WORDS,
    Argument(
        "--step", "steps", "a step of the plan; repeatable", arguments.step, "TITLE", many="list"
    ),
    Argument(
        "--resource",
        "resources",
        "a URL or a file for the task; repeatable",
        arguments.resource,
        "URL|FILE",
        many="list",
    ),
    Argument("--guide", "tsgs", "the id of a guide; repeatable", metavar="GUIDE", many="list"),
    *TRAITS,
    Argument(
        "--timeout", "limits.timeout_seconds", "the time limit in seconds", arguments.seconds, "N"
    ),
    MODEL,
    EFFORT,
    ALLOW,
    Argument(
        "--deny",
        "tools.deny",
        "tools that are denied, separated by commas",
        arguments.names,
        "TOOLS",
    ),
    Argument(
        "--explicit",
        "completion",
        "complete only with complete_task, not with a final message",
        switch="explicit",
    ),
    Argument("--draft", "status", "create it as a draft, which does not start", switch="draft"),
    Argument(
        "--not-before",
        "schedule.not_before",
        "the earliest start, such as 2030-01-31T08:00:00Z",
        metavar="INSTANT",
    ),
    Argument(
        "--cron",
        "schedule.cron",
        "repeat the task on this schedule: five cron fields",
        metavar="FIELDS",
    ),
    Argument("--channel", "channel", "the channel of its conversation", metavar="NAME"),
    Argument(
        "--session", "session_id", "the outside session that will work on it", metavar="SESSION"
    ),
    Argument(
        "--parent-session", "parent_session", "the session that creates it", metavar="SESSION"
    ),
    Argument(
        "--idempotency-key",
        "idempotency_key",
        "repeating a call with the same key returns the same task",
        metavar="KEY",
    ),
)
