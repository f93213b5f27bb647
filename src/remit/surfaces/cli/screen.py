"""Where a command writes: everything a person sees passes through here, and so through `display`."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TextIO

from remit.surfaces.cli.host import Result
from remit.surfaces.display import cut_at_word, display, display_line, pad, width, wrap

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_FLOOR = 12


class Ink(NamedTuple):
    """Text in a colour, where there are colours."""

    text: str
    style: str = ""


Part = str | Ink


class Column(NamedTuple):
    """A column of a table: `gives` may become narrower, `rank` says which go first where there is no room."""

    title: str
    gives: bool = False
    rank: int = 0


class Screen:
    """Standard output for people, fitted to the terminal it is; notes go to standard error."""

    def __init__(self, ask: Callable[..., Result], unattended: Callable[[str], bool]) -> None:
        self.ask, self.unattended = ask, unattended
        self._out, self._err = sys.stdout, sys.stderr
        self.terminal = self._out.isatty()
        self.width = _terminal_width() if self.terminal else None
        self._colours = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.now = _now()

    def put(self, *lead: Part, text: str = "", indent: int = 0) -> None:
        """A line, with text behind it that is wrapped and keeps to the right of where it began, or below where there is no room."""
        parts = [_ink(part) for part in lead]
        start = indent + sum(width(part.text) for part in parts)
        head = " " * indent + "".join(map(self._painted, parts))
        if self.width is not None and start > self.width:
            *lines, head = self._folded(parts, indent)
            self._write(self._out, *lines)
            start = self.width
        if start > (self.width or 80) // 2 and self._breaks(text, start):
            self._write(self._out, head.rstrip())
            start, head = indent + 2, " " * (indent + 2)
        lines = [line for row in display(text).expandtabs(4).split("\n") for line in self._wrapped(row, start)]
        self._write(self._out, head + lines[0], *(" " * start + line for line in lines[1:]))

    def section(self, title: str) -> None:
        """An empty line and a heading."""
        self.put()
        self.put(Ink(title, "bold"))

    def note(self, text: str) -> None:
        """Something to know that is no part of the answer."""
        self._write(self._err, *wrapped_for(self._err, display(text)))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Rows under their titles; empty columns are left out, and what does not fit is cut or dropped."""
        inked = [[_ink(cell) for cell in row] for row in rows]
        shown = [number for number in range(len(columns)) if any(row[number].text for row in inked)]
        widths = {number: max(width(row[number].text) for row in [_titles(columns), *inked]) for number in shown}
        self._fit(columns, widths)
        for row in [_titles(columns), *inked]:
            self._write(self._out, self._row([(row[number], cells) for number, cells in widths.items()]))

    def _fit(self, columns: Sequence[Column], widths: dict[int, int]) -> None:
        while self.width is not None and (over := sum(widths.values()) + 2 * (len(widths) - 1) - self.width) > 0:
            widest = max((number for number in widths if columns[number].gives and widths[number] > _FLOOR), key=widths.__getitem__, default=None)
            if widest is not None:
                widths[widest] -= min(over, max(1, (widths[widest] - _FLOOR) // 2))
                continue
            spare = [number for number in widths if columns[number].rank]
            if not spare:
                break
            del widths[max(spare, key=lambda number: columns[number].rank)]

    def _row(self, cells: Sequence[tuple[Ink, int]]) -> str:
        line, used = "", 0
        for number, (ink, size) in enumerate(cells):
            gap = 2 if number else 0
            room = size if self.width is None else min(size, self.width - used - gap)
            if room <= 0:
                break
            text = cut_at_word(ink.text, room)
            line += " " * gap + self._painted(Ink(text, ink.style))
            line += pad("", room - width(text)) if number < len(cells) - 1 else ""
            used += gap + room
        return line.rstrip()

    def _folded(self, parts: Sequence[Ink], indent: int) -> list[str]:
        """The lead of a line in lines that fit, broken between words; a word that does not fit is left to the terminal."""
        lines, used = [" " * indent], indent
        for part in parts:
            for word in re.findall(r"[^ ]+ *| +", part.text):
                if used > indent + 2 and used + width(word.rstrip()) > (self.width or 0):
                    lines.append(" " * (indent + 2))
                    used = indent + 2
                lines[-1] += self._painted(Ink(word, part.style))
                used += width(word)
        return lines

    def _breaks(self, text: str, start: int) -> bool:
        return "\n" in text or (self.width is not None and start + width(text) > self.width)

    def _wrapped(self, line: str, start: int) -> list[str]:
        return [line] if self.width is None else wrap(line, max(self.width - start, 10))

    def _painted(self, ink: Ink) -> str:
        return f"\x1b[{_CODES[ink.style]}m{ink.text}\x1b[0m" if self._colours and ink.style and ink.text else ink.text

    def _write(self, stream: TextIO, *lines: str) -> None:
        stream.write("".join(f"{line}\n" for line in lines))


def wrapped_for(stream: TextIO, text: str) -> list[str]:
    """The lines of displayed text as a stream shows them: broken between words where it is a terminal."""
    lines = text.expandtabs(4).split("\n")
    if not stream.isatty():
        return lines
    cells = _terminal_width()
    return [part for line in lines for part in wrap(line, cells)]


def _ink(part: Part) -> Ink:
    text, style = part if isinstance(part, Ink) else (part, "")
    return Ink(display_line(text), style)


def _titles(columns: Sequence[Column]) -> list[Ink]:
    return [Ink(column.title, "dim") for column in columns]


def _terminal_width() -> int:
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)
