"""Commands that start workers and servers, and commands for sessions and schedules."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.host_actions import read_schedule, request_tick, serve, work
from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.commands.shared_arguments import MCP_TOOLS, PAGE, SESSION, STATUSES
from remit.surfaces.cli.hook import hook
from remit.surfaces.cli.output.result_pages import show_cancellation, show_schedule, show_tick
from remit.surfaces.cli.output.tables import show_lines, show_nothing, show_tasks

_LOGGING = (
    Argument("-v", "verbose", "also log delivered updates and ended subtasks", switch=True),
    Argument("-q", "quiet", "log only warnings and errors", switch=True),
    Argument(
        "--log-format",
        "log_format",
        "text (default), or json for one object per line; also REMIT_LOG_FORMAT",
        metavar="FORMAT",
    ),
)
_CONCURRENCY = Argument(
    "--concurrency",
    "concurrency",
    "the maximum number of parallel runs (default: 8)",
    arguments.number,
    "N",
)

WORKER_COMMANDS = (
    Command(
        "serve",
        "Start a server for REST and MCP, with a worker.",
        serve,
        show_nothing,
        (
            Argument(
                "--host", "host", "the address to listen on (default: 127.0.0.1)", metavar="ADDRESS"
            ),
            Argument(
                "--port", "port", "the port to listen on (default: 8420)", arguments.number, "N"
            ),
            Argument(
                "--insecure",
                "insecure",
                "allow addresses other than 127.0.0.1 without TLS",
                switch=True,
            ),
            Argument(
                "--no-worker", "no_worker", "do not start a worker in this process", switch=True
            ),
            _CONCURRENCY,
            Argument(
                "--mcp-tools",
                "mcp_tools",
                f"the tools for MCP clients: {MCP_TOOLS}",
                metavar="TOOLS",
            ),
            *_LOGGING,
        ),
        data=False,
    ),
    Command(
        "worker",
        "Start a worker. Several can run, on any machine with access to the database.",
        work,
        show_nothing,
        (
            Argument(
                "--agents",
                "agents",
                "only run these agents, separated by commas (default: all)",
                arguments.names,
                "A,B",
            ),
            _CONCURRENCY,
            *_LOGGING,
        ),
        "remit worker --database-url postgresql://user@host/name --concurrency 16",
        data=False,
    ),
)

SESSION_COMMANDS = (
    Command(
        "session tasks",
        "List the tasks that a session works on or has created.",
        "list_session_tasks",
        show_tasks(
            "This session has no such task. Give it one with: `remit task assign TASK SESSION`"
        ),
        (
            SESSION,
            Argument(
                "--role",
                "role",
                "assigned: it works on them; created: it has created them",
                metavar="ROLE",
                choices=("assigned", "created"),
            ),
            Argument(
                "--status",
                "status",
                "only this status or state",
                metavar="STATUS",
                choices=STATUSES,
            ),
            *PAGE,
        ),
    ),
    Command(
        "session pre-request",
        "Print the assignment of a session, then each update once.",
        "pre_request",
        show_lines("context"),
        (SESSION,),
    ),
    Command(
        "hook",
        "Hook for Claude Code and others: print pending assignments and updates for the session on"
        " stdin.",
        hook,
        show_nothing,
        example='echo \'{"session_id": "s1"}\' | remit hook',
        data=False,
    ),
    Command(
        "session cancel",
        "Cancel all tasks that a session has created, and wait until they have stopped.",
        "cancel_all",
        show_cancellation,
        (SESSION,),
    ),
)

SCHEDULE_COMMANDS = (
    Command("schedule show", "Show the schedule and its next run.", read_schedule, show_schedule),
    Command(
        "schedule tick",
        "Run every task that waits for the schedule now.",
        request_tick,
        show_tick,
    ),
)
