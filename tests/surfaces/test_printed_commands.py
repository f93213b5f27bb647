"""Commands that are printed for a person to copy: each one reaches the store of the command that
printed it.
"""

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import remit
from remit.errors import NotFound
from remit.surfaces.cli.command_table import COMMANDS
from remit.surfaces.cli.parser import arguments_of, parse
from remit.surfaces.text.printed_commands import (
    command_line,
    repeat_options,
    with_commands,
    with_commands_in,
    with_commands_in_line,
)
from tests.surfaces.cli_host import Said, Shop, shop
from tests.surfaces.shell import Shell

SOURCE = Path(remit.__file__).parent
FIRST_WORDS = {path.split()[0] for path in COMMANDS}
NAMED = re.compile(rf"(.?)\bremit ({'|'.join(sorted(FIRST_WORDS))})\b", re.DOTALL)
"""A command in a text, and the sign before it."""
AT_SERVER = "Start one on the server's machine with: remit worker"
NOT_TO_COPY = {
    AT_SERVER,
    "There is no remit server at ",
    "This remit mcp process is stopping.",
    "remit hook adds nothing. ",
    "# Whether the agents build and general may change files and run sandboxed commands here. Set"
    " with: remit init --allow-edits or --no-allow-edits",
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


FOLLOWED = re.compile(r"`remit [a-z][^`]*`(?!$|\.(?: |$))")
"""A marked command that is not at the end of a sentence."""
IN_PROGRESS = (
    "someone to resume it (`remit task resume {id}`)",
    "your answer (`remit inbox`)",
    "the next tick (`remit schedule show`)",
)
"""Parts of a line of progress, which is never wrapped and mentions commands in brackets."""


def _hints(path: Path) -> Iterator[str]:
    """The texts of a module from which commands are printed: no help, and no documentation."""
    exempt = {*_help(), *IN_PROGRESS, *NOT_TO_COPY}
    about_settings = re.compile("Let `build` and|The (?:log format|address|port) |# Settings of")
    yield from (
        text for text in _texts(path) if text not in exempt and not about_settings.match(text)
    )


def test_every_marked_command_ends_its_sentence() -> None:
    followed = [
        f"{path.relative_to(SOURCE)}: {text}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name not in ("completion.py", "instructions.py", "openapi.py")
        for text in _hints(path)
        if FOLLOWED.search(text)
    ]
    assert not followed, "a dot or a bracket behind a command is copied with it"


IN_BRACKETS = ("_asks", "_shorten")
"""Functions for lines of progress, which are never wrapped and mention commands in brackets."""


def _names_of_commands(function: ast.AST) -> set[str]:
    """The variables of a function that are printed commands."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_command(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_command(value: ast.expr, names: set[str]) -> bool:
    match value:
        case ast.Call(func=ast.Name(id="command_line" | "start_worker" | "how_to_answer")):
            return True
        case ast.Name(id=name):
            return name in names or name in ("NO_SERVER_WORKER", "_START_ON_SERVER", "ACCEPT")
        case _:
            return False


def test_nothing_follows_a_printed_command_in_its_line() -> None:
    followed: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef) or function.name in IN_BRACKETS:
                continue
            names = _names_of_commands(function)
            for text in (node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)):
                for part, after in itertools.pairwise(text.values):
                    is_command = isinstance(part, ast.FormattedValue) and _is_command(
                        part.value, names
                    )
                    ends = isinstance(after, ast.Constant) and str(after.value).startswith("\n")
                    if is_command and not ends:
                        followed.append(f"{path.relative_to(SOURCE)}: {ast.unparse(text)}")
    assert not followed


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ({}, "remit task run 1"),
        ({"workspace": None}, "remit task run 1"),
        ({"workspace": "/a b"}, "remit --workspace '/a b' task run 1"),
        ({"workspace": "it's"}, """remit --workspace 'it'"'"'s' task run 1"""),
        ({"workspace": "-d"}, "remit --workspace=-d task run 1"),
        ({"workspace": "- d"}, "remit --workspace='- d' task run 1"),
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
    assert with_commands("Do `remit task run 1`. Not `rm`.") == f"Do {printed}\nNot `rm`."
    assert with_commands("Not `rm`. Do `remit task run 1`.") == f"Not `rm`. Do {printed}"
    in_line = with_commands_in_line("Do `remit task run 1`. Or `remit task run 1`.")
    assert in_line == f"Do `{printed}`. Or {printed}"
    assert with_commands_in_line("Do `remit task run 1`. Not `rm`.") == f"Do `{printed}`. Not `rm`."


def test_an_option_that_a_text_names_itself_is_not_repeated() -> None:
    repeat_options({"workspace": "/w"})
    assert command_line("init --workspace /v") == "remit init --workspace /v"


def test_a_hidden_password_is_explained_once(at: Shop) -> None:
    where = ("--database-url", "postgresql://ann:hunter2@db/x")
    at.host.attended = False
    said = at("task", "create", "Work", "--owner", "general", *where)
    assert "remit --database-url postgresql://ann:PASSWORD@db/x task run 1\n" in said.err
    assert said.err.endswith("\nPASSWORD stands for the password, which is not shown.\n")
    assert "PASSWORD" not in at("task", "list", *where).err
    assert "hunter2" not in said.err


def test_a_folder_that_does_not_exist_is_named_so_that_it_can_be_typed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    said = shell.remit("--workspace=-d", "task", "list")
    (command,) = re.findall("(?<=: )remit .*", said.err)
    assert shell.remit(*shlex.split(command)[1:]).code == 0
    made = shell.remit("init", "--workspace=-d")
    (command,) = re.findall("(?<=: )remit .*", made.err)
    assert command == "remit --workspace=-d init --allow-edits"
    assert shell.remit(*shlex.split(command)[1:]).code == 0


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


@pytest.mark.parametrize("columns", [None, 40], ids=["piped", "narrow"])
@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1"], ids=["store", "server"])
def test_every_command_that_a_command_prints_is_whole_and_repeats_the_workspace(
    at: Shop, url: str | None, columns: int | None, tmp_path: Path
) -> None:
    at.host.attended, at.host.url = False, url
    folder = tmp_path / "my work"
    folder.mkdir()
    printed = 0
    for argv in _typed(at):
        said: Said = at(*argv, "--workspace", str(folder), columns=columns, NO_COLOR="1")
        for text in (said.err, said.out):
            shown = " ".join(text.split()).replace(AT_SERVER, "")
            shown = re.sub("Ask `remit(…| task list` for me)", "", shown)
            assert "`remit" not in shown, argv
            forgotten = [found[0] for found in NAMED.finditer(shown)]
            assert not forgotten, (argv, text)
            for command in re.findall(r"(?:: |^ *)(remit --workspace .*)", text, re.MULTILINE):
                parse(shlex.split(command)[1:])
                printed += 1
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
