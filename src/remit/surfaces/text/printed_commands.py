"""Commands that are printed for a person to copy.

A copied command must reach the same store, so it repeats the options that select the store, as they
were typed. Environment variables and the current folder are not repeated: a copied command inherits
them. The options come first, so that a command that is copied without its end fails and does not
reach another store.

Nothing follows a command in its line: a dot behind it would be copied with it, and a terminal
breaks the line of a long command without a newline in it.

Other layers do not know these options. They write a command in backticks, at the end of a sentence,
and each surface prints their texts through `with_commands`. Texts for other processes keep the
backticks.
"""

import re
from collections.abc import Mapping
from typing import Any

from remit.errors import RemitError

REPEATED = ("workspace", "database_url", "url")
"""The options that select the store."""
PASSWORD = "PASSWORD"  # noqa: S105
"""Placeholder for the password of a URL, which is never printed. The user replaces it, like AGENT
or TITLE elsewhere. A command copied with it cannot log in; an unset variable would be an empty
option and select another store.
"""
PASSWORD_NOTE = f"{PASSWORD} stands for the password, which is not shown."

OPENS_DATABASE = frozenset(
    ("doctor", "export", "import", "init", "migrate", "schedule", "serve", "token", "worker")
)
"""The first words of commands that never use a server. With `--url` they are printed for the
server's machine, where a client's options mean nothing.
"""
_MARKED = re.compile(r"`remit ([a-z][^`]*)`")
_ENDED = re.compile(r"(`remit [a-z][^`]*`)\.(?: +|$)")
"""A command with the end of its sentence."""
_LAST = re.compile(r"`remit ([a-z][^`]*)`\.?$")
"""A command that ends a text."""

_typed: dict[str, str] = {}
"""The options of this process's command line."""
_hidden: set[str] = set()
"""Those of them whose password was hidden in a command."""


def repeat_options(options: Mapping[str, Any]) -> None:
    """Make every printed command repeat those of these options that select the store."""
    _typed.clear()
    _hidden.clear()
    _typed.update(
        {name: without_password(str(options[name])) for name in REPEATED if options.get(name)}
    )


def command_line(*parts: str) -> str:
    """Return a command as it is printed: `task run`, `1` is `remit --workspace DIR task run 1`."""
    words = " ".join(parts)
    if "url" in _typed and words.split()[0] in OPENS_DATABASE:
        return f"remit {words}"
    repeated: list[str] = []
    for name, value in _typed.items():
        option = f"--{name.replace('_', '-')}"
        if f"{option} " not in words and f"{option}=" not in words:
            repeated.append(option_with_value(option, value))
            if PASSWORD in value:
                _hidden.add(name)
    return " ".join(["remit", *repeated, words])


def has_hidden_password() -> bool:
    """Return True if a command was made with a placeholder for a password."""
    return bool(_hidden)


def option_with_value(option: str, value: str) -> str:
    """Return an option as it is printed; a value with a dash in front would be an option itself."""
    from shlex import quote

    joint = "=" if value.startswith("-") else " "
    return f"{option}{joint}{quote(value)}"


def with_commands(text: str) -> str:
    """Return a text of another layer with the commands in backticks as they are printed; each ends
    its line instead of its sentence.
    """
    lines = _ENDED.sub(r"\1\n", text).removesuffix("\n")
    return _print_marked(lines)


def with_commands_in_line(text: str) -> str:
    """Return a text of another layer as one line of a log: a command ends the line, or keeps its
    backticks and the period of its sentence.
    """
    last = _LAST.search(text)
    if last is None:
        return _quote_marked(text)
    return _quote_marked(text[: last.start()]) + command_line(last[1])


def _quote_marked(text: str) -> str:
    return _MARKED.sub(
        lambda found: found[0].replace(f"remit {found[1]}", command_line(found[1])), text
    )


def _print_marked(text: str) -> str:
    return _MARKED.sub(lambda found: command_line(found[1]), text)


def with_commands_in(error: RemitError) -> RemitError:
    """Return an error of another layer, with its commands as they are printed, in sentences: a
    program reads it.
    """
    return error.for_call(message=_print_marked(error.message), hint=_print_marked(error.hint))


def without_password(url: str, shown: str = PASSWORD) -> str:
    """Return a URL for display, with its password replaced."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    user, at, place = rest.rpartition("@")
    if at and ":" in user:
        rest = f"{user.partition(':')[0]}:{shown}@{place}"
    return scheme + mark + re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", rf"\g<1>{shown}", rest)
