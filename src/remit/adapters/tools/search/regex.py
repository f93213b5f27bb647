"""Regular expressions from a model, with RE2: matching takes time linear in the text."""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from remit.errors import InvalidParam, invalid

VALID = "a regular expression in the syntax of RE2"
SUPPORTED = "a regular expression without look-around or back references"

_re2: Any = import_module("re2")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_CARRIAGE_RETURN = re.compile(r"\r|\\r|\\x0[dD]|\\x\{0*[dD]\}")


class Expression:
    """A pattern to search for in UTF-8 bytes."""

    def __init__(self, pattern: str, ignore_case: bool, multiline: bool) -> None:
        self.pattern, self.ignore_case, self.multiline = pattern, ignore_case, multiline
        self._in_line = self._compile(pattern)
        self.for_ripgrep = _Translation(pattern).run()
        """The expression for ripgrep, which may match more; None if it cannot be translated."""
        self._in_text: Any = None
        """The expression for a whole text; None if a text cannot be searched at once."""
        if self.for_ripgrep is not None or multiline:
            self._in_text = self._compile(f"(?m){pattern}")
        self._drops_returns = not multiline and _CARRIAGE_RETURN.search(pattern) is None
        """True if a carriage return at the end of a line is not searched."""

    def lines_of(self, data: bytes) -> list[bytes]:
        """Split a text into the lines to search."""
        if not data:
            return []
        lines = data.removesuffix(b"\n").split(b"\n")
        if self._drops_returns:
            return [line.removesuffix(b"\r") for line in lines]
        return lines

    def occurs_in(self, data: bytes) -> bool:
        """Return False if no line matches; True means maybe, unless the search is multiline."""
        if self._in_text is None or (self._drops_returns and b"\r\n" in data):
            return True
        return self._in_text.search(data) is not None

    def matches_line(self, line: bytes) -> bool:
        """Return whether one line matches."""
        return self._in_line.search(line) is not None

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the start and end offset of each match of a multiline search."""
        assert self._in_text is not None
        start = 0
        while start < len(data) and (found := self._in_text.search(data, start)):
            first, end = found.span()
            if first < len(data):  # a match at the very end is empty
                yield first, end
            start = max(end, first + 1)

    def _compile(self, pattern: str) -> Any:
        """Compile a pattern with RE2; `InvalidParam` if it is not valid."""
        options = _re2.Options()
        options.case_sensitive = not self.ignore_case
        options.dot_nl = self.multiline
        options.never_capture = True
        options.log_errors = False
        try:
            return _re2.compile(pattern.encode(), options)
        except _re2.error as error:
            raise _refusal(self.pattern, _read_message(error)) from None


def _read_message(error: Exception) -> str:
    """Return RE2's message about a pattern."""
    if not error.args:
        return "it is not valid"
    message = error.args[0]
    if isinstance(message, bytes):
        return message.decode(errors="replace")
    return str(message)


def _refusal(pattern: str, text: str) -> InvalidParam:
    """Return the error for a pattern, with a plain reason for the most common ones."""
    expected = SUPPORTED
    if _LOOK_AROUND.search(pattern) and "(?" in text:
        text = "look-around is not supported"
    elif re.fullmatch(r"invalid escape sequence: \\[1-9]", text):
        text = "back references are not supported"
    else:
        expected = VALID
    return invalid("pattern", f"cannot be used: {text or 'it is not valid'}", expected)


class _NotTranslatable(Exception):
    """A construct that ripgrep may interpret differently."""


_SETS = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_COUNT = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\})")
_GROUP = re.compile(r"\?(:|P?<\w+>|[is]+[:)])")
_POSIX = re.compile(r"\[:\^?[a-z]+:\]")
_REPLACEMENTS = {"}": r"\}", "]": r"\]", "$": r"(?:\r?$)"}
_ESCAPED = frozenset(r"\.+*?()|[]{}^$#&-~tnrfva")
"""Characters that stay escaped; all others stand for themselves."""


class _Translation:
    """Translates an RE2 pattern for ripgrep, so that ripgrep finds at least what RE2 finds."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0

    def run(self) -> str | None:
        """Return the pattern for ripgrep; None if a part has no equivalent."""
        try:
            return "".join(self._parts())
        except _NotTranslatable:
            return None

    def _parts(self) -> Iterator[str]:
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            self._at += 1
            yield self._translate(char)

    def _translate(self, char: str) -> str:
        """Translate the part of the pattern that starts with a character."""
        translate = _TRANSLATORS.get(char)
        if translate is None:
            return _REPLACEMENTS.get(char, char)
        return translate(self)

    def _take(self, expected: re.Pattern[str], start: int) -> str:
        """Consume and return the expected text at a position; empty if it is not there."""
        found = expected.match(self._pattern, start)
        if found is None:
            return ""
        self._at = found.end()
        return found.group()

    def _require(self, expected: re.Pattern[str], start: int) -> str:
        """Consume and return the expected text; there is no translation without it."""
        found = self._take(expected, start)
        if not found:
            raise _NotTranslatable
        return found

    def count(self) -> str:
        """Translate a count such as {2,3}, or a brace that begins none."""
        return self._take(_COUNT, self._at - 1) or r"\{"

    def group(self) -> str:
        """Translate the start of a group."""
        if self._pattern[self._at : self._at + 1] != "?":
            return "("
        found = self._require(_GROUP, self._at)
        return f"({found.replace('?<', '?P<')}"

    def escape(self, *, in_class: bool = False) -> str:
        """Translate the part after a backslash."""
        char = self._pattern[self._at : self._at + 1]
        self._at += 1
        if char.lower() in _SETS and char.isascii():
            return _character_set(char, in_class=in_class)
        if char in ("b", "B") and not in_class:
            return rf"(?-u:\{char})"
        if char == "x":
            return self._hex_escape()
        if char in _ESCAPED:
            return f"\\{char}"
        if not char.isascii() or char.isalnum() or char in ("", "<", ">"):
            raise _NotTranslatable
        return char

    def _hex_escape(self) -> str:
        return f"\\{self._require(_HEX, self._at - 1)}"

    def char_class(self) -> str:
        """Translate a character class such as [a-z]."""
        parts = ["["]
        if self._pattern[self._at : self._at + 1] == "^":
            parts.append("^")
            self._at += 1
        parts.append(self._class_item())  # a ] in the first place is a member
        while self._pattern[self._at] != "]":
            parts.append(self._class_item())
        self._at += 1
        return "".join(parts) + "]"

    def _class_item(self) -> str:
        """Translate one member of a class."""
        found = self._take(_POSIX, self._at)
        if found:
            return found
        if self._pattern[self._at : self._at + 2] in ("--", "&&", "~~"):
            raise _NotTranslatable
        char = self._pattern[self._at]
        self._at += 1
        if char == "\\":
            return self.escape(in_class=True)
        if char in "[]&~":
            return f"\\{char}"
        return char


_TRANSLATORS: dict[str, Callable[[_Translation], str]] = {
    "\\": _Translation.escape,
    "[": _Translation.char_class,
    "(": _Translation.group,
    "{": _Translation.count,
}
"""Translates the part of a pattern that starts with a character."""


def _character_set(char: str, *, in_class: bool) -> str:
    """Write out a set such as \\d: it is ASCII for RE2 and all of Unicode for ripgrep."""
    members = _SETS[char.lower()]
    if in_class and char.islower():
        return members
    if char.isupper():
        members = f"^{members}"
    if in_class:
        return f"[{members}]"
    return f"(?-i:[{members}])"
