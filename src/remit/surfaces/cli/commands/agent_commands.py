"""Commands about guides and agents."""

from remit.surfaces.cli import arguments
from remit.surfaces.cli.actions.exit_codes import check_exit_code
from remit.surfaces.cli.actions.host_actions import check_agents, create_agent_file
from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.commands.shared_arguments import MODEL, PAGE, TEXT
from remit.surfaces.cli.output.agent_pages import show_agent, show_agent_check, show_guide
from remit.surfaces.cli.output.tables import show_agent_file, show_agents, show_guides, show_phrase

GUIDE_COMMANDS = (
    Command(
        "guide add",
        "Add a troubleshooting guide.",
        "create_guide",
        show_phrase("Added guide {guide_id}"),
        (
            Argument("TITLE", "title", "the title"),
            Argument("TEXT", "body", f"the text of the guide: {TEXT}", arguments.text),
            Argument("--id", "id", "its id (default: made from the title)", metavar="GUIDE"),
        ),
        'remit guide add "Flaky network" @network.md',
    ),
    Command("guide list", "List guides.", "list_guides", show_guides, PAGE),
    Command(
        "guide show",
        "Show a guide.",
        "get_guide",
        show_guide,
        (Argument("GUIDE", "guide_id", "its id"),),
    ),
)

AGENT_COMMANDS = (
    Command("agents list", "List agents.", "list_agents", show_agents, PAGE),
    Command(
        "agents show",
        "Show an agent.",
        "get_agent",
        show_agent,
        (Argument("AGENT", "agent_id", "its id"),),
    ),
    Command(
        "agents check",
        "Check every agent file and show how each field is used. Exits with 1 if there is a"
        " problem.",
        check_agents,
        show_agent_check,
        code=check_exit_code,
    ),
    Command(
        "agents new",
        "Create a commented file for a new agent.",
        create_agent_file,
        show_agent_file,
        (
            Argument("ID", "agent_id", "its id: letters, digits and dashes"),
            Argument(
                "--description", "description", f"when to use it: {TEXT}", arguments.text, "TEXT"
            ),
            Argument(
                "--tools", "tools", "its tools, separated by commas", arguments.names, "TOOLS"
            ),
            MODEL,
        ),
        'remit agents new reviewer --description "Reviews a change." --tools Read,Grep,Glob',
    ),
)
