"""The tools of a sub-agent: their parameters, effects and outcomes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol, cast

from remit.domain.agents.media import Media
from remit.domain.records.json_schema import Schema
from remit.domain.records.record import MEGABYTE, Items, Range, Text, Wire, record
from remit.domain.text.truncation import beginning

MAX_OUTPUT = 30_000
"""The number of characters of a tool result that reach the model."""

MAX_COMMAND = 30_000
MAX_LINES = 1_000_000
READ_LINES = 2_000
"""The number of lines that Read returns by default."""
MAX_TIMEOUT_MS = 600_000

Path = Annotated[str, Text(1, 4096)]
Pattern = Annotated[str, Text(1, 1000, "characters")]
Body = Annotated[str, Text(0, MEGABYTE)]
Around = Annotated[int, Range(0, 100)]
FileType = Annotated[str, Text(1, 30, "characters")]


class ToolSpec(NamedTuple):
    """A tool that is offered to a model."""

    name: str
    description: str
    parameters: Schema
    effects: bool
    """It changes something outside the conversation."""
    repeatable: bool
    """It is safe to repeat after a crash."""


class ToolOutcome(NamedTuple):
    """The result of a tool for the model; failures are returned, not raised."""

    text: str
    is_error: bool = False
    cut: bool = False
    """The result was truncated; the text says how to get the rest."""
    denied: bool = False
    """The call was not allowed and did nothing, so it does not count as a use of the tool."""
    media: Media | None = None
    """An image or a PDF, for a model that accepts them."""


class Signal(Protocol):
    """A signal that is set once, such as an asyncio.Event."""

    def is_set(self) -> bool:
        """Return whether it is set."""
        ...

    async def wait(self) -> object:
        """Return once it is set."""
        ...


class ToolCallRequest(NamedTuple):
    """A tool call from a model: its raw arguments, and the tools that its task is granted."""

    tool: str
    arguments: Mapping[str, Any]
    granted: frozenset[str]
    deadline_seconds: float
    cancel: Signal
    operations: Collection[str] = ()
    """Operations of remit that the task can call besides tools."""
    takes_media: bool = False
    """The model accepts images and PDFs."""


@record
class LS:
    """List the names in a folder, folders first."""

    path: Annotated[Path, "The folder; the workspace if left out."] = "."


@record
class Glob:
    """Find files by name, newest first."""

    pattern: Annotated[
        Pattern, "Such as '**/*.py' or 'src/*.{ts,tsx}'; '*.md' matches in every folder."
    ]
    path: Annotated[Path, "The folder to search; the workspace if left out."] = "."


@record
class Grep:
    """Search the text of files with a regular expression; .gitignore is respected."""

    pattern: Annotated[Pattern, "A regular expression without look-around or back references."]
    path: Annotated[Path, "The file or folder to search; the workspace if left out."] = "."
    glob: Annotated[Pattern | None, "Only files that match, such as '*.py' or '!*.min.js'."] = None
    type: Annotated[FileType | None, "Only files of a type, such as py, js, ts, rust, go."] = None
    output_mode: Annotated[
        Literal["content", "files_with_matches", "count"],
        "Return matching lines, file names, or the number of matching lines in each file.",
    ] = "files_with_matches"
    ignore_case: Annotated[bool, Wire("-i"), "Ignore case."] = False
    line_numbers: Annotated[bool, Wire("-n"), "content: number the lines."] = True
    after: Annotated[Around | None, Wire("-A"), "content: lines to add after each match."] = None
    before: Annotated[Around | None, Wire("-B"), "content: lines to add before each match."] = None
    around: Annotated[Around | None, Wire("-C"), "content: lines to add on both sides."] = None
    multiline: Annotated[bool, "Let a match span lines; . then matches newlines too."] = False
    head_limit: Annotated[int | None, Range(1, 10_000), "Return only the first lines."] = None


@record
class Read:
    """Read a text file with line numbers, 2,000 lines at a time, or see an image or a PDF."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    offset: Annotated[int, Range(1, MAX_LINES), "The first line to read."] = 1
    limit: Annotated[int, Range(1, MAX_LINES), "The number of lines to read."] = READ_LINES


TodoText = Annotated[str, Text(1, 1000, "characters")]


@record
class Todo:
    """One step."""

    content: Annotated[TodoText, "What to do, in at most 60 characters if possible."]
    status: Literal["pending", "in_progress", "completed"]
    active_form: Annotated[TodoText | None, Wire("activeForm"), "Ignored."] = None


@record
class TodoWrite:
    """Write the plan of your task: the whole list of steps, which replaces the previous one."""

    todos: Annotated[tuple[Todo, ...], Items(100), "All steps, in order."]


@record
class Write:
    """Create a text file or replace its whole content. Missing folders are created."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    content: Annotated[Body, "The whole content of the file."]


@record
class Edit:
    """Replace text in a file. It must occur exactly once, unless replace_all is set."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    old_string: Annotated[Body, "The exact text in the file, without line numbers."]
    new_string: Annotated[Body, "The text to put in its place."]
    replace_all: Annotated[bool, "Replace every occurrence."] = False


@record
class Change:
    """One replacement of a MultiEdit."""

    old_string: Annotated[Body, "The exact text, after the replacements before this one."]
    new_string: Annotated[Body, "The text to put in its place."]
    replace_all: Annotated[bool, "Replace every occurrence."] = False


@record
class MultiEdit:
    """Make several replacements in one file, in order: all of them or none."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    edits: Annotated[tuple[Change, ...], Items(100), "The replacements, in order."]


@record
class Bash:
    """Run a shell command in the workspace. Processes that it leaves running are ended."""

    command: Annotated[str, Text(1, MAX_COMMAND), "The command, for bash."]
    timeout: Annotated[int, Range(1, MAX_TIMEOUT_MS), "Time limit in milliseconds."] = 120_000
    description: Annotated[
        str | None, Text(0, 1000, "characters"), "Its purpose, in a few words."
    ] = None


Input = LS | Glob | Grep | Read | TodoWrite | Write | Edit | MultiEdit | Bash


def without_blanks(arguments: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return the arguments of a model's call without optional texts that have no words.

    Models fill in fields that they mean to leave out. People and programs get an error instead.
    """
    properties, required = schema.get("properties", {}), schema.get("required", ())
    return {
        name: _without_blanks(value, properties.get(name, {}))
        for name, value in arguments.items()
        if name in required or not _is_blank(value, properties.get(name, {}))
    }


def _is_blank(value: Any, schema: Schema) -> bool:
    is_text = any(form.get("type") == "string" for form in (schema, *schema.get("anyOf", ())))
    return is_text and isinstance(value, str) and not value.strip()


def _without_blanks(value: Any, schema: Schema) -> Any:
    """Return the same for the objects in a list."""
    if not isinstance(value, list):
        return value
    items, inner = cast("Sequence[Any]", value), schema.get("items", {})
    return [
        without_blanks(cast("Mapping[str, Any]", item), inner)
        if isinstance(item, Mapping)
        else item
        for item in items
    ]


def clip(text: str, more: str, limit: int = MAX_OUTPUT) -> ToolOutcome:
    """Truncate a text for a model after a line, with a note on how to see the rest."""
    if len(text) <= limit:
        return ToolOutcome(text)
    kept = beginning(text, limit)
    return ToolOutcome(
        f"{kept.rstrip()}\n[{len(text) - len(kept):,} characters left out. {more}]", cut=True
    )
