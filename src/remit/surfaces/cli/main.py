"""The command line: finds the command, carries it out, shows the answer, and says what went wrong."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from remit.errors import Internal, InvalidParam, RemitError
from remit.surfaces.cli.command import Command, OpenHost, Session, WrongUse
from remit.surfaces.cli.host import Result
from remit.surfaces.cli.menu import COMMANDS
from remit.surfaces.cli.parser import Printed, parse
from remit.surfaces.cli.read import as_typed, fields_of
from remit.surfaces.cli.screen import Screen
from remit.surfaces.display import display, display_line

_OPTIONS = ("workspace", "database_url", "url", "host", "port", "concurrency")
_PIPE_CLOSED, _INTERRUPTED = 141, 130


def main(argv: Sequence[str], open_host: OpenHost) -> int:
    """Carry out a command line; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign gets a question mark, not an error.
        getattr(stream, "reconfigure", dict)(errors="replace")
    try:
        code = _guarded(argv, open_host)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return _PIPE_CLOSED
    except OSError as error:
        _forget_output()
        return _report(_refused(error), ())
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _guarded(argv: Sequence[str], open_host: OpenHost) -> int:
    try:
        command, given = parse(argv)
        return _carry_out(command, given, open_host)
    except Printed as asked:
        sys.stdout.write(str(asked))
        return 0
    except SystemExit as left:  # argparse, after the help of a command
        return left.code if isinstance(left.code, int) else 0
    except RemitError as error:
        return _report(error, argv)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _report(_refused(error), argv)


def _refused(error: OSError) -> RemitError:
    return Internal(f"The system refused: {error}.")


def _carry_out(command: Command, given: dict[str, Any], open_host: OpenHost) -> int:
    fields = fields_of(command.arguments, given)
    options = {name: fields.pop(name) for name in _OPTIONS if name in fields}
    session = Session(open_host, {name: given.get(name) for name in _OPTIONS} | options)
    try:
        fields = command.prepare(session, fields)
        answer = session.call(command.act, **fields) if isinstance(command.act, str) else command.act(session, fields)
    except InvalidParam as error:
        raise error if given.get("json") else as_typed(error, command.arguments, given) from None
    screen = None if given.get("json") else Screen(session.call, session.unattended)
    if not isinstance(answer, Iterator):
        _tell(command, answer, screen, 2 if sys.stdout.isatty() else None)
        return command.code(answer)
    code = 0
    for item in answer:
        _tell(command, item, screen)
        sys.stdout.flush()
        code = command.code(item)
    return code


def _tell(command: Command, answer: Result, screen: Screen | None, indent: int | None = None) -> None:
    if screen is None:
        _print_json(answer, indent)
    else:
        command.show(answer, screen)


def _print_json(answer: Result, indent: int | None = None) -> None:
    """Exact, and safe to show: all but printable ASCII is escaped."""
    from json import dumps

    sys.stdout.write(dumps(answer, indent=indent).replace("\x7f", "\\u007f") + "\n")


def _report(error: RemitError, argv: Sequence[str]) -> int:
    if "--json" in argv:
        _print_json(error.wire())
        return error.exit_code
    usage = error.usage if isinstance(error, WrongUse) else ""
    hint = f"{display_line(_in_commands(error.hint))}\n" if error.hint else ""
    sys.stderr.write(f"{display(usage)}error: {display_line(error.message)}\n{hint}")
    return error.exit_code


def _in_commands(hint: str) -> str:
    """A hint with commands in place of the operations it names."""
    import re

    # The first command of an operation is the one that people know best.
    commands = {command.act: f"'remit {path}'" for path, command in reversed(COMMANDS.items()) if isinstance(command.act, str)}
    return re.sub(r"\b[a-z]+_[a-z_]+\b", lambda found: commands.get(found[0], found[0]), hint)


def _forget_output() -> None:
    """Nobody can read on: keep Python from complaining when it flushes at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
