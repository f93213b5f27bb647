"""A workspace in a git repository: git and the tools on top of it leave the database and the token alone."""

import os
import subprocess
from pathlib import Path

import pytest

from remit import Remit
from remit.adapters.gitignore import HEADER, keep_gitignore
from tests.surfaces.test_command import Shell, served

OLD = HEADER + "remit.db*\ntoken\n"
"""The file as earlier versions wrote it."""


class Repository(Shell):
    """A git repository in which commands are typed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
        self.git("init", "--quiet")
        self.git("config", "user.email", "ann@example.org")
        self.git("config", "user.name", "Ann")

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.env, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "project"
    folder.mkdir()
    made = Repository(folder)
    (folder / "code.py").write_text("print(1)\n")
    made.git("add", "-A")
    made.git("commit", "--quiet", "-m", "Begin")
    return made


def titles(shell: Shell) -> list[str]:
    return [task["title"] for task in shell.remit("task", "list", "--json").json["tasks"]]


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
def test_guides_and_templates_may_be_named_like_the_database_and_the_token(repository: Repository, before: str | None) -> None:
    folder = repository.folder / ".remit"
    assert repository.remit("init").code == 0
    if before is not None:
        (folder / ".gitignore").write_text(before)
    assert repository.remit("task", "create", "First").code == 0
    wanted = [".remit/config.toml", ".remit/guides/remit.db-locked.md", ".remit/templates/token/one.md"]
    for name in wanted[1:]:
        (repository.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.folder / name).write_text("text\n")
    repository.git("add", "-A")
    assert repository.git("ls-files", ".remit").split() == wanted


@pytest.mark.parametrize("kind", ["symbolic link", "folder"])
def test_a_file_that_git_cannot_read_is_reported_once_and_the_database_is_protected(repository: Repository, kind: str) -> None:
    assert repository.remit("init").code == 0
    file = repository.folder / ".remit" / ".gitignore"
    file.unlink()
    if kind == "folder":
        file.mkdir()
    else:
        (repository.folder / "ignored").write_text("/remit.db*\n/token\n")
        file.symlink_to("../ignored")
    said = repository.remit("task", "create", "First")
    assert said.code == 0
    assert said.err.count(f"{file} is a {kind}, which git does not read.") == 1
    assert "is a" not in repository.remit("task", "create", "Second").err
    assert repository.remit("token", "show").code == 0
    repository.git("add", "-A")
    tracked = repository.git("ls-files", ".remit").split()
    assert not [name for name in tracked if "remit.db" in name or "token" in name]


@pytest.mark.parametrize("tracked", [True, False])
def test_a_stash_with_the_file_of_a_user_can_be_applied(repository: Repository, tracked: bool) -> None:
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
    assert [name for name in repository.git("ls-files", ".remit").split() if name not in wanted] == []
    assert titles(repository) == ["Second", "First"]


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


@pytest.mark.parametrize("words", [["task", "list"], ["task", "create", "Work"], ["doctor"], ["token", "show"]], ids=" ".join)
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


def test_what_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
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
