"""The `.gitignore` of `.remit/`: keeps the database and the token away from git and git-based
tools.
"""

import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, product
from pathlib import Path

log = logging.getLogger("remit.workspace")

NAME = ".gitignore"
PATTERNS: dict[str, tuple[str, ...]] = {
    "/remit.db*": ("remit.db", "remit.db-wal", "remit.db-shm", "remit.db-journal", "remit.db-wake"),
    "/token": ("token",),
}
"""Each required line of the file, and the names in `.remit/` that it covers.

Without the slash a line would also hide guides and templates.
"""
_UNREADABLE = {stat.S_IFLNK: "symbolic link", stat.S_IFDIR: "folder"}
"""What git does not read in the place of the file."""
HEADER = """\
# The database and the token of remit do not belong in git. Config, agents, guides and templates do.
.gitignore
"""
"""The start of a generated file.

The file ignores itself: otherwise `git stash -u` would remove it, the next command would create it
again, and `git stash pop` would fail.
"""
OWN = HEADER + "".join(f"{line}\n" for line in PATTERNS)
"""The full content of a generated file."""
OLD_OWN = OWN.replace("\n/", "\n")
"""The content that earlier versions generated."""
EXCLUDES = tuple(f"**/.remit{line}" for line in PATTERNS)
"""The same lines for `info/exclude` of a repository."""
_MOST_BYTES = 1_000_000


def exposed(folder: Path) -> dict[str, list[str]]:
    """Return the lines with `!` that show secrets to git, each with the names that it shows."""
    shown: dict[str, list[str]] = {}
    with suppress(OSError):
        lines = _split_lines(_read(folder / NAME))
        for name in chain.from_iterable(PATTERNS.values()):
            # The last line that matches decides.
            matching = [line for line in lines if _matches(line.removeprefix("!"), name)]
            if matching and matching[-1].startswith("!"):
                shown.setdefault(matching[-1], []).append(name)
    return shown


def keep_gitignore(folder: Path) -> None:
    """Create the file or append the missing lines.

    A folder that is a link or not writable is left alone. In a repository, the required lines are
    also written to `info/exclude`: git can remove the file, for example when it checks out a branch
    from before the file was committed. If a stash removes the lines, they are not added again while
    the stash exists: otherwise `git stash pop` would refuse to change the file. If git does not
    read the file because it is a link or a folder, only `info/exclude` is written.
    """
    with suppress(OSError):
        if folder.is_symlink():
            return
        unread = _unreadable_kind(folder / NAME)
        if unread:
            _exclude_instead(folder, unread)
        else:
            _keep_file(folder)


def _keep_file(folder: Path) -> None:
    """Create the file or append the missing lines, unless a stash may contain them."""
    content = _read(folder / NAME)
    if content.startswith(OLD_OWN.encode()):
        _anchor_lines(folder / NAME)
        content = _read(folder / NAME)
    is_missing_lines = bool(_find_missing(content))
    repository = _find_repository(folder)
    if is_missing_lines and repository is not None and _is_stashed(repository):
        return
    if repository is not None:
        with suppress(OSError):  # the repository is not writable
            _exclude(repository)
    if is_missing_lines:
        _append(folder / NAME, _added_lines)


def _unreadable_kind(path: Path) -> str:
    """Return what is in the place of the file if git does not read it; empty for a file or
    no file.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return ""
    return _UNREADABLE.get(stat.S_IFMT(mode), "")


def _exclude_instead(folder: Path, unread: str) -> None:
    """Exclude the database and the token in the repository, and log a warning if that
    changes it.
    """
    repository = _find_repository(folder)
    if repository is None or not _missing_excludes(_read(repository / "info" / "exclude")):
        return
    problem = f"{folder / NAME} is a {unread}; git does not read it."
    try:
        _exclude(repository)
    except OSError:
        log.warning("%s Replace it with a file: git can see remit's database and token.", problem)
    else:
        log.warning(
            "%s remit's database and token are excluded in %s instead.",
            problem,
            repository / "info" / "exclude",
        )


def _anchor_lines(path: Path) -> None:
    """Update the lines of an earlier version at the start of a generated file; other lines stay."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        content = _content(handle)
        if content.startswith(OLD_OWN.encode()):
            # The new content is longer, so it overwrites all of the old content.
            os.pwrite(handle, OWN.encode() + content.removeprefix(OLD_OWN.encode()), 0)
    finally:
        os.close(handle)


