"""A workspace in a git repository: git and the tools on top of it leave the database and the
token alone.
"""

import os
import subprocess
from pathlib import Path

import pytest

from remit import Remit
from remit.adapters.gitignore import HEADER, OWN, keep_gitignore
from tests.surfaces.repository import Repository, titles
from tests.surfaces.shell import Shell, served

OLD = HEADER + "remit.db*\ntoken\n"
"""The file as earlier versions wrote it."""


def test_git_leaves_a_live_database_alone(repository: Repository) -> None:
    assert repository.remit("init").code == 0
    assert repository.remit("task", "create", "First").code == 0
    with served(repository, "--no-worker"):
        status = repository.git("status", "--porcelain", "--untracked-files=all").split()
        assert [name for name in status if "remit" in name] == [".remit/config.toml"]
        repository.git("stash", "-u")
        assert titles(repository) == ["First"]
        repository.git("stash", "pop")
        assert repository.remit("task", "create", "Second").code == 0
        repository.git("add", "-A")
        repository.git("commit", "--quiet", "-m", "Add the workspace")
        (repository.folder / "code.py").write_text("print(2)\n")
        (repository.folder / "new.py").touch()
        repository.git("stash", "-u")
        repository.git("clean", "-fd")
        assert titles(repository) == ["Second", "First"]
    tracked = repository.git("ls-files", ".remit").split()
    assert tracked == [".remit/config.toml"]
    assert repository.remit("doctor", "--verify").code == 0


def test_agents_guides_templates_and_settings_can_be_committed(repository: Repository) -> None:
    repository.remit("init")
    wanted = [".remit/config.toml"]
    for name in ("agents", "guides", "templates"):
        (repository.folder / ".remit" / name / "one.md").write_text("text\n")
        wanted.append(f".remit/{name}/one.md")
    repository.git("add", "-A")
    assert sorted(repository.git("ls-files", ".remit").split()) == sorted(wanted)


@pytest.mark.parametrize("before", [None, OLD], ids=["new", "of an earlier version"])
def test_guides_and_templates_may_be_named_like_the_database_and_the_token(
    repository: Repository, before: str | None
) -> None:
    folder = repository.folder / ".remit"
    assert repository.remit("init").code == 0
    if before is not None:
        (folder / ".gitignore").write_text(before)
    assert repository.remit("task", "create", "First").code == 0
    wanted = [
        ".remit/config.toml",
        ".remit/guides/remit.db-locked.md",
        ".remit/templates/token/one.md",
    ]
    for name in wanted[1:]:
        (repository.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.folder / name).write_text("text\n")
    repository.git("add", "-A")
    assert repository.git("ls-files", ".remit").split() == wanted


@pytest.mark.parametrize("kind", ["symbolic link", "folder"])
def test_a_file_that_git_cannot_read_is_reported_once_and_the_database_is_protected(
    repository: Repository, kind: str
) -> None:
    assert repository.remit("init").code == 0
    (repository.folder / ".git" / "info" / "exclude").unlink()
    file = repository.folder / ".remit" / ".gitignore"
    file.unlink()
    if kind == "folder":
        file.mkdir()
    else:
        (repository.folder / "ignored").write_text("/remit.db*\n/token\n")
        file.symlink_to("../ignored")
    said = repository.remit("task", "create", "First")
    assert said.code == 0
    assert said.err.count(f"{file} is a {kind}; git does not read it.") == 1
    assert "is a" not in repository.remit("task", "create", "Second").err
    assert repository.remit("token", "show").code == 0
    repository.git("add", "-A")
    tracked = repository.git("ls-files", ".remit").split()
    assert not [name for name in tracked if "remit.db" in name or "token" in name]


@pytest.mark.parametrize("tracked", [True, False])
def test_a_stash_with_the_file_of_a_user_can_be_applied(
    repository: Repository, tracked: bool
) -> None:
    folder = repository.folder / ".remit"
    folder.mkdir()
    (folder / ".gitignore").write_text("agents/mine.md\n")
    if tracked:
        repository.git("add", "-A")
        repository.git("commit", "--quiet", "-m", "Ignore my agent")
    assert repository.remit("task", "create", "First").code == 0
    added = (folder / ".gitignore").read_text()
    assert added == "agents/mine.md\n/remit.db*\n/token\n"
    repository.git("stash", "-u")
    assert titles(repository) == ["First"]
    assert repository.remit("task", "create", "Second").code == 0
    repository.git("clean", "-fd")
    repository.git("stash", "pop")
    assert (folder / ".gitignore").read_text() == added
    repository.git("add", "-A")
    wanted = [".remit/.gitignore", ".remit/config.toml"]
    assert [
        name for name in repository.git("ls-files", ".remit").split() if name not in wanted
    ] == []
    assert titles(repository) == ["Second", "First"]


def _committed_workspace(repository: Repository) -> None:
    """A branch `old` without the workspace, and a later commit with the generated file."""
    repository.git("branch", "old")
    assert repository.remit("init").code == 0
    assert repository.remit("task", "create", "First").code == 0
    assert repository.remit("token", "show").code == 0
    repository.git("add", "--force", ".remit/.gitignore", ".remit/config.toml")
    repository.git("commit", "--quiet", "-m", "Add the workspace")


