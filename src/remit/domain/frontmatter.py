"""Front matter: the fields before a text. Read strictly as the part of YAML that people use there, else line by line.

The strict reader knows block and flow maps and lists, plain and quoted scalars, and block scalars. It knows no anchors, aliases or
tags: nothing that could make a small file large.
"""

import re
from collections.abc import Callable, Collection
from math import isfinite
from typing import Any, NamedTuple

MAX_DEPTH = 12
Fields = dict[str, Any]
_ESCAPES = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b", " ": " "} | {
    mark: mark for mark in '"/\\'
}
_BLOCK = re.compile(r"([|>])(?:([1-9])([+-]?)|([+-])([1-9]?))?[ \t]*(?:[ \t]#.*)?")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_PIECE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(\n)[ \t]*|(.))|[ \t]{0,200}\n([ \t\n]*)", re.DOTALL)
_FOLD = re.compile(r"[ \t]{0,200}\n([ \t\n]*)")
_FLOW_PLAIN = re.compile(r"(?:[^\s,\[\]{}:#]|:(?![\s,\[\]{}]|$)|(?<=\S)#|[ \t]+(?![#\s]))+")
_FORBIDDEN_START = tuple(",[]{}#&*!|>'\"%@`")


class Refused(Exception):
    """Why a text is not YAML as we read it."""


class FrontMatter(NamedTuple):
    """The fields, the text behind them, and why they had to be read line by line, if so."""

    fields: Fields
    body: str
    refusal: str = ""
    repeated: tuple[str, ...] = ()


def read(text: str, known: Collection[str]) -> FrontMatter:
    """What stands in a text with front matter, whatever it is; `known` keys are the ones to look for where YAML fails."""
    head, body, refusal = _split(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    if not refusal:
        try:
            return FrontMatter(read_yaml(head), body)
        except Refused as why:
            refusal = str(why)
    fields, repeated = _read_lines(head, known)
    return FrontMatter(fields, body, refusal, repeated)


def _split(text: str) -> tuple[str, str, str]:
    lines = text.lstrip("\n").split("\n")
    if lines[0].rstrip() != "---":
        return "", text.strip(), ""
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is not None:
        return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]).strip(), ""
    blank = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    return "\n".join(lines[1:blank]), "\n".join(lines[blank:]).strip(), "the closing --- is missing"


# Line by line: a known key at the beginning of a line starts a field, and all up to the next one belongs to it.


