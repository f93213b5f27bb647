"""What a command of the command line is: a row with a name, arguments, what it does and how the answer is shown."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from shlex import quote
from typing import Any, Literal, NamedTuple

from remit.errors import RemitError
from remit.surfaces.cli.host import Host, Result
from remit.surfaces.cli.screen import Screen

Options = dict[str, Any]
OpenHost = Callable[[Options], Host]
Read = Callable[[str, str], Any]


class WrongUse(RemitError):
    """The command line cannot be understood; `usage` says how it is meant."""

    code, status, exit_code = "INVALID_PARAM", 422, 2

    def __init__(self, message: str, *, hint: str = "", usage: str = "") -> None:
        super().__init__(message, hint=hint)
        self.usage = usage


class Session:
    """One use of the command line; the workspace is opened when it is first needed."""

    def __init__(self, open_host: OpenHost, options: Options) -> None:
        self._open, self._options = open_host, options

    @cached_property
    def host(self) -> Host:
        """The workspace, its store or a server."""
        return self._open(self._options)

    def call(self, operation: str, **fields: Any) -> Result:
        """Carry out an operation of the catalogue."""
        return self.host.call(operation, fields)

    def unattended(self, task_id: str) -> bool:
        """True if no live worker works on a task."""
        return self.host.unattended(task_id)

    @property
    def worker_command(self) -> str:
        """The command that starts a worker for the same workspace."""
        if self._options.get("database_url"):
            return "remit worker (with the same --database-url)"
        workspace = self._options.get("workspace")
        return f"remit worker --workspace {quote(str(workspace))}" if workspace else "remit worker"


def verbatim(value: str, _name: str) -> Any:
    """A value as it was typed."""
    return value


class Argument(NamedTuple):
    """An argument of a command and the field it fills: `--name` is an option, `NAME` has its place.

    A dotted field is a part of one; an empty field takes a mapping of fields. `many` collects into a list or one mapping.
    `switch` is the value that an option without one stands for.
    """

    name: str
    field: str
    help: str
    read: Read = verbatim
    metavar: str = ""
    choices: tuple[str, ...] = ()
    many: Literal["", "list", "map"] = ""
    optional: bool = False
    switch: Any = None

    @property
    def key(self) -> str:
        """Under what name argparse keeps it."""
        return self.name.lstrip("-").replace("-", "_").lower()


Act = Callable[[Session, dict[str, Any]], Result | Iterator[Result]]
Prepare = Callable[[Session, dict[str, Any]], dict[str, Any]]
Show = Callable[[Result, Screen], None]


def fine(_answer: Result) -> int:
    """The exit code of what cannot go wrong."""
    return 0


def as_given(_session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of what needs no preparation."""
    return fields


def stopped(_session: Session, _fields: dict[str, Any]) -> None:
    """Say that an interrupted command has stopped; it may have changed something before."""
    say_stopped("Stopped.")


class Told(KeyboardInterrupt):
    """Ctrl-C of which the user was told what it stopped."""


def say_stopped(words: str) -> None:
    """Say on standard error that a command has stopped."""
    with suppress(OSError):
        sys.stderr.write(f"{words}\n")


class Command(NamedTuple):
    """One command: `act` is an operation of the catalogue, or what is done instead; `prepare` makes of the fields what it takes."""

    path: str
    summary: str
    act: str | Act
    show: Show
    arguments: tuple[Argument, ...] = ()
    example: str = ""
    data: bool = True
    code: Callable[[Result], int] = fine
    prepare: Prepare = as_given
    interrupted: Callable[[Session, dict[str, Any]], None] = stopped
    """Says after Ctrl-C what is true then."""
