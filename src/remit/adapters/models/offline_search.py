"""The results of the offline model's tools, parsed and ranked."""

import re
from collections import Counter
from collections.abc import Iterable
from math import log2
from typing import Any, NamedTuple

from remit.domain.llm.messages import ToolCall, ToolResult

SUMMARY = "summary"
"""The agent that reads named files only."""
MAX_NAMED = 3
HITS_A_TERM = 100

PATH = re.compile(r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w/])")
DEFINITION = re.compile(
    r"^\s*(?:export\s+|pub\s+|public\s+|async\s+|static\s+)*"
    r"(?:def|class|function|func|fn|interface|struct|enum|trait|type|module)\s+\w+"
)
_HIT = re.compile(
    r"^(?P<path>[^\s:][^:\n]{0,300}):(?P<line>\d{1,7})[:-](?P<text>.*)$", re.MULTILINE
)
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")

MadeCall = tuple[ToolCall, ToolResult | None]
WantedCall = tuple[str, dict[str, Any]]


class Hit(NamedTuple):
    """A line that contains a term."""

    path: str
    line: int
    text: str
    term: str


class SearchResults(NamedTuple):
    """The results of the tools so far.

    A term that is not in `searched` may still be in the workspace.
    """

    searched: tuple[str, ...]
    hits: tuple[Hit, ...]
    read: tuple[tuple[str, str], ...]
    listed: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def looked(self) -> bool:
        """True if any look at the workspace worked, so that finding nothing means something."""
        return any((self.searched, self.read, self.listed))


def read_results(made: Iterable[MadeCall], terms: tuple[str, ...]) -> SearchResults:
    """Return the results of tool calls; text that is not in the form of its tool is ignored."""
    found = _Results(terms)
    for call, result in made:
        if result is None:
            continue
        if result.is_error:
            found.failed.append(f"{call.name} {_first_line(result.text)}")
        else:
            found.add(call, result.text)
    return found.complete()


class _Results:
    """Collects the results of tools."""

    def __init__(self, terms: tuple[str, ...]) -> None:
        self._terms = {_escape(term): term for term in terms}
        self._searched: list[str] = []
        self._hits: dict[tuple[str, int, str], Hit] = {}
        self._read: list[tuple[str, str]] = []
        self._listed: list[str] = []
        self.failed: list[str] = []

    def add(self, call: ToolCall, text: str) -> None:
        """Add the result of a call."""
        match call.name:
            case "Grep":
                self._add_hits(str(call.arguments.get("pattern")), text)
            case "Read":
                self._read.append((str(call.arguments.get("file_path")), text))
            case "LS" | "Glob":
                self._listed.extend(filter(None, map(str.strip, text.splitlines())))
            case _:
                pass

    def _add_hits(self, pattern: str, text: str) -> None:
        term = self._terms.get(pattern, pattern)
        self._searched.append(term)
        for match in _HIT.finditer(text):
            path, line = match["path"].removeprefix("./"), int(match["line"])
            hit = Hit(path, line, match["text"].strip(), term)
            self._hits.setdefault((path, line, term), hit)

    def complete(self) -> SearchResults:
        """Return all results."""
        return SearchResults(
            tuple(self._searched),
            tuple(self._hits.values()),
            tuple(self._read),
            tuple(dict.fromkeys(self._listed)),
            tuple(self.failed),
        )


def rank_files(hits: Iterable[Hit]) -> list[tuple[str, list[Hit]]]:
    """Return files, those with the most and the rarest terms first, then those with definitions,
    then those with the most lines.
    """
    files: dict[str, list[Hit]] = {}
    counts: Counter[str] = Counter()
    for hit in hits:
        files.setdefault(hit.path, []).append(hit)
        counts[hit.term] += 1

    def rank(item: tuple[str, list[Hit]]) -> tuple[Any, ...]:
        path, found = item
        terms = sorted({hit.term for hit in found})
        rarity = sum(1 / log2(2 + counts[term]) for term in terms)
        definitions = sum(map(_is_definition, found))
        return -rarity, -min(definitions, 5), -min(len(found), 20), path.count("/"), path

    return sorted(files.items(), key=rank)


def best_hit(hits: list[Hit]) -> Hit:
    """Return the line that defines something, or else has the most terms, or else comes first."""
    terms = Counter(hit.line for hit in hits)
    return min(hits, key=lambda hit: (not _is_definition(hit), -terms[hit.line], hit.line))


def first_calls(agent: str, asked: str, terms: tuple[str, ...]) -> list[WantedCall]:
    """Return the calls that read named files and search for terms, or list the workspace."""
    wanted: list[WantedCall] = [("Read", {"file_path": path}) for path in named_paths(asked)]
    if agent == SUMMARY:
        return wanted
    search = {"output_mode": "content", "-n": True, "-i": True, "head_limit": HITS_A_TERM}
    wanted += [("Grep", {"pattern": _escape(term), **search}) for term in terms]
    return wanted or [("LS", {"path": "."})]


def named_paths(asked: str) -> list[str]:
    """Return the files that a text names."""
    paths = (path for path in PATH.findall(asked) if "/" in path or "." in path[1:])
    return list(dict.fromkeys(paths))[:MAX_NAMED]


def _is_definition(hit: Hit) -> bool:
    return DEFINITION.match(hit.text) is not None


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:160]


def _escape(term: str) -> str:
    """Return a term as a regular expression."""
    return _SPECIAL.sub(r"\\\1", term)
