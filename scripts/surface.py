"""Reference pages of the surfaces: operations, commands, settings."""

from remit.catalog import OPERATIONS, Operation
from remit.config import KNOWN, TABLES, variable_of
from remit.domain.choice import FIELDS, TIERS
from remit.surfaces.cli.command import Command
from remit.surfaces.cli.menu import COMMANDS
from scripts.reference import default, doc, field_table, page, parts_of, section, table


def operations_page() -> str:
    """Every operation: where it is found, its fields, and the parts they are made of."""
    kinds = [operation.input for operation in OPERATIONS.values()]
    intro = (
        "# Operations\n\nWhat can be asked of remit: the same name, fields, defaults and errors as a method in Python, as a REST call and as an MCP"
        " tool. Fields that are not listed are refused."
    )
    parts = [_operation(operation) for operation in OPERATIONS.values()]
    values = [section(f"### {kind.__name__}", kind, described=True) for kind in parts_of(kinds)]
    return page(intro, *parts, "## Values", *values)


def _operation(operation: Operation) -> str:
    asked = "" if operation.alias_of else f"\n\n{field_table(operation.input, described=True)}"
    return f"## {operation.name}\n\n{doc(operation.input)}\n\n{_place(operation)}{asked}"


def _place(operation: Operation) -> str:
    if operation.alias_of:
        return f"The same as [{operation.alias_of}](#{operation.alias_of})."
    if operation.audience == "agents":
        return "Offered to running agents alone."
    effect = {"read": "Changes nothing", "write": "Changes the task", "destroy": "Ends or removes something"}[operation.effect]
    again = "; doing it twice is doing it once" if operation.idempotent and operation.effect != "read" else ""
    properties = list(operation.output["properties"])
    returns = ", ".join(f"`{name}`" for name in properties[:6]) + (" and more" if len(properties) > 6 else "")
    return f"`{operation.method} {operation.path}`. {effect}{again}. Returns {returns}."


def commands_page() -> str:
    """Every command of the command line."""
    intro = (
        "# Command line\n\n`--workspace DIR`, `--database-url URL` and `--url URL` are understood by every command;"
        " every command that prints data has `--json`. `remit COMMAND --help` says the same."
    )
    return page(intro, *(_command(command) for command in COMMANDS.values()))


def _command(command: Command) -> str:
    rows = [[f"`{item.name}`", item.help] for item in command.arguments]
    lines = "".join(f"    {line}\n" for line in command.example.splitlines())
    example = f"\n\n{lines.rstrip()}" if lines else ""
    return f"## remit {command.path}\n\n{command.summary}{example}" + (f"\n\n{table(['argument', 'what it is'], rows)}" if rows else "")


def settings_page() -> str:
    """Every setting, and how it is set."""
    intro = (
        "# Settings\n\nLater wins: the default, `.remit/config.toml`, the user's `~/.config/remit/config.toml`, the environment, an option."
        " An empty variable counts as unset; `url` and `token` are not read from a workspace, which somebody else may have made."
        " `remit doctor` shows what is in force and where it comes from."
    )
    rows = [[f"`{name}`", "" if name in TABLES else f"`{variable_of(name)}`", default(value or None), text] for name, (value, text) in KNOWN.items()]
    variables = {
        field: " ".join(f"`{prefix}_{name}`" for prefix in TIERS.values())
        for field, name in (
            ("model", "MODEL_ID"),
            ("base_url", "BASE_URL"),
            ("api_key", "API_KEY"),
            ("stream", "STREAM"),
            ("concurrency", "CONCURRENCY"),
        )
    }
    workspace = ["", "`REMIT_WORKSPACE`", "found upward from here", "The folder with `.remit/`."]
    models = (
        "## Models\n\n`[models.main]` and `[models.light]` in a file, each with these; what `light` does not set is as for `main`."
        " A workspace names an address only with a key of its own, and reads no variables; see [models](../howto/models.md)."
    )
    named = [[f"`{name}`", variables.get(name, ""), text] for name, text in FIELDS.items()]
    return page(
        intro,
        table(["in a file", "in the environment", "default", "what it is"], [*rows, workspace]),
        models,
        table(["in a file", "in the environment", "what it is"], named),
    )