@pytest.mark.parametrize("words", [["clean", "-fd"], ["stash", "-u"]], ids=" ".join)
def test_a_branch_without_the_committed_file_keeps_the_database(
    repository: Repository, words: list[str]
) -> None:
    _committed_workspace(repository)
    token = (repository.folder / ".remit" / "token").read_text()
    repository.git("checkout", "--quiet", "old")
    repository.git(*words)
    assert titles(repository) == ["First"]
    assert (repository.folder / ".remit" / "token").read_text() == token
    repository.git("checkout", "--quiet", "-")
    assert titles(repository) == ["First"]


@pytest.mark.parametrize("kind", ["clone", "linked work tree", "submodule"])
def test_a_copy_of_the_repository_keeps_the_database_of_its_branches(
    repository: Repository, kind: str, tmp_path: Path
) -> None:
    _committed_workspace(repository)
    other = tmp_path.parent / f"{tmp_path.name}-other"
    if kind == "clone":
        repository.git("clone", "--quiet", ".", str(other))
    elif kind == "linked work tree":
        repository.git("worktree", "add", "--quiet", "-b", "side", str(other))
    else:
        source, outer = str(repository.folder), tmp_path.parent / f"{tmp_path.name}-outer"
        outer.mkdir()
        allowed = ("-c", "protocol.file.allow=always")
        Repository(outer).git(*allowed, "submodule", "--quiet", "add", source, "inner")
        other = outer / "inner"
    copy = Shell(other)
    assert copy.remit("task", "create", "Here").code == 0
    commands = (["checkout", "--quiet", "HEAD~1"], ["clean", "-fd"])
    for command in commands:
        subprocess.run(["git", *command], cwd=other, env=repository.env, check=True)
    assert (other / ".remit" / "remit.db").exists()
    assert titles(copy) == ["Here"]


def test_the_repository_excludes_each_line_once_and_may_be_read_only(
    repository: Repository,
) -> None:
    info = repository.folder / ".git" / "info"
    assert repository.remit("init").code == 0
    for _ in range(2):
        assert repository.remit("task", "create", "First").code == 0
    lines = (info / "exclude").read_text().splitlines()
    assert [line for line in lines if ".remit" in line] == [
        "**/.remit/remit.db*",
        "**/.remit/token",
    ]
    (info / "exclude").unlink()
    info.rmdir()
    info.write_text("not a folder")
    (repository.folder / ".remit" / ".gitignore").unlink()
    assert repository.remit("task", "create", "Second").code == 0
    assert (repository.folder / ".remit" / ".gitignore").read_text() == OWN


@pytest.mark.parametrize(
    "commands",
    [
        [("clean", "-fd"), ("clean", "-fd")],
        [("stash", "-u"), ("clean", "-fd")],
        [("stash", "-u"), (), ("stash", "pop")],
    ],
    ids=["clean twice", "stash and clean", "stash and pop"],
)
@pytest.mark.parametrize("when", ["by the user", "before git init"])
def test_git_keeps_the_database_beside_an_untracked_file_of_the_user(
    tmp_path: Path, commands: list[tuple[str, ...]], when: str
) -> None:
    folder = tmp_path / ".remit"
    folder.mkdir()
    if when == "by the user":
        (folder / ".gitignore").write_text("remit.db*\ntoken\n")
    else:
        (folder / ".gitignore").write_text("agents/mine.md\n")
        assert Shell(tmp_path).remit("task", "create", "First").code == 0
    repository = Repository(tmp_path)
    (tmp_path / "code.py").touch()
    repository.git("add", "code.py")
    repository.git("commit", "--quiet", "-m", "Add the code")
    if when == "by the user":
        assert repository.remit("task", "create", "First").code == 0
    assert titles(repository) == ["First"]
    for words in commands:
        if words:
            repository.git(*words)
        else:
            assert repository.remit("task", "list").code == 0
    assert titles(repository) == ["First"]


def test_lines_that_a_user_lost_are_added_again_without_a_stash(repository: Repository) -> None:
    file = repository.folder / ".remit" / ".gitignore"
    file.parent.mkdir()
    file.write_text("agents/mine.md\n")
    for _ in range(2):
        keep_gitignore(file.parent)
        assert file.read_text() == "agents/mine.md\n/remit.db*\n/token\n"
        file.write_text("agents/mine.md\n")
    exclude = (repository.folder / ".git" / "info" / "exclude").read_text()
    assert exclude.count("**/.remit/remit.db*\n**/.remit/token\n") == 1


def test_a_linked_work_tree_excludes_in_its_repository(repository: Repository) -> None:
    repository.git("worktree", "add", "--quiet", "../other")
    folder = repository.folder.parent / "other" / "sub" / ".remit"
    folder.mkdir(parents=True)
    (folder / ".gitignore").write_text("mine\n")
    (folder / "remit.db").touch()
    keep_gitignore(folder)
    (folder / ".gitignore").write_text("mine\n")
    status = repository.git("-C", "../other", "status", "--porcelain", "--untracked-files=all")
    assert status.split() == ["??", "sub/.remit/.gitignore"]


