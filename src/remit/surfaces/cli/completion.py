"""Shell scripts that complete commands and options, generated from the table of commands."""

from collections.abc import Iterator, Sequence

from remit.domain.agents.agent import TOOLS
from remit.surfaces.cli.command import Argument
from remit.surfaces.cli.command_table import COMMANDS, GROUPS
from remit.surfaces.cli.parser import arguments_of, members, options_of

_STORE_OPTIONS = ("--workspace", "--database-url", "--url")
"""Options of every command that select the store of the names."""
_LIVE_ONLY = (
    "run",
    "pause",
    "resume",
    "cancel",
    "complete",
    "fail",
    "assign",
    "message",
    "update",
    "steps",
    "step",
    "subtask",
)
"""Commands of `task` that refuse an ended task."""
_TASKS_FOR = {
    **{f"task {name}": "live" for name in _LIVE_ONLY},
    "task pause": "unpaused",
    "task resume": "paused",
    "task rerun": "ended",
}
"""The kind of tasks that a command accepts, if not all."""
_VALUES = {
    "MODEL": ("main", "light"),
    "EFFORT": ("none", "low", "medium", "high"),
    "FORMAT": ("text", "json"),
}
"""The usual values of options that accept others too, or that their operation checks."""
_KINDS = {"AGENT": "agents", "OWNER": "agents", "QUESTION": "questions"}
"""The kind of completion for an argument, by its name or that of its value."""
_MANY = 9
"""The number of places that are completed for an argument with several values."""
_TYPED = '"${_remit_options[@]}"'
"""The store options as they were typed, in bash and zsh."""


def script(shell: str) -> str:
    """Return the script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


# bash and zsh share functions that complete the words before the cursor. No variable is named
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
_remit_takes() {{
  case "$1" in
    *" value"|{takes}) return 0 ;;
    *) return 1 ;;
  esac
}}
_remit_place() {{
  local command="$1" count=0 value="" joined="" word spaces
  shift
  for word in "$@"; do
    case "$word" in
      =|:) [[ -n "$value" ]] || joined=1; continue ;;
    esac
    if [[ -n "$joined$value" ]]; then
      joined=""; value=""; continue
    fi
    case "$command $word" in
      {valued}) value="value"; continue ;;
    esac
    case "$word" in -?*) ;; *) count=$((count + 1)) ;; esac
  done
  spaces="${{command//[^ ]/}}"
  printf '%s' "${{value:-$((count - ${{#spaces}} - 1))}}"
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
  printf '%s\n' "$names" | tr ' ' '\n' | while read -r name; do
    case ",$before" in *",$name,"*) ;; *) printf '%s\n' "$3$before$name" ;; esac
  done
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
  local place
  local -a _remit_options typed
  command="$(_remit_command "${COMP_WORDS[@]:1:COMP_CWORD-1}")"
  place="$(_remit_place "$command" "${COMP_WORDS[@]:1:COMP_CWORD-1}")"
  read -ra typed <<< "${COMP_LINE:0:COMP_POINT}"  # COMP_WORDS splits URLs at their colons
  _remit_store "${typed[@]}"
  # --option=VALUE is split at its equals sign, and only the value is replaced.
  if [[ "$current" == "=" ]]; then
    current=""
  elif [[ "$before" == "=" ]]; then
    before="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  if [[ "$current" == --*=* ]]; then  # where words are not split there
    words="$(_remit_values "$command ${current%%=*}" "${current#*=}" "${current%%=*}=")"
  elif [[ "$before" != -* ]] || ! words="$(_remit_values "$command $before" "$current" "")"; then
    words="$(_remit_words "$command")"
    # Options are offered after a dash: alone, they would all begin with the same two.
    [[ "$current" == -* || "$words" != -* ]] || words="$(_remit_names "$command $place")"
    [[ -n "$words" ]] || _remit_takes "$command $place" || compopt +o default 2>/dev/null
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _remit remit
"""

