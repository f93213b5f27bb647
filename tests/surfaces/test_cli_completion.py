"""Completion of what only the workspace knows, as each shell asks for it, and `remit help`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patient
from tests.surfaces.cli_host import shop
from tests.surfaces.shell import Shell

ASK = {
    "bash": (
        """
COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=()
for word in "$@"; do  # as readline does: a word ends before and after an equals sign
  case "$word" in
    *=?*) COMP_WORDS+=("${word%%=*}" "=" "${word#*=}") ;;
    *=) COMP_WORDS+=("${word%%=*}" "=") ;;
    *) COMP_WORDS+=("$word") ;;
  esac
done
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_remit; printf "%s " "${COMPREPLY[@]}"
"""
    ),
    # What the completion system of zsh calls: the function, with the words and a builtin that takes
    # the matches.
    "zsh": (
        """
words=("$@"); CURRENT=$#; compadd() { shift 3; print -r -- $@ }; _files() { }
_remit
"""
    ),
    "fish": 'complete --do-complete="$argv"',
}
"""How each shell is asked for what could follow some words."""


def completed(shell: Shell, *words: str, by: str = "bash") -> list[str]:
    """What a shell completes the last word to."""
    return [name for name in offered(shell, *words, by=by) if name.startswith(words[-1])]


def offered(shell: Shell, *words: str, by: str = "bash") -> list[str]:
    """What a shell offers for the last word; it must print no error."""
    script = shell.remit("completion", by).out
    remit = f'"{sys.executable}" -m remit'
    function = (
        f"function remit; {remit} $argv; end" if by == "fish" else f'remit() {{ {remit} "$@"; }}'
    )
    if by == "zsh":
        function += "\ncompdef() { }"
    command = [
        by,
        "-c",
        f"{function}\n{script}\n{ASK[by]}",
        *(() if by == "fish" else (by,)),
        *words,
    ]
    limit = patient(60)
    done = subprocess.run(
        command,
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        text=True,
        timeout=limit,
        check=True,
    )
    assert done.stderr == ""
    return (
        [line.partition("\t")[0] for line in done.stdout.splitlines()]
        if by == "fish"
        else done.stdout.split()
    )


@pytest.fixture(params=["bash", "zsh", "fish"])
def by(request: pytest.FixtureRequest) -> str:
    """Every shell that there is a script for."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def test_agents_tasks_and_states_are_completed(tmp_path: Path, durable_url: str, by: str) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    shell.remit("init")
    (tmp_path / ".remit" / "agents").mkdir(exist_ok=True)
    (tmp_path / ".remit" / "agents" / "reviewer.md").write_text(
        "---\ndescription: Reviews.\n---\nReview.\n"
    )
    shell.remit("task", "create", "One", "--owner", "general")
    shell.remit("task", "create", "Two", "--owner", "general")
    assert completed(shell, "remit", "run", "Look", "--agent", "re", by=by) == ["reviewer"]
    assert completed(shell, "remit", "task", "create", "T", "--owner", "pl", by=by) == ["plan"]
    assert completed(shell, "remit", "agents", "show", "e", by=by) == ["explore"]
    assert set(completed(shell, "remit", "task", "show", "", by=by)) >= {"1", "2"}
    assert set(completed(shell, "remit", "task", "create", "T", "--depends-on", "", by=by)) == {
        "1",
        "2",
    }
    assert completed(shell, "remit", "task", "list", "--state", "r", by=by) == ["running"]
    assert completed(shell, "remit", "task", "update", "1", "--status", "c", by=by) == ["canceled"]


def test_names_come_from_the_store_that_the_command_names(tmp_path: Path, by: str) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    elsewhere = Shell(there)
    elsewhere.remit("init")
    elsewhere.remit("task", "create", "One", "--owner", "general")
    shell = Shell(here)
    url = f"sqlite:///{there}/.remit/remit.db"
    for typed in (("--workspace", str(there)), (f"--workspace={there}",), ("--database-url", url)):
        assert completed(shell, "remit", "task", "show", *typed, "", by=by)[:1] == ["1"], typed
        assert completed(shell, "remit", *typed, "task", "show", "", by=by)[:1] == ["1"], typed
        assert completed(shell, "remit", "task", *typed, "show", "", by=by)[:1] == ["1"], typed
    assert "1" not in completed(shell, "remit", "task", "show", "", by=by)