def _find_repository(folder: Path) -> Path | None:
    """Return the git folder of the repository that contains a folder; None if there is none."""
    for above in folder.absolute().parents:
        found = above / ".git"
        if found.is_file():
            found = _linked_repository(found)
        if (found / "HEAD").is_file():
            return found
    return None


def _linked_repository(file: Path) -> Path:
    """Return the repository that a `.git` file names: the common one of a linked work tree, or a
    submodule.
    """
    name = _read(file).decode(errors="replace").removeprefix("gitdir:").strip()
    linked = file.parent / name
    return linked / _read(linked / "commondir").decode(errors="replace").strip()


def _is_stashed(repository: Path) -> bool:
    """Return True if a stash may contain the lines that were added to a user's file."""
    refs = (repository / "logs" / "refs" / "stash", repository / "refs" / "stash")
    excludes = repository / "info" / "exclude"
    return any(map(Path.exists, refs)) and not _missing_excludes(_read(excludes))


def _exclude(repository: Path) -> None:
    """Exclude the database and the token in a repository, independent of its files."""
    path = repository / "info" / "exclude"
    if _missing_excludes(_read(path)):
        path.parent.mkdir(exist_ok=True)
        _append(path, _missing_excludes)


def _missing_excludes(content: bytes) -> str:
    """Return the lines that `info/exclude` lacks."""
    there = content.decode(errors="replace").splitlines()
    return "".join(f"{line}\n" for line in EXCLUDES if line not in there)


def _added_lines(content: bytes) -> str:
    """Return the lines that the file lacks, with a header for a new file."""
    missing = "".join(map("{}\n".format, _find_missing(content)))
    if missing and not content:
        return HEADER + missing
    return missing


def _read(path: Path) -> bytes:
    """Return the content of a regular file; empty if there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with os.fdopen(handle, "rb") as file:
        return _content(file.fileno())


def _append(path: Path, added: Callable[[bytes], str]) -> None:
    """Append lines in one write under a lock: several processes may open a workspace at once."""
    import fcntl

    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(path, flags, 0o644)
    try:
        # The process that holds the lock adds the same lines.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = _content(handle)
        lines = added(content)
        if not lines:
            return
        if content and not content.endswith(b"\n"):
            lines = f"\n{lines}"
        os.write(handle, lines.encode())
    finally:
        os.close(handle)


def _content(handle: int) -> bytes:
    """Return the content of an open file; `OSError` if nothing should be added to it."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
        raise OSError("not a file that could be added to")
    return os.pread(handle, _MOST_BYTES, 0)


def _find_missing(content: bytes) -> list[str]:
    """Return the missing lines, except for names that the user wants in git (`!token`)."""
    lines = _split_lines(content)
    there = {line.removeprefix("/") for line in lines}
    negated = [line.removeprefix("!") for line in lines if line.startswith("!")]
    wanted = [line for line, names in PATTERNS.items() if not _match_any(negated, names)]
    return [line for line in wanted if line.removeprefix("/") not in there]


def _split_lines(content: bytes) -> list[str]:
    """Split a file as git does."""
    lines = content.decode("utf-8-sig", errors="replace").split("\n")
    return [line.removesuffix("\r").rstrip(" ") for line in lines]


def _match_any(patterns: list[str], names: tuple[str, ...]) -> bool:
    """Return whether a pattern matches a name."""
    return any(_matches(pattern, name) for name, pattern in product(names, patterns))


def _matches(pattern: str, name: str) -> bool:
    """Return whether a pattern of git matches a file in `.remit/`.

    A pattern that ends with a slash matches only folders.
    """
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern.removeprefix("**/").removeprefix("/"))