_ZSH = """\
_remit() {
  local before="${words[CURRENT-1]}" current="${words[CURRENT]}" command found place
  local -a _remit_options
  command="$(_remit_command "${(@)words[2,CURRENT-1]}")"
  place="$(_remit_place "$command" "${(@)words[2,CURRENT-1]}")"
  _remit_store "${(@)words[2,CURRENT-1]}"
  if [[ "$current" == --*=* ]]; then
    found="$(_remit_values "$command ${current%%=*}" "${current#*=}" "${current%%=*}=")"
    compadd -V remit -- ${=found} || _files
  elif [[ "$before" == -* ]] && found="$(_remit_values "$command $before" "$current" "")"; then
    compadd -V remit -- ${=found}
  else
    found="$(_remit_words "$command")"
    # Options are offered after a dash: alone, they would all begin with the same two.
    [[ "$current" == -* || "$found" != -* ]] || found="$(_remit_names "$command $place")"
    if [[ -n "$found" ]]; then
      compadd -V remit -- ${=found}
    elif _remit_takes "$command $place"; then
      _files
    fi
  fi
}
# In a folder of fpath, this file is the body of _remit at its first call.
if [[ "${funcstack[1]}" == _remit ]]; then
  _remit "$@"
else
  compdef _remit remit
fi
"""


def _bash() -> str:
    return _shared() + _BASH


def _zsh() -> str:
    return "#compdef remit\n" + _shared() + _ZSH


def _shared() -> str:
    """Return the functions that bash and zsh share."""
    kinds = _kinds_by_place()
    lists = [_quote(place) for place, kind in kinds.items() if kind.endswith(",")]
    names = [
        f"    {_quote(place)}) {_print_names(kind, _TYPED)} ;;" for place, kind in kinds.items()
    ]
    return _WORDS.format(
        cases="\n".join(map(_words_case, ["", *_paths()])),
        paths="\n".join(map(_path_case, _paths())),
        names="\n".join(names),
        lists="|".join(lists),
        takes="|".join(map(_quote, _places_of_texts())),
        valued="|".join(map(_quote, _options_with_values())),
        store_options="|".join(_STORE_OPTIONS),
        store_patterns="|".join(map("{}=*".format, _STORE_OPTIONS)),
    )


def _words_case(path: str) -> str:
    """Return the case of a path in a shell function that prints the words after it."""
    return f"    {_quote(path)}) printf '%s' {_quote(' '.join(_next_words(path)))} ;;"


def _path_case(path: str) -> str:
    """Return the case of a word that leads to a path."""
    return f"      {_quote(_last_step(path))}) found={_quote(path)} ;;"


def _all_arguments() -> Iterator[tuple[str, Argument, list[str]]]:
    """Yield every argument of every command, with its command and its places."""
    for path, command in COMMANDS.items():
        for argument, places in _number_places(arguments_of(command)):
            yield path, argument, places


def _kinds_by_place() -> dict[str, str]:
    """Return the kind of word at each place: after a command, or after an option."""
    found = {"help 0": f"={' '.join(members(''))}"}
    for path, argument, places in _all_arguments():
        if kind := _kind(path, argument):
            found |= {f"{path} {place}": kind for place in places}
    return found


def _places_of_texts() -> list[str]:
    """Return the places after commands that take a text or a file."""
    found: list[str] = []
    for path, argument, places in _all_arguments():
        if not argument.is_option and not _kind(path, argument):
            found += map(f"{path} {{}}".format, places)
    return found


def _options_with_values() -> list[str]:
    """Return the options that take a value, each after its command."""
    return [
        f"{path} {argument.name}"
        for path, argument, _ in _all_arguments()
        if argument.is_option and argument.switch is None
    ]


def _number_places(arguments: Sequence[Argument]) -> Iterator[tuple[Argument, list[str]]]:
    """Yield each argument with its places: the name of an option, or positions."""
    number = 0
    for argument in arguments:
        if argument.is_option:
            yield argument, [argument.name]
            continue
        count = 1
        if argument.many:
            count = _MANY
        yield argument, list(map(str, range(number, number + count)))
        number += count


def _kind(path: str, argument: Argument) -> str:
    """Return the kind of an argument: agents, tasks or questions, or words after an equals sign.

    A comma at the end means a comma-separated list.
    """
    if argument.field == "agents":
        return "agents,"
    if argument.metavar == "TOOLS" and argument.field != "tools":
        return f"={' '.join(TOOLS)},"
    placeholder = argument.metavar or argument.name
    if words := argument.choices or _VALUES.get(placeholder):
        return f"={' '.join(words)}"
    if placeholder == "TASK":
        return _TASKS_FOR.get(path, "tasks")
    return _KINDS.get(placeholder, "")


