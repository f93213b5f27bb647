"""Reference pages of the surfaces: operations, commands, settings."""

from remit.catalog import OPERATIONS, Operation
from remit.config import KNOWN, PERSONAL, TABLES, variable_of
from remit.domain.llm.selection import FIELDS, TIERS
from remit.surfaces.cli.command import Command
from remit.surfaces.cli.command_table import COMMANDS
from scripts.reference import default, doc, field_table, page, parts_of, section, table


def operations_page() -> str:
    """The page of all operations: their routes, fields and nested records."""
    kinds = [operation.input for operation in OPERATIONS.values()]
    intro = (
        "# Operations\n\nEvery operation is a Python method, a REST call and an MCP tool, with the"
        " same name, fields, defaults and errors. Fields that are not listed are refused."
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
        return "Offered only to running agents."
    effect = {
        "read": "Changes nothing",
        "write": "Changes data",
        "destroy": "Ends or removes something",
    }[operation.effect]
    again = " Idempotent." if operation.idempotent and operation.effect != "read" else ""
    properties = list(operation.output["properties"])
    returns = ", ".join(f"`{name}`" for name in properties[:6]) + (
        " and more" if len(properties) > 6 else ""
    )
    return f"`{operation.method} {operation.path}`. {effect}.{again} Returns {returns}."


def commands_page() -> str:
    """The page of all commands."""
    intro = (
        "# Command line\n\nEvery command accepts `--workspace DIR`, `--database-url URL` and `--url"
        " URL`. Every command that prints data accepts `--json`. `remit COMMAND --help` prints the"
        " same text."
    )
    return page(intro, *(_command(command) for command in COMMANDS.values()))


def _command(command: Command) -> str:
    rows = [[f"`{item.name}`", item.help] for item in command.arguments]
    lines = "".join(f"    {line}\n" for line in command.example.splitlines())
    example = f"\n\n{lines.rstrip()}" if lines else ""
    return f"## remit {command.path}\n\n{command.summary}{example}" + (
        f"\n\n{table(['argument', 'what it is'], rows)}" if rows else ""
    )


def settings_page() -> str:
    """The page of all settings."""
    personal = ", ".join(f"`{name}`" for name in PERSONAL)
    intro = (
        "# Settings\n\nLater sources override earlier ones: the default, `.remit/config.toml`, the"
        " user's `~/.config/remit/config.toml`, the environment, a command-line option. An empty"
        f" variable counts as unset. {personal} are not read from a workspace, because it may come"
        " from someone else. `remit doctor` shows each value and its source."
    )
    rows = [
        [
            f"`{name}`",
            "" if name in TABLES else f"`{variable_of(name)}`",
            default(value or None),
            text,
        ]
        for name, (value, text) in KNOWN.items()
    ]
    variables = {
        field: " ".join(f"`{prefix}_{name}`" for prefix in TIERS.values())
        for field, name in (
            ("model", "MODEL_ID"),
            ("base_url", "BASE_URL"),
            ("api_key", "API_KEY"),
            ("stream", "STREAM"),
            ("media", "MEDIA"),
            ("concurrency", "CONCURRENCY"),
        )
    }
    workspace = ["", "`REMIT_WORKSPACE`", "found upward from here", "The folder with `.remit/`."]
    models = (
        "## Models\n\n`[models.main]` and `[models.light]` in a file have these fields. Fields that"
        " `light` does not set come from `main`. A workspace can set a URL only together with a"
        " key, and cannot use `api_key_env`; see [models](../howto/models.md)."
    )
    named = [[f"`{name}`", variables.get(name, ""), text] for name, text in FIELDS.items()]
    return page(
        intro,
        table(["in a file", "in the environment", "default", "what it is"], [*rows, workspace]),
        models,
        table(["in a file", "in the environment", "what it is"], named),
    )
