"""Match paths against patterns from a model in time linear in the length of the path.

A pattern becomes a state machine; a path is fed to its set of possible states. Transitions are
cached, so each character costs one lookup and no pattern can cause backtracking.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from remit.errors import invalid

MAX_KNOWN = 50_000

States = frozenset[int]


class _Edge(NamedTuple):
    ranges: tuple[tuple[str, str], ...]
    inverted: bool
    slash: bool
    """True if the edge matches a slash."""
    to: int

    def takes(self, char: str) -> bool:
        if char == "/" and not self.slash:
            return False
        return any(low <= char <= high for low, high in self.ranges) != self.inverted


ANY: tuple[tuple[str, str], ...] = ()
_RANGE = re.compile(r"(.)(?:-(.))?", re.DOTALL)
"""A character of a class, or the first and the last of a range."""


class GlobPattern:
    """A compiled pattern of *, ?, [a-z], {a,b} and **."""

    def __init__(self, pattern: str, field: str = "pattern") -> None:
        self._edges: list[list[_Edge]] = []
        self._free: list[list[int]] = []
        self._pattern, self._field, self._at = pattern.removeprefix("./").lstrip("/"), field, 0
        if "/" not in self._pattern:
            self._pattern = f"**/{self._pattern}"
        first = self._state()
        self._last = self._sequence(first, nested=False)
        self._next: dict[tuple[States, str], States] = {}
        self.start = self._closure({first})

    def feed(self, states: States, text: str) -> States:
        """Return the states after more characters of a path; empty if no continuation can match."""
        for char in text:
            found = self._next.get((states, char))
            states = self._step(states, char) if found is None else found
        return states

    def accepts(self, states: States) -> bool:
        """Return whether the path so far matches."""
        return self._last in states

    def matches(self, path: str) -> bool:
        """Return whether a whole path matches."""
        return self.accepts(self.feed(self.start, path))

    # Parsing

    def _sequence(self, state: int, *, nested: bool) -> int:
        """Parse up to the end, or up to the end of an alternative; return the last state."""
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            if nested and char in ",}":
                return state
            self._at += 1
            state = self._one(char, state)
        if nested:
            raise invalid(self._field, "has a { that is not closed", "a } for each {")
        return state

    def _one(self, char: str, state: int) -> int:
        """Parse the part that starts with a character; return its last state."""
        parse = self.PARSERS.get(char)
        if parse is not None:
            return parse(self, state)
        if char == "\\" and self._at < len(self._pattern):
            char = self._pattern[self._at]
            self._at += 1
        return self._edge(state, ((char, char),), slash=True)

    def _any(self, state: int) -> int:
        return self._edge(state, ANY, inverted=True)

    def _stars(self, state: int) -> int:
        """Match any characters, or whole folders if `**` stands between slashes."""
        start = self._at - 1
        while self._pattern[self._at : self._at + 1] == "*":
            self._at += 1
        whole = self._at - start > 1 and (start == 0 or self._pattern[start - 1] in "/{,")
        if whole and self._pattern[self._at : self._at + 1] == "/":
            self._at += 1
            return self._folders(state)
        looped = self._state()
        self._free[state].append(looped)
        self._edges[looped].append(_Edge(ANY, True, whole, looped))
        return looped

    def _folders(self, state: int) -> int:
        """Match zero or more whole folders, each with its slash."""
        after, inside = self._state(), self._state()
        self._free[state].append(after)
        self._edges[after].append(_Edge(ANY, True, False, inside))
        self._edges[inside].append(_Edge(ANY, True, False, inside))
        self._edges[inside].append(_Edge((("/", "/"),), False, True, after))
        done = self._state()
        self._free[after].append(done)
        return done

    def _class(self, state: int) -> int:
        """Match one character of a class such as [a-z]."""
        inverted = self._pattern.startswith(("!", "^"), self._at)
        start = self._at + inverted
        end = self._pattern.find("]", start + 1)  # a ] in the first place is a member
        if end < 0:
            raise invalid(
                self._field,
                "has a [ that is not closed",
                "a ] for each [, or \\[ for the character itself",
            )
        self._at = end + 1
        ranges = _RANGE.findall(self._pattern, start, end)
        bounds = tuple((low, high or low) for low, high in ranges)
        return self._edge(state, bounds, inverted=inverted)

    def _alternatives(self, state: int) -> int:
        """Match one of the patterns between braces."""
        if self._pattern.count("{", 0, self._at) > 100:
            raise invalid(self._field, "has more than 100 {", "fewer alternatives")
        end = self._state()
        while True:
            begin = self._state()
            self._free[state].append(begin)
            self._free[self._sequence(begin, nested=True)].append(end)
            self._at += 1
            if self._pattern[self._at - 1] == "}":
                return end

    PARSERS: ClassVar[dict[str, Callable[[Any, int], int]]] = {
        "*": _stars,
        "?": _any,
        "[": _class,
        "{": _alternatives,
    }
    """Parses the part that starts with a special character."""

    def _state(self) -> int:
        self._edges.append([])
        self._free.append([])
        return len(self._edges) - 1

    def _edge(
        self,
        state: int,
        ranges: tuple[tuple[str, str], ...],
        *,
        inverted: bool = False,
        slash: bool = False,
    ) -> int:
        """Add an edge to a new state, and return that state."""
        to = self._state()
        self._edges[state].append(_Edge(ranges, inverted, slash, to))
        return to

    # Matching

    def _step(self, states: States, char: str) -> States:
        """Return the states after one more character, and cache them."""
        edges = chain.from_iterable(self._edges[state] for state in states)
        reached = self._closure({edge.to for edge in edges if edge.takes(char)})
        if len(self._next) >= MAX_KNOWN:
            self._next.clear()
        self._next[states, char] = reached
        return reached

    def _closure(self, states: set[int]) -> States:
        """Add the states that can be reached without a character."""
        pending = list(states)
        while pending:
            for free in self._free[pending.pop()]:
                if free not in states:
                    states.add(free)
                    pending.append(free)
        return frozenset(states)
