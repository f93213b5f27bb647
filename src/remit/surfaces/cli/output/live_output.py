"""Standard error of a waiting command: lines, above a tree that is redrawn in place."""

import sys
import time
from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from threading import Event, Lock

from remit.surfaces.text.display import display_line, rows_of_all, width, wrap_all
from remit.surfaces.text.stream_writer import ThreadedWriter

Picture = Callable[[int, int | None], list[str]]
"""Returns the lines of the tree for so many cells and rows."""


class LiveOutput:
    """Writes lines; at a terminal, it also draws a tree below them.

    A writer thread writes the text: a blocked terminal must not stop a worker of this process. Text
    that cannot be written is lost.
    """

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self.is_terminal = sys.stderr.isatty()
        self.lock, self.over = Lock(), Event()
        self.has_changed = False
        """True if the tree has changed since it was drawn."""
        self.said_at = 0.0
        self._drawn = 0
        """The number of rows of the drawn tree."""
        self._writer = ThreadedWriter(sys.stderr)
        self.patience: float | None = None
        """How long the reader of the last lines is waited for; None for as long as it takes."""

    def draw(self, rows: int | None) -> None:
        """Draw all tasks over the previous tree."""
        with self.lock:
            if rows is not None and self.over.is_set():  # the last tree is drawn
                return
            columns = get_terminal_size().columns
            lines, self.has_changed = self._picture(columns - 1, rows), False
            up = f"\x1b[{self._drawn}F" if self._drawn else ""
            # Line over line: nothing flickers, and terminals do not keep a cleared screen in their
            # history.
            self._writer.put(up + _over_old(lines, columns))
            self._drawn = rows_of_all(lines, columns)

    def say_wrapped(self, *lines: str) -> None:
        """Write lines below everything else, wrapped at words if that is a terminal."""
        if not self.is_terminal:
            self.say(*lines)
            return
        cells = get_terminal_size().columns - 1
        self.say(*wrap_all(map(display_line, lines), cells))

    def say_footer(self, footer: str) -> None:
        """Write a footer as a line, unless the drawn tree shows it."""
        if not self.is_terminal:
            self.say(footer)

    def say(self, *lines: str) -> None:
        """Write lines above the tree, or below everything at the end."""
        self.said_at = time.monotonic()
        with self.lock:
            # Replace the drawn tree; it is redrawn below these lines. Line over line: a terminal
            # may keep a screen that is cleared from its first line on.
            if self._drawn and not self.over.is_set():
                text = _over_old(map(display_line, lines), get_terminal_size().columns)
                self._writer.put(f"\x1b[{self._drawn}F{text}")
                self._drawn, self.has_changed = 0, True
            else:
                self._writer.put("".join(map("{}\n".format, map(display_line, lines))))
        if self.over.is_set():
            self.drain()

    def drain(self) -> None:
        """Wait until every line is written."""
        self._writer.drain(self.patience)


def _over_old(lines: Iterable[str], columns: int) -> str:
    """Return lines that replace older ones, and the code that clears what is below them."""
    return "".join(_over_old_line(line, columns) for line in lines) + "\x1b[J"


def _over_old_line(line: str, columns: int) -> str:
    """Return a line that replaces the rest of an older one."""
    # At the last column, the cursor would stand on the last character and delete it.
    gap = " " if line and width(line) % columns == 0 else ""
    return f"{line}{gap}\x1b[K\n"
