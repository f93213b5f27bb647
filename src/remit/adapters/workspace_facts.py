"""Describes the workspace and the machine to agents: platform, date, git branch and state."""

import asyncio
import os
import platform
import re
import stat
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from remit.domain.prompts.environment import Environment
from remit.ports import Clock

FRESH_SECONDS = 5.0
"""How long a git state is reused: many sub-agents start at the same time."""
GIT_SECONDS = 2.0
"""The time limit for git; in a huge repository the state stays unknown."""
MAX_BYTES = 262_144
"""The number of bytes of a git file that are read."""
HEADER = re.compile(r'\[(?P<section>[a-z-]+)(?P<named> "[^"\\]*")?\]', re.IGNORECASE)
SETTING = re.compile(r"(?P<key>[a-z][a-z0-9-]*)\s*(=.*)?", re.IGNORECASE)
HARMLESS_SECTIONS = frozenset({"branch", "gc", "maintenance", "pull", "push", "submodule", "user"})
HARMLESS_SETTINGS = {
    "core": frozenset(
        {
            "autocrlf",
            "bare",
            "eol",
            "filemode",
            "ignorecase",
            "logallrefupdates",
            "precomposeunicode",
            "repositoryformatversion",
            "symlinks",
            "worktree",
        }
    ),
    "extensions": frozenset({"objectformat", "refstorage", "worktreeconfig"}),
    "remote": frozenset({"fetch", "prune", "pushurl", "tagopt", "url"}),
}
"""Repository settings with which `git status` runs no other program.

Many others can make it run one, and new versions of git add more: filters, included files, file
system monitors, objects fetched on demand.
"""
HIDDEN_FROM_TOOLS = ":(top,exclude,glob)**/.remit/**"
"""The pathspec that leaves out `.remit`, which tools cannot see."""


class GitState(NamedTuple):
    """The state of a repository; unknown values are empty."""

    branch: str = ""
    commit: str = ""
    """The commit of a detached HEAD."""
    changed_files: int | None = None


class _Repository(NamedTuple):
    folder: Path
    """The folder that contains the files."""
    git_folder: Path


class WorkspaceSurroundings:
    """Describes one workspace folder."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder, clock
        self._lock = asyncio.Lock()
        self._git = GitState()
        self._fresh_until = float("-inf")

    async def look(self) -> Environment:
        """Describe the workspace as it is now."""
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._git = await asyncio.to_thread(git_state, self._folder)
                self._fresh_until = time.monotonic() + FRESH_SECONDS
        return Environment(
            workspace=str(self._folder),
            date=self._clock.now().date().isoformat(),
            platform=f"{platform.system()} {platform.machine()}",
            branch=self._git.branch,
            commit=self._git.commit,
            changed_files=self._git.changed_files,
        )


def git_state(folder: Path) -> GitState:
    """Return the branch and the number of changed files; empty outside a repository.

    The number is None if a setting of the repository could make git run a program.
    """
    repository = _find_repository(folder)
    if repository is None:
        return GitState()
    state = _read_head(repository.git_folder)
    if state == GitState() or not _is_harmless(repository.git_folder):
        return state
    return state._replace(changed_files=_count_changed_files(repository))


def _find_repository(folder: Path) -> _Repository | None:
    """Return the repository that contains a folder; None if there is none."""
    for place in (folder, *folder.parents):
        found = place / ".git"
        if found.is_dir():
            return _Repository(place, found)
        if found.is_file():  # a linked worktree or a submodule
            target = _read_line(found).removeprefix("gitdir:").strip()
            return _Repository(place, place / target)
    return None


def _read_head(git_folder: Path) -> GitState:
    """Return the branch of a repository, or its commit if it is on none."""
    head = _read_line(git_folder / "HEAD")
    if head.startswith("ref: refs/heads/"):
        return GitState(branch=head.removeprefix("ref: refs/heads/"))
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", head):
        return GitState(commit=head[:12])
    return GitState()


def _read_line(path: Path) -> str:
    """Return the only line of a git file; empty if it cannot be read."""
    text = _read_text(path) or ""
    return text.strip()


def _read_text(path: Path) -> str | None:
    """Return the text of a git file; None if it cannot be read, is too large or is not a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return None
    if len(data) > MAX_BYTES:
        return None
    return data.decode(errors="replace")


def _is_harmless(git_folder: Path) -> bool:
    """Return True if every setting of the repository is known to run no program."""
    main = git_folder / _read_line(git_folder / "commondir")  # a work tree has it
    files = [main / "config", git_folder / "config.worktree"]
    existing = filter(os.path.lexists, files)
    return all(map(_has_harmless_settings, existing))


def _has_harmless_settings(path: Path) -> bool:
    """Return True if every line of a settings file is known to run no program."""
    config = _read_text(path)
    if config is None:
        return False
    section = ""
    for line in config.split("\n"):
        text = line.strip(" \t\r")
        header, setting = HEADER.fullmatch(text), SETTING.fullmatch(text)
        if header:
            section = header["section"].lower()
        elif setting and not text.endswith("\\"):
            if not _is_harmless_setting(section, setting["key"].lower()):
                return False
        elif text and not text.startswith(("#", ";")):
            return False
    return True


def _is_harmless_setting(section: str, key: str) -> bool:
    return section in HARMLESS_SECTIONS or key in HARMLESS_SETTINGS.get(section, ())


def _count_changed_files(repository: _Repository) -> int | None:
    """Return how many files git reports; None if it fails or takes too long."""
    # Name the repository: git would also accept a folder that looks like one.
    place = [f"--git-dir={repository.git_folder}", f"--work-tree={repository.folder}"]
    command = ["git", "-c", "core.fsmonitor=false", *place, "status"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [*command, "--porcelain", "--ignore-submodules=all", "--", HIDDEN_FROM_TOOLS],
            cwd=repository.folder,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
            env=_git_environment(),
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return len(done.stdout.splitlines())


def _git_environment() -> dict[str, str]:
    """Return the minimal environment for git: it takes no lock, asks nothing and fetches
    nothing.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    own = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    return {**kept, **own}
