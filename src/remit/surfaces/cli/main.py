"""The entry point of the command line: runs a command, shows the answer and reports errors."""

import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from remit.errors import Internal, InvalidParam, RemitError
from remit.surfaces.cli.arguments import as_typed, fields_of
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Command, OpenHost, Session, Told, WrongUse, say_stopped
from remit.surfaces.cli.command_table import COMMANDS
from remit.surfaces.cli.output.terminal import Screen, wrapped_for
from remit.surfaces.cli.parser import Printed, command_words, parse
from remit.surfaces.text.display import display, display_line
from remit.surfaces.text.printed_commands import (
    PASSWORD_NOTE,
    has_hidden_password,
    repeat_options,
    with_commands,
    with_commands_in,
)

_OPTIONS = (
    "workspace",
    "database_url",
    "url",
    "host",
    "port",
    "concurrency",
    "mcp_tools",
    "log_format",
)
_PIPE_CLOSED, _INTERRUPTED = 141, 130
_STOPPED = "Stopped."


def main(argv: Sequence[str], open_host: OpenHost) -> int:
    """Run a command line; return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not an error.
        getattr(stream, "reconfigure", dict)(errors="replace")
    try:
        code = _run_guarded(argv, open_host)
        sys.stdout.flush()
        _explain_password(argv)
    except BrokenPipeError:
        _forget_output()
        return _PIPE_CLOSED
    except OSError as error:
        _forget_output()
        return _report(_system_error(error), ())
    except KeyboardInterrupt as interrupt:
        _forget_warnings()
        if not isinstance(interrupt, Told):
            say_stopped(_STOPPED)
        _explain_password(argv)
        return _code_of(interrupt)
    return code


def _explain_password(argv: Sequence[str]) -> None:
    """Write once what the placeholder in printed commands means, unless a program reads them."""
    if has_hidden_password() and not _logs_json(argv):
        sys.stderr.write(f"{PASSWORD_NOTE}\n")


def _code_of(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a command that a signal ended; Ctrl-C if the signal is unknown."""
    # An interrupt inside a codec is raised again with a text as its argument.
    match interrupt.args:
        case (int(number), *_):
            return 128 + number
        case _:
            return _INTERRUPTED


def _run_guarded(argv: Sequence[str], open_host: OpenHost) -> int:
    """Run a command line; report every error and return the exit code."""
    try:
        command, given = _parse_or_stop(argv)
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
        return _report(_system_error(error), argv)


def _parse_or_stop(argv: Sequence[str]) -> tuple[Command, dict[str, Any]]:
    """Parse a command line; report an interrupt."""
    repeat_options({})
    with _telling_interrupt():
        return parse(argv)


@contextmanager
def _telling_interrupt() -> Generator[None]:
    """Report an interrupt of the block."""
    try:
        yield
    except KeyboardInterrupt:
        say_stopped(_STOPPED)
        raise Told from None


def _system_error(error: OSError) -> RemitError:
    return Internal(f"System error: {error}.")


def _carry_out(command: Command, given: dict[str, Any], open_host: OpenHost) -> int:
    """Run a command with its parsed arguments; return its exit code."""
    repeat_options(given)
    fields = fields_of(command.arguments, given)
    options = {name: fields.pop(name) for name in _OPTIONS if name in fields}
    session = Session(open_host, {name: given.get(name) for name in _OPTIONS} | options)
    try:
        fields = _prepare(command, session, fields)
        return _perform(command, session, fields, as_json=bool(given.get("json")))
    except InvalidParam as error:
        if given.get("json"):
            raise
        raise as_typed(error, command.arguments, given) from None


