"""The one way from a path that a model sent to a file: always inside the workspace, never through remit's own folder.

A path is first turned into one without links, and then opened with links forbidden. So what was checked is what is
opened: whoever swaps a folder for a link in between gets an error, not a file from elsewhere.
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
from typing import NamedTuple

from remit.adapters.tools.openat import PASS_THROUGH, Opener, best_opener
from remit.domain.shape import describe
from remit.errors import InvalidParam, Problem, invalid

HIDDEN = ".remit"
NOT_WRITTEN = frozenset({HIDDEN, ".git"})
MAX_FILE = 10_000_000
MAX_LINKS = 40
MAX_ENTRIES = 100_000
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
FOLDER = os.O_RDONLY | os.O_DIRECTORY

Check = Callable[[], None]


class NotThere(InvalidParam):
    """At the end of the path there is no file."""


class PathDenied(InvalidParam):
    """The rules of the workspace refuse the path: it is outside of the workspace, or protected."""


class Stamp(NamedTuple):
    """What a file was when it was read."""

    device: int
    inode: int
    size: int
    changed_ns: int


class Content(NamedTuple):
    """A file that was read: its path in the workspace, its bytes, and what it was then."""

    path: str
    data: bytes
    stamp: Stamp


class Entry(NamedTuple):
    """Something in a folder."""

    name: str
    kind: str
    """`folder`, `file`, `link`, or `other` for what cannot be read as a file."""
    target: str = ""
    size: int = 0
    """How many bytes a file has."""


class Workspace:
    """A folder, held open, and everything that may be done beneath it."""

    def __init__(self, root: Path, opener: Opener | None = None) -> None:
        self.root = root.resolve(strict=True)
        self._spellings = tuple({str(self.root), os.path.abspath(root)})  # noqa: PTH100 - links must stay: a model may use the name it was given
        self._open = opener or best_opener()
        self.fd = os.open(self.root, FOLDER | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the folder."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def find(self, path: str, field: str) -> tuple[str, bool]:
        """The path without links, relative to the workspace, and whether it is a folder; anything but a file or a folder is refused."""
        with self._opened(path, READ, field) as (fd, parts):
            mode = os.fstat(fd).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise _special(field, path)
            return "/".join(parts) or ".", stat.S_ISDIR(mode)

    def read(self, path: str, field: str, limit: int = MAX_FILE) -> Content:
        """All of a regular file that is no larger than `limit`."""
        with self._opened(path, READ, field) as (fd, parts):
            status = os.fstat(fd)
            _must_be_file(status, field, path)
            if status.st_size > limit:
                raise invalid(
                    field,
                    f"is {status.st_size:,} bytes large",
                    f"a file of at most {limit:,} bytes; if you have Bash, use it to search or cut the file",
                )
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(limit + 1)
            if len(data) > limit:  # files of /proc and those that grow have another size than they say
                raise invalid(field, f"is more than {limit:,} bytes large", f"a file of at most {limit:,} bytes")
            return Content("/".join(parts), data, _stamp(status))

    def entries(self, path: str, field: str) -> list[Entry]:
        """What is in a folder, by name; remit's own folder is not."""
        with self._opened(path, FOLDER, field) as (fd, _):
            return sorted(_entries(fd))

    def walk(self, path: str, enter: Callable[[str], bool], check: Check) -> Iterator[tuple[str, Entry]]:
        """Every entry below a folder by its path from there, in order; links are shown and not followed."""
        check()
        start = [part for part in path.split("/") if part != "."]
        waiting = [(entry.name, entry) for entry in reversed(self._entries_if_there(start))]
        while waiting:
            inner, entry = waiting.pop()
            yield inner, entry
            if entry.kind == "folder" and enter(inner):
                check()
                below = self._entries_if_there([*start, *inner.split("/")])
                waiting.extend((f"{inner}/{entry.name}", entry) for entry in reversed(below))

    def fingerprint(self, check: Check) -> str | None:
        """Every entry with its size and times as one hash; nothing if there are too many.

        Ignored files count too, since they can be read, and so do times: what was changed and changed back is not what it was.
        """
        digest = hashlib.sha256()
        waiting: list[list[str]] = [[]]
        count = 0
        while waiting:
            check()
            folder = waiting.pop()
            for entry, stamp in self._stamped_if_there(folder):
                count += 1
                if entry.kind == "folder":
                    waiting.append([*folder, entry.name])
                said = "\0".join((*folder, entry.name, entry.kind, entry.target, stamp, "\0"))
                digest.update(said.encode(errors="surrogateescape"))
            if count > MAX_ENTRIES:
                return None
        return digest.hexdigest()

    def changed_ns(self, path: str) -> int:
        """When a file was last written; 0 if it is gone."""
        with suppress(OSError):
            fd = self._open(self.fd, path.split("/"), READ)
            try:
                return os.fstat(fd).st_mtime_ns
            finally:
                os.close(fd)
        return 0

    def write(self, path: str, data: bytes, field: str, check: Check, expected: Stamp | None = None) -> bool:
        """Put a file in place in one step, with the mode it had; True if it is new. `expected` is what it must still be."""
        parts = self._resolved(self._parts(path, field), field, path)
        if not parts:
            raise invalid(field, "is the workspace itself", "the path of a file")
        if any(part.casefold() in NOT_WRITTEN for part in parts):
            elsewhere = "a file elsewhere; those two are not written by tools"
            raise PathDenied([Problem(field, f"{describe(path)} is inside .git or .remit", elsewhere)])
        folder = self._made_folder(parts[:-1], field, path)
        try:
            before = self._status(folder, parts[-1], field, path)
            if expected and (before is None or _stamp(before) != expected):
                raise invalid(field, f"{describe(path)} was changed by somebody else meanwhile", "the file as it was read; read it again")
            _replace(folder, parts[-1], data, before, check)
            return before is None
        except FileNotFoundError as error:  # its folder was removed by another program
            raise _refusal(error, field, path) from None
        finally:
            os.close(folder)

    # From a text to names without links.

    @contextmanager
    def _opened(self, path: str, flags: int, field: str) -> Generator[tuple[int, list[str]], None, None]:
        try:
            fd, parts = self._open_any(self._parts(path, field), flags, field, path)
        except OSError as error:
            raise _refusal(error, field, path) from None
        try:
            yield fd, parts
        finally:
            os.close(fd)

    def _open_any(self, parts: list[str], flags: int, field: str, path: str) -> tuple[int, list[str]]:
        if ".." not in parts:
            _must_be_visible(parts, field, path)
            try:
                return self._open(self.fd, parts, flags), parts
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
        parts = self._resolved(parts, field, path)
        return self._open(self.fd, parts, flags), parts

    def _parts(self, path: str, field: str) -> list[str]:
        inside = self._inside(path)
        if inside is None:
            raise _outside(field, path)
        return [part for part in inside.split("/") if part not in ("", ".")]

    def _inside(self, path: str) -> str | None:
        if not path.startswith("/"):
            return path
        for root in self._spellings:
            if path == root or path.startswith(f"{root.rstrip('/')}/"):
                return path[len(root) :]
        return None

    def _resolved(self, parts: Sequence[str], field: str, path: str) -> list[str]:
        """The same place without links and without `..`; what does not exist yet stays as it is."""
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
                inside = self._inside(target)
                if links > MAX_LINKS or inside is None:
                    raise _outside(field, path)
                done = [] if target.startswith("/") else done
                waiting.extendleft(reversed([name for name in inside.split("/") if name not in ("", ".")]))
        _must_be_visible(done, field, path)
        return done

    def _link(self, folder: Sequence[str], name: str) -> str | None:
        try:
            fd = self._open(self.fd, folder, PASS_THROUGH)
        except OSError:
            return None
        try:
            return os.readlink(name, dir_fd=fd)
        except OSError:
            return None
        finally:
            os.close(fd)

    def _entries_if_there(self, parts: Sequence[str]) -> list[Entry]:
        try:
            fd = self._open(self.fd, parts, FOLDER)
        except OSError:
            return []  # gone, swapped or not ours to read since its name was seen
        try:
            return sorted(_entries(fd))
        finally:
            os.close(fd)

    def _stamped_if_there(self, parts: Sequence[str]) -> list[tuple[Entry, str]]:
        try:
            fd = self._open(self.fd, parts, FOLDER)
        except OSError:
            return []
        try:
            return [(entry, _times(fd, entry)) for entry in sorted(_entries(fd))]
        finally:
            os.close(fd)

    def _made_folder(self, parts: Sequence[str], field: str, path: str) -> int:
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
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refusal(error, field, path) from None
        _must_be_file(status, field, path)
        if status.st_nlink > 1:
            expected = "a file that is known under one name only"
            raise PathDenied([Problem(field, f"{describe(path)} has {status.st_nlink} hard links", expected)])
        return status


