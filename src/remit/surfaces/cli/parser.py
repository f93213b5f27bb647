"""Parses the command line into a command and its arguments.

Only the parser of the given command is built: building all takes as long as starting Python.
"""

import argparse
import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from remit.surfaces.cli.command import Argument, Command, WrongUse
from remit.surfaces.cli.command_table import COMMANDS, COMMON, GROUPS, JSON
from remit.surfaces.text.printed_commands import OPENS_DATABASE

_ALIKE = 0.7
"""The minimum similarity of a suggested word, from 0 to 1."""
_GUESSES = 3
_ANY_WIDTH = 80
_WORD_COUNTS = {
    (True, True): "*",
    (True, False): "+",
    (False, True): "?",
    (False, False): None,
}
"""The `nargs` of an argument, by whether it may have many words and whether it may have none."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises its errors, so that they are reported like all others."""

    def error(self, message: str) -> NoReturn:
        """Raise WrongUse with the usage."""
        raise WrongUse(
            f"{message[:1].upper()}{message[1:]}.",
            hint=f"See: {self.prog} --help",
            usage=self.format_usage(),
        )


def parse(argv: Sequence[str]) -> tuple[Command, dict[str, Any]]:
    """Return the command and its arguments.

    Help and the version are printed and end the command.
    """
    words, rest = _split(argv)
    command = COMMANDS.get(" ".join(words))
    if command is None:
        _group(" ".join(words), rest)
    parser = parser_of(command)
    _only_known(rest, options_of(command), parser)
    given = vars(parser.parse_args(rest))
    if command.path == "help":
        _require_command(given["command"])
    return command, given


def command_words(argv: Sequence[str]) -> list[str]:
    """Return the words that name a command, wherever its options stand; empty if there is no such
    command.
    """
    try:
        return _split(argv)[0]
    except WrongUse:
        return []


def arguments_of(command: Command) -> tuple[Argument, ...]:
    """Return all arguments of a command."""
    if command.data:
        return (*command.arguments, JSON, *COMMON)
    return (*command.arguments, *COMMON)


def options_of(command: Command) -> list[str]:
    """Return the names of all options of a command, including its help."""
    options = [argument.name for argument in arguments_of(command) if argument.is_option]
    return [*options, "--help"]


def parser_of(command: Command) -> Parser:
    """Return the parser of one command."""
    parser = Parser(
        prog=f"remit {command.path}",
        description=command.summary,
        epilog=_format_examples(command.example),
        # argparse creates a formatter for each argument; with a width it does not import shutil.
        formatter_class=partial(argparse.HelpFormatter, width=_ANY_WIDTH),
        allow_abbrev=False,
    )
    opens_database = command.path.split()[0] in OPENS_DATABASE
    for argument in arguments_of(command):
        is_hidden = opens_database and argument.name == "--url"
        _add(parser, argument._replace(help=argparse.SUPPRESS) if is_hidden else argument)
    parser.formatter_class = argparse.HelpFormatter
    if "\n" in command.example:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def _format_examples(example: str) -> str | None:
    """Return the examples at the end of a command's help."""
    if not example:
        return None
    if "\n" not in example:
        return f"Example: {example}"
    return "Examples:\n  " + example.replace("\n", "\n  ")


def _add(parser: Parser, argument: Argument) -> None:
    """Add an argument to a parser: a switch, an option with a value, or a positional one."""
    if argument.switch is not None:
        parser.add_argument(
            argument.name, dest=argument.key, help=argument.help, action="store_const", const=True
        )
    elif argument.is_option:
        parser.add_argument(
            argument.name,
            dest=argument.key,
            help=argument.help,
            metavar=argument.metavar,
            action="append" if argument.many else "store",
        )
    else:
        parser.add_argument(
            argument.key, help=argument.help, metavar=argument.name, nargs=_word_count(argument)
        )


