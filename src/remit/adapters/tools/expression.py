"""Regular expressions from a model, by RE2: their time grows with the text alone."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from remit.errors import InvalidParam, invalid

SUPPORTED = "a regular expression without look-around or back references"

_re2: Any = import_module("re2")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_CARRIAGE_RETURN = re.compile(r"\r|\\r|\\x0[dD]|\\x\{0*[dD]\}")


class Expression:
    """A pattern that is searched for in the bytes of UTF-8 text."""

    def __init__(self, pattern: str, ignore_case: bool, multiline: bool) -> None:
        self.pattern, self.ignore_case, self.multiline = pattern, ignore_case, multiline
        self._in_line = self._compiled(pattern)
        self.for_ripgrep = _Translation(pattern).run()
        """The same expression for ripgrep, which may find more; None if it cannot be said so."""
        simple = self.for_ripgrep is not None or multiline
        self._in_text = self._compiled(f"(?m){pattern}") if simple else None
        self._keeps_returns = _CARRIAGE_RETURN.search(pattern) is not None

    def lines_of(self, data: bytes) -> list[bytes]:
        """The lines of a text, as they are searched."""
        lines = data.removesuffix(b"\n").split(b"\n") if data else []
        if self.multiline or self._keeps_returns:
            return lines
        return [line.removesuffix(b"\r") for line in lines]

    def occurs_in(self, data: bytes) -> bool:
        """False if no line of a text matches; True means maybe, unless multiline."""
        is_cut = not (self.multiline or self._keeps_returns) and b"\r\n" in data
        return self._in_text is None or is_cut or self._in_text.search(data) is not None

    def matches_line(self, line: bytes) -> bool:
        """Whether one line matches."""
        return self._in_line.search(line) is not None

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where a multiline search matches: the first byte and the one after the last."""
        assert self._in_text is not None
        start = 0
        while start < len(data) and (found := self._in_text.search(data, start)):
            first, end = found.span()
            if first < len(data):  # nothing is left to match behind the last line
                yield first, end
            start = max(end, first + 1)

    def _compiled(self, pattern: str) -> Any:
        options = _re2.Options()
        options.case_sensitive = not self.ignore_case
        options.dot_nl = self.multiline
        options.never_capture = True
        options.log_errors = False
        try:
            return _re2.compile(pattern.encode(), options)
        except _re2.error as error:
            raise _refusal(self.pattern, error.args[0] if error.args else b"") from None


def _refusal(pattern: str, said: bytes | str) -> InvalidParam:
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    if _LOOK_AROUND.search(pattern) and "(?" in text:
        text = "look-around is not supported"
    elif re.fullmatch(r"invalid escape sequence: \\[1-9]", text):
        text = "back references are not supported"
    return invalid("pattern", f"cannot be used: {text or 'it is not valid'}", SUPPORTED)


class _Unlike(Exception):
    """A construct that ripgrep's engine may read in another way."""


_SETS = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_COUNT = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\})")
_GROUP = re.compile(r"\?(:|P?<\w+>|[is]+[:)])")
_POSIX = re.compile(r"\[:\^?[a-z]+:\]")
_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~")


class _Translation:
    """Writes a pattern of RE2 for ripgrep: what it finds there contains all that RE2 finds."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0

    def run(self) -> str | None:
        """The pattern for ripgrep; None if a part of it has no exact counterpart."""
        try:
            return "".join(self._parts())
        except _Unlike:
            return None

    def _parts(self) -> Iterator[str]:
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            self._at += 1
            match char:
                case "\\":
                    yield self._escape(in_class=False)
                case "[":
                    yield self._class()
                case "(":
                    yield self._group()
                case "{":
                    yield self._taken(_COUNT, self._at - 1) or r"\{"
                case "}" | "]":
                    yield f"\\{char}"
                case "$":
                    yield r"(?:\r?$)"
                case _:
                    yield char

    def _taken(self, expected: re.Pattern[str], start: int) -> str:
        """What the pattern has at a place, if it is what is expected there."""
        found = expected.match(self._pattern, start)
        if found is None:
            return ""
        self._at = found.end()
        return found.group()

    def _group(self) -> str:
        if self._pattern[self._at : self._at + 1] != "?":
            return "("
        found = self._taken(_GROUP, self._at)
        if not found:
            raise _Unlike
        return f"({found.replace('?<', '?P<')}"

    def _escape(self, *, in_class: bool) -> str:
        char = self._pattern[self._at : self._at + 1]
        self._at += 1
        if char.lower() in _SETS and char.isascii():
            return _character_set(char, in_class=in_class)
        if char in ("b", "B") and not in_class:
            return rf"(?-u:\{char})"
        if char in ("t", "n", "r", "f", "v", "a"):
            return f"\\{char}"
        if char == "x" and (found := self._taken(_HEX, self._at - 1)):
            return f"\\{found}"
        if not char.isascii() or char.isalnum() or char in ("", "<", ">"):
            raise _Unlike
        return f"\\{char}" if char in _SPECIAL else char

    def _class(self) -> str:
        parts = ["["]
        if self._pattern[self._at : self._at + 1] == "^":
            parts.append("^")
            self._at += 1
        first = True
        while first or self._pattern[self._at] != "]":
            parts.append(self._class_item())
            first = False
        self._at += 1
        return "".join(parts) + "]"

    def _class_item(self) -> str:
        if found := self._taken(_POSIX, self._at):
            return found
        if self._pattern[self._at : self._at + 2] in ("--", "&&", "~~"):
            raise _Unlike
        char = self._pattern[self._at]
        self._at += 1
        if char == "\\":
            return self._escape(in_class=True)
        return f"\\{char}" if char in "[]&~" else char


def _character_set(char: str, *, in_class: bool) -> str:
    """A set such as \\d, which RE2 takes for ASCII and ripgrep for all of Unicode."""
    members = _SETS[char.lower()]
    if char.islower():
        return members if in_class else f"(?-i:[{members}])"
    return f"[^{members}]" if in_class else f"(?-i:[^{members}])"
