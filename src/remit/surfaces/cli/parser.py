"""From words on the command line to a command and what it was given.

Only the parser of the command at hand is made: making one for each costs as much time as starting Python.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from remit.surfaces.cli.command import Argument, Command, WrongUse
from remit.surfaces.cli.menu import COMMANDS, COMMON, GROUPS, JSON


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are raised, and so reported like all others."""

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed, with the usage."""
        raise WrongUse(f"{message[:1].upper()}{message[1:]}.", hint=f"See: {self.prog} --help", usage=self.format_usage())


def parse(argv: Sequence[str]) -> tuple[Command, dict[str, Any]]:
    """The command that was named and its arguments; help and the version are printed, and end it all."""
    words, rest = _split(argv)
    command = COMMANDS.get(" ".join(words))
    if command is None:
        _group(" ".join(words), rest)
    parser = parser_of(command)
    _only_known(rest, arguments_of(command), parser)
    given = vars(parser.parse_args(rest))
    if command.path == "help":
        _require_command(given["command"])
    return command, given


def arguments_of(command: Command) -> tuple[Argument, ...]:
    """Everything that a command takes."""
    return (*command.arguments, *((JSON,) if command.data else ()), *COMMON)


def parser_of(command: Command) -> Parser:
    """The parser of one command."""
    parser = Parser(
        prog=f"remit {command.path}",
        description=command.summary,
        epilog=_examples(command.example),
        formatter_class=argparse.RawDescriptionHelpFormatter if "\n" in command.example else argparse.HelpFormatter,
        allow_abbrev=False,
    )
    for argument in arguments_of(command):
        _add(parser, argument)
    return parser


def _examples(example: str) -> str | None:
    """The end of a command's help; several examples have lines of their own."""
    if not example:
        return None
    several = "\n" in example
    return "Examples:\n  " + example.replace("\n", "\n  ") if several else f"Example: {example}"


def _add(parser: Parser, argument: Argument) -> None:
    details: dict[str, Any] = {"help": argument.help}
    if argument.switch is not None:
        details |= {"action": "store_const", "const": True}
    elif argument.name.startswith("-"):
        details |= {"metavar": argument.metavar, "action": "append" if argument.many else "store"}
    else:
        details |= {"metavar": argument.name, "nargs": ("*" if argument.optional else "+") if argument.many else "?" if argument.optional else None}
    if argument.name.startswith("-"):
        parser.add_argument(argument.name, dest=argument.key, **details)
    else:
        parser.add_argument(argument.key, **details)


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that name a command or a group, and all the rest; options that are taken everywhere may stand before."""
    words: list[str] = []
    rest: list[str] = []
    valued = {argument.name for argument in COMMON}
    pending = list(argv)
    while pending and " ".join(words) not in COMMANDS:
        word = pending.pop(0)
        if word.startswith("-"):
            rest += [word, *([pending.pop(0)] if word in valued and pending else [])]
        else:
            words.append(word)
            _must_exist(words)
    return words, rest + pending


def _require_command(words: Sequence[str]) -> None:
    """Refuse words that name no command and no group."""
    for size in range(1, len(words) + 1):
        _must_exist(list(words[:size]))


def _must_exist(words: list[str]) -> None:
    path = " ".join(words)
    if path in COMMANDS or path in GROUPS:
        return
    group = " ".join(words[:-1])
    if group in COMMANDS:
        raise WrongUse(f"There is no command {_called(path)!r}.", hint=f"See: {_called(group)} --help")
    close = _close(words[-1], [name for name, _ in members(group)])
    ends = _close(words[-1], [other.rpartition(" ")[2] for other in COMMANDS])
    exact = [other for other in COMMANDS if other.rpartition(" ")[2] == words[-1]]
    elsewhere = exact or [other for other in COMMANDS if other.rpartition(" ")[2] in ends]
    close = [] if exact else close
    guesses = [" ".join(["remit", *words[:-1], name]) for name in close] or [f"remit {other}" for other in elsewhere[:3]]
    hint = f"Did you mean: {' or '.join(guesses)}?" if guesses else f"See: {_called(group)} --help"
    raise WrongUse(f"There is no command {_called(path)!r}.", hint=hint, usage=_usage(group))


def _only_known(rest: Iterable[str], arguments: Iterable[Argument], parser: Parser) -> None:
    known = ["--help", *(argument.name for argument in arguments if argument.name.startswith("-"))]
    for word in rest:
        if word == "--":
            return
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            close = _close(name[2:], [option[2:] for option in known])
            hint = f"Did you mean: --{close[0]}?" if close else f"See: {parser.prog} --help"
            raise WrongUse(f"There is no option {name!r}.", hint=hint, usage=parser.format_usage())


def _close(word: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(word, known, n=1)


# Groups of commands: their help, made from the table.


def members(group: str) -> list[tuple[str, str]]:
    """The words that can follow a group, each with what it says of itself."""
    prefix = f"{group} " if group else ""
    found = {path: COMMANDS[path].summary if path in COMMANDS else GROUPS[path] for path in _paths()}
    return [(path.removeprefix(prefix), text) for path, text in found.items() if path.startswith(prefix) and path.count(" ") == prefix.count(" ")]


def _paths() -> list[str]:
    """Every command and group, groups where their first command stands."""
    return list(dict.fromkeys(" ".join(path.split()[:size]) for path in COMMANDS for size in range(1, path.count(" ") + 2)))


def _group(group: str, rest: list[str]) -> NoReturn:
    if "--help" in rest or "-h" in rest:
        raise Printed(help_of(group))
    if "--version" in rest and not group:
        from importlib.metadata import version

        raise Printed(f"remit {version('remit')}\n")
    unknown = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in {argument.name for argument in (*COMMON, JSON)}]
    message = f"There is no option {unknown[0]!r} here." if unknown else "A command is missing."
    raise WrongUse(message, hint=f"See: {_called(group)} --help", usage=help_of(group) if not unknown else _usage(group))


class Printed(Exception):
    """Help or the version was asked for: this is it."""


def help_of(group: str) -> str:
    """What a group offers."""
    found = members(group)
    size = max(len(name) for name, _ in found)
    commands = "".join(f"  {name:<{size}}  {text}\n" for name, text in found)
    common = {f"{argument.name} {argument.metavar}": argument.help for argument in COMMON}
    taken = common | ({} if group else {"--version": "print the version and leave"})
    room = max(map(len, taken))
    options = "".join(f"  {name:<{room}}  {text}\n" for name, text in taken.items())
    return (
        f"{_usage(group)}\n{GROUPS[group]}\n\ncommands:\n{commands}\noptions of every command:\n{options}\n"
        f"More on a command: {_called(group)} COMMAND --help\n"
    )


def _usage(group: str) -> str:
    return f"usage: {_called(group)} COMMAND ...\n"


def _called(path: str) -> str:
    return f"remit {path}".rstrip()
