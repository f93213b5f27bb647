"""The `.gitignore` of `.remit/`: keeps the database and the token out of the hands of git and of tools that are built on it."""

import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("remit.workspace")

NAME = ".gitignore"
PATTERNS: dict[str, tuple[str, ...]] = {
    "/remit.db*": ("remit.db", "remit.db-wal", "remit.db-shm", "remit.db-journal", "remit.db-wake"),
    "/token": ("token",),
}
"""Each line that the file must have, and the names in `.remit/` that it is for. Without the slash it would also hide guides and templates."""
HEADER = """\
# The database and the token of remit do not belong in git. Config, agents, guides and templates do.
.gitignore
"""
"""How a file of our own begins. It ignores itself: `git stash -u` would take it away, and every command makes it again, so that
`git stash pop` would find it in its way."""
OWN = HEADER + "".join(f"{line}\n" for line in PATTERNS)
"""How a file of our own begins in whole."""
OLD_OWN = OWN.replace("\n/", "\n")
"""How it began in earlier versions."""
EXCLUDES = tuple(f"**/.remit{line}" for line in PATTERNS)
"""The same lines for `info/exclude` of a repository."""
_MOST_BYTES = 1_000_000


def keep_gitignore(folder: Path) -> None:
    """Make the file, or append the lines that are missing.

    A folder that cannot be written, or is a link, is left alone. Lines that are added to a file of
    the user are also written to `info/exclude` of the repository. If a stash takes them away, they
    are not added again while there is a stash: `git stash pop` would refuse to change the file.
    Where git does not read the file, because it is a link or a folder, only the repository excludes.
    """
    with suppress(OSError):
        if folder.is_symlink():
            return
        if unread := _what_git_does_not_read(folder / NAME):
            _exclude_instead(folder, unread)
            return
        content = _read(folder / NAME)
        if content.startswith(OLD_OWN.encode()):
            _anchor_lines(folder / NAME)
            content = _read(folder / NAME)
        if not _missing(content):
            return
        repository = _repository(folder)
        if repository is not None and _is_stashed(repository):
            return
        if repository is not None and content:
            with suppress(OSError):  # a repository that cannot be written
                _exclude(repository)
        _append(folder / NAME, _added_lines)


def _what_git_does_not_read(path: Path) -> str:
    """What stands in the place of the file and is not read by git; empty if it is a file or missing."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(mode):
        return "symbolic link"
    return "folder" if stat.S_ISDIR(mode) else ""


def _exclude_instead(folder: Path, unread: str) -> None:
    """Have the repository ignore the database and the token, and warn when that changes something."""
    repository = _repository(folder)
    if repository is None or not _missing_excludes(_read(repository / "info" / "exclude")):
        return
    problem = f"{folder / NAME} is a {unread}, which git does not read."
    try:
        _exclude(repository)
    except OSError:
        log.warning("%s Replace it with a file: git can see the database and the token of remit.", problem)
    else:
        log.warning("%s The database and the token of remit are excluded in %s instead.", problem, repository / "info" / "exclude")


def _anchor_lines(path: Path) -> None:
    """Replace the lines of an earlier version at the start of a file of our own; lines of people stay."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        content = _content(handle)
        if content.startswith(OLD_OWN.encode()):
            # The new content is longer, so that all of the old one is overwritten.
            os.pwrite(handle, OWN.encode() + content.removeprefix(OLD_OWN.encode()), 0)
    finally:
        os.close(handle)


def _repository(folder: Path) -> Path | None:
    """The git folder of the repository that a folder is in; None if it is in none."""
    for above in folder.absolute().parents:
        found = above / ".git"
        if found.is_file():
            found = _linked_repository(found)
        if (found / "HEAD").is_file():
            return found
    return None


def _linked_repository(file: Path) -> Path:
    """The repository that a `.git` file names: of a linked work tree the common one, or a submodule."""
    name = _read(file).decode(errors="replace").removeprefix("gitdir:").strip()
    linked = file.parent / name
    return linked / _read(linked / "commondir").decode(errors="replace").strip()


def _is_stashed(repository: Path) -> bool:
    """True if a stash may have the lines that were added to a file of the user."""
    refs = (repository / "logs" / "refs" / "stash", repository / "refs" / "stash")
    if not any(ref.exists() for ref in refs):
        return False
    return not _missing_excludes(_read(repository / "info" / "exclude"))


def _exclude(repository: Path) -> None:
    """Have a repository ignore the database and the token, whatever the files in it say."""
    path = repository / "info" / "exclude"
    if _missing_excludes(_read(path)):
        path.parent.mkdir(exist_ok=True)
        _append(path, _missing_excludes)


def _missing_excludes(content: bytes) -> str:
    there = content.decode(errors="replace").splitlines()
    return "".join(f"{line}\n" for line in EXCLUDES if line not in there)


def _added_lines(content: bytes) -> str:
    missing = "".join(f"{line}\n" for line in _missing(content))
    return missing if content or not missing else HEADER + missing


def _read(path: Path) -> bytes:
    """The content of a regular file; empty if there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with os.fdopen(handle, "rb") as file:
        return _content(file.fileno())


def _append(path: Path, added: Callable[[bytes], str]) -> None:
    """Add lines in one write, under a lock: several processes may open a workspace at once."""
    import fcntl

    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(path, flags, 0o644)
    try:
        # The process that holds the lock adds the same lines.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = _content(handle)
        if lines := added(content):
            start = "" if not content or content.endswith(b"\n") else "\n"
            os.write(handle, (start + lines).encode())
    finally:
        os.close(handle)


def _content(handle: int) -> bytes:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
        raise OSError("not a file that could be added to")
    return os.pread(handle, _MOST_BYTES, 0)


def _missing(content: bytes) -> list[str]:
    """The lines to add: those that are not there, but for names that the user wants git to see (`!token`)."""
    lines = [line.removesuffix("\r").rstrip(" ") for line in content.decode("utf-8-sig", errors="replace").split("\n")]  # as git reads it
    there = {line.removeprefix("/") for line in lines}
    # A negation that ends in a slash is about folders alone, and a run-time folder is not worth showing the database for.
    negated = [line.removeprefix("!").removeprefix("/") for line in lines if line.startswith("!") and not line.endswith("/")]
    return [line for line, names in PATTERNS.items() if line.removeprefix("/") not in there and not _concerns(negated, names)]


def _concerns(patterns: list[str], names: tuple[str, ...]) -> bool:
    if not patterns:
        return False
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
