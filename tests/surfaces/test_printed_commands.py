"""Commands that are printed for a person to copy: each one reaches the store of the command that
printed it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import remit
from remit.errors import NotFound
from remit.surfaces.cli.command_table import COMMANDS
from remit.surfaces.cli.parser import arguments_of
from remit.surfaces.text.printed_commands import (
    command_line,
    repeat_options,
    with_commands,
    with_commands_in,
)
from tests.surfaces.cli_host import Said, Shop, shop

SOURCE = Path(remit.__file__).parent
FIRST_WORDS = {path.split()[0] for path in COMMANDS}
NAMED = re.compile(rf"(.?)\bremit ({'|'.join(sorted(FIRST_WORDS))})\b", re.DOTALL)
"""A command in a text, and the sign before it."""
AT_SERVER = (
    "Start one: remit worker or remit serve (on the server's machine).",
    "on the server's machine: remit worker or remit serve",
)
NOT_TO_COPY = {
    *AT_SERVER,
    "There is no remit server at ",
    "This remit mcp process is stopping.",
    "remit hook adds nothing. ",
    "# Whether build and general change files here and run sandboxed commands: remit init"
    " --allow-edits, --no-allow-edits",
}
"""Texts with the name of a command that reaches no store, or the store of another machine."""


@pytest.fixture(autouse=True)
def no_options() -> Iterator[None]:
    yield
    repeat_options({})


@pytest.fixture
def at() -> Iterator[Shop]:
    with shop() as opened:
        yield opened


def _texts(path: Path) -> Iterator[str]:
    """The strings of a module that are not docstrings."""
    tree = ast.parse(path.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            yield str(node.value)


def _help() -> set[str]:
    """The texts of `--help`, which is the same for every store."""
    examples = {command.example for command in COMMANDS.values()}
    return examples | {
        argument.help for command in COMMANDS.values() for argument in arguments_of(command)
    }


def test_no_source_text_has_a_command_that_cannot_repeat_options() -> None:
    exempt = NOT_TO_COPY | _help()
    forgotten = [
        f"{path.relative_to(SOURCE)}: {text}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "completion.py"  # scripts for shells
        for text in _texts(path)
        if text not in exempt and any(found[1] != "`" for found in NAMED.finditer(text))
    ]
    assert not forgotten, "write `remit …` in backticks, or use command_line()"


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ({}, "remit task run 1"),
        ({"workspace": None}, "remit task run 1"),
        ({"workspace": "/a b"}, "remit --workspace '/a b' task run 1"),
        ({"workspace": "it's"}, """remit --workspace 'it'"'"'s' task run 1"""),
        ({"url": "http://host:8420"}, "remit --url http://host:8420 task run 1"),
        (
            {"workspace": "/w", "database_url": "postgresql://ann@db/x"},
            "remit --workspace /w --database-url postgresql://ann@db/x task run 1",
        ),
        (
            {"database_url": "postgresql://ann:hunter2@db/x"},
            "remit --database-url postgresql://ann:PASSWORD@db/x task run 1",
        ),
        (
            {"database_url": "postgresql://db/x?user=ann&password=hunter2"},
            "remit --database-url 'postgresql://db/x?user=ann&password=PASSWORD' task run 1",
        ),
    ],
)
def test_a_printed_command_repeats_the_typed_options(
    options: dict[str, str | None], printed: str
) -> None:
    repeat_options(options)
    assert command_line("task run", "1") == printed
    assert with_commands("Do `remit task run 1`. Not `rm`.") == f"Do {printed}. Not `rm`."


def test_an_option_that_a_text_names_itself_is_not_repeated() -> None:
    repeat_options({"workspace": "/w"})
    assert command_line("init --workspace /v") == "remit init --workspace /v"


def test_commands_for_the_machine_of_a_server_have_no_options_of_the_client() -> None:
    repeat_options({"workspace": "/w", "url": "http://host:8420"})
    assert command_line("worker") == "remit worker"
    assert command_line("task list") == "remit --workspace /w --url http://host:8420 task list"


def test_an_error_keeps_its_kind_and_its_details() -> None:
    repeat_options({"workspace": "/w"})
    error = NotFound("No `remit inbox`.", hint="See `remit task list`.", details={"task_id": "1"})
    printed = with_commands_in(error)
    assert isinstance(printed, NotFound)
    assert str(printed) == "No remit --workspace /w inbox. See remit --workspace /w task list."
    assert printed.details == {"task_id": "1"}


WHERE = ("--workspace", "/my work")
PREFIX = "remit --workspace '/my work' "


def _typed(at: Shop) -> Iterator[tuple[str, ...]]:
    """Command lines whose answers name other commands."""
    yield ("task", "list")
    yield ("guide", "list")
    yield ("schedule", "show")
    yield ("schedule", "tick")
    yield ("session", "tasks", "s1")
    yield ("agents", "check")
    yield ("doctor",)
    yield ("init",)
    yield ("init", "--allow-edits")
    yield ("interact", "respond", "9-q1", "yes")
    yield ("task", "show", "99")
    yield ("task", "create", "Other", "--owner", "general")
    yield ("task", "create", "Later", "--owner", "general", "--draft")
    yield ("task", "create", "Nobody's")
    yield ("task", "create", "After", "--owner", "general", "--depends-on", "1")
    for task_id in ("1", "2", "3", "4"):
        yield ("task", "show", task_id)
        yield ("task", "run", task_id)
        yield ("task", "result", task_id)
        yield ("task", "updates", task_id)
    yield ("task", "pause", "1")
    yield ("task", "result", "1")
    yield ("task", "run", "1")
    yield ("task", "message", "1", "Hurry")
    yield ("run", "Ask `remit task list` for me")
    at.host.patience = 0
    yield ("task", "watch", "1")


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1"])
def test_every_command_that_a_command_prints_repeats_the_workspace(
    at: Shop, url: str | None, tmp_path: Path
) -> None:
    at.host.attended, at.host.url = False, url
    folder = tmp_path / "my work"
    folder.mkdir()
    printed = 0
    for argv in _typed(at):
        said: Said = at(*argv, "--workspace", str(folder))
        for text in (said.err, said.out):
            assert "`remit" not in text.replace("Ask `remit task list` for me", ""), argv
            shown = text.replace("Ask `remit task list` for me", "")
            for elsewhere in AT_SERVER:
                shown = shown.replace(elsewhere, "")
            forgotten = [found[0] for found in NAMED.finditer(shown)]
            assert not forgotten, (argv, text)
            printed += shown.count(f"remit --workspace '{folder}' ")
    assert printed > 20


def test_errors_in_json_repeat_the_workspace_too(at: Shop) -> None:
    at.create("Work", "--owner", "general")
    said = at("interact", "respond", "1", "yes", "--json", *WHERE)
    assert f"with: {PREFIX}inbox" in said.json["error"]["message"]


def test_the_text_of_a_user_is_not_changed(at: Shop) -> None:
    task_id = at.create("Fix `remit run` now", "--owner", "general")
    assert "Fix `remit run` now" in at("task", "show", task_id, *WHERE).out
    assert "Fix `remit run` now" in at("run", "Fix `remit run` now", *WHERE).err


def test_a_worker_logs_errors_in_json_also_after_options(
    at: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_LOG_FORMAT", "json")
    said = at(*WHERE, "worker", "-v", "-q")
    assert '"level": "error"' in said.err
