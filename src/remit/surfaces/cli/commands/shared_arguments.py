"""Arguments that are shared by commands of several subjects."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.command import Argument

STATUSES = (
    "draft",
    "active",
    "pending",
    "running",
    "waiting",
    "paused",
    "verifying",
    "done",
    "failed",
    "canceled",
)
TEXT = "TEXT, @FILE, or - for standard input (@@ for a literal @ at the start)"

ALL = Argument(
    "--all",
    "all",
    "while waiting, also run other unfinished tasks, if no worker is running",
    switch=True,
)
MCP_TOOLS = "core, standard (default), all, or a comma-separated list of names"
TASK = Argument("TASK", "task_id", "the task: 42, #42 or its uid")
SESSION = Argument("SESSION", "session_id", "the session")
PAGE = (
    Argument("--limit", "limit", "the maximum number of items", arguments.number, "N"),
    Argument("--cursor", "cursor", "continue after the previous page", metavar="CURSOR"),
)
MODEL = Argument("--model", "model", "main, light, or provider:name", metavar="MODEL")
EFFORT = Argument(
    "--effort", "effort", "reasoning effort: none, low, medium or high", metavar="EFFORT"
)
ALLOW = Argument(
    "--allow",
    "tools.allow",
    "additional tools, separated by commas, such as Edit,Bash",
    arguments.names,
    "TOOLS",
)
