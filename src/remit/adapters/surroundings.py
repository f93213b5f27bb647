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

from remit.domain.environment import Environment
from remit.ports import Clock

FRESH_SECONDS = 5.0
"""How long one look at the git state is used: many sub-agents start at once."""
GIT_SECONDS = 2.0
"""How long git may take; in a huge repository its state stays unknown."""
MAX_BYTES = 262_144
"""How much of a file of git is read."""
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
"""The settings of a repository with which `git status` runs no other program.

There are many that make it do so, and more with new versions of git: filters, files that are
included, a monitor of the file system, objects that are fetched when they are missing.
"""
HIDDEN_FROM_TOOLS = ":(top,exclude,glob)**/.remit/**"
"""The pathspec that leaves out the files of remit itself, which no tool can see."""


class GitState(NamedTuple):
    """The state of a repository; what is unknown is empty."""

    branch: str = ""
    commit: str = ""
    """The commit that HEAD names, if it names no branch."""
    changed_files: int | None = None


class _Repository(NamedTuple):
    folder: Path
    """The folder that holds the files."""
    git_folder: Path


class WorkspaceSurroundings:
    """Looks at one workspace folder."""

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
    """Return the branch and how many files have changed; nothing outside of a repository.

    The number stays unknown (None) if a setting of the repository may make git run a program.
    """
    repository = _repository(folder)
    if repository is None:
        return GitState()
    state = _head(repository.git_folder)
    if not (state.branch or state.commit) or not _is_harmless(repository.git_folder):
        return state
    return state._replace(changed_files=_changed_files(repository))


def _repository(folder: Path) -> _Repository | None:
    for place in (folder, *folder.parents):
        found = place / ".git"
        if found.is_dir():
            return _Repository(place, found)
        if found.is_file():  # a linked worktree or a submodule
            target = (_text(found) or "").removeprefix("gitdir:").strip()
            return _Repository(place, place / target)
    return None


def _head(git_folder: Path) -> GitState:
    head = (_text(git_folder / "HEAD") or "").strip()
    if head.startswith("ref: refs/heads/"):
        return GitState(branch=head.removeprefix("ref: refs/heads/"))
    is_commit = re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", head)
    return GitState(commit=head[:12]) if is_commit else GitState()


def _text(path: Path) -> str | None:
    """The text of a file of git; None if it cannot be read, is too large or is not a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return None
    return data.decode(errors="replace") if len(data) <= MAX_BYTES else None


def _is_harmless(git_folder: Path) -> bool:
    """True if every setting of the repository is known to run no program."""
    common = git_folder / "commondir"
    main = git_folder
    if common.exists():
        main = git_folder / (_text(common) or "").strip()
    files = [main / "config", git_folder / "config.worktree"]
    texts = [_text(path) for path in files if os.path.lexists(path)]
    return all(text is not None and _has_harmless_settings(text) for text in texts)


def _has_harmless_settings(config: str) -> bool:
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


def _changed_files(repository: _Repository) -> int | None:
    # Git is told which repository to use: it would also take a folder with the files of one.
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
    return len(done.stdout.splitlines()) if done.returncode == 0 else None


def _git_environment() -> dict[str, str]:
    """Only what git needs to be found; it takes no lock, asks nothing and fetches nothing."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    own = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    return {**kept, **own}