def test_values_after_an_equals_sign_are_completed(tmp_path: Path, by: str) -> None:
    shell = Shell(tmp_path)
    shell.remit("init")
    prefix = {"bash": ""}  # bash completes only what follows the sign, where readline splits words
    for words, value in (
        (("remit", "run", "x", "--agent=ge"), "general"),
        (("remit", "task", "list", "--status=dra"), "draft"),
        (("remit", "task", "list", "--status="), "draft"),
    ):
        option = words[-1].partition("=")[0]
        found = offered(shell, *words, by=by)
        assert f"{prefix.get(by, f'{option}=')}{value}" in found, (words, found)


def test_the_words_of_help_are_completed(tmp_path: Path, by: str) -> None:
    shell = Shell(tmp_path)
    assert completed(shell, "remit", "help", "ta", by=by) == ["task"]
    assert completed(shell, "remit", "help", "task", "cr", by=by) == ["create"]
    assert set(completed(shell, "remit", "help", "task", "resource", "", by=by)) >= {
        "add",
        "remove",
    }


def test_after_a_comma_the_next_name_of_a_list_is_completed(tmp_path: Path, by: str) -> None:
    shell = Shell(tmp_path)
    shell.remit("init")
    assert completed(shell, "remit", "worker", "--agents", "general,ex", by=by) == [
        "general,explore"
    ]
    assert completed(shell, "remit", "worker", "--agents", "ex", by=by) == ["explore"]


def test_tools_and_models_are_completed(tmp_path: Path, by: str) -> None:
    shell = Shell(tmp_path)
    assert completed(shell, "remit", "run", "--allow", "Ed", by=by) == ["Edit"]
    assert completed(shell, "remit", "run", "--allow", "Edit,Ba", by=by) == ["Edit,Bash"]
    assert sorted(offered(shell, "remit", "run", "--model", "", by=by)) == ["light", "main"]


def test_ended_tasks_are_offered_only_where_they_can_be_used(tmp_path: Path, by: str) -> None:
    shell = Shell(tmp_path)
    shell.remit("init")
    for title in ("One", "Two"):
        shell.remit("task", "create", title, "--owner", "general")
    shell.remit("task", "cancel", "1")
    assert [
        name for name in offered(shell, "remit", "task", "cancel", "", by=by) if name.isdigit()
    ] == ["2"]
    assert sorted(
        name for name in offered(shell, "remit", "task", "show", "", by=by) if name.isdigit()
    ) == ["1", "2"]


def test_tasks_are_offered_to_commands_that_can_take_them(tmp_path: Path, by: str) -> None:
    shell = Shell(tmp_path)
    shell.remit("init")
    for title in ("Waits", "Rests", "Ended"):
        shell.remit("task", "create", title, "--owner", "general")
    shell.remit("task", "pause", "2")
    shell.remit("task", "cancel", "3")
    for command, names in (("pause", ["1"]), ("resume", ["2"]), ("rerun", ["3"])):
        found = offered(shell, "remit", "task", command, "", by=by)
        assert [name for name in found if name.isdigit()] == names, command


def test_each_place_after_a_command_is_completed_with_what_can_stand_there(
    tmp_path: Path, by: str
) -> None:
    shell = Shell(tmp_path)
    shell.remit("init")
    for title in ("One", "Two"):
        shell.remit("task", "create", title, "--owner", "general")
    agents = ["build", "explore", "general", "plan", "summary"]
    typed = ("remit", "task", "subtask", "1", "Title")
    assert sorted(offered(shell, *typed, "", by=by)) == agents
    assert sorted(offered(shell, *typed, "--for-step", "0", "", by=by)) == agents
    assert sorted(offered(shell, "remit", "export", "", by=by)) == ["events", "tasks"]
    assert not {"1", "2"} & set(offered(shell, "remit", "task", "run", "1", "", by=by))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("run", "--effort"), ["high", "low", "medium", "none"]),
        (("serve", "--log-format"), ["json", "text"]),
        (("task", "list", "--scope"), ["all", "mine", "tree"]),
    ],
)
def test_the_values_of_options_are_completed(
    tmp_path: Path, words: tuple[str, ...], values: list[str], by: str
) -> None:
    assert sorted(offered(Shell(tmp_path), "remit", *words, "", by=by)) == values


