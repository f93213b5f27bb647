"""What .gitignore files of the workspace leave out of a search."""

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from remit.adapters.tools.paths import Workspace
from remit.errors import InvalidParam

NAME = ".gitignore"
MAX_SIZE = 200_000
MAX_LINE = 500
"""A longer line is passed over: reading its brackets takes quadratic time."""
MAX_MEMORY = 128 * 2**20
"""What the rules of one file may take; with the default, some thousand rules cannot be used."""

_re2: Any = import_module("re2")


class _Rule(NamedTuple):
    expression: bytes
    keeps: bool
    """The rule takes back what one before it left out."""
    folders_alone: bool


class _Rules:
    """The rules of one file; the last that matches counts."""

    def __init__(self, rules: list[_Rule]) -> None:
        options = _re2.Options()
        options.encoding = _re2.Options.Encoding.LATIN1
        options.dot_nl = True
        options.log_errors = False
        options.max_mem = MAX_MEMORY
        self._set = _re2.Set.FullMatchSet(options)
        self._rules: list[_Rule] = []
        for rule in rules:
            try:
                self._set.Add(rule.expression)
            except _re2.error:
                continue  # a rule that cannot be read leaves nothing out
            self._rules.append(rule)
        try:
            if self._rules:
                self._set.Compile()
        except _re2.error:
            self._rules = []  # too much for the engine: nothing is left out

    def decide(self, path: bytes, *, is_folder: bool) -> bool | None:
        """Whether a path below the folder is left out; None if no rule is about it."""
        if not self._rules:
            return None
        found = [self._rules[index] for index in sorted(self._set.Match(path) or ())]
        about = [rule for rule in found if is_folder or not rule.folders_alone]
        return not about[-1].keeps if about else None


NO_RULES = _Rules([])


class Ignored:
    """Decides which paths one search leaves out; remembers the files it read."""

    def __init__(self, workspace: Workspace, start: str) -> None:
        self._workspace = workspace
        self._files: dict[str, _Rules] = {}
        self._folders: dict[str, bool] = {"": False}
        self._start = start
        self._from_above = not self._is_left_out_with_folders(start)

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path below the start is left out, if the folders above it are not."""
        folder, _, _ = path.rpartition("/")
        encoded = os.fsencode(path)
        while True:
            below = len(os.fsencode(folder)) + 1 if folder else 0
            decided = self._rules_of(folder).decide(encoded[below:], is_folder=is_folder)
            if decided is not None:
                return decided
            if not folder or (folder == self._start and not self._from_above):
                return False
            folder, _, _ = folder.rpartition("/")

    def leaves_out_file(self, path: str) -> bool:
        """Whether a file below the start is left out, by itself or with a folder between them."""
        parts = path.split("/")
        known = 0 if self._start == "." else len(self._start.split("/"))
        folders = ("/".join(parts[:count]) for count in range(known + 1, len(parts)))
        if any(self._is_folder_left_out(folder) for folder in folders):
            return True
        return self.leaves_out(path, is_folder=False)

    def _is_left_out_with_folders(self, path: str) -> bool:
        """Whether a folder is left out by a rule above it; a search that starts there enters it."""
        self._from_above = True
        if path == ".":
            return False
        parts = path.split("/")
        above = ("/".join(parts[: count + 1]) for count in range(len(parts)))
        return any(self.leaves_out(folder, is_folder=True) for folder in above)

    def _is_folder_left_out(self, folder: str) -> bool:
        if folder not in self._folders:
            self._folders[folder] = self.leaves_out(folder, is_folder=True)
        return self._folders[folder]

    def _rules_of(self, folder: str) -> _Rules:
        if folder not in self._files:
            self._files[folder] = self._read(f"{folder}/{NAME}" if folder else NAME)
        return self._files[folder]

    def _read(self, path: str) -> _Rules:
        try:
            data = self._workspace.read(path, "path", MAX_SIZE).data
        except InvalidParam:
            return NO_RULES
        return _parsed(data)


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> _Rules:
    return _Rules(list(_rules(data)))


def _rules(data: bytes) -> Iterator[_Rule]:
    for raw in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = raw.removesuffix(b"\r").decode("latin-1")
        if line.startswith("#") or len(line) > MAX_LINE:
            continue
        keeps = line.startswith("!")
        glob = _without_spaces(line[1:] if keeps else line)
        folders_alone = glob.endswith("/")
        glob = glob.rstrip("/") if folders_alone else glob
        if glob:
            yield _Rule(_expression(glob).encode("latin-1"), keeps, folders_alone)


def _without_spaces(line: str) -> str:
    """A line without the spaces at its end; one behind a backslash stays."""
    bare = line.rstrip(" ")
    return f"{bare} " if bare.endswith("\\") and bare != line else bare


_TOKEN = re.compile(
    r"(?P<folders>(?:^|(?<=/))\*\*/)"
    r"|(?P<all>(?:^|(?<=/))\*\*$)"
    r"|(?P<stars>\*+)"
    r"|(?P<one>\?)"
    r"|\[(?P<negated>[!^]?)(?P<members>\]?(?:\\.|[^\]\\])*)\]"
    r"|\\(?P<escaped>.)"
    r"|(?P<plain>.)",
    re.DOTALL,
)
_PARTS = {"folders": "(?:.*/)?", "all": ".+", "stars": "[^/]*", "one": "[^/]"}
_ALTERNATIVES = {"{": "(?:", ",": "|", "}": ")"}
"""Git takes these as they stand, and ripgrep as alternatives: both searches follow ripgrep."""


def _expression(glob: str) -> str:
    """A rule as a regular expression on paths from the folder of its file."""
    anchored = "/" in glob
    written = ["" if anchored else "(?:.*/)?"]
    depth = 0
    for found in _TOKEN.finditer(glob.removeprefix("/")):
        plain = found["plain"] or ""
        depth += (plain == "{") - (plain == "}")
        alternative = _ALTERNATIVES.get(plain) if depth or plain == "}" else None
        written.append(alternative or _token(found))
    return "".join(written)


def _token(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    if kind in _PARTS:
        return _PARTS[kind]
    if kind != "members":
        return re.escape(found["escaped"] or found["plain"])
    members = found["members"].replace("[", r"\[")
    if members.startswith("]"):
        members = rf"\{members}"
    return f"[^/{members}]" if found["negated"] else f"[{members}]"
