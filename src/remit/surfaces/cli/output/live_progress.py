"""Live progress of a waiting command: a redrawn tree at a terminal, otherwise a line for each
change.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from shutil import get_terminal_size
from threading import Event, Lock, Thread
from typing import Any, Self

from remit.errors import RemitError
from remit.surfaces.cli.output.next_steps import NO_SERVER_WORKER, named, start_worker
from remit.surfaces.cli.output.progress_tree import Node, TaskTree, format_elapsed
from remit.surfaces.shutdown import stop_again
from remit.surfaces.text.display import display_line, rows_of, width, wrap_all, wrap_before_command
from remit.surfaces.text.last_line import stopped_line
from remit.surfaces.text.printed_commands import command_line, with_commands
from remit.surfaces.text.stream_writer import ThreadedWriter

_BLINK_SECONDS, _SILENCE_SECONDS, _LAST_LOOK_SECONDS, _HANDOVER_SECONDS = 0.1, 5.0, 1.0, 1.0
_LAST_LINES_SECONDS = 1.5
"""How long a stopping command waits for the reader of its lines."""
REPEAT_SECONDS = 7.0
"""How long a command with piped output may be silent before it repeats its state.

A line every 10 seconds is promised; the difference is for a busy machine.
"""
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


def stopping_line() -> str:
    """Return the line of a command that was told to stop."""
    return f"Stopping… {stop_again()} again to quit now."


class _LogLines(logging.Handler):
    """Shows warnings as lines above the tree, which would cover them otherwise."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self.store_is_waited_for: Callable[[], bool] = bool
        """Returns True while the last announced wait for the store lasts."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show one warning, but not again that the store is waited for: the tree shows that."""
        goes_on = getattr(record, "goes_on", None)
        is_known = goes_on is not None and self.store_is_waited_for()
        self.store_is_waited_for = goes_on or self.store_is_waited_for
        if is_known:
            return
        self._say(*with_commands(self.format(record)).splitlines())


