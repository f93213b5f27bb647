"""Find the agent definition files of a workspace by listing folders, never by a name from a
request.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from remit.domain.agents.agent import AgentFile, Origin

MAX_BYTES = 256 * 1024
MAX_FILES = 1000
MAX_DEPTH = 8

NOT_MARKDOWN = "is not read: agents here are Markdown files with front matter, such as reviewer.md"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Do not block: the file may have been replaced by a pipe since it was listed.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BEHIND_LINK = "is behind a link; links are not followed"


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
"""The folders that are searched for agents, and how deep."""


def read_agent_files(workspace: Path) -> list[AgentFile]:
    """Return every file that may define an agent, with its text or the reason why it was
    not read.
    """
    files: list[AgentFile] = []
    for place in PLACES:
        files += _read_place(workspace, place)
    return files


def write_agent_file(workspace: Path, name: str, text: str) -> str:
    """Write the file of a new agent and return its path in the workspace; `FileExistsError` if it
    exists.
    """
    (workspace / ".remit" / "agents").mkdir(parents=True, exist_ok=True)
    with _open_folder(workspace, ".remit/agents") as folder:
        handle = os.open(
            f"{name}.md",
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
            dir_fd=folder,
        )
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    return f".remit/agents/{name}.md"


def _read_place(workspace: Path, place: _Place) -> Iterator[AgentFile]:
    """Yield the files of one place, or why it cannot be read."""
    try:
        with _open_folder(workspace, place.path) as folder:
            yield from _Walk(place, folder, workspace.resolve() / place.path).files()
    except OSError as error:
        problem = _explain_place(workspace, place, error)
        if problem:
            yield AgentFile(place.origin, place.path, problem=problem)


def _explain_place(workspace: Path, place: _Place, error: OSError) -> str:
    """Return why a place cannot be read; empty if it does not exist."""
    if error.errno == errno.ELOOP:
        return BEHIND_LINK
    if error.errno == errno.ENOTDIR and _is_behind_link(workspace, place.path):
        return BEHIND_LINK
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ""
    return f"cannot be read ({error.strerror})"


def _is_behind_link(workspace: Path, path: str) -> bool:
    """Return whether a part of a path is a link."""
    places = accumulate(path.split("/"), "{}/{}".format)
    return any((workspace / place).is_symlink() for place in places)


@contextmanager
def _open_folder(workspace: Path, path: str) -> Generator[int]:
    """Open a folder below the workspace step by step, so that no link can lead outside."""
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
    """Walks one place in the order of names, through open folders rather than paths."""

    def __init__(self, place: _Place, root: int, where: Path) -> None:
        self._place, self._root, self._where, self._count = place, root, where, 0

    def files(self) -> Iterator[AgentFile]:
        """Yield every file that may define an agent."""
        return self._walk_folder(self._root, ())

    def _walk_folder(self, folder: int, above: tuple[str, ...]) -> Iterator[AgentFile]:
        """Yield the files in a folder and below it, by name."""
        with os.scandir(folder) as entries:
            found = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink())
                for entry in entries
            )
        for name, is_folder, is_link in found:
            if is_folder and len(above) < self._place.depth:
                yield from self._walk_subfolder(folder, (*above, name))
            elif self._is_candidate(above, name, is_folder):
                path = (*above, name)
                self._count += 1
                if self._count > MAX_FILES:
                    yield from self._report_limit(path)
                    return
                if is_link:
                    yield self._read_link(path)
                else:
                    yield self._file(path, folder)
            elif self._is_foreign(name, is_folder):
                yield self._problem((*above, name), NOT_MARKDOWN)

    def _report_limit(self, path: tuple[str, ...]) -> Iterator[AgentFile]:
        """Report the first file that is not read because there are too many."""
        if self._count == MAX_FILES + 1:
            text = f"and those after it were not read: at most {MAX_FILES} files"
            yield self._problem(path, text)

    def _walk_subfolder(self, folder: int, path: tuple[str, ...]) -> Iterator[AgentFile]:
        try:
            handle = os.open(path[-1], _FOLDER, dir_fd=folder)
        except OSError as error:
            yield self._problem(path, f"cannot be read ({error.strerror})")
            return
        try:
            yield from self._walk_folder(handle, path)
        finally:
            os.close(handle)

    def _is_candidate(self, above: tuple[str, ...], name: str, is_folder: bool) -> bool:
        """Return whether an entry is named like an agent file."""
        if self._place.origin == "folder":
            return len(above) == 1 and name == "agent.json"
        return name.lower().endswith(".md") and name.lower() != "readme.md" and not is_folder

    def _is_foreign(self, name: str, is_folder: bool) -> bool:
        """Return True for another program's format in remit's own folder, where it was put on
        purpose.
        """
        is_definition = name.lower().endswith((".toml", ".json", ".yaml", ".yml"))
        return self._place.origin == "remit" and is_definition and not is_folder

    def _read_link(self, path: tuple[str, ...]) -> AgentFile:
        """Resolve a link to another file of the same place.

        The target is opened without following further links.
        """
        try:
            steps = self._where.joinpath(*path).resolve().relative_to(self._where).parts
        except (OSError, RuntimeError, ValueError):
            return self._problem(
                path, "is a link that leads outside its folder or is broken; it was not read"
            )
        return self._file(path, self._root, steps)

    def _file(self, path: tuple[str, ...], folder: int, steps: tuple[str, ...] = ()) -> AgentFile:
        """Return a file with its text, or with the reason why it was not read."""
        try:
            return self._text(path, _read(folder, steps or path[-1:]))
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self._problem(path, "is a link; it was not read")
            return self._problem(path, f"cannot be read ({error.strerror or error})")

    def _text(self, path: tuple[str, ...], content: bytes | None) -> AgentFile:
        """Return a file with its text, if the content is valid text."""
        if content is None:
            return self._problem(path, "is not a regular file; it was not read")
        if len(content) > MAX_BYTES:
            return self._problem(path, f"is larger than {MAX_BYTES:,} bytes; it was not read")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            return self._problem(path, "is not UTF-8 text")
        if "\0" in text:
            return self._problem(path, "is not text: it contains NUL")
        return AgentFile(self._place.origin, self._path(path), text)

    def _problem(self, path: tuple[str, ...], problem: str) -> AgentFile:
        return AgentFile(self._place.origin, self._path(path), problem=problem)

    def _path(self, path: tuple[str, ...]) -> str:
        """Return the path for display; bytes of a name that are not UTF-8 are escaped."""
        joined = "/".join((self._place.path, *path))
        return joined.encode("utf-8", "backslashreplace").decode("utf-8")


def _read(folder: int, steps: tuple[str, ...]) -> bytes | None:
    """Read the beginning of a file, one byte more than the limit.

    Return None for a pipe, a device or a folder.
    """
    with ExitStack() as handles:
        for step in steps[:-1]:
            folder = os.open(step, _FOLDER, dir_fd=folder)
            handles.callback(os.close, folder)
        if not stat.S_ISREG(os.stat(steps[-1], dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        handle = os.open(steps[-1], _FILE, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return file.read(MAX_BYTES + 1)
