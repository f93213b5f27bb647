"""Help, the version, completion, and what starting costs."""

import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from remit import __version__
from remit.surfaces.cli.command_table import COMMANDS, GROUPS
from tests.surfaces.cli_host import shop
from tests.surfaces.shell import Shell

SLOW = {"asyncio", "dataclasses", "inspect", "pydantic", "rich", "typer"}
SLOW |= {"difflib", "textwrap", "shutil", "subprocess", "unicodedata", "datetime", "json"}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_explains_itself(path: str) -> None:
    with shop() as at:
        said = at(*path.split(), "--help")
        assert (said.code, said.err) == (0, "")
        assert said.out.startswith(f"usage: remit {path}")
        assert COMMANDS[path].summary.split(".")[0] in " ".join(said.out.split())
        assert all(argument.help for argument in COMMANDS[path].arguments)


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_lists_what_is_in_it(group: str) -> None:
    with shop() as at:
        said = at(*group.split(), "--help")
        assert (said.code, said.err) == (0, "")
        assert GROUPS[group] in said.out
        assert at(*group.split(), "-h") == said
        for path in COMMANDS:
            if path.startswith(f"{group} ".lstrip()):
                assert f"\n  {path.removeprefix(group).split()[0]} " in said.out


def test_the_version_is_printed() -> None:
    with shop() as at:
        assert at("--version") == (0, f"remit {__version__}\n", "")


def test_starting_loads_nothing_slow() -> None:
    """Each of these costs more than parsing the whole command line."""
    loaded = _modules("import sys, remit.surfaces.cli.main") - _modules("import sys")
    assert not loaded & SLOW
    assert {
        name
        for name in loaded
        if name.startswith("remit.") and not name.startswith("remit.surfaces")
    } == {
        "remit.errors",
        "remit.domain",
        "remit.domain.text",
        "remit.domain.text.counting",
    }


@pytest.mark.parametrize(
    "words", [["task", "list"], ["task", "show", "1"], ["inbox"]], ids=" ".join
)
def test_commands_that_only_read_import_little(words: list[str], tmp_path: Path) -> None:
    at = Shell(tmp_path)
    assert (at.remit("init").code, at.remit("task", "create", "Work").code) == (0, 0)
    read = (
        f"import sys; from remit.__main__ import main; sys.argv[1:] = {[*words, '--json']}\ntry:"
        " main()\nexcept SystemExit: pass\n"
    )
    loaded = _modules(f"{read}print()", cwd=tmp_path, env=at.env) - _modules("import sys")
    assert "remit.adapters.stores.sqlite.reader" in loaded
    assert not loaded & {
        "asyncio",
        "genai_prices",
        "inspect",
        "remit.app.service",
        "remit.catalog",
        "remit.domain.planning.plan",
    }


def _modules(code: str, **where: Any) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
        **where,
    )
    return set(ran.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command_and_option(shell: str, tmp_path: Path) -> None:
    with shop() as at:
        script = at("completion", shell).out
    for path, command in COMMANDS.items():
        assert f"'{path}'" in script
        for argument in command.arguments:
            assert not argument.name.startswith("-") or argument.name.lstrip("-") in script
    file = tmp_path / "script"
    file.write_text(script)
    checker = which(shell)
    if checker:
        subprocess.run([checker, "-n", str(file)], check=True, capture_output=True)
    else:
        # zsh's part that bash can read too is the whole script but for its own expansions; fish's
        # quotes must at least pair.
        assert script.replace("'\\''", "").count("'") % 2 == 0


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("remit ta", ["task"]),
        ("remit task pa", ["pause"]),
        ("remit task resource ", ["add", "remove"]),
        ("remit task list --ow", ["--owner"]),
        ("remit --json task guide --js", ["--json"]),
        ("remit guide s", ["show"]),
        ("remit completion z", ["zsh"]),
        ("remit nonsense --zzz", []),
    ],
)
def test_bash_completes(typed: str, expected: list[str], tmp_path: Path) -> None:
    with shop() as at:
        script = tmp_path / "script"
        script.write_text(at("completion", "bash").out)
    words = typed.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _remit; printf"
        ' "%s\\n" "${COMPREPLY[@]}"'
    )
    found = subprocess.run(
        ["bash", "--norc", "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert found == expected


MISTYPED = [
    ("task", "list"),
    ("task", "show", "1"),
    ("task", "create", "Work"),
    ("inbox",),
    ("doctor",),
    ("schedule", "show"),
    ("token", "show"),
    ("agents", "new", "painter"),
    ("agents", "check"),
    ("agents", "list"),
    ("run", "Look"),
    ("worker",),
    ("serve", "--port", "0"),
    ("mcp",),
]


@pytest.mark.parametrize("arguments", MISTYPED, ids=" ".join)
def test_a_named_folder_that_does_not_exist_is_refused_and_not_made(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    mistyped = tmp_path / "projcet"
    said = Shell(tmp_path).remit(*arguments, "--workspace", str(mistyped))
    assert (said.code, said.out) == (3, ""), said.err
    told = (
        f"error: The folder {mistyped} does not exist.\nCheck its name, or create it with: remit"
        f" init --workspace {mistyped}\n"
    )
    assert said.err.endswith(told)
    assert not mistyped.exists()


@pytest.mark.parametrize("arguments", MISTYPED, ids=" ".join)
def test_a_folder_that_does_not_exist_is_refused_beside_a_database(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    mistyped = tmp_path / "projcet"
    database = f"sqlite:///{tmp_path / 'remit.db'}"
    shell = Shell(tmp_path, REMIT_WORKSPACE=str(mistyped), REMIT_DATABASE_URL=database)
    said = shell.remit(*arguments)
    assert (said.code, said.out) == (3, ""), said.err
    assert f"error: The folder {mistyped} does not exist.\n" in said.err
    assert not mistyped.exists()
    assert not (tmp_path / "remit.db").exists()


@pytest.mark.parametrize("arguments", MISTYPED[:6], ids=" ".join)
def test_a_named_folder_without_a_workspace_is_left_as_it_is(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    said = Shell(tmp_path).remit(*arguments, "--workspace", str(other))
    assert (said.code, said.out) == (3, ""), said.err
    assert (
        said.err
        == f"error: There is no workspace in {other}.\nCreate one with: remit init --workspace"
        f" {other}\n"
    )
    assert list(other.iterdir()) == []


def test_init_makes_a_named_folder_and_says_so(tmp_path: Path) -> None:
    said = Shell(tmp_path).remit("init", "--workspace", str(tmp_path / "new"))
    assert (said.code, said.out) == (0, f"Workspace {tmp_path / 'new'}\n")
    assert (tmp_path / "new" / ".remit").is_dir()
