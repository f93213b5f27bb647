"""Commands about the workspace and its store, and about the command line itself."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.exit_codes import health_exit_code
from remit.surfaces.cli.actions.help_actions import print_completion, show_help
from remit.surfaces.cli.actions.host_actions import (
    examine,
    export_store,
    import_store,
    init_workspace,
    migrate,
    read_token,
    speak_mcp,
)
from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.commands.shared_arguments import MCP_TOOLS
from remit.surfaces.cli.output.doctor_page import show_doctor
from remit.surfaces.cli.output.tables import (
    show_export,
    show_import,
    show_lines,
    show_nothing,
    show_phrase,
    show_workspace,
)

INIT = Command(
    "init",
    "Create a workspace in this folder.",
    init_workspace,
    show_workspace,
    (
        Argument(
            "--allow-edits",
            "allow_edits",
            "allow build and general to change files and run sandboxed commands",
            switch=True,
        ),
        Argument(
            "--no-allow-edits",
            "no_allow_edits",
            "allow build and general only to read, and do not ask",
            switch=True,
        ),
    ),
    "remit init --allow-edits",
)

WORKSPACE_COMMANDS = (
    Command(
        "migrate",
        "Upgrade the store to the schema of this version.",
        migrate,
        show_phrase("The {store} store has schema {schema}"),
    ),
    Command(
        "mcp",
        "Start an MCP server on standard input and output.",
        speak_mcp,
        show_nothing,
        (Argument("--tools", "mcp_tools", f"the tools to list: {MCP_TOOLS}", metavar="TOOLS"),),
        "remit mcp --tools core",
        data=False,
    ),
    Command(
        "export",
        "Export all events to a file, or all tasks to a folder.",
        export_store,
        show_export,
        (
            Argument("WHAT", "what", "events or tasks", choices=("events", "tasks")),
            Argument("PATH", "path", "the file or folder to write", arguments.path),
        ),
        "remit export events backup.jsonl",
    ),
    Command(
        "import",
        "Import an export into an empty store.",
        import_store,
        show_import,
        (Argument("PATH", "path", "the file or folder", arguments.path),),
    ),
    Command(
        "doctor",
        "Show settings and their sources, the store and the workers.",
        examine,
        show_doctor,
        (
            Argument(
                "--verify",
                "verify",
                "verify all hashes, versions and rows of the store",
                switch=True,
            ),
            Argument("--fix", "fix", "repair what can be repaired safely", switch=True),
            Argument(
                "--accept-rollback",
                "accept_rollback",
                "accept a store that went back in time; new ids start above the old ones",
                switch=True,
            ),
        ),
        code=health_exit_code,
    ),
    Command(
        "help",
        "Show the help of a command or a group of commands.",
        show_help,
        show_nothing,
        (
            Argument(
                "COMMAND", "words", "the command, such as: task create", many="list", optional=True
            ),
        ),
        "remit help task create",
        data=False,
    ),
    Command(
        "token show",
        "Print the token that the server requires.",
        read_token,
        show_phrase("{token}"),
    ),
    Command(
        "completion",
        "Print a shell script that completes commands, options, agents, tasks and states.",
        print_completion,
        show_lines("script"),
        (
            Argument(
                "SHELL",
                "shell",
                "bash, zsh or fish",
                choices=("bash", "zsh", "fish"),
                optional=True,
            ),
            Argument(
                "--names",
                "names",
                "print completions for one kind of id, for the script",
                metavar="KIND",
                choices=("agents", "tasks", "live", "unpaused", "paused", "ended", "questions"),
            ),
        ),
        'eval "$(remit completion bash)"  # in ~/.bashrc\n'
        'autoload -U compinit && compinit; eval "$(remit completion zsh)"  # in ~/.zshrc\n'
        "remit completion fish > ~/.config/fish/completions/remit.fish",
        data=False,
    ),
)