class Progress:
    """Shows items of progress, and questions with how to answer them.

    At a terminal, a thread redraws the tree, so that times advance without news and a thousand
    items a second cause only a few redraws. After a silence, it checks whether a worker is still
    running.
    """

    def __init__(
        self,
        unattended: Callable[[], bool],
        *,
        on_stop: Callable[[int], object] = bool,
        quit_line: Callable[[], str] = stopped_line,
        server: str | None = None,
    ) -> None:
        self._unattended, self._footer, self._on_stop = unattended, "", on_stop
        self._stopping = self._told_stopping = False
        self._server = server
        """The server that has the tasks; then only its items show whether a worker is running."""
        self.quit_line = quit_line
        """Returns the last lines of a process that a second Ctrl-C ends."""
        self._ends_at: float | None = None
        self._live = sys.stderr.isatty()
        self._writer = ThreadedWriter(sys.stderr)
        self._tree = TaskTree()
        self._handed_out: list[str] = []
        self.has_begun = False
        """True once tasks may have been created: before that, the store was not open."""
        self._drawn, self._changed = 0, False
        self._lock, self._over = Lock(), Event()
        self._began_at: float | None = None
        self._said_at = 0.0
        self._heard_at = math.inf  # before the first item there may be no worker yet
        self._watch = Thread(target=self._keep_watch, daemon=True)
        self._looking: Thread | None = None
        self._log_lines = _LogLines(self.say)

    def __enter__(self) -> Self:
        self._began_at = self._said_at = time.monotonic()
        self._watch.start()
        logging.getLogger("remit").addHandler(self._log_lines)
        return self

    def end(self) -> None:
        """Wait for each line to be written from now on; Ctrl-C can come before `__exit__`."""
        self._over.set()

    def __exit__(self, *_: object) -> None:
        """Leave the last tree on the screen, complete."""
        logging.getLogger("remit").removeHandler(self._log_lines)
        self.end()
        for thread in (self._watch, self._looking):
            if thread is not None:
                thread.join(_LAST_LOOK_SECONDS)
        if self._stopping:
            self._tell_stopping()
        self._footer = ""
        if self._live:
            self._draw(None)
        self._drain()

    @property
    def awaited(self) -> list[str]:
        """The tasks at the top, which are waited for."""
        return self._tree.awaited

    @property
    def created(self) -> list[str]:
        """The tasks of this command, including those that it does not wait for."""
        return sorted({*self.awaited, *self._handed_out}, key=int)

    def left_of(self, task_ids: Sequence[str]) -> list[str]:
        """Return those of these tasks that have not ended, as far as this process knows."""
        return self._tree.left_of(task_ids)

    def stop(self, number: int) -> None:
        """Show that a signal stops the wait; may be called from its handler."""
        self._stopping = self._changed = True
        self._on_stop(number)

    def done(self) -> list[str]:
        """Note that the answer has arrived; return the unfinished tasks, which may have to be
        handed over.
        """
        self._ends_at = time.monotonic() + _HANDOVER_SECONDS
        return self._tree.unfinished

    def say(self, *lines: str) -> None:
        """Write lines below everything else, wrapped at words if that is a terminal."""
        if not self._live:
            self._say(*lines)
            return
        cells = get_terminal_size().columns - 1
        self._say(*wrap_all(map(display_line, lines), cells))

    def take(self, item: dict[str, Any]) -> None:
        """Show an item of progress; results are shown at the end."""
        self.has_begun = True
        match item["type"]:
            case "result":
                self._handed_out += filter(None, [item["task_id"]])
            case "waiting" | "opened":
                return
            case "left_alone":
                self._tell_left_alone(item["task_ids"])
            case _:
                self._take_task(item)

    def _take_task(self, item: dict[str, Any]) -> None:
        """Show the latest state of a task."""
        footer_before = ""
        with self._lock:
            node = self._tree.get(item["task_id"])
            is_new = node is None
            if node is None:
                node = self._tree.add(item)
            asked_before = [] if item["type"] == "task_started" else node.questions()
            has_news = node.take(item) or is_new
            if has_news:
                footer_before, self._footer = self._footer, self._server_footer()
                self._changed, self._heard_at = True, time.monotonic()
        if self._live:
            return
        if item["type"] != "task_progress":
            self._say_task(node, asked_before)
        if has_news and self._footer not in ("", footer_before):
            self._say(self._footer)

    def _say_task(self, node: Node, asked_before: Sequence[str]) -> None:
        """Write the line of a task, and the questions that were not written before."""
        new = [question for question in node.questions() if question not in asked_before]
        self._say(node.line(), *(f"  it asks: {question}" for question in new))

    def is_unattended(self, task_id: str) -> bool:
        """Return True if the last item of a task said that no live worker works on it."""
        node = self._tree.get(task_id)
        return node is not None and bool(node.item.get("unattended"))

    def _server_footer(self) -> str:
        """Return a note if no worker of the server works on the tasks; empty otherwise."""
        if self._server is not None and any(map(self.is_unattended, self.awaited)):
            return NO_SERVER_WORKER
        return ""

    def _tell_left_alone(self, task_ids: Sequence[str]) -> None:
        """Print the unfinished tasks that no worker works on, and how to continue them."""
        told, them = "1 other unfinished task was", "it"
        if len(task_ids) != 1:
            told, them = f"{len(task_ids)} other unfinished tasks were", "them"
        self.say(
            f"{told} left alone: {named(task_ids)}. Continue {them} with: {command_line('worker')}"
        )

    def picture(self, cells: int, rows: int | None = None) -> list[str]:
        """Return the tasks as lines; if there are more than rows, the unfinished ones and
        a total.
        """
        footer = stopping_line() if self._stopping else self._footer
        if not footer:
            return self._task_lines(cells, rows)
        below = wrap_before_command(footer, cells)
        taken = sum(rows_of(line, cells + 1) for line in below)
        rows_above = None if rows is None else rows - taken
        return [*self._task_lines(cells, rows_above), *below]

    def _task_lines(self, cells: int, rows: int | None) -> list[str]:
        """Return the tasks, or a clock if there are none yet."""
        if not self._tree.is_empty:
            return self._tree.lines(cells, rows)
        return [] if self._over.is_set() else self._starting_lines()

    def _starting_lines(self) -> list[str]:
        """Return a clock, if nothing was shown for a second."""
        if self._began_at is None:
            return []
        seconds = time.monotonic() - self._began_at
        if seconds < 1:
            return []
        return [f"· {self._awaited_part()} · {format_elapsed(seconds)}"]

    def _awaited_part(self) -> str:
        """Return what a command without progress waits for."""
        if self._server is not None:
            return f"waiting for the server {self._server}"
        return "waiting for the store" if self._log_lines.store_is_waited_for() else "starting"

    def _keep_watch(self) -> None:
        """Draw, repeat and check until the wait is over; runs in its own thread."""
        drawn_at = time.monotonic()
        while not self._over.wait(_BLINK_SECONDS):
            self._watch_work()
            if not self._live:
                self._repeat_after_silence()
            elif self._changed or time.monotonic() - drawn_at >= 1:
                self._draw(get_terminal_size().lines - 1)
                drawn_at = time.monotonic()

    def _watch_work(self) -> None:
        """Print that the wait ends, or check whether a worker is running."""
        if self._stopping:
            self._tell_stopping()
        elif self._ends_at is not None:
            self._tell_handover(self._ends_at)
        elif time.monotonic() - self._heard_at >= _SILENCE_SECONDS:
            self._look_aside()

    def _repeat_after_silence(self) -> None:
        """Print the state again if nothing was written for a while."""
        if time.monotonic() - self._said_at < REPEAT_SECONDS:
            return
        with self._lock:
            lines = self._starting_lines() if self._tree.is_empty else self._tree.summary()
        self._say(*lines)

    def _tell_stopping(self) -> None:
        """Print once that the wait is stopping."""
        if self._told_stopping:
            return
        self._told_stopping = True
        if not self._live:
            self._say(stopping_line())

    def _look_aside(self) -> None:
        """Check for workers in a thread: a store that does not respond must not stop the clock or
        delay the message that the command stops.
        """
        if self._looking is None or not self._looking.is_alive():
            self._looking = Thread(target=self._look, daemon=True)
            self._looking.start()

    def _look(self) -> None:
        """Check whether a worker is running.

        If the store does not respond, the note stays as it is.
        """
        before, heard_at = self._footer, self._heard_at
        with suppress(RemitError):
            footer = self._worker_footer()
            with self._lock:
                if self._heard_at == heard_at:
                    self._footer, self._heard_at = footer, time.monotonic()
        if self._footer and not before and not self._live:
            self._say(self._footer)

    def _worker_footer(self) -> str:
        """Return a note if no worker is running; empty otherwise."""
        if not self._unattended():
            return ""
        if self._server is not None:
            return NO_SERVER_WORKER
        return f"No worker is running now. {start_worker()}"

    def _tell_handover(self, ends_at: float) -> None:
        """Print, after a moment, the tasks that are still being handed over."""
        if self._footer or time.monotonic() < ends_at:
            return
        left = self._tree.unfinished
        if not left:
            return
        verb, them = ("is", "it") if len(left) == 1 else ("are", "them")
        self._footer = (
            f"{named(left)} {verb} handed over at the next step. Ctrl-C leaves {them} at once."
        )
        self._changed = True
        if not self._live:
            self._say(self._footer)

    def _draw(self, rows: int | None) -> None:
        """Draw all tasks over the previous tree."""
        with self._lock:
            if rows is not None and self._over.is_set():  # the last tree is drawn
                return
            columns = get_terminal_size().columns
            lines, self._changed = self.picture(columns - 1, rows), False
            up = f"\x1b[{self._drawn}F" if self._drawn else ""
            # Line over line: nothing flickers, and terminals do not keep a cleared screen in their
            # history.
            self._write(up + "".join(_over_old(line, columns) for line in lines) + "\x1b[J")
            self._drawn = sum(rows_of(line, columns) for line in lines)

    def _say(self, *lines: str) -> None:
        """Write lines above the tree, or below everything at the end."""
        self._said_at = time.monotonic()
        with self._lock:
            # Replace the drawn tree; it is redrawn below these lines. Line over line: a terminal
            # may keep a screen that is cleared from its first line on.
            if self._drawn and not self._over.is_set():
                columns = get_terminal_size().columns
                text = "".join(_over_old(display_line(line), columns) for line in lines)
                self._write(f"\x1b[{self._drawn}F{text}\x1b[J")
                self._drawn, self._changed = 0, True
            else:
                self._write("".join(f"{display_line(line)}\n" for line in lines))
        if self._over.is_set():
            self._drain()

    def _drain(self) -> None:
        """Wait until every line is written.

        A stopping command waits only briefly for its reader.
        """
        self._writer.drain(_LAST_LINES_SECONDS if self._stopping else None)

    def _write(self, text: str) -> None:
        """Queue a text for the writer thread: a blocked terminal must not stop a worker of this
        process. Text that cannot be written is lost.
        """
        self._writer.put(text)


def _over_old(line: str, columns: int) -> str:
    """Return a line that replaces the rest of an older one."""
    # At the last column, the cursor would stand on the last character and delete it.
    gap = " " if line and width(line) % columns == 0 else ""
    return f"{line}{gap}\x1b[K\n"