def _entries(fd: int) -> Iterator[Entry]:
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


def _size(item: os.DirEntry[str]) -> int:
    """The bytes of a file; 0 if it is gone or its folder does not let it be looked at."""
    try:
        return item.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _times(folder: int, entry: Entry) -> str:
    """What tells one state of a file from another; folders and links are told by what they hold."""
    if entry.kind != "file":
        return ""
    try:
        status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _replace(folder: int, name: str, data: bytes, before: os.stat_result | None, check: Check) -> None:
    """Written aside and renamed: a reader sees the old file or the new one, and so does whoever looks after a crash."""
    aside = f".{token_hex(8)}.tmp"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
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
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):  # only root can; for others the file becomes theirs, as with any editor
            os.fchown(fd, before.st_uid, before.st_gid)


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


# What is said to the model.


def _must_be_visible(parts: Sequence[str], field: str, path: str) -> None:
    if any(part.casefold() == HIDDEN for part in parts):
        raise PathDenied([Problem(field, f"{describe(path)} belongs to remit itself", "a path outside of .remit")])


def _must_be_file(status: os.stat_result, field: str, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise NotThere([Problem(field, f"{describe(path)} is a folder", "a file; LS shows what is in a folder")])
    if not stat.S_ISREG(status.st_mode):
        raise _special(field, path)


def _special(field: str, path: str) -> InvalidParam:
    return NotThere([Problem(field, f"{describe(path)} is a device, pipe or socket", "a regular file")])


def _outside(field: str, path: str) -> InvalidParam:
    return PathDenied([Problem(field, f"{describe(path)} is outside of the workspace", "a path inside of it, absolute or relative to it")])


def _refusal(error: OSError, field: str, path: str) -> InvalidParam:
    problem, expected = _SAID.get(error.errno or 0, (f"cannot be opened ({error.strerror})", "another path"))
    kind = _KINDS.get(error.errno or 0, InvalidParam)
    return kind([Problem(field, f"{describe(path)} {problem}", expected)])


_KINDS: Mapping[int, type[InvalidParam]] = {
    errno.ENOENT: NotThere,
    errno.ENOTDIR: NotThere,
    errno.ENXIO: NotThere,
    errno.ENODEV: NotThere,
    errno.EXDEV: PathDenied,
}
_SAID = {
    errno.ENOENT: ("does not exist", "a path that does; LS and Glob show what there is"),
    errno.ENOTDIR: ("is not a folder, or goes through a file", "a folder, with only folders on the way"),
    errno.EACCES: ("may not be opened", "a path that the user running remit may open"),
    errno.EPERM: ("may not be opened", "a path that the user running remit may open"),
    errno.ENAMETOOLONG: ("is too long", "a shorter path"),
    errno.ENXIO: ("is a device, pipe or socket", "a regular file"),
    errno.ENODEV: ("is a device, pipe or socket", "a regular file"),
    errno.ELOOP: ("was changed while it was opened", "a path that nobody changes meanwhile"),
    errno.EXDEV: ("is outside of the workspace", "a path inside of it"),
}