def test_options_are_offered_only_after_a_dash(tmp_path: Path, by: str) -> None:
    shell = Shell(tmp_path)
    shell.remit("init")
    assert not [
        name for name in offered(shell, "remit", "task", "run", "1", "", by=by) if name[0] == "-"
    ]
    assert "--json" in offered(shell, "remit", "task", "run", "1", "--", by=by)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_first_tab_in_zsh_completes_from_a_file_in_fpath(tmp_path: Path) -> None:
    """The completion system autoloads the file; matches keep their order by `-V`."""
    shell = Shell(tmp_path)
    (tmp_path / "_remit").write_text(shell.remit("completion", "zsh").out)
    script = (
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit && compinit -u -d {tmp_path}/dump\n"
        "compadd() { print -r -- $@ }; words=(remit task sh); CURRENT=3\n"
        "print -r -- $_comps[remit]; _remit; words=(remit help tas); _remit"
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", script],
        cwd=tmp_path,
        env=shell.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(60),
    )
    used, first, second = done.stdout.splitlines()
    assert used == "_remit"
    assert first.startswith("-V remit -- ")
    assert ("show" in first.split(), "task" in second.split()) == (True, True)
    assert done.stderr == ""


def test_a_name_is_offered_once_in_a_list(tmp_path: Path, by: str) -> None:
    found = completed(Shell(tmp_path), "remit", "run", "--allow", "Edit,", by=by)
    assert "Edit,Write" in found
    assert "Edit,Edit" not in found


def test_completion_help_says_how_to_install_it_in_each_shell() -> None:
    with shop() as at:
        said = at("completion", "--help").out
    for line in (
        'eval "$(remit completion bash)"',
        'autoload -U compinit && compinit; eval "$(remit completion zsh)"',
        "remit completion fish > ~/.config/fish/completions/remit.fish",
    ):
        assert line in said


def test_without_a_workspace_nothing_is_completed_or_printed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert completed(shell, "remit", "task", "list", "--parent", "") == []
    assert list(tmp_path.glob(".remit")) == [], "asking makes no workspace"


def test_completion_needs_a_shell() -> None:
    with shop() as at:
        assert at("completion").code == 2


def test_help_is_a_command_too() -> None:
    with shop() as at:
        assert at("help").out == at("--help").out
        assert at("help", "task").out == at("task", "--help").out
        assert at("help", "task", "create").out == at("task", "create", "--help").out
        for words, wrong_path in (
            (("task", "create", "foo"), "task create foo"),
            (("run", "extra"), "run extra"),
        ):
            wrong = at("help", *words)
            assert (
                wrong.code,
                f"There is no command 'remit {wrong_path}'." in wrong.err,
                wrong.out,
            ) == (2, True, "")
        wrong = at("help", "task", "creat")
        assert (wrong.code, "Did you mean: remit task create?" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    "argv",
    [
        ("task", "create", "T", "--owner", "explroe"),
        ("agents", "show", "explroe"),
        ("task", "create", "T", "--owner", "Explroe"),
    ],
)
def test_a_slip_in_an_agents_name_is_recognized(argv: tuple[str, ...]) -> None:
    with shop() as at:
        assert (
            "Did you mean explore? Available: build, explore, general, plan, summary."
            in at(*argv).err
        )


def test_an_event_wraps_at_words() -> None:
    with shop() as at:
        task = at.create("A title " + "with several words " * 4)
        lines = at("task", "events", task, columns=80).out.splitlines()
        assert max(map(len, lines)) <= 80
        words = " ".join(" ".join(lines).split())
        assert "A title with several words with several words" in words, "no word is cut in two"
