"""The files of a workspace that define agents: found by listing folders, never by a name that somebody sent."""

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from remit.domain.agent import AgentFile, Origin

MAX_BYTES = 256 * 1024
MAX_FILES = 1000
MAX_DEPTH = 8

NOT_MARKDOWN = "is not read: an agent here is a Markdown file such as reviewer.md with front matter"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: what looked like a file a moment ago may be a pipe when it is opened.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Place(NamedTuple):
    origin: Origin
    path: str
    depth: int


PLACES = (
    _Place("remit", ".remit/agents", 0),
    _Place("claude", ".claude/agents", MAX_DEPTH),
    _Place("opencode", ".opencode/agent", MAX_DEPTH),
    _Place("opencode", ".opencode/agents", MAX_DEPTH),
    _Place("folder", "agents", 1),
)
"""Where agents are looked for, and how deep."""


def read_agent_files(workspace: Path) -> list[AgentFile]:
    """Every file that may define an agent, each with its text or with why it was not read."""
    return [file for place in PLACES for file in _in_place(workspace, place)]


def write_agent_file(workspace: Path, name: str, text: str) -> str:
    """Write a new agent's file; FileExistsError if there is one. Returns its path within the workspace."""
    (workspace / ".remit" / "agents").mkdir(parents=True, exist_ok=True)
    with _opened(workspace, ".remit/agents") as folder:
        handle = os.open(f"{name}.md", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    return f".remit/agents/{name}.md"


def _in_place(workspace: Path, place: _Place) -> Iterator[AgentFile]:
    try:
        with _opened(workspace, place.path) as folder:
            yield from _Walk(place, folder, workspace.resolve() / place.path).files()
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _linked(workspace, place.path)):
            yield AgentFile(place.origin, place.path, problem="is reached through a link, which is not followed")
        elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
            yield AgentFile(place.origin, place.path, problem=f"cannot be read ({error.strerror})")


def _linked(workspace: Path, path: str) -> bool:
    parts = path.split("/")
    return any((workspace / Path(*parts[:size])).is_symlink() for size in range(1, len(parts) + 1))


@contextmanager
def _opened(workspace: Path, path: str) -> Generator[int]:
    """A folder below the workspace, opened step by step so that no link leads out of it."""
    handle = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.split("/"):
            below = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


class _Walk:
    """Goes through one place, in the order of names, holding on to folders rather than to paths."""

    def __init__(self, place: _Place, root: int, where: Path) -> None:
        self._place, self._root, self._where, self._count = place, root, where, 0

    def files(self) -> Iterator[AgentFile]:
        """Every file that may define an agent."""
        return self._below(self._root, ())

    def _below(self, folder: int, above: tuple[str, ...]) -> Iterator[AgentFile]:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries)
        for name, is_folder, is_link in found:
            if is_folder and len(above) < self._place.depth:
                yield from self._inside(folder, (*above, name))
            elif self._wanted(above, name, is_folder):
                self._count += 1
                if self._count > MAX_FILES:
                    if self._count == MAX_FILES + 1:
                        yield self._problem((*above, name), f"and those after it were not read: at most {MAX_FILES} files")
                    return
                yield self._linked((*above, name)) if is_link else self._file((*above, name), folder)
            elif self._is_foreign(name, is_folder):
                yield self._problem((*above, name), NOT_MARKDOWN)

    def _inside(self, folder: int, path: tuple[str, ...]) -> Iterator[AgentFile]:
        try:
            handle = os.open(path[-1], _FOLDER, dir_fd=folder)
        except OSError as error:
            yield self._problem(path, f"cannot be read ({error.strerror})")
            return
        try:
            yield from self._below(handle, path)
        finally:
            os.close(handle)

    def _wanted(self, above: tuple[str, ...], name: str, is_folder: bool) -> bool:
        if self._place.origin == "folder":
            return len(above) == 1 and name == "agent.json"
        return name.lower().endswith(".md") and name.lower() != "readme.md" and not is_folder

    def _is_foreign(self, name: str, is_folder: bool) -> bool:
        """True for a definition in another format in remit's own folder, where it was put on purpose."""
        is_definition = name.lower().endswith((".toml", ".json", ".yaml", ".yml"))
        return self._place.origin == "remit" and is_definition and not is_folder

    def _linked(self, path: tuple[str, ...]) -> AgentFile:
        """A link to another file of the same place is fine; it is opened by where it leads, without following anything."""
        try:
            steps = self._where.joinpath(*path).resolve().relative_to(self._where).parts
        except (OSError, RuntimeError, ValueError):
            return self._problem(path, "is a link that leads out of its folder or nowhere, and was not read")
        return self._file(path, self._root, steps)

    def _file(self, path: tuple[str, ...], folder: int, steps: tuple[str, ...] = ()) -> AgentFile:
        try:
            return self._text(path, _read(folder, steps or path[-1:]))
        except OSError as error:
            return self._problem(path, "is a link, and was not read" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror or error})")

    def _text(self, path: tuple[str, ...], content: bytes | None) -> AgentFile:
        if content is None:
            return self._problem(path, "is no ordinary file, and was not read")
        if len(content) > MAX_BYTES:
            return self._problem(path, f"is larger than {MAX_BYTES:,} bytes, and was not read")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            return self._problem(path, "is no text in UTF-8")
        if "\0" in text:
            return self._problem(path, "is no text: it has NUL in it")
        return AgentFile(self._place.origin, self._path(path), text)

    def _problem(self, path: tuple[str, ...], problem: str) -> AgentFile:
        return AgentFile(self._place.origin, self._path(path), problem=problem)

    def _path(self, path: tuple[str, ...]) -> str:
        """As people see it; bytes of a name that are no UTF-8 are shown as such."""
        return "/".join((self._place.path, *path)).encode("utf-8", "backslashreplace").decode("utf-8")


def _read(folder: int, steps: tuple[str, ...]) -> bytes | None:
    """The beginning of a file, one byte more than is taken; nothing for a pipe, a device or a folder."""
    handles: list[int] = []
    try:
        for step in steps[:-1]:
            folder = os.open(step, _FOLDER, dir_fd=folder)
            handles.append(folder)
        if not stat.S_ISREG(os.stat(steps[-1], dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        handle = os.open(steps[-1], _FILE, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            return file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    finally:
        for handle in handles:
            os.close(handle)