def test_a_fresh_workspace_gets_its_file_beside_a_stash(repository: Repository) -> None:
    (repository.folder / "code.py").write_text("print(2)\n")
    repository.git("stash")
    assert repository.remit("init").code == 0
    file = repository.folder / ".remit" / ".gitignore"
    assert file.read_text() == HEADER + "/remit.db*\n/token\n"


@pytest.mark.parametrize(
    "words",
    [["task", "list"], ["task", "create", "Work"], ["doctor"], ["token", "show"]],
    ids=" ".join,
)
def test_every_command_makes_the_file_where_it_is_missing(words: list[str], tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.remit("init")
    shell.remit("task", "create", "First")
    file = tmp_path / ".remit" / ".gitignore"
    file.unlink()
    assert shell.remit(*words).code == 0
    assert file.read_text() == HEADER + "/remit.db*\n/token\n"


async def test_the_library_makes_the_file(tmp_path: Path) -> None:
    (tmp_path / ".remit").mkdir()
    async with Remit.open(tmp_path, worker=False):
        assert (tmp_path / ".remit" / ".gitignore").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", HEADER + "/remit.db*\n/token\n"),
        ("agents/\n", "agents/\n/remit.db*\n/token\n"),
        ("no end of line", "no end of line\n/remit.db*\n/token\n"),
        ("token\r\n", "token\r\n/remit.db*\n"),
        ("/remit.db*\n/token\n", "/remit.db*\n/token\n"),
        ("remit.db*\ntoken\n", "remit.db*\ntoken\n"),
        ("mine\n" + OLD, "mine\n" + OLD),
        (OLD, HEADER + "/remit.db*\n/token\n"),
        (OLD + "mine\ntoken\n", HEADER + "/remit.db*\n/token\nmine\ntoken\n"),
        (OLD + "!remit.db\n", HEADER + "/remit.db*\n/token\n!remit.db\n"),
        ("remit.db*\n!remit.db\ntoken\n", "remit.db*\n!remit.db\ntoken\n"),
        ("!remit.db\n", "!remit.db\n/token\n"),
        ("!remit.db-wa*\n!token\n", "!remit.db-wa*\n!token\n"),
        ("*\n!config.toml\n", "*\n!config.toml\n/remit.db*\n/token\n"),
        ("  token\ntoken\t\n", "  token\ntoken\t\n/remit.db*\n/token\n"),
        ("foo\x0ctoken\nremit.db*  \n", "foo\x0ctoken\nremit.db*  \n/token\n"),
        ("!*/\n!token/\n", "!*/\n!token/\n/remit.db*\n/token\n"),
    ],
)
def test_a_file_that_is_there_is_only_added_to(before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / ".gitignore"
    file.write_bytes(before.encode())
    for _ in range(2):
        keep_gitignore(tmp_path)
        assert file.read_bytes() == after.encode()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    folder, target = tmp_path / "folder", tmp_path / "target"
    folder.mkdir()
    target.write_text("mine\n")
    (folder / ".gitignore").symlink_to(target)
    keep_gitignore(folder)
    assert target.read_text() == "mine\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(elsewhere)
    keep_gitignore(tmp_path / "link")
    assert list(elsewhere.iterdir()) == []


def test_an_unwritable_file_does_not_stop_the_command(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    (odd / ".gitignore").mkdir(parents=True)
    keep_gitignore(odd)
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / ".gitignore")
    keep_gitignore(pipe)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    keep_gitignore(closed)
    keep_gitignore(tmp_path / "missing")


def test_the_doctor_names_a_secret_that_the_user_shows_to_git(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.remit("init").code == 0
    with (tmp_path / ".remit" / ".gitignore").open("a") as file:
        file.write("!token\n")
    said = shell.remit("doctor")
    assert said.code == 1
    assert said.out.count(".gitignore shows token to git. Remove the line !token.") == 1


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("!*\n", "remit.db, remit.db-wal, remit.db-shm, remit.db-journal, remit.db-wake, token"),
        ("!t*\n", "token"),
        ("!**/token\n", "token"),
        ("!*\n/remit.db*\n", "token"),
        ("!*\n/remit.db*\n/token\n", ""),
        ("!*/\n", ""),
    ],
)
def test_the_doctor_names_a_pattern_that_shows_secrets_to_git(
    repository: Repository, lines: str, told: str
) -> None:
    assert repository.remit("init").code == 0
    (repository.folder / ".remit" / ".gitignore").write_text(lines)
    assert repository.remit("token", "show").code == 0
    said = repository.remit("doctor")
    assert said.code == (1 if told else 0)
    line = lines.partition("\n")[0]
    assert (f".gitignore shows {told} to git. Remove the line {line}." in said.out) == bool(told)
    status = repository.git("status", "--porcelain", "--untracked-files=all").split()
    assert (".remit/token" in status) == bool(told)
