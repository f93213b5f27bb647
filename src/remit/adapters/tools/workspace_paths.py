"""Resolve paths from a model to files: always inside the workspace, never inside `.remit`.

A path is first resolved to one without links and then opened with links forbidden. So the checked
path is the opened path: if another process swaps a folder for a link in between, opening fails.
"""

import errno
import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

from remit.adapters.tools.openat import PASS_THROUGH, Opener, best_opener
from remit.domain.records.validate import describe
from remit.errors import InvalidParam, Problem, invalid

HIDDEN = ".remit"
NOT_WRITTEN = frozenset({HIDDEN, ".git"})
Item = TypeVar("Item")
MAX_FILE = 10_000_000
MAX_LINKS = 40
MAX_ENTRIES = 100_000
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
FOLDER = os.O_RDONLY | os.O_DIRECTORY

Check = Callable[[], None]


class NotThere(InvalidParam):
    """The path does not lead to a file."""


class PathDenied(InvalidParam):
    """The path is outside the workspace or protected."""


class Stamp(NamedTuple):
    """The identity of a file's content at the time it was read."""

    device: int
    inode: int
    size: int
    changed_ns: int


class Content(NamedTuple):
    """A file that was read: its path in the workspace, its bytes and its stamp."""

    path: str
    data: bytes
    stamp: Stamp


class Entry(NamedTuple):
    """An entry of a folder."""

    name: str
    kind: str
    """`folder`, `file`, `link`, or `other` for devices, pipes and sockets."""
    target: str = ""
    size: int = 0
    """The size of a file in bytes."""


