"""Scripts that complete commands and options in a shell, made from the table of commands."""

from remit.surfaces.cli.command import Argument
from remit.surfaces.cli.menu import COMMANDS, GROUPS
from remit.surfaces.cli.parser import arguments_of, members


def script(shell: str) -> str:
    """The script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


# bash and zsh share a function that says, for the words before the cursor, what can follow.

_WORDS = """\
_remit_words() {{
  case "$1" in
{cases}
  esac
}}
_remit_path() {{
  local path="" word
  for word in "$@"; do
    case "$word" in -*) continue ;; esac
    case "$path $word" in
{paths}
    esac
  done
  printf '%s' "$path"
}}
"""

_BASH = """\
_remit() {
  local current="${COMP_WORDS[COMP_CWORD]}" path
  path="$(_remit_path "${COMP_WORDS[@]:1:COMP_CWORD-1}")"
  COMPREPLY=($(compgen -W "$(_remit_words "$path")" -- "$current"))
}
complete -o default -F _remit remit
"""

_ZSH = """\
_remit() {
  local path
  path="$(_remit_path "${(@)words[2,CURRENT-1]}")"
  compadd -- ${=$(_remit_words "$path")} || _files
}
compdef _remit remit
"""


def _bash() -> str:
    return _shared() + _BASH


def _zsh() -> str:
    return "#compdef remit\n" + _shared() + _ZSH


def _shared() -> str:
    cases = [f"    {_quoted(path)}) printf '%s' {_quoted(' '.join(_following(path)))} ;;" for path in ["", *_paths()]]
    paths = [f"      {_quoted(_reached(path))}) path={_quoted(path)} ;;" for path in _paths()]
    return _WORDS.format(cases="\n".join(cases), paths="\n".join(paths))


def _paths() -> list[str]:
    return [path for path in (*GROUPS, *COMMANDS) if path]


def _reached(path: str) -> str:
    """A path as its last word completes it; before the first word it is empty."""
    return path if " " in path else f" {path}"


def _following(path: str) -> list[str]:
    if path not in COMMANDS:
        return [name for name, _ in members(path)]
    arguments = arguments_of(COMMANDS[path])
    placed = [choice for argument in arguments if not _is_option(argument) for choice in argument.choices]
    return [*placed, *(argument.name for argument in arguments if _is_option(argument)), "--help"]


_FISH = """\
function __remit_at
  set -l path ''
  for word in (commandline -opc)[2..-1]
    switch "$path $word"
{paths}
    end
  end
  test "$path" = "$argv[1]"
end
complete -c remit -f
{lines}
"""


def _fish() -> str:
    paths = [f"      case {_quoted(_reached(path))}\n        set path {_quoted(path)}" for path in _paths()]
    words = [f"{_fish_at(group)} -a {name} -d {_quoted(text)}" for group in GROUPS for name, text in members(group)]
    return _FISH.format(paths="\n".join(paths), lines="\n".join(words + _fish_arguments()))


def _fish_arguments() -> list[str]:
    return [
        f"{_fish_at(path)} {found}" for path, command in COMMANDS.items() for argument in arguments_of(command) if (found := _fish_argument(argument))
    ]


def _fish_argument(argument: Argument) -> str:
    choices = f" -a {_quoted(' '.join(argument.choices))}" if argument.choices else ""
    if not _is_option(argument):
        return choices.strip()
    value = "" if argument.switch is not None else f" -r{choices or ' -F'}"
    return f"-l {argument.name[2:]} -d {_quoted(argument.help)}{value}"


def _fish_at(path: str) -> str:
    condition = f'__remit_at "{path}"'
    return f"complete -c remit -n {_quoted(condition)}"


def _is_option(argument: Argument) -> bool:
    return argument.name.startswith("-")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
