"""Which files a search ignores because of the `.gitignore` files of the workspace."""

import os
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from itertools import accumulate
from typing import Any, NamedTuple

from remit.adapters.tools.workspace_paths import Workspace
from remit.errors import InvalidParam

NAME = ".gitignore"
MAX_SIZE = 200_000
MAX_LINE = 500
"""Longer lines are ignored: parsing their brackets takes quadratic time."""
MAX_MEMORY = 128 * 2**20
"""The memory limit for the rules of one file; the default is too small for a few thousand rules."""

_re2: Any = import_module("re2")


class _Rule(NamedTuple):
    expression: bytes
    keeps: bool
    """The rule re-includes paths that an earlier rule ignores."""
    folders_only: bool


class _Rules:
    """The rules of one file; the last matching rule wins."""

    def __init__(self, rules: list[_Rule]) -> None:
        options = _re2.Options()
        options.encoding = _re2.Options.Encoding.LATIN1
        options.dot_nl = True
        options.log_errors = False
        options.max_mem = MAX_MEMORY
        self._set = _re2.Set.FullMatchSet(options)
        self._rules = list(filter(self._add, rules))
        if self._rules:
            self._compile()

    def _add(self, rule: _Rule) -> bool:
        """Return whether the engine accepts a rule; an invalid one ignores nothing."""
        try:
            self._set.Add(rule.expression)
        except _re2.error:
            return False
        return True

    def _compile(self) -> None:
        """Compile all rules; if they are too large for the engine, they ignore nothing."""
        try:
            self._set.Compile()
        except _re2.error:
            self._rules = []

    def decide(self, path: bytes, *, is_folder: bool) -> bool | None:
        """Return whether a path below the folder is ignored; None if no rule matches."""
        if not self._rules:
            return None
        for index in sorted(self._set.Match(path) or (), reverse=True):
            rule = self._rules[index]
            if is_folder or not rule.folders_only:
                return not rule.keeps
        return None


NO_RULES = _Rules([])


class IgnoreRules:
    """Decides which paths a search ignores; caches the files it read."""

    def __init__(self, workspace: Workspace, start: str) -> None:
        self._workspace = workspace
        self._files: dict[str, _Rules] = {}
        self._folders: dict[str, bool] = {"": False}
        self._start = start
        self._from_above = not self._is_left_out_with_folders(start)

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path below the start is ignored, assuming its parent folders are not."""
        encoded = os.fsencode(path)
        for folder in self._folders_with_rules(path):
            below = encoded
            if folder:
                below = encoded.removeprefix(os.fsencode(f"{folder}/"))
            decided = self._rules_of(folder).decide(below, is_folder=is_folder)
            if decided is not None:
                return decided
        return False

    def _folders_with_rules(self, path: str) -> Iterator[str]:
        """Yield the folders whose rules apply to a path, the innermost first."""
        folder = path
        while folder:
            folder, _, _ = folder.rpartition("/")
            yield folder
            if folder == self._start and not self._from_above:
                return

    def leaves_out_file(self, path: str) -> bool:
        """Return whether a file below the start is ignored, by itself or through a folder in
        between.
        """
        parts = path.split("/")
        known = len(_split(self._start))
        folders = ("/".join(parts[:count]) for count in range(known + 1, len(parts)))
        is_below = any(map(self._is_folder_left_out, folders))
        return is_below or self.leaves_out(path, is_folder=False)

    def _is_left_out_with_folders(self, path: str) -> bool:
        """Return whether a parent rule ignores the folder; a search that starts there still enters
        it.
        """
        self._from_above = True
        above = accumulate(_split(path), "{}/{}".format)
        return any(self.leaves_out(folder, is_folder=True) for folder in above)

    def _is_folder_left_out(self, folder: str) -> bool:
        if folder not in self._folders:
            self._folders[folder] = self.leaves_out(folder, is_folder=True)
        return self._folders[folder]

    def _rules_of(self, folder: str) -> _Rules:
        if folder not in self._files:
            self._files[folder] = self._read(posixpath.join(folder, NAME))
        return self._files[folder]

    def _read(self, path: str) -> _Rules:
        """Read the rules in a file; none if it cannot be read."""
        try:
            data = self._workspace.read(path, "path", MAX_SIZE).data
        except InvalidParam:
            return NO_RULES
        return _parse(data)


def _split(folder: str) -> list[str]:
    """Return the parts of a path; none for the workspace itself."""
    if folder == ".":
        return []
    return folder.split("/")


@lru_cache(maxsize=64)
def _parse(data: bytes) -> _Rules:
    return _Rules(list(_parse_rules(data)))


def _parse_rules(data: bytes) -> Iterator[_Rule]:
    """Yield the rules in a file; comments and very long lines are not rules."""
    for raw in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = raw.removesuffix(b"\r").decode("latin-1")
        if line.startswith("#") or len(line) > MAX_LINE:
            continue
        written = _strip_spaces(line.removeprefix("!"))
        glob = written.rstrip("/")
        if glob:
            yield _Rule(
                expression=_translate(glob).encode("latin-1"),
                keeps=line.startswith("!"),
                folders_only=written.endswith("/"),
            )


def _strip_spaces(line: str) -> str:
    """Strip trailing spaces; a space after a backslash stays."""
    bare = line.rstrip(" ")
    if bare.endswith("\\") and bare != line:
        return f"{bare} "
    return bare


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
"""Git reads these literally and ripgrep as alternatives; both searches follow ripgrep."""


def _translate(glob: str) -> str:
    """Translate a rule to a regular expression for paths relative to the folder of its file."""
    parts: list[str] = []
    if "/" not in glob:
        parts.append(_PARTS["folders"])
    depth = 0
    for found in _TOKEN.finditer(glob.removeprefix("/")):
        plain = found["plain"]
        depth += (plain == "{") - (plain == "}")
        if plain in _ALTERNATIVES and (depth or plain == "}"):
            parts.append(_ALTERNATIVES[plain])
        else:
            parts.append(_translate_token(found))
    return "".join(parts)


def _translate_token(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    if kind in _PARTS:
        return _PARTS[kind]
    if kind != "members":
        return re.escape(found["escaped"] or found["plain"])
    members = found["members"].replace("[", r"\[")
    if members.startswith("]"):
        members = rf"\{members}"
    if found["negated"]:
        return f"[^/{members}]"
    return f"[{members}]"
