"""Matching paths by patterns from a model: in time that grows with the path and nothing else.

A pattern becomes a graph of states; a path is fed to the set of states it may be in. Steps that were taken are kept, so each
character costs one look-up, and no pattern can make it try alternatives one by one.
"""

from typing import NamedTuple

from remit.errors import invalid

MAX_KNOWN = 50_000

States = frozenset[int]


class _Edge(NamedTuple):
    ranges: tuple[tuple[str, str], ...]
    inverted: bool
    slash: bool
    """Whether a slash may be crossed."""
    to: int

    def takes(self, char: str) -> bool:
        if char == "/" and not self.slash:
            return False
        return any(low <= char <= high for low, high in self.ranges) != self.inverted


ANY: tuple[tuple[str, str], ...] = ()


class GlobPattern:
    """A pattern of *, ?, [a-z], {a,b} and **, ready to be fed with paths."""

    def __init__(self, pattern: str, field: str = "pattern") -> None:
        self._edges: list[list[_Edge]] = []
        self._free: list[list[int]] = []
        self._pattern, self._field, self._at = pattern.removeprefix("./").lstrip("/"), field, 0
        if "/" not in self._pattern:
            self._pattern = f"**/{self._pattern}"
        first = self._state()
        self._last = self._sequence(first, nested=False)
        self._next: dict[tuple[States, str], States] = {}
        self.start = self._closed({first})

    def feed(self, states: States, text: str) -> States:
        """The states after some more of a path; none of them when nothing that follows can match any more."""
        for char in text:
            found = self._next.get((states, char))
            states = self._step(states, char) if found is None else found
        return states

    def accepts(self, states: States) -> bool:
        """Whether the path so far matches."""
        return self._last in states

    def matches(self, path: str) -> bool:
        """Whether a whole path matches."""
        return self.accepts(self.feed(self.start, path))

    # Reading the pattern.

    def _sequence(self, state: int, *, nested: bool) -> int:
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
        match char:
            case "*":
                return self._stars(state)
            case "?":
                return self._edge(state, ANY, inverted=True)
            case "[":
                return self._class(state)
            case "{":
                return self._alternatives(state)
            case "\\" if self._at < len(self._pattern):
                self._at += 1
                char = self._pattern[self._at - 1]
            case _:
                pass
        return self._edge(state, ((char, char),), slash=True)

    def _stars(self, state: int) -> int:
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
        """Any number of whole folders, each with its slash; none as well."""
        after, inside = self._state(), self._state()
        self._free[state].append(after)
        self._edges[after].append(_Edge(ANY, True, False, inside))
        self._edges[inside].append(_Edge(ANY, True, False, inside))
        self._edges[inside].append(_Edge((("/", "/"),), False, True, after))
        done = self._state()
        self._free[after].append(done)
        return done

    def _class(self, state: int) -> int:
        end = self._pattern.find("]", self._at + (2 if self._pattern[self._at : self._at + 1] in ("!", "^") else 1))
        if end < 0:
            raise invalid(self._field, "has a [ that is not closed", "a ] for each [, or \\[ for the character itself")
        body, self._at = self._pattern[self._at : end], end + 1
        inverted = body[0] in "!^"
        body = body[1:] if inverted else body
        ranges: list[tuple[str, str]] = []
        while body:
            if len(body) > 2 and body[1] == "-":
                ranges.append((body[0], body[2]))
                body = body[3:]
            else:
                ranges.append((body[0], body[0]))
                body = body[1:]
        return self._edge(state, tuple(ranges), inverted=inverted)

    def _alternatives(self, state: int) -> int:
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

    def _state(self) -> int:
        self._edges.append([])
        self._free.append([])
        return len(self._edges) - 1

    def _edge(self, state: int, ranges: tuple[tuple[str, str], ...], *, inverted: bool = False, slash: bool = False) -> int:
        to = self._state()
        self._edges[state].append(_Edge(ranges, inverted, slash, to))
        return to

    # Following it.

    def _step(self, states: States, char: str) -> States:
        reached = self._closed({edge.to for state in states for edge in self._edges[state] if edge.takes(char)})
        if len(self._next) >= MAX_KNOWN:
            self._next.clear()
        self._next[states, char] = reached
        return reached

    def _closed(self, states: set[int]) -> States:
        waiting = list(states)
        while waiting:
            for free in self._free[waiting.pop()]:
                if free not in states:
                    states.add(free)
                    waiting.append(free)
        return frozenset(states)