def _prepare(command: Command, session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a command; report an interrupt."""
    with _telling_interrupt():
        return command.prepare(session, fields)


def _perform(command: Command, session: Session, fields: dict[str, Any], *, as_json: bool) -> int:
    """Run a command and show its answer; report an interrupt."""
    try:
        answer = _act(command, session, fields)
        if as_json:
            return _show(command, answer, None)
        screen = Screen(session.call, session.unattended, session.outlook)
        screen.has_changes = session.has_changes
        code = _show(command, answer, screen)
        command.then(session, fields)
        return code
    except Told:
        raise
    except KeyboardInterrupt:
        command.interrupted(session, fields)
        raise Told from None


def _act(command: Command, session: Session, fields: dict[str, Any]) -> Result | Iterator[Result]:
    """Run the operation or the action of a command."""
    if isinstance(command.act, str):
        return session.call(command.act, **fields)
    return command.act(session, fields)


def _show(command: Command, answer: Result | Iterator[Result], screen: Screen | None) -> int:
    """Show an answer, or each item of a stream; return the exit code."""
    if not isinstance(answer, Iterator):
        _tell(command, answer, screen, 2 if sys.stdout.isatty() else None)
        return command.code(answer)
    code = 0
    for item in answer:
        _tell(command, item, screen)
        sys.stdout.flush()
        code = command.code(item)
    return code


def _tell(
    command: Command, answer: Result, screen: Screen | None, indent: int | None = None
) -> None:
    """Print an answer as JSON if there is no screen, otherwise as text."""
    if screen is None:
        _print_json(answer, indent)
    else:
        command.show(answer, screen)


def _print_json(answer: Result, indent: int | None = None) -> None:
    """Print JSON with everything but printable ASCII escaped."""
    from json import dumps

    sys.stdout.write(dumps(answer, indent=indent).replace("\x7f", "\\u007f") + "\n")


def _report(error: RemitError, argv: Sequence[str]) -> int:
    """Write an error in the requested format; return its exit code."""
    if "--json" in argv:
        _print_json(with_commands_in(error).wire())
        return error.exit_code
    if _logs_json(argv):
        _log_json(error)
        return error.exit_code
    told = f"error: {_message_in_commands(display_line(error.message), error.details)}"
    if error.hint:
        told += f"\n{_in_commands(display_line(error.hint), error.details)}"
    usage = error.usage if isinstance(error, WrongUse) else ""
    lines = wrapped_for(sys.stderr, told)
    sys.stderr.write(display(usage) + "".join(map("{}\n".format, lines)))
    return error.exit_code


def _logs_json(argv: Sequence[str]) -> bool:
    """Return True for a worker or a server with `--log-format json`."""
    if command_words(argv) not in (["worker"], ["serve"]):
        return False
    typed = f" {' '.join(argv).replace('--log-format=', '--log-format ')} "
    if " --log-format " in typed:
        return " --log-format json " in typed
    return os.environ.get("REMIT_LOG_FORMAT") == "json"


def _log_json(error: RemitError) -> None:
    """Write an error as a JSON log line, before logging has started."""
    from datetime import UTC, datetime
    from json import dumps

    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    line = {
        "time": now,
        "level": "error",
        "logger": "remit",
        "message": display_line(_message_in_commands(error.message, error.details)),
        "code": error.code,
    }
    if error.hint:
        line["hint"] = display_line(_in_commands(error.hint, error.details))
    sys.stderr.write(dumps(line) + "\n")


def _message_in_commands(message: str, details: Mapping[str, Any]) -> str:
    """A message with commands in the advice that it ends with: the error of a server has its hint
    in its message.
    """
    import re

    pattern = r"(?s)(?<=[.!?] )(?:Cancel|Do|Get|See|Set|Try|Use) [^.]*\b[a-z]+_[a-z_]+\b.*$"
    advice = re.search(pattern, message)
    if advice is None:
        return with_commands(message)
    return with_commands(message[: advice.start()]) + _in_commands(advice[0], details)


def _in_commands(hint: str, details: Mapping[str, Any]) -> str:
    """Return a hint with commands in place of operations, for the task that an error is about."""
    import re

    task_ids = [details["task_id"]] if "task_id" in details else details.get("task_ids", ())
    # The first command of an operation is the best known.
    commands = {
        command.act: f"`{' '.join(['remit', path, *_task_of(command, task_ids)])}`"
        for path, command in reversed(COMMANDS.items())
        if isinstance(command.act, str)
    }
    for task_id in task_ids[:1]:
        commands["task_output"] = f"`remit task result {task_id}`"
    return with_commands(
        re.sub(r"\b[a-z]+_[a-z_]+\b", lambda found: commands.get(found[0], found[0]), hint)
    )


def _task_of(command: Command, task_ids: Sequence[str]) -> Sequence[str]:
    """Return the task that an error is about, for a command that begins with a task."""
    if [argument.name for argument in command.arguments[:1]] == ["TASK"]:
        return task_ids[:1]
    return ()


def _forget_output() -> None:
    """Redirect closed standard output, so that Python does not complain at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _forget_warnings() -> None:
    """Silence Python's warnings after Ctrl-C, such as about a coroutine that was not awaited."""
    import warnings

    warnings.simplefilter("ignore")