def _print_names(kind: str, typed: str) -> str:
    """Return the shell command that prints names, with the options that select the store.

    It prints nothing if there is no workspace.
    """
    if kind.startswith("="):
        return f"printf '%s' {_quote(kind[1:].rstrip(','))}"
    return f"remit completion --names {kind.rstrip(',')} {typed} 2>/dev/null"


def _paths() -> list[str]:
    """Return every group and command, and each of them after `help`."""
    paths = list(filter(None, (*GROUPS, *COMMANDS)))
    return [*paths, *map("help {}".format, paths)]


def _last_step(path: str) -> str:
    """Return a path as its parent, a space and its last word; the parent may be empty."""
    if " " in path:
        return path
    return f" {path}"


def _next_words(path: str) -> list[str]:
    """Return the words and options that can follow a path."""
    if path in COMMANDS:
        return options_of(COMMANDS[path])
    group = path.removeprefix("help ")
    return list(members(group)) if group in GROUPS else []


_TYPED_IN_FISH = "(__remit_store)"
_FISH = """\
function __remit_at
  set -l path ''
  set -l place 0
  set -l value ''
  for word in (commandline -opc)[2..-1]
    if test -n "$value"
      set value ''
      continue
    end
    switch "$path $word"
{paths}
      case {valued} {store_values}
        set value value
      case '*'
        string match -q -- '-?*' $word; or set place (math $place + 1)
    end
  end
  test "$path" = "$argv[1]"; or return 1
  test (count $argv) -eq 1; or contains -- "$place" $argv[2..-1]
end
function __remit_list
  set -l typed (string replace -r '^--[a-z-]+=' '' -- (commandline -ct))
  set -l before (string match -r '^.*,' -- $typed)
  while read -l name
    string match -q -- "*,$name,*" ",$before"; or printf '%s%s\\n' "$before" $name
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
    return _FISH.format(
        paths="\n".join(map(_fish_path_case, _paths())),
        lines="\n".join([*_fish_words(), *_fish_arguments()]),
        valued=" ".join(map(_quote, _options_with_values())),
        store_options=" ".join(_STORE_OPTIONS),
        store_values=" ".join(map("'* {}'".format, _STORE_OPTIONS)),  # also before the command
        store_patterns=" ".join(map("'{}=*'".format, _STORE_OPTIONS)),
    )


def _fish_path_case(path: str) -> str:
    """Return the case of a word that leads to a path."""
    return f"      case {_quote(_last_step(path))}\n        set path {_quote(path)}"


def _fish_words() -> Iterator[str]:
    """Yield the lines that complete the words after each group, also after `help`."""
    for group in GROUPS:
        for path in (group, f"help {group}".rstrip()):
            for name, text in members(group).items():
                yield f"{_fish_at(path)} -a {name} -d {_quote(text)}"


def _fish_arguments() -> Iterator[str]:
    """Yield the lines that complete options and arguments."""
    for path, argument, places in _all_arguments():
        if argument.is_option:
            yield f"{_fish_at(path)} {_fish_option(path, argument)}"
        elif words := _fish_choices(path, argument) or _fish_files(argument):
            yield f"{_fish_at(path, places)} {words}"


def _fish_option(path: str, argument: Argument) -> str:
    """Return the options of `complete` that describe an option and its value."""
    name = f"-s {argument.name[1:]}"
    if argument.name.startswith("--"):
        name = f"-l {argument.name[2:]}"
    told = f"{name} -d {_quote(argument.help)}"
    if argument.switch is not None:
        return told
    if choices := _fish_choices(path, argument):
        return f"{told} -x {choices}"
    return f"{told} -r -F"


def _fish_choices(path: str, argument: Argument) -> str:
    """Return the option of `complete` that offers the words of an argument; empty if unknown."""
    kind = _kind(path, argument)
    if not kind:
        return ""
    names = _print_names(kind, _TYPED_IN_FISH)
    if kind.endswith(","):
        names += " | string split ' ' | __remit_list"
    elif kind.startswith("="):
        names += " | string split ' '"
    return f"-a {_quote(f'({names})')}"


def _fish_files(argument: Argument) -> str:
    """Return the option of `complete` that offers files, for an argument that takes one."""
    return "-F" if argument.name == "FILE" else ""


def _fish_at(path: str, places: Sequence[str] = ()) -> str:
    """Return the start of a line that completes after a path, at some of its places."""
    condition = " ".join([f'__remit_at "{path}"', *places])
    return f"complete -c remit -n {_quote(condition)}"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