class Workspace:
    """An open folder and the operations that are allowed beneath it."""

    def __init__(self, root: Path, opener: Opener | None = None) -> None:
        self.root = root.resolve(strict=True)
        # Keep links: a model may use the path it was given.
        self._spellings = tuple({str(self.root), os.path.abspath(root)})  # noqa: PTH100
        self._open = opener or best_opener()
        self.fd = os.open(self.root, FOLDER | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the folder."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def find(self, path: str, field: str) -> tuple[str, bool]:
        """Return the path without links, relative to the workspace, and whether it is a folder.

        Only files and folders are accepted.
        """
        with self._open_path(path, READ, field) as (fd, parts):
            mode = os.fstat(fd).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise _not_regular(field, path)
            return "/".join(parts) or ".", stat.S_ISDIR(mode)

    def read(self, path: str, field: str, limit: int = MAX_FILE) -> Content:
        """Read a regular file of at most `limit` bytes."""
        with self._open_path(path, READ, field) as (fd, parts):
            status = os.fstat(fd)
            _must_be_file(status, field, path)
            expected = f"a file of at most {limit:,} bytes"
            if status.st_size > limit:
                advice = "if you have Bash, use it to search or cut the file"
                raise invalid(field, f"is {status.st_size:,} bytes", f"{expected}; {advice}")
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(limit + 1)
            # Files in /proc and growing files have more bytes than their status reports.
            if len(data) > limit:
                raise invalid(field, f"is more than {limit:,} bytes", expected)
            return Content("/".join(parts), data, _stamp(status))

    def entries(self, path: str, field: str) -> list[Entry]:
        """List a folder by name, without `.remit`."""
        with self._open_path(path, FOLDER, field) as (fd, _):
            return _sorted_entries(fd)

    def walk(
        self, path: str, enter: Callable[[str], bool], check: Check
    ) -> Iterator[tuple[str, Entry]]:
        """Yield every entry below a folder with its path relative to that folder, in order.

        Links are listed but not followed.
        """
        check()
        start = _split(path)
        waiting = [(entry.name, entry) for entry in reversed(self._list_entries(start))]
        while waiting:
            inner, entry = waiting.pop()
            yield inner, entry
            if entry.kind == "folder" and enter(inner):
                check()
                below = self._list_entries([*start, *inner.split("/")])
                waiting.extend((f"{inner}/{entry.name}", entry) for entry in reversed(below))

    def fingerprint(self, check: Check) -> str | None:
        """Hash every entry with its size and times; return None if there are too many entries.

        Ignored files count because tools can read them. Times count because a file that was changed
        and changed back may have been read in between.
        """
        digest = hashlib.sha256()
        waiting: list[list[str]] = [[]]
        count = 0
        while waiting:
            check()
            folder = waiting.pop()
            for entry, stamp in self._stamp_entries(folder):
                count += 1
                if entry.kind == "folder":
                    waiting.append([*folder, entry.name])
                line = "\0".join((*folder, entry.name, entry.kind, entry.target, stamp, "\0"))
                digest.update(line.encode(errors="surrogateescape"))
            if count > MAX_ENTRIES:
                return None
        return digest.hexdigest()

    def changed_ns(self, path: str) -> int:
        """Return when a file was last written; 0 if it does not exist."""
        with suppress(OSError):
            fd = self._open(self.fd, path.split("/"), READ)
            try:
                return os.fstat(fd).st_mtime_ns
            finally:
                os.close(fd)
        return 0

    def write(
        self, path: str, data: bytes, field: str, check: Check, expected: Stamp | None = None
    ) -> bool:
        """Replace a file atomically and keep its mode; return True if the file is new.

        With `expected`, the file must still have that stamp.
        """
        parts = self._resolve(self._parts(path, field), field, path)
        if not parts:
            raise invalid(field, "is the workspace itself", "the path of a file")
        if not NOT_WRITTEN.isdisjoint(map(str.casefold, parts)):
            elsewhere = "a file elsewhere; tools do not write there"
            raise PathDenied(
                [Problem(field, f"{describe(path)} is inside .git or .remit", elsewhere)]
            )
        folder = self._make_folder(parts[:-1], field, path)
        try:
            before = self._status(folder, parts[-1], field, path)
            if expected and (before is None or _stamp(before) != expected):
                raise invalid(
                    field,
                    f"{describe(path)} was changed by another program",
                    "an unchanged file; read it again",
                )
            _replace(folder, parts[-1], data, before, check)
            return before is None
        except FileNotFoundError as error:  # another program removed the folder
            raise _refusal(error, field, path) from None
        finally:
            os.close(folder)

    # Path resolution

    @contextmanager
    def _open_path(
        self, path: str, flags: int, field: str
    ) -> Generator[tuple[int, list[str]], None, None]:
        """Open a path for the block; `InvalidParam` if it cannot be opened."""
        try:
            fd, parts = self._open_any(self._parts(path, field), flags, field, path)
        except OSError as error:
            raise _refusal(error, field, path) from None
        try:
            yield fd, parts
        finally:
            os.close(fd)

    def _open_any(
        self, parts: list[str], flags: int, field: str, path: str
    ) -> tuple[int, list[str]]:
        """Open a path; links are resolved only if it has some."""
        if ".." not in parts:
            _must_be_visible(parts, field, path)
            try:
                return self._open(self.fd, parts, flags), parts
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
        parts = self._resolve(parts, field, path)
        return self._open(self.fd, parts, flags), parts

    def _parts(self, path: str, field: str) -> list[str]:
        """Return the parts of a path; `PathDenied` if it is absolute and outside."""
        inside = self._relative_to_root(path)
        if inside is None:
            raise _outside(field, path)
        return _split(inside)

    def _relative_to_root(self, path: str) -> str | None:
        """Return a path relative to the workspace; None if it is outside."""
        if not path.startswith("/"):
            return path
        below = f"{path}/"
        roots = (root for root in self._spellings if below.startswith(f"{root.rstrip('/')}/"))
        return next((path[len(root) :] for root in roots), None)

    def _resolve(self, parts: Sequence[str], field: str, path: str) -> list[str]:
        """Resolve links and `..`; parts that do not exist yet are kept."""
        done: list[str] = []
        waiting = deque(parts)
        links = 0
        while waiting:
            part = waiting.popleft()
            if part == "..":
                if not done:
                    raise _outside(field, path)
                done.pop()
            elif (target := self._link(done, part)) is None:
                done.append(part)
            else:
                links += 1
                inside = self._relative_to_root(target)
                if links > MAX_LINKS or inside is None:
                    raise _outside(field, path)
                if target.startswith("/"):
                    done = []
                waiting.extendleft(reversed(_split(inside)))
        _must_be_visible(done, field, path)
        return done

    def _link(self, folder: Sequence[str], name: str) -> str | None:
        """Return the target of a link; None if the name is not a link."""
        with suppress(OSError):
            fd = self._open(self.fd, folder, PASS_THROUGH)
            try:
                return os.readlink(name, dir_fd=fd)
            finally:
                os.close(fd)
        return None

    def _list_entries(self, parts: Sequence[str]) -> list[Entry]:
        """List a folder by name; empty if it cannot be opened."""
        return self._read_folder(parts, _sorted_entries)

    def _stamp_entries(self, parts: Sequence[str]) -> list[tuple[Entry, str]]:
        """List a folder with the size and times of its files; empty if it cannot be opened."""
        return self._read_folder(parts, _stamped_entries)

    def _read_folder(self, parts: Sequence[str], read: Callable[[int], list[Item]]) -> list[Item]:
        """Return what a function reads from an open folder; empty if it cannot be opened."""
        try:
            fd = self._open(self.fd, parts, FOLDER)
        except OSError:
            return []  # removed, replaced or made unreadable after it was listed
        try:
            return read(fd)
        finally:
            os.close(fd)

    def _make_folder(self, parts: Sequence[str], field: str, path: str) -> int:
        """Create the missing folders of a path, and open the last one."""
        fd = self._open(self.fd, (), FOLDER)
        try:
            for part in parts:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
                below = self._open(fd, (part,), FOLDER)
                os.close(fd)
                fd = below
        except OSError as error:
            os.close(fd)
            raise _refusal(error, field, path) from None
        return fd

    def _status(self, folder: int, name: str, field: str, path: str) -> os.stat_result | None:
        """Return the status of a file to replace; None if it does not exist."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refusal(error, field, path) from None
        _must_be_file(status, field, path)
        if status.st_nlink > 1:
            expected = "a file with a single name"
            raise PathDenied(
                [Problem(field, f"{describe(path)} has {status.st_nlink} hard links", expected)]
            )
        return status


def _split(path: str) -> list[str]:
    """Return the parts of a path without empty ones and dots."""
    return [part for part in path.split("/") if part not in ("", ".")]


def _entries(fd: int) -> Iterator[Entry]:
    """Yield what is in an open folder, without `.remit`."""
    with os.scandir(fd) as found:
        for item in found:
            if item.name.casefold() == HIDDEN:
                continue
            if item.is_symlink():
                with suppress(OSError):
                    yield Entry(item.name, "link", os.readlink(item.name, dir_fd=fd))
            elif item.is_dir(follow_symlinks=False):
                yield Entry(item.name, "folder")
            elif item.is_file(follow_symlinks=False):
                yield Entry(item.name, "file", size=_size(item))
            else:
                yield Entry(item.name, "other")


def _sorted_entries(fd: int) -> list[Entry]:
    return sorted(_entries(fd))


def _stamped_entries(fd: int) -> list[tuple[Entry, str]]:
    """Return what is in an open folder by name, with the size and times of each file."""
    return [(entry, _times(fd, entry)) for entry in _sorted_entries(fd)]


def _size(item: os.DirEntry[str]) -> int:
    """Return the size of a file; 0 if it does not exist or cannot be read."""
    try:
        return item.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _times(folder: int, entry: Entry) -> str:
    """Return the size and times of a file; empty for folders and links, whose content is hashed."""
    if entry.kind != "file":
        return ""
    try:
        status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _replace(
    folder: int, name: str, data: bytes, before: os.stat_result | None, check: Check
) -> None:
    """Write to a temporary file and rename it: readers see the old or the new file, also after a
    crash.
    """
    aside = f".{token_hex(8)}.tmp"
    fd = os.open(
        aside,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o666,
        dir_fd=folder,
    )
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if before:
                _keep_owner(fd, before)
                os.fchmod(fd, before.st_mode & 0o777)
            file.flush()
            os.fsync(fd)
        check()
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(aside, dir_fd=folder)
        raise
    os.fsync(folder)


def _keep_owner(fd: int, before: os.stat_result) -> None:
    """Give a file the owner of the file that it replaces."""
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        # Only root can do this; otherwise the new file belongs to the current user, as with any
        # editor.
        with suppress(PermissionError):
            os.fchown(fd, before.st_uid, before.st_gid)


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


# Errors for the model


def _must_be_visible(parts: Sequence[str], field: str, path: str) -> None:
    """Raise `PathDenied` for a path into `.remit`."""
    if HIDDEN in map(str.casefold, parts):
        raise PathDenied(
            [Problem(field, f"{describe(path)} is reserved for remit", "a path outside .remit")]
        )


def _must_be_file(status: os.stat_result, field: str, path: str) -> None:
    """Raise `NotThere` unless the status is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise NotThere(
            [
                Problem(
                    field, f"{describe(path)} is a folder", "a file; LS shows what is in a folder"
                )
            ]
        )
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(field, path)


def _not_regular(field: str, path: str) -> InvalidParam:
    return NotThere(
        [Problem(field, f"{describe(path)} is a device, pipe or socket", "a regular file")]
    )


def _outside(field: str, path: str) -> InvalidParam:
    return PathDenied(
        [
            Problem(
                field,
                f"{describe(path)} is outside the workspace",
                "a path inside the workspace, absolute or relative to it",
            )
        ]
    )


def _refusal(error: OSError, field: str, path: str) -> InvalidParam:
    """Return the error for a path that the system did not open."""
    code = error.errno or 0
    problem, expected = _MESSAGES.get(
        code, (f"cannot be opened ({error.strerror})", "another path")
    )
    kind = _KINDS.get(code, InvalidParam)
    return kind([Problem(field, f"{describe(path)} {problem}", expected)])


_KINDS: Mapping[int, type[InvalidParam]] = {
    errno.ENOENT: NotThere,
    errno.ENOTDIR: NotThere,
    errno.ENXIO: NotThere,
    errno.ENODEV: NotThere,
    errno.EXDEV: PathDenied,
}
_MESSAGES = {
    errno.ENOENT: ("does not exist", "an existing path; LS and Glob list files"),
    errno.ENOTDIR: (
        "is not a folder, or goes through a file",
        "a folder whose parents are all folders",
    ),
    errno.EACCES: (
        "cannot be opened: permission denied",
        "a path that the user running remit can open",
    ),
    errno.EPERM: (
        "cannot be opened: permission denied",
        "a path that the user running remit can open",
    ),
    errno.ENAMETOOLONG: ("is too long", "a shorter path"),
    errno.ENXIO: ("is a device, pipe or socket", "a regular file"),
    errno.ENODEV: ("is a device, pipe or socket", "a regular file"),
    errno.ELOOP: ("was changed while it was opened", "a path that is not being changed"),
    errno.EXDEV: ("is outside the workspace", "a path inside the workspace"),
}
