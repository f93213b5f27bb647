"""A command: its name, its arguments, its action and how the answer is shown."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import Any, Literal, NamedTuple

from remit.errors import RemitError
from remit.surfaces.cli.cli_host import Host, Result
from remit.surfaces.cli.output.next_steps import outlook
from remit.surfaces.cli.output.terminal import Screen

Options = dict[str, Any]
OpenHost = Callable[[Options], Host]
Read = Callable[[str, str], Any]


class WrongUse(RemitError):
    """The command line is invalid; `usage` shows a valid one."""

    code, status, exit_code = "INVALID_PARAM", 422, 2

    def __init__(self, message: str, *, hint: str = "", usage: str = "") -> None:
        super().__init__(message, hint=hint)
        self.usage = usage


class Session:
    """One run of the command line; the workspace is opened on first use."""

    def __init__(self, open_host: OpenHost, options: Options) -> None:
        self._open, self._options = open_host, options
        self.has_changes = True
        """False for a command that changes things but was given no change."""

    @cached_property
    def host(self) -> Host:
        """The workspace, its store or a server."""
        return self._open(self._options)

    def call(self, operation: str, **fields: Any) -> Result:
        """Run an operation of the catalog."""
        with self._waiting():
            return self.host.call(operation, fields)

    def unattended(self, task_id: str) -> bool:
        """Return True if no live worker works on a task."""
        with self._waiting():
            return self.host.unattended(task_id)

    def _waiting(self) -> AbstractContextManager[object]:
        """Print reminders while a server does not answer a call."""
        url = self.host.server
        if url is None:
            return nullcontext()
        # A command that uses a server does not need a fast start.
        from threading import current_thread, main_thread

        from remit.surfaces.cli.silence_reminder import Reminder, waiting_for_server

        # In other threads, the command already prints its progress.
        is_main = current_thread() is main_thread()
        return Reminder(waiting_for_server(url)) if is_main else nullcontext()

    def outlook(self, task: Result) -> str:
        """Return what happens next to a task, and what a person can do about it."""
        from datetime import UTC, datetime

        return outlook(task, self.unattended, datetime.now(UTC), self.host.server)


def verbatim(value: str, _name: str) -> Any:
    """Return a value as it was typed."""
    return value


class Argument(NamedTuple):
    """An argument of a command and the field it sets: `--name` is an option, `NAME` is positional.

    A dotted field is a part of a field; an empty field takes a mapping of fields. `many` collects
    into a list or one mapping. `switch` is the value of an option that takes none.
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
    def is_option(self) -> bool:
        """True for an option, False for a positional argument."""
        return self.name.startswith("-")

    @property
    def key(self) -> str:
        """The name under which argparse stores it."""
        return self.name.lstrip("-").replace("-", "_").lower()


Act = Callable[[Session, dict[str, Any]], Result | Iterator[Result]]
Prepare = Callable[[Session, dict[str, Any]], dict[str, Any]]
Show = Callable[[Result, Screen], None]


def fine(_answer: Result) -> int:
    """Return 0."""
    return 0


def as_given(_session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields unchanged."""
    return fields


def note_no_change(session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields unchanged; record if they only name the place of a change."""
    session.has_changes = bool(fields.keys() - {"task_id", "index", "expected_version"})
    return fields


def nothing_more(_session: Session, _fields: dict[str, Any]) -> None:
    """Print nothing after the answer."""


def stopped(_session: Session, _fields: dict[str, Any]) -> None:
    """Print that an interrupted command has stopped; it may have changed something before."""
    say_stopped("Stopped.")


class Told(KeyboardInterrupt):
    """A Ctrl-C that was already reported to the user."""


def say_stopped(words: str) -> None:
    """Print to standard error that a command has stopped."""
    with suppress(OSError):
        sys.stderr.write(f"{words}\n")


class Command(NamedTuple):
    """A command: `act` is an operation of the catalog or a function; `prepare` converts the fields
    for it.
    """

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
    """Reports the state after Ctrl-C."""
    then: Callable[[Session, dict[str, Any]], None] = nothing_more
    """Prints notes after the answer."""
