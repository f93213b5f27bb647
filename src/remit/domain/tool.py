"""The tools of a sub-agent: what each takes, what it does to the world, and what comes back."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from remit.domain.media import Media
from remit.domain.record import MEGABYTE, Items, Range, Text, Wire, record
from remit.domain.schema import Schema

MAX_OUTPUT = 30_000
"""Characters of a tool's answer that reach the model."""

MAX_COMMAND = 30_000
MAX_LINES = 1_000_000
MAX_TIMEOUT_MS = 600_000

Path = Annotated[str, Text(1, 4096)]
Pattern = Annotated[str, Text(1, 1000, "characters")]
Body = Annotated[str, Text(0, MEGABYTE)]
Around = Annotated[int, Range(0, 100)]
FileType = Annotated[str, Text(1, 30, "characters")]


class ToolSpec(NamedTuple):
    """A tool as it is offered to a model."""

    name: str
    description: str
    parameters: Schema
    effects: bool
    """It changes something outside of the conversation."""
    repeatable: bool
    """Doing it again after a crash does no harm."""


class ToolOutcome(NamedTuple):
    """What a tool has to say to the model; a failure is said too, never raised."""

    text: str
    is_error: bool = False
    cut: bool = False
    """There was more than fits; the text says how to get at the rest."""
    denied: bool = False
    """The call was not allowed, so nothing was done: it does not count as a use of the tool."""
    media: Media | None = None
    """An image or a PDF, for a model that takes them."""


class Signal(Protocol):
    """Something that is set once, such as an asyncio.Event."""

    def is_set(self) -> bool:
        """Whether it was set."""
        ...

    async def wait(self) -> object:
        """Return once it is set."""
        ...


class ToolCallRequest(NamedTuple):
    """One call of a model: arguments are whatever it sent, `granted` is what its task may use."""

    tool: str
    arguments: Mapping[str, Any]
    granted: frozenset[str]
    deadline_seconds: float
    cancel: Signal
    operations: Collection[str] = ()
    """What the task can call beside tools: operations of remit itself."""
    takes_media: bool = False
    """The model can be shown images and PDFs."""


@record
class LS:
    """List the names in a folder, folders first."""

    path: Annotated[Path, "The folder; the workspace if left out."] = "."


@record
class Glob:
    """Find files by name, newest first."""

    pattern: Annotated[Pattern, "Such as '**/*.py' or 'src/*.{ts,tsx}'; '*.md' matches in every folder."]
    path: Annotated[Path, "The folder to search; the workspace if left out."] = "."


@record
class Grep:
    """Search the text of files with a regular expression; .gitignore is respected."""

    pattern: Annotated[Pattern, "A regular expression, without look-around and back references."]
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
    limit: Annotated[int, Range(1, MAX_LINES), "The number of lines to read."] = 2000


TodoText = Annotated[str, Text(1, 1000, "characters")]


@record
class Todo:
    """One step."""

    content: Annotated[TodoText, "What to do, in at most 60 characters if possible."]
    status: Literal["pending", "in_progress", "completed"]
    active_form: Annotated[TodoText | None, Wire("activeForm"), "Not kept."] = None


@record
class TodoWrite:
    """Write the plan of your task: the whole list of steps, which replaces the one before."""

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

    file_path: Annotated[Path, "Path, absolute or relative to the workspace."]
    edits: Annotated[tuple[Change, ...], Items(100), "The replacements, in order."]


@record
class Bash:
    """Run a shell command in the workspace. Processes that it leaves running are ended."""

    command: Annotated[str, Text(1, MAX_COMMAND), "The command, for bash."]
    timeout: Annotated[int, Range(1, MAX_TIMEOUT_MS), "Time limit in milliseconds."] = 120_000
    description: Annotated[str | None, Text(0, 1000, "characters"), "Its purpose, in a few words."] = None


Input = LS | Glob | Grep | Read | TodoWrite | Write | Edit | MultiEdit | Bash


def clip(text: str, more: str, limit: int = MAX_OUTPUT) -> ToolOutcome:
    """As much of a text as a model is given, cut after a line, with a word on how to see the rest."""
    if len(text) <= limit:
        return ToolOutcome(text)
    kept = text[:limit]
    kept = kept[: kept.rfind("\n", limit // 2) + 1] or kept
    return ToolOutcome(f"{kept.rstrip()}\n[{len(text) - len(kept):,} characters left out. {more}]", cut=True)
