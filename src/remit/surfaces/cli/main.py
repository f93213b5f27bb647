"""The command line: finds the command, carries it out, shows the answer, and says what went wrong."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from remit.errors import Internal, InvalidParam, RemitError
from remit.surfaces.cli.command import Command, OpenHost, Session, Told, WrongUse, say_stopped
from remit.surfaces.cli.host import Result
from remit.surfaces.cli.menu import COMMANDS
from remit.surfaces.cli.parser import Printed, parse
from remit.surfaces.cli.read import as_typed, fields_of
from remit.surfaces.cli.screen import Screen, wrapped_for
from remit.surfaces.display import display, display_line

_OPTIONS = ("workspace", "database_url", "url", "host", "port", "concurrency", "mcp_tools", "log_format")
_PIPE_CLOSED, _INTERRUPTED = 141, 130
_NOT_STARTED = "Stopped before anything was started."
_STOPPED = "Stopped."


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
    except KeyboardInterrupt as interrupt:
        _forget_warnings()
        if not isinstance(interrupt, Told):
            say_stopped(_STOPPED)
        return _code_of(interrupt)
    return code


def _code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a command that a signal ended; without one it was Ctrl-C."""
    return 128 + int(interrupt.args[0]) if interrupt.args else _INTERRUPTED


def _guarded(argv: Sequence[str], open_host: OpenHost) -> int:
    try:
        command, given = _understood(argv)
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


def _understood(argv: Sequence[str]) -> tuple[Command, dict[str, Any]]:
    try:
        return parse(argv)
    except KeyboardInterrupt:
        say_stopped(_NOT_STARTED)
        raise Told from None


def _refused(error: OSError) -> RemitError:
    return Internal(f"The system refused: {error}.")


def _carry_out(command: Command, given: dict[str, Any], open_host: OpenHost) -> int:
    fields = fields_of(command.arguments, given)
    options = {name: fields.pop(name) for name in _OPTIONS if name in fields}
    session = Session(open_host, {name: given.get(name) for name in _OPTIONS} | options)
    try:
        fields = _prepared(command, session, fields)
        return _performed(command, session, fields, as_json=bool(given.get("json")))
    except InvalidParam as error:
        raise error if given.get("json") else as_typed(error, command.arguments, given) from None


def _prepared(command: Command, session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    try:
        return command.prepare(session, fields)
    except KeyboardInterrupt:
        say_stopped(_NOT_STARTED)
        raise Told from None


def _performed(command: Command, session: Session, fields: dict[str, Any], *, as_json: bool) -> int:
    try:
        answer = session.call(command.act, **fields) if isinstance(command.act, str) else command.act(session, fields)
        return _show(command, answer, None if as_json else Screen(session.call, session.unattended))
    except Told:
        raise
    except KeyboardInterrupt:
        command.interrupted(session, fields)
        raise Told from None


def _show(command: Command, answer: Result | Iterator[Result], screen: Screen | None) -> int:
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
    if _logs_json(argv):
        _log_json(error)
        return error.exit_code
    usage = error.usage if isinstance(error, WrongUse) else ""
    told = [f"error: {display_line(error.message)}"]
    if error.hint:
        told.append(display_line(_in_commands(error.hint)))
    lines = [part for line in told for part in wrapped_for(sys.stderr, line)]
    sys.stderr.write(display(usage) + "".join(f"{line}\n" for line in lines))
    return error.exit_code


def _logs_json(argv: Sequence[str]) -> bool:
    """True for a worker or a server that was told to log in JSON: programs read what it writes."""
    typed = f" {' '.join(argv).replace('--log-format=', '--log-format ')} "
    serves = not {"worker", "serve"}.isdisjoint(argv[:1])
    return serves and (" --log-format json " in typed or (" --log-format " not in typed and os.environ.get("REMIT_LOG_FORMAT") == "json"))


def _log_json(error: RemitError) -> None:
    """Write an error as a line of the log that was not begun yet."""
    from datetime import UTC, datetime
    from json import dumps

    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    line = {"time": now, "level": "error", "logger": "remit", "message": display_line(error.message), "code": error.code}
    hint = {"hint": display_line(_in_commands(error.hint))} if error.hint else {}
    sys.stderr.write(dumps(line | hint) + "\n")


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


def _forget_warnings() -> None:
    """Keep Python from complaining of what Ctrl-C left undone, such as a coroutine that was made and not awaited."""
    import warnings

    warnings.simplefilter("ignore")
