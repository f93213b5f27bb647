"""Scripts that complete commands and options in a shell, made from the table of commands."""

from remit.domain.agent import TOOLS
from remit.surfaces.cli.command import Argument
from remit.surfaces.cli.menu import COMMANDS, GROUPS
from remit.surfaces.cli.parser import arguments_of, members

_STORE_OPTIONS = ("--workspace", "--database-url", "--url")
"""Options that choose where names are looked up, on every command."""
_LIVE_ONLY = ("run", "pause", "resume", "cancel", "complete", "fail", "assign", "message", "update", "steps", "step", "subtask")
"""Commands of `task` that an ended task refuses."""
_LIVE_COMMANDS = frozenset(f"task {name}" for name in _LIVE_ONLY)
_TYPED = '"${_remit_options[@]}"'
"""The same as they were typed, in bash and zsh."""


def script(shell: str) -> str:
    """The script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


# bash and zsh share functions that say, for the words before the cursor, what can follow. No variable is called
# `path`: in zsh that is the search path of commands.

_WORDS = """\
_remit_words() {{
  case "$1" in
{cases}
  esac
}}
_remit_names() {{
  case "$1" in
{names}
    *) return 1 ;;
  esac
}}
_remit_lists() {{
  case "$1" in
    {lists}) return 0 ;;
    *) return 1 ;;
  esac
}}
_remit_values() {{
  local name names before=""
  names="$(_remit_names "$1")" || return 1
  if _remit_lists "$1"; then
    case "$2" in *,*) before="${{2%,*}}," ;; esac
  fi
  printf '%s\n' "$names" | tr ' ' '\n' | while read -r name; do printf '%s\n' "$3$before$name"; done
}}
_remit_command() {{
  local found="" word
  for word in "$@"; do
    case "$word" in -*) continue ;; esac
    case "$found $word" in
{paths}
    esac
  done
  printf '%s' "$found"
}}
_remit_store() {{
  local option="" word
  _remit_options=()
  for word in "$@"; do
    case "$word" in
      {store_patterns}) _remit_options+=("${{word%%=*}}" "${{word#*=}}") ;;
      {store_options}) option="$word"; continue ;;
      *) [[ -z "$option" ]] || _remit_options+=("$option" "${{word/#\\~\\//$HOME/}}") ;;
    esac
    option=""
  done
}}
"""

_BASH = """\
_remit() {
  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command words
  local -a _remit_options typed
  command="$(_remit_command "${COMP_WORDS[@]:1:COMP_CWORD-1}")"
  read -ra typed <<< "${COMP_LINE:0:COMP_POINT}"  # COMP_WORDS splits URLs at their colons
  _remit_store "${typed[@]}"
  if [[ "$current" == "=" ]]; then  # --option=VALUE is split at its equals sign, and only the value is replaced
    current=""
  elif [[ "$before" == "=" ]]; then
    before="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  if [[ "$current" == --*=* ]]; then  # where words are not split there
    words="$(_remit_values "$command ${current%%=*}" "${current#*=}" "${current%%=*}=")"
  elif ! words="$(_remit_values "$command $before" "$current" "")"; then
    [[ "$current" == -* ]] || words="$(_remit_names "$command")"
    words="$words $(_remit_words "$command")"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _remit remit
"""

_ZSH = """\
_remit() {
  local before="${words[CURRENT-1]}" current="${words[CURRENT]}" command found
  local -a _remit_options
  command="$(_remit_command "${(@)words[2,CURRENT-1]}")"
  _remit_store "${(@)words[2,CURRENT-1]}"
  if [[ "$current" == --*=* ]]; then
    found="$(_remit_values "$command ${current%%=*}" "${current#*=}" "${current%%=*}=")"
    compadd -- ${=found} || _files
  elif found="$(_remit_values "$command $before" "$current" "")"; then
    compadd -- ${=found}
  else
    compadd -- ${=$(_remit_names "$command")} ${=$(_remit_words "$command")} || _files
  fi
}
compdef _remit remit
"""


def _bash() -> str:
    return _shared() + _BASH


def _zsh() -> str:
    return "#compdef remit\n" + _shared() + _ZSH


def _shared() -> str:
    cases = [f"    {_quoted(path)}) printf '%s' {_quoted(' '.join(_following(path)))} ;;" for path in ["", *_paths()]]
    lists = [_quoted(at) for at, kind in _named().items() if kind.endswith(",")]
    paths = [f"      {_quoted(_reached(path))}) found={_quoted(path)} ;;" for path in _paths()]
    names = [f"    {_quoted(at)}) {_found(kind, _TYPED)} ;;" for at, kind in _named().items()]
    return _WORDS.format(
        cases="\n".join(cases),
        paths="\n".join(paths),
        names="\n".join(names),
        lists="|".join(lists),
        store_options="|".join(_STORE_OPTIONS),
        store_patterns="|".join(f"{option}=*" for option in _STORE_OPTIONS),
    )


def _named() -> dict[str, str]:
    """Where a name of the workspace can stand, by what it names: after a command, or after one of its options."""
    found = {"help": f"={' '.join(name for name, _ in members(''))}"}
    for path, command in COMMANDS.items():
        for argument in arguments_of(command):
            if kind := _kind(path, argument):
                found.setdefault(f"{path} {argument.name}" if _is_option(argument) else path, kind)
            elif _is_option(argument) and argument.choices:
                found[f"{path} {argument.name}"] = f"={' '.join(argument.choices)}"
    return found


def _kind(path: str, argument: Argument) -> str:
    """What an argument names: agents, tasks or questions, or these words after an equals sign.

    A comma at the end means that it takes several names with commas between them.
    """
    if argument.field == "agents":
        return "agents,"
    if argument.metavar == "TOOLS" and argument.field != "tools":
        return f"={' '.join(TOOLS)},"
    if argument.metavar == "MODEL":
        return "=main light"
    if argument.metavar == "AGENT" or argument.name in ("AGENT", "OWNER") or argument.field == "subagent_type":
        return "agents"
    if argument.metavar == "TASK" or argument.name == "TASK":
        return "live" if path in _LIVE_COMMANDS else "tasks"
    return "questions" if argument.name == "QUESTION" else ""


def _found(kind: str, typed: str) -> str:
    """The shell command that prints names, with the options that choose a store; it says nothing where there is no workspace."""
    if kind.startswith("="):
        return f"printf '%s' {_quoted(kind[1:].rstrip(','))}"
    return f"remit completion --names {kind.rstrip(',')} {typed} 2>/dev/null"


def _paths() -> list[str]:
    """Every group and command, and each of them after `help`."""
    paths = [path for path in (*GROUPS, *COMMANDS) if path]
    return [*paths, *(f"help {path}" for path in paths)]


def _reached(path: str) -> str:
    """A path as its last word completes it; before the first word it is empty."""
    return path if " " in path else f" {path}"


def _following(path: str) -> list[str]:
    if path.startswith("help "):
        group = path.removeprefix("help ")
        return [name for name, _ in members(group)] if group in GROUPS else []
    if path not in COMMANDS:
        return [name for name, _ in members(path)]
    arguments = arguments_of(COMMANDS[path])
    placed = [choice for argument in arguments if not _is_option(argument) for choice in argument.choices]
    return [*placed, *(argument.name for argument in arguments if _is_option(argument)), "--help"]


_TYPED_IN_FISH = "(__remit_store)"
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
function __remit_list
  set -l before (string match -r '^.*,' -- (string replace -r '^--[a-z-]+=' '' -- (commandline -ct)))
  while read -l name
    printf '%s%s\\n' "$before" $name
  end
end
function __remit_store
  set -l option ''
  for word in (commandline -opc)[2..-1]
    if test -n "$option"
      printf '%s\\n' $option (string replace -r '^~/' "$HOME/" -- $word)
      set option ''
      continue
    end
    switch $word
      case {store_options}
        set option $word
      case {store_patterns}
        printf '%s\\n' (string split -m 1 = -- $word)
    end
  end
end
complete -c remit -f
{lines}
"""


def _fish() -> str:
    paths = [f"      case {_quoted(_reached(path))}\n        set path {_quoted(path)}" for path in _paths()]
    words = [
        f"{_fish_at(path)} -a {name} -d {_quoted(text)}"
        for group in GROUPS
        for path in (group, f"help {group}".rstrip())
        for name, text in members(group)
    ]
    return _FISH.format(
        paths="\n".join(paths),
        lines="\n".join(words + _fish_arguments()),
        store_options=" ".join(_STORE_OPTIONS),
        store_patterns=" ".join(f"'{option}=*'" for option in _STORE_OPTIONS),
    )


def _fish_arguments() -> list[str]:
    return [
        f"{_fish_at(path)} {found}"
        for path, command in COMMANDS.items()
        for argument in arguments_of(command)
        if (found := _fish_argument(path, argument))
    ]


def _fish_argument(path: str, argument: Argument) -> str:
    choices = f" -a {_quoted(' '.join(argument.choices))}" if argument.choices else ""
    if kind := _kind(path, argument):
        listed = " | string split ' ' | __remit_list" if kind.endswith(",") else ""
        if kind.startswith("=") and not listed:
            listed = " | string split ' '"
        choices = f" -a {_quoted(f'({_found(kind, _TYPED_IN_FISH)}{listed})')}"
    if not _is_option(argument):
        return choices.strip() or ("-F" if argument.name == "FILE" else "")
    takes_value = f" -x{choices}" if choices else " -r -F"
    value = "" if argument.switch is not None else takes_value
    name = f"-l {argument.name[2:]}" if argument.name.startswith("--") else f"-s {argument.name[1:]}"
    return f"{name} -d {_quoted(argument.help)}{value}"


def _fish_at(path: str) -> str:
    condition = f'__remit_at "{path}"'
    return f"complete -c remit -n {_quoted(condition)}"


def _is_option(argument: Argument) -> bool:
    return argument.name.startswith("-")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
