"""A look at the git state of a workspace runs no program that the workspace names, and always
ends.
"""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from remit.adapters.clock import SystemClock
from remit.adapters.workspace_facts import WorkspaceSurroundings
from remit.domain.prompts.environment import Allowance, Environment, environment_section
from tests.patience import patient

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
COMMAND = '"touch {mark}; cat"'
FILTERS = {
    "own line": '{old}[filter "x"]\n\tclean = {command}\n',
    "after another header": '{old}[core] [filter "x"] clean = {command}\n',
    "after a header without a space": '{old}[core][filter "x"]\nclean = {command}\n',
    "after a byte order mark": BYTE_ORDER_MARK + '[filter "x"]\nclean = {command}\n{old}',
    "old syntax": "{old}[filter.x]\nclean = {command}\n",
}


def git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("a\n")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "First")
    return folder


def change(folder: Path) -> None:
    """Change a file so that git must read it, through the filter named x, to compare it."""
    (folder / ".gitattributes").write_text("* filter=x\n")
    (folder / "file").write_text("b\n")
    os.utime(folder / "file", (1_000_000_000, 1_000_000_000))


async def look(folder: Path) -> Environment:
    async with asyncio.timeout(patient(20)):
        return await WorkspaceSurroundings(folder, SystemClock()).look()


@pytest.mark.parametrize("written", FILTERS.values(), ids=FILTERS)
async def test_filters_of_a_repository_do_not_run(tmp_path: Path, written: str) -> None:
    folder, mark = repository(tmp_path / "work"), tmp_path / "mark"
    config = folder / ".git" / "config"
    command = COMMAND.format(mark=mark)
    config.write_text(written.format(old=config.read_text(), command=command))
    change(folder)
    found = await look(folder)
    assert (found.branch, found.changed_files) == ("main", None)
    assert not mark.exists()


async def test_a_bare_repository_in_the_workspace_is_not_used(tmp_path: Path) -> None:
    folder, mark = repository(tmp_path / "outer") / "work", tmp_path / "mark"
    inner = repository(folder)
    for item in (inner / ".git").iterdir():
        item.rename(inner / item.name)
    (inner / ".git").rmdir()
    config = inner / "config"
    settings = (
        f'[core]\n\tworktree = {inner}\n[filter "x"]\n\tclean = {COMMAND.format(mark=mark)}\n'
    )
    config.write_text(f"{config.read_text()}{settings}")
    change(inner)
    found = await look(inner)
    assert found.branch == "main"
    assert found.changed_files is not None
    assert not mark.exists()


async def test_missing_objects_are_not_fetched(tmp_path: Path) -> None:
    source, mark, script = repository(tmp_path / "source"), tmp_path / "mark", tmp_path / "fetch"
    script.write_text(f'#!/bin/sh\ntouch {mark}\nexec git-upload-pack "$@"\n')
    script.chmod(0o700)
    git(source, "config", "uploadpack.allowFilter", "true")
    address = f"file://{source}"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=tree:0", address, "work")
    git(tmp_path / "work", "config", "remote.origin.uploadpack", str(script))
    found = await look(tmp_path / "work")
    assert (found.branch, found.changed_files) == ("main", None)
    assert not mark.exists()


async def test_files_that_are_not_what_git_writes_are_passed_over(tmp_path: Path) -> None:
    pipe, zero, secret = (tmp_path / name for name in ("pipe", "zero", "secret"))
    (pipe / ".git").mkdir(parents=True)
    os.mkfifo(pipe / ".git" / "HEAD")
    zero.mkdir()
    (zero / ".git").write_bytes(b"gitdir: a\0b")
    (secret / ".git").mkdir(parents=True)
    (secret / ".git" / "HEAD").write_text("password: hunter2")
    for folder in (pipe, zero, secret):
        section = environment_section(await look(folder), Allowance(3))
        assert "Git:" not in section


async def test_ordinary_repositories_are_described(tmp_path: Path) -> None:
    folder = repository(tmp_path / "main")
    git(folder, "remote", "add", "origin", "https://example.org/filter/include.git")
    git(folder, "config", "branch.main.remote", "origin")
    git(folder, "config", "user.email", "ann@example.org")
    git(folder, "worktree", "add", "-q", "-b", "side", "../linked")
    (folder / "inner").mkdir()
    (folder / "new").write_text("new")
    limits = Allowance(3)
    assert "Git: branch main, 1 changed file" in environment_section(await look(folder), limits)
    assert "Git: branch main, 1 changed file" in environment_section(
        await look(folder / "inner"), limits
    )
    linked = tmp_path / "linked"
    assert "Git: branch side, no changed files" in environment_section(await look(linked), limits)
    git(linked, "checkout", "-q", "--detach")
    commit = (folder / ".git" / "refs" / "heads" / "main").read_text()[:12]
    expected = f"Git: no branch (HEAD is at {commit}), no changed files"
    assert expected in environment_section(await look(linked), limits)


async def test_the_folder_of_remit_is_not_a_changed_file(tmp_path: Path) -> None:
    """No tool can see it."""
    folder = repository(tmp_path / "work")
    for place in (folder / ".remit", folder / "part" / ".remit"):
        place.mkdir(parents=True)
        (place / "config.toml").write_text("")
    assert (await look(folder)).changed_files == 0
    (folder / "file").write_text("b\n")
    (folder / "part" / "new").write_text("")
    assert (await look(folder)).changed_files == 2
    assert (await look(folder / "part")).changed_files == 2