def _read_lines(head: str, known: Collection[str]) -> tuple[Fields, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    repeated: list[str] = []
    current: list[str] = []
    for line in head.split("\n"):
        key = line.partition(":")[0].rstrip()
        if key not in known or not re.match(r":(?:\s|$)", line[len(key) :].lstrip(" ")):
            current.append(line)
            continue
        current = [line.partition(":")[2].strip()]
        if key in found:
            repeated.append(key)
        else:
            found[key] = current
    return {key: _lenient(lines) for key, lines in found.items()}, tuple(repeated)


def _lenient(lines: list[str]) -> Any:
    try:
        return read_yaml("\n".join([f"value: {lines[0]}", *lines[1:]]))["value"]
    except Refused:
        text = "\n".join(lines).strip()
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


# Strictly.


class _Line(NamedTuple):
    indent: int
    text: str


def read_yaml(text: str) -> Fields:
    """A map in YAML; Refused says why it is none."""
    lines = [_Line(len(line) - len(line.lstrip(" ")), line.lstrip(" ").rstrip(" \t")) for line in text.split("\n")]
    reader = _Block(lines)
    reader.skip()
    if reader.done:
        return {}
    found = reader.node(-1, 0)
    reader.skip()
    if not reader.done:
        raise Refused(f"line {reader.at + 2}: is indented otherwise than what is before it")
    if not isinstance(found, dict):
        raise Refused("it is no list of keys with values")
    return dict(_as_map(found))


def _as_map(value: Any) -> Fields:
    return value  # type: ignore[no-any-return] # just seen to be one


class _Block:
    """Reads lines by their indentation; every loop moves on, and depth has an end."""

    def __init__(self, lines: list[_Line]) -> None:
        self.lines, self.at = lines, 0

    @property
    def done(self) -> bool:
        """True at the end."""
        return self.at >= len(self.lines)

    def skip(self) -> None:
        """Pass over empty lines and comments."""
        while not self.done and (not self.lines[self.at].text or self.lines[self.at].text.startswith("#")):
            self.at += 1

    def node(self, parent: int, depth: int) -> Any:
        """Whatever begins on this line, indented more than its parent."""
        if depth > MAX_DEPTH:
            raise self._refused(f"is nested deeper than {MAX_DEPTH} levels")
        line = self.lines[self.at]
        if line.text.startswith("\t"):
            raise self._refused("is indented with a tab")
        if _dashed(line.text):
            return self._list(line.indent, depth)
        if _key(line.text) is not None:
            return self._map(line.indent, depth)
        self.at += 1
        return self._scalar(line.text, parent, self.at - 1)

    def _map(self, indent: int, depth: int) -> Fields:
        found: Fields = {}
        while not self.done and self.lines[self.at].indent == indent and not _dashed(self.lines[self.at].text):
            split = _key(self.lines[self.at].text)
            if split is None:
                raise self._refused("is indented with a tab" if self.lines[self.at].text.startswith("\t") else "has no key")
            key, rest = split
            if key in found:
                raise self._refused(f"gives {key[:60]} a second time")
            found[key] = self._value(rest, indent, depth, dashes=True)
            self.skip()
        self._must_end(indent)
        return found

    def _list(self, indent: int, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self.done and self.lines[self.at].indent == indent and _dashed(self.lines[self.at].text):
            rest = self.lines[self.at].text[1:].lstrip(" ")
            inner = indent + len(self.lines[self.at].text) - len(rest)
            if rest and not rest.startswith("#") and (_dashed(rest) or _key(rest) is not None):
                self.lines[self.at] = _Line(inner, rest)
                found.append(self.node(indent, depth + 1))
            else:
                found.append(self._value(rest, indent, depth, dashes=False))
            self.skip()
        self._must_end(indent)
        return found

    def _must_end(self, indent: int) -> None:
        if not self.done and self.lines[self.at].indent > indent:
            raise self._refused("is indented otherwise than what is before it")

    def _value(self, rest: str, indent: int, depth: int, *, dashes: bool) -> Any:
        """What stands behind a key or a dash: on its line, or on the following ones."""
        start = self.at
        self.at += 1
        if rest and not rest.startswith("#"):
            return self._scalar(rest, indent, start)
        self.skip()
        if self.done:
            return None
        line = self.lines[self.at]
        if line.indent > indent or (dashes and line.indent == indent and _dashed(line.text)):
            return self.node(indent, depth + 1)
        return None

    def _scalar(self, text: str, parent: int, start: int) -> Any:
        if block := _BLOCK.fullmatch(text):
            return self._block(block, parent)
        if text[0] in "\"'[{":
            more = self._following(parent, text[0] in "[{")
            return self._closed("\n".join([text, *(line.text for line in more)]), len(more), start)
        return self._plain(text, parent, start)

    def _following(self, parent: int, flow: bool = False) -> list[_Line]:
        """Lines that a value may run on to; a closing bracket may stand under the key."""
        end = self.at
        while end < len(self.lines) and (
            not self.lines[end].text or self.lines[end].indent > parent or (flow and self.lines[end].text.startswith(("]", "}")))
        ):
            end += 1
        return self.lines[self.at : end]

    def _closed(self, text: str, more: int, start: int) -> Any:
        """A quoted text or a flow collection, which ends with its own mark."""
        flow = _Flow(text, lambda why: Refused(f"line {start + 2}: {why}"))
        value = flow.value(0)
        rest = text[flow.at :].split("\n")
        if rest[0].strip() and not re.match(r"[ \t]+#", rest[0]):
            raise Refused(f"line {start + 2}: has more behind the end of a value")
        self.at += more - (len(rest) - 1)
        return value

    def _plain(self, text: str, parent: int, start: int) -> Any:
        parts, gaps = [_plain_line(text, start)], 0
        ended = parts[0] != text
        for line in self._following(parent):
            if line.text.startswith("#"):
                ended = True
            elif line.text and ended:
                raise Refused(f"line {self.at + 2}: goes on after a comment")
            elif line.text:
                part = _plain_line(line.text, self.at, goes_on=True)
                ended = part != line.text
                parts += ["\n" * gaps or " ", part]
                gaps = -1
            gaps += 0 if line.text.startswith("#") else 1
            self.at += 1
        return _typed("".join(parts))

    def _block(self, header: re.Match[str], parent: int) -> str:
        style = header[1]
        size, chomp = header[2] or header[5], header[3] or header[4] or ""
        lines = self._block_lines(parent)
        first = next((line.indent for line in lines if line.text), parent + 1)
        indent = max(parent, 0) + int(size) if size else first
        if any(line.text and line.indent < indent for line in lines):
            raise self._refused("is indented otherwise than its text begins")
        rows = [" " * (line.indent - indent) + line.text if line.text else "" for line in lines]
        kept = len(rows)
        while kept and not rows[kept - 1]:
            kept -= 1
        text = "\n".join(rows[:kept]) if style == "|" else _folded(rows[:kept])
        tail = "\n" * (len(rows) - kept) if chomp == "+" else ""
        return text + tail + ("\n" if kept and chomp != "-" else "")

    def _block_lines(self, parent: int) -> list[_Line]:
        lines = self._following(parent)
        self.at += len(lines)
        return lines

    def _refused(self, why: str) -> Refused:
        return Refused(f"line {min(self.at, len(self.lines) - 1) + 2}: {why}")


def _dashed(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _key(text: str) -> tuple[str, str] | None:
    """A key and what is behind it."""
    if text[:1] in ('"', "'"):
        quoted = (_DOUBLE if text[0] == '"' else _SINGLE).match(text)
        rest = text[quoted.end() :].lstrip(" ") if quoted else ""
        if quoted is None or not re.match(r":(?:[ \t]|$)", rest):
            return None
        return (_unescape(quoted[1]) if text[0] == '"' else quoted[1].replace("''", "'")), rest[1:].strip(" \t")
    found = re.search(r":(?:[ \t]|$)", text)
    if found is None or not found.start() or text.startswith(_FORBIDDEN_START) or re.match(r"[?][ \t]", text):
        return None
    key = text[: found.start()].rstrip(" \t")
    return None if re.search(r"[ \t]#", key) else (key, text[found.end() :].strip(" \t"))


def _plain_line(text: str, number: int, *, goes_on: bool = False) -> str:
    kept = re.split(r"[ \t]+#", text, maxsplit=1)[0]
    if re.search(r":(?:[ \t]|$)", kept):
        raise Refused(f"line {number + 2}: has a second colon; a text with a colon and a space in it wants quotes")
    if not goes_on and (kept.startswith(_FORBIDDEN_START) or re.match(r"[-?:](?:[ \t]|$)", kept)):
        raise Refused(f"line {number + 2}: begins with {kept[0]}; such a text wants quotes")
    return kept


def _folded(rows: list[str]) -> str:
    """Lines of a folded block: joined by spaces, but for empty and for further indented ones."""
    text, breaks, literal = "", 0, True
    for number, row in enumerate(rows):
        if not row:
            breaks += 1
            continue
        indented = row.startswith((" ", "\t"))
        if number:
            plain = not literal and not indented
            text += ("\n" * breaks or " ") if plain else "\n" * (breaks + (1 if text else 0))
        text += row
        breaks, literal = 0, indented
    return text


class _Flow:
    """Reads quoted texts, and lists and maps in brackets, from one string."""

    def __init__(self, text: str, refused: Callable[[str], Refused]) -> None:
        self.text, self.at, self.refused = text, 0, refused

    def value(self, depth: int) -> Any:
        """The value that begins here."""
        if depth > MAX_DEPTH:
            raise self.refused(f"is nested deeper than {MAX_DEPTH} levels")
        mark = self.text[self.at : self.at + 1]
        if mark == "[":
            return self._list(depth)
        if mark == "{":
            return self._map(depth)
        return self._quoted() if mark in ('"', "'") and mark else self._plain()

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while not self._closes("]"):
            found.append(self.value(depth + 1))
            self._separates("]")
        return found

    def _map(self, depth: int) -> Fields:
        found: Fields = {}
        self.at += 1
        while not self._closes("}"):
            key = self._quoted() if self.text[self.at] in "\"'" else self._bare()
            self._space()
            value = None
            if self.text[self.at : self.at + 1] == ":":
                self.at += 1
                self._space()
                value = None if self.text[self.at : self.at + 1] in (",", "}") else self.value(depth + 1)
            if key in found:
                raise self.refused(f"gives {key[:60]} a second time")
            found[key] = value
            self._separates("}")
        return found

    def _closes(self, mark: str) -> bool:
        self._space()
        if self.at >= len(self.text):
            raise self.refused(f"has no closing {mark}")
        closes = self.text[self.at] == mark
        self.at += closes
        return closes

    def _separates(self, mark: str) -> None:
        self._space()
        if self.text[self.at : self.at + 1] == ",":
            self.at += 1
        elif self.text[self.at : self.at + 1] != mark:
            raise self.refused(f"wants a comma or {mark}")

    def _space(self) -> None:
        found = re.compile(r"(?:[ \t\n]|(?<=[ \t\n])#[^\n]*)*").match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _quoted(self) -> str:
        double = self.text[self.at] == '"'
        found = (_DOUBLE if double else _SINGLE).match(self.text, self.at)
        if found is None:
            raise self.refused("has a quote that is not closed")
        self.at = found.end()
        return _unescape(found[1]) if double else _FOLD.sub(_break, found[1]).replace("''", "'")

    def _plain(self) -> Any:
        return _typed(self._bare())

    def _bare(self) -> str:
        found = _FLOW_PLAIN.match(self.text, self.at)
        text = found[0].strip(" \t") if found else ""
        if found is None or not text or text.startswith(_FORBIDDEN_START) or re.match(r"[-?](?:[ \t]|$)", text):
            raise self.refused("has a value that wants quotes")
        self.at = found.end()
        return text


def _break(found: re.Match[str]) -> str:
    """A line break within a quoted text is a space, unless there are empty lines."""
    return "\n" * found[1].count("\n") or " "


def _unescape(text: str) -> str:
    made = _PIECE.sub(_piece, text)
    try:
        made = made.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise Refused("a quoted text has half of a character in it") from None
    if "\0" in made:
        raise Refused("a quoted text has NUL in it")
    return made


def _piece(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code:
        if int(code, 16) > 0x10FFFF:
            raise Refused(f"a quoted text has the escape \\U{code}, which is no character")
        return chr(int(code, 16))
    if found[4]:
        return ""
    if found[5]:
        if found[5] not in _ESCAPES:
            raise Refused(f"a quoted text has the escape \\{found[5]}, which means nothing")
        return _ESCAPES[found[5]]
    return "\n" * found[6].count("\n") or " "


def _typed(text: str) -> Any:
    """A plain scalar as what it looks like."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?(?:0|[1-9][0-9]{0,17})", text):
        return int(text)
    if len(text) < 40 and re.fullmatch(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?", text) and isfinite(float(text)):
        return float(text)
    return text
