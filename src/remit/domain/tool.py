"""The tools of a sub-agent: what each takes, what it does to the world, and what comes back."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol

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


@record
class LS:
    """List a folder of the workspace, folders first."""

    path: Annotated[Path, "The folder: absolute, or relative to the workspace; '.' is the workspace itself."]


@record
class Glob:
    """Find files by a pattern such as '**/*.py' or 'src/*.{ts,tsx}', newest first."""

    pattern: Annotated[Pattern, "*, ?, [a-z], {a,b}, and ** for any folders; without a slash it is looked for in every folder."]
    path: Annotated[Path, "The folder to look in; the workspace if not given."] = "."


@record
class Grep:
    """Search the text of files by a regular expression."""

    pattern: Annotated[Pattern, "A regular expression without look-around or back references."]
    path: Annotated[Path, "The file or folder to search; the workspace if not given."] = "."
    glob: Annotated[Pattern | None, "Only files whose name matches, such as '*.py'."] = None
    output_mode: Annotated[
        Literal["content", "files_with_matches", "count"], "The matching lines, the files that have one, or how many each has."
    ] = "files_with_matches"
    ignore_case: Annotated[bool, Wire("-i"), "Upper and lower case are the same."] = False
    line_numbers: Annotated[bool, Wire("-n"), "Number the lines of `content`."] = True
    after: Annotated[Around | None, Wire("-A"), "Lines of `content` to show after each match."] = None
    before: Annotated[Around | None, Wire("-B"), "Lines of `content` to show before each match."] = None
    around: Annotated[Around | None, Wire("-C"), "Lines of `content` to show on both sides of each match."] = None
    head_limit: Annotated[int | None, Range(1, 10_000), "Only the first lines of the answer."] = None


@record
class Read:
    """Read a text file with line numbers; 2,000 lines unless told otherwise."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    offset: Annotated[int, Range(1, MAX_LINES), "The first line to read."] = 1
    limit: Annotated[int, Range(1, MAX_LINES), "How many lines to read."] = 2000


@record
class Todo:
    """One thing to do."""

    content: Annotated[str, Text(1, 1000, "characters"), "What is to be done."]
    status: Literal["pending", "in_progress", "completed"]
    active_form: Annotated[str | None, Wire("activeForm"), Text(1, 1000, "characters"), "What is said while it is being done."] = None


@record
class TodoWrite:
    """Keep a list of what is to be done in this run; it replaces the list before."""

    todos: Annotated[tuple[Todo, ...], Items(100), "The whole list, in order."]


@record
class Write:
    """Create a text file, or replace all of it; folders on the way are made."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    content: Annotated[Body, "All that the file will hold."]


@record
class Edit:
    """Replace a text in a file; it must occur exactly once, unless all of them are meant."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    old_string: Annotated[Body, "The text as it is in the file, without line numbers."]
    new_string: Annotated[Body, "The text to put in its place."]
    replace_all: Annotated[bool, "Replace every occurrence."] = False


@record
class Change:
    """One replacement of a MultiEdit."""

    old_string: Annotated[Body, "The text as it is after the changes before this one."]
    new_string: Annotated[Body, "The text to put in its place."]
    replace_all: Annotated[bool, "Replace every occurrence."] = False


@record
class MultiEdit:
    """Make several replacements in one file, one after the other: all of them or none."""

    file_path: Annotated[Path, "The file: absolute, or relative to the workspace."]
    edits: Annotated[tuple[Change, ...], Items(100), "The replacements, in order."]


@record
class Bash:
    """Run a shell command in the workspace, without a network; what it leaves running ends with it."""

    command: Annotated[str, Text(1, MAX_COMMAND), "What bash is to run."]
    timeout: Annotated[int, Range(1, MAX_TIMEOUT_MS), "Milliseconds after which it is stopped."] = 120_000
    description: Annotated[str | None, Text(0, 1000, "characters"), "What it is for, in a few words."] = None


Input = LS | Glob | Grep | Read | TodoWrite | Write | Edit | MultiEdit | Bash


def clip(text: str, more: str, limit: int = MAX_OUTPUT) -> ToolOutcome:
    """As much of a text as a model is given, cut after a line, with a word on how to see the rest."""
    if len(text) <= limit:
        return ToolOutcome(text)
    kept = text[:limit]
    kept = kept[: kept.rfind("\n", limit // 2) + 1] or kept
    return ToolOutcome(f"{kept.rstrip()}\n[{len(text) - len(kept):,} characters left out. {more}]", cut=True)
