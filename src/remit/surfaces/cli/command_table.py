"""The table of all commands."""

from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.commands.agent_commands import AGENT_COMMANDS, GUIDE_COMMANDS
from remit.surfaces.cli.commands.delegation_commands import DELEGATION_COMMANDS
from remit.surfaces.cli.commands.inbox_commands import INBOX_COMMANDS, INTERACT_COMMANDS
from remit.surfaces.cli.commands.task_commands import TASK_COMMANDS
from remit.surfaces.cli.commands.task_content_commands import TASK_CONTENT_COMMANDS
from remit.surfaces.cli.commands.task_history_commands import TASK_HISTORY_COMMANDS
from remit.surfaces.cli.commands.worker_commands import (
    SCHEDULE_COMMANDS,
    SESSION_COMMANDS,
    WORKER_COMMANDS,
)
from remit.surfaces.cli.commands.workspace_commands import INIT, WORKSPACE_COMMANDS

GROUPS = {
    "": "Delegate work to AI agents as durable tasks.",
    "task": "Create, inspect, change and end tasks.",
    "task resource": "Add and remove the resources of a task.",
    "guide": "Manage troubleshooting guides.",
    "session": "Work with sessions of other agent programs.",
    "schedule": "Show or trigger scheduled runs.",
    "agents": "List, check and create agents.",
    "interact": "List and answer questions from agents.",
    "token": "Show the token of the server.",
}
"""Groups of commands, each with its heading."""

COMMON = (
    Argument(
        "--workspace",
        "workspace",
        "the workspace folder (default: the nearest folder upward with .remit/)",
        metavar="DIR",
    ),
    Argument(
        "--database-url",
        "database_url",
        "use this database instead of the workspace's",
        metavar="URL",
    ),
    Argument("--url", "url", "use this server instead of opening the database", metavar="URL"),
)
"""Options that select the store; accepted before and after every command."""
JSON = Argument("--json", "json", "print the result of the operation as JSON", switch=True)

_COMMANDS = (
    INIT,
    *TASK_COMMANDS,
    *TASK_CONTENT_COMMANDS,
    *TASK_HISTORY_COMMANDS,
    *DELEGATION_COMMANDS,
    *INBOX_COMMANDS,
    *GUIDE_COMMANDS,
    *AGENT_COMMANDS,
    *INTERACT_COMMANDS,
    *WORKER_COMMANDS,
    *SESSION_COMMANDS,
    *SCHEDULE_COMMANDS,
    *WORKSPACE_COMMANDS,
)
COMMANDS: dict[str, Command] = {command.path: command for command in _COMMANDS}
"""Every command by its words, in the order of the help."""
