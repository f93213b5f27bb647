"""The output of commands: everything for a person passes through here and `display`."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TextIO

from remit.surfaces.cli.cli_host import Result
from remit.surfaces.text.display import (
    COMMAND,
    cut_at_word,
    display,
    display_line,
    pad,
    width,
    wrap_all,
)

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
_FLOOR = 12
_ENDLESS, _MIDDLE = sys.maxsize, 40
"""The width and the middle of output that is not a terminal: its lines are not broken."""


class Ink(NamedTuple):
    """Text with a color, which is used if the terminal has colors."""

    text: str
    style: str = ""


Part = str | Ink


class Column(NamedTuple):
    """A column of a table: one that `gives` may become narrower; the one with the highest `rank` is
    dropped first, one without a rank never.
    """

    title: str
    gives: bool = False
    rank: int = 0


class Screen:
    """Standard output for people, fitted to the terminal; notes go to standard error."""

    def __init__(
        self,
        ask: Callable[..., Result],
        unattended: Callable[[str], bool],
        outlook: Callable[[Result], str],
    ) -> None:
        self.ask, self.unattended, self.outlook = ask, unattended, outlook
        self._out, self._err = sys.stdout, sys.stderr
        self.terminal = self._out.isatty()
        self.width, self._middle = _ENDLESS, _MIDDLE
        if self.terminal:
            self.width = _terminal_width()
            self._middle = self.width // 2
        self._has_colors = self.terminal and _allows_colors(os.environ)
        self.now = _now()
        self.has_changes = True
        """False if the command was given no change."""

    def put(self, *lead: Part, text: str = "", indent: int = 0) -> None:
        """Write a line; `text` behind its lead is wrapped and indented, or starts below if there is
        no room.
        """
        parts = list(map(_ink, lead))
        start = indent + sum(width(part.text) for part in parts)
        head = " " * indent + "".join(map(self._paint, parts))
        if start > self.width:
            *lines, head = self._fold(parts, indent)
            self._write(self._out, *lines)
            start = self.width
        if start > self._middle and self._breaks(text, start):
            self._write(self._out, head.rstrip())
            start, head = indent + 2, " " * (indent + 2)
        first, *rest = self._wrap_text(text, start)
        self._write(self._out, head + first, *map((" " * start + "{}").format, rest))

    def section(self, title: str) -> None:
        """Write an empty line and a heading."""
        self.put()
        self.put(Ink(title, "bold"))

    def note(self, text: str) -> None:
        """Write something that is not part of the answer."""
        self._write(self._err, *wrapped_for(self._err, display(text)))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Write rows under their titles.

        Empty columns are left out; cells that do not fit are cut or dropped.
        """
        inked = [list(map(_ink, row)) for row in rows]
        titled = [[Ink(column.title, "dim") for column in columns], *inked]
        widths = {
            number: max(width(cell.text) for cell in (title, *cells))
            for number, (title, *cells) in enumerate(zip(*titled, strict=True))
            if any(cell.text for cell in cells)
        }
        self._fit(columns, widths)
        for row in titled:
            cells = [(row[number], size) for number, size in widths.items()]
            self._write(self._out, self._format_row(cells))

    def _fit(self, columns: Sequence[Column], widths: dict[int, int]) -> None:
        """Make columns narrower, then drop some, until they fit into the terminal."""
        while (over := sum(widths.values()) + 2 * (len(widths) - 1) - self.width) > 0:
            wide = {number: size for number, size in widths.items() if size > _FLOOR}
            shrinkable = [number for number in wide if columns[number].gives]
            if shrinkable:
                widest = max(shrinkable, key=wide.__getitem__)
                widths[widest] -= min(over, max(1, (wide[widest] - _FLOOR) // 2))
                continue
            droppable = [number for number in widths if columns[number].rank]
            if not droppable:
                break
            del widths[max(droppable, key=lambda number: columns[number].rank)]

    def _format_row(self, cells: Sequence[tuple[Ink, int]]) -> str:
        """Return one row of a table, with each cell cut and padded to its width."""
        line, used, gap = "", 0, 0
        for ink, size in cells:
            room = min(size, self.width - used - gap)
            if room <= 0:
                break
            text = cut_at_word(ink.text, room)
            line += " " * gap + self._paint(Ink(text, ink.style))
            line += pad("", room - width(text))
            used += gap + room
            gap = 2
        return line.rstrip()

    def _fold(self, parts: Sequence[Ink], indent: int) -> list[str]:
        """Return the lead of a line in lines that fit, broken between words, but not in a command.

        The terminal breaks a word that does not fit.
        """
        lines, used = [" " * indent], indent
        for part in parts:
            for word in re.findall(rf"{COMMAND}|[^ ]+ *| +", part.text):
                if used > indent + 2 and used + width(word.rstrip()) > self.width:
                    lines.append(" " * (indent + 2))
                    used = indent + 2
                lines[-1] += self._paint(Ink(word, part.style))
                used += width(word)
        return lines

    def _breaks(self, text: str, start: int) -> bool:
        """Return True if a text needs more than the rest of a line."""
        return "\n" in text or start + width(text) > self.width

    def _wrap_text(self, text: str, start: int) -> list[str]:
        """Return the lines of a text, indented to its first line."""
        rows = display(text).expandtabs(4).split("\n")
        return wrap_all(rows, max(self.width - start, 10))

    def _paint(self, ink: Ink) -> str:
        """Return text in its color if the terminal has colors."""
        if not all((self._has_colors, ink.style, ink.text)):
            return ink.text
        return f"\x1b[{_CODES[ink.style]}m{ink.text}\x1b[0m"

    def _write(self, stream: TextIO, *lines: str) -> None:
        stream.write("".join(map("{}\n".format, lines)))


def write_notes(*lines: str) -> None:
    """Write lines for a person to standard error."""
    wrapped = map(partial(wrapped_for, sys.stderr), map(display_line, lines))
    sys.stderr.write("".join(map("{}\n".format, chain.from_iterable(wrapped))))


def wrapped_for(stream: TextIO, text: str) -> list[str]:
    """Return displayed text as lines, wrapped between words if the stream is a terminal."""
    lines = text.expandtabs(4).split("\n")
    if not stream.isatty():
        return lines
    return wrap_all(lines, _terminal_width())


def _ink(part: Part) -> Ink:
    """Return a part of a line, safe to display."""
    if isinstance(part, Ink):
        return Ink(display_line(part.text), part.style)
    return Ink(display_line(part))


def _allows_colors(env: Mapping[str, str]) -> bool:
    return not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def _terminal_width() -> int:
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)