def _word_count(argument: Argument) -> str | None:
    """Return the number of words of an argument, in argparse's notation."""
    return _WORD_COUNTS[bool(argument.many), argument.optional]


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that name a command or a group, and the rest.

    General options may stand before them.
    """
    words: list[str] = []
    rest: list[str] = []
    valued = {argument.name for argument in COMMON}
    pending = list(argv)
    while pending and " ".join(words) not in COMMANDS:
        word = pending.pop(0)
        if not word.startswith("-"):
            words.append(word)
            _must_exist(words)
            continue
        rest.append(word)
        if word in valued and pending:
            rest.append(pending.pop(0))
    return words, rest + pending


def _require_command(words: Sequence[str]) -> None:
    """Refuse words that name neither a command nor a group."""
    for size in range(1, len(words) + 1):
        _must_exist(list(words[:size]))


def _must_exist(words: list[str]) -> None:
    """Refuse an unknown command or group, and suggest similar ones."""
    path = " ".join(words)
    if path in COMMANDS.keys() | GROUPS.keys():
        return
    message = f"There is no command {_full_name(path)!r}."
    group = " ".join(words[:-1])
    hint = f"See: {_full_name(group)} --help"
    if group in COMMANDS:
        raise WrongUse(message, hint=hint)
    if guesses := _guess_commands(group, words[-1]):
        hint = f"Did you mean: {' or '.join(guesses)}?"
    raise WrongUse(message, hint=hint, usage=_usage(group))


def _guess_commands(group: str, word: str) -> list[str]:
    """Return similar commands: with the same last word, in this group, or anywhere."""
    last_words = {path: path.rpartition(" ")[2] for path in COMMANDS}
    if exact := [path for path, last in last_words.items() if last == word]:
        return list(map(_full_name, exact[:_GUESSES]))
    if close := _close(word, list(members(group))):
        return [f"{_full_name(group)} {name}" for name in close]
    close = _close(word, list(last_words.values()))
    alike = [path for path, last in last_words.items() if last in close]
    return list(map(_full_name, alike[:_GUESSES]))


def _only_known(rest: Iterable[str], known: Sequence[str], parser: Parser) -> None:
    """Refuse an option that a command does not have."""
    words = itertools.takewhile(lambda word: word != "--", rest)
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    hint = f"See: {parser.prog} --help"
    if close := _close(unknown[0][2:], [option[2:] for option in known]):
        hint = f"Did you mean: --{close[0]}?"
    message = f"There is no option {unknown[0]!r}."
    raise WrongUse(message, hint=hint, usage=parser.format_usage())


def _close(word: str, known: Sequence[str]) -> list[str]:
    """Return the most similar known word; empty if there is none."""
    from difflib import get_close_matches

    return get_close_matches(word, known, n=1, cutoff=_ALIKE)


# Groups of commands: their help, made from the table.


def members(group: str) -> dict[str, str]:
    """Return the words that can follow a group, each with its summary."""
    return {
        path.rpartition(" ")[2]: _summary_of(path)
        for path in _paths()
        if path.rpartition(" ")[0] == group
    }


def _summary_of(path: str) -> str:
    if path in COMMANDS:
        return COMMANDS[path].summary
    return GROUPS[path]


def _paths() -> list[str]:
    """Return every command and group, each group before its first command."""
    paths: dict[str, None] = {}
    for path in COMMANDS:
        paths.update(dict.fromkeys(itertools.accumulate(path.split(), "{} {}".format)))
    return list(paths)


def _group(group: str, rest: list[str]) -> NoReturn:
    """Raise the help of a group or the version, or refuse an incomplete command line."""
    if not {"--help", "-h"}.isdisjoint(rest):
        raise Printed(help_of(group))
    if "--version" in rest and not group:
        from importlib.metadata import version

        raise Printed(f"remit {version('remit')}\n")
    hint = f"See: {_full_name(group)} --help"
    taken = {argument.name for argument in (*COMMON, JSON)}
    options = [word for word in rest if word.startswith("-")]
    unknown = [option for option in options if option.partition("=")[0] not in taken]
    if unknown:
        message = f"There is no option {unknown[0]!r} here."
        raise WrongUse(message, hint=hint, usage=_usage(group))
    raise WrongUse("A command is missing.", hint=hint, usage=help_of(group))


class Printed(Exception):
    """Raised when the help or the version is requested; holds the text."""


def help_of(group: str) -> str:
    """Return the help of a group."""
    taken = {f"{argument.name} {argument.metavar}": argument.help for argument in COMMON}
    if not group:
        taken["--version"] = "print the version and exit"
    commands, options = _two_columns(members(group)), _two_columns(taken)
    return (
        f"{_usage(group)}\n{GROUPS[group]}\n\ncommands:\n{commands}\noptions of every"
        f" command:\n{options}\nMore on a command: {_full_name(group)} COMMAND --help\n"
    )


def _two_columns(texts: dict[str, str]) -> str:
    """Return names and texts in two columns."""
    size = max(map(len, texts))
    return "".join(f"  {name:<{size}}  {text}\n" for name, text in texts.items())


def _usage(group: str) -> str:
    return f"usage: {_full_name(group)} COMMAND ...\n"


def _full_name(path: str) -> str:
    """Return a command or group with the program's name."""
    return f"remit {path}".rstrip()
