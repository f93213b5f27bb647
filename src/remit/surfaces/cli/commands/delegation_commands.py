"""Commands that run sub-agents and wait for their results."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.delegation_actions import run_agent, run_parallel
from remit.surfaces.cli.actions.exit_codes import work_exit_code
from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.commands.shared_arguments import ALL, ALLOW, EFFORT, MODEL, TEXT
from remit.surfaces.cli.output.result_pages import show_result, show_results
from remit.surfaces.cli.tool_options import resolve_tools

_CHOICES = (
    Argument(
        "--agent",
        "subagent_type",
        "the agent (default: general); see: remit agents list",
        metavar="AGENT",
    ),
    MODEL,
    EFFORT,
)
_TIMEOUT = Argument(
    "--timeout",
    "timeout_seconds",
    "the time limit in seconds (default: 120)",
    arguments.seconds,
    "N",
)
_WORK = (
    *_CHOICES,
    ALLOW,
    _TIMEOUT,
    Argument("--cache", "cache", "reuse the result of an identical read-only task", switch=True),
)

DELEGATION_COMMANDS = (
    Command(
        "run",
        "Run a sub-agent and wait for its result.",
        run_agent,
        show_result,
        (Argument("OBJECTIVE", "objective", f"what to do: {TEXT}", arguments.text), *_WORK, ALL),
        'remit run "Where is the retry policy defined?" --agent explore',
        code=work_exit_code,
        prepare=resolve_tools("subagent_type", "general", anywhere=True),
    ),
    Command(
        "parallel",
        "Run several sub-agents at once and wait for their results.",
        run_parallel,
        show_results,
        (
            Argument(
                "FILE",
                "tasks",
                "a JSON list, or an objective or JSON object on each line; - for standard input",
                arguments.path,
            ),
            *_CHOICES,
            _TIMEOUT._replace(help="the time limit of each in seconds (default: 120)"),
            ALL,
        ),
        (
            """echo '{"objective": "Where are errors handled?", "subagent_type": "explore"}' """
            "| remit parallel -"
        ),
        code=work_exit_code,
    ),
)
