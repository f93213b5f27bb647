"""Live progress of a waiting command: a redrawn tree at a terminal, otherwise a line for each
change.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from shutil import get_terminal_size
from threading import Thread
from typing import Any, Self

from remit.errors import RemitError
from remit.surfaces.cli.output.live_output import LiveOutput
from remit.surfaces.cli.output.next_steps import NO_SERVER_WORKER, named, start_worker
from remit.surfaces.cli.output.page_parts import by_number
from remit.surfaces.cli.output.progress_tree import TaskTree, format_elapsed
from remit.surfaces.shutdown import stop_again
from remit.surfaces.text.display import rows_of_all, wrap_before_command
from remit.surfaces.text.last_line import stopped_line
from remit.surfaces.text.printed_commands import command_line, with_commands

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
        self._footer, self._on_stop = "", on_stop
        self._stopping = self._told_stopping = False
        self._server = server
        """The server that has the tasks; then only its items show whether a worker is running."""
        self.quit_line = quit_line
        """Returns the last lines of a process that a second Ctrl-C ends."""
        self._ends_at: float | None = None
        self.tree = TaskTree()
        """The tasks; those at its top are waited for."""
        self._output = LiveOutput(self.picture)
        self._over = self._output.over
        self._handed_out: list[str] = []
        self.has_begun = False
        """True once tasks may have been created: before that, the store was not open."""
        self._heard_at = math.inf  # before the first item there may be no worker yet
        self._watch = Thread(target=self._keep_watch, daemon=True)
        self._check = _WorkerCheck(unattended, server)
        self._log_lines = _LogLines(self.say)
        self._clock = _StartClock(server, self._log_lines)

    def __enter__(self) -> Self:
        self._clock.began_at = self._output.said_at = time.monotonic()
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
        self._watch.join(_LAST_LOOK_SECONDS)
        self._check.join(_LAST_LOOK_SECONDS)
        if self._stopping:
            self._tell_stopping()
        self._footer = ""
        if self._output.is_terminal:
            self._output.draw(None)
        self._output.drain()

    @property
    def created(self) -> list[str]:
        """The tasks of this command, including those that it does not wait for."""
        return sorted({*self.tree.awaited, *self._handed_out}, key=int)

    def stop(self, number: int) -> None:
        """Show that a signal stops the wait; may be called from its handler."""
        self._stopping = self._output.has_changed = True
        self._output.patience = _LAST_LINES_SECONDS
        self._on_stop(number)

    def done(self) -> list[str]:
        """Note that the answer has arrived; return the unfinished tasks, which may have to be
        handed over.
        """
        self._ends_at = time.monotonic() + _HANDOVER_SECONDS
        return self.tree.unfinished

    def say(self, *lines: str) -> None:
        """Write lines below everything else, wrapped at words if that is a terminal."""
        self._output.say_wrapped(*lines)

    def take(self, item: dict[str, Any]) -> None:
        """Show an item of progress; results are shown at the end."""
        self.has_begun = True
        match item["type"]:
            case "result":
                self._handed_out += filter(None, [item["task_id"]])
            case "waiting" | "opened":
                return
            case "left_alone":
                self.say(_describe_left_alone(item["task_ids"]))
            case _:
                self._take_task(item)

    def _take_task(self, item: dict[str, Any]) -> None:
        """Show the latest state of a task."""
        footer_before = ""
        with self._output.lock:
            node = self.tree.get(item["task_id"])
            is_new = node is None
            if node is None:
                node = self.tree.add(item)
            asked_before = [] if item["type"] == "task_started" else node.questions()
            has_news = node.take(item) or is_new
            if has_news:
                footer_before, self._footer = self._footer, self._server_footer()
                self._output.has_changed, self._heard_at = True, time.monotonic()
        if self._output.is_terminal:
            return
        if item["type"] != "task_progress":
            self._output.say(*node.news(asked_before))
        if has_news and self._footer not in ("", footer_before):
            self._output.say(self._footer)

    def is_unattended(self, task_id: str) -> bool:
        """Return True if the last item of a task said that no live worker works on it."""
        node = self.tree.get(task_id)
        return node is not None and bool(node.item.get("unattended"))

    def _server_footer(self) -> str:
        """Return a note if no worker of the server works on the tasks; empty otherwise."""
        if self._server is not None and any(map(self.is_unattended, self.tree.awaited)):
            return NO_SERVER_WORKER
        return ""

    def picture(self, cells: int, rows: int | None = None) -> list[str]:
        """Return the tasks as lines; if there are more than rows, the unfinished ones and
        a total.
        """
        footer = stopping_line() if self._stopping else self._footer
        if not footer:
            return self._task_lines(cells, rows)
        below = wrap_before_command(footer, cells)
        rows_above = None if rows is None else rows - rows_of_all(below, cells + 1)
        return [*self._task_lines(cells, rows_above), *below]

    def _task_lines(self, cells: int, rows: int | None) -> list[str]:
        """Return the tasks, or a clock if there are none yet."""
        if not self.tree.is_empty:
            return self.tree.lines(cells, rows)
        return [] if self._over.is_set() else self._clock.lines()

    def _keep_watch(self) -> None:
        """Draw, repeat and check until the wait is over; runs in its own thread."""
        drawn_at = time.monotonic()
        while not self._over.wait(_BLINK_SECONDS):
            self._watch_work()
            if not self._output.is_terminal:
                self._repeat_after_silence()
            elif self._output.has_changed or time.monotonic() - drawn_at >= 1:
                self._output.draw(get_terminal_size().lines - 1)
                drawn_at = time.monotonic()

    def _watch_work(self) -> None:
        """Print that the wait ends, or check whether a worker is running."""
        if self._stopping:
            self._tell_stopping()
        elif self._ends_at is not None:
            self._tell_handover(self._ends_at)
        elif time.monotonic() - self._heard_at >= _SILENCE_SECONDS:
            self._check.begin(partial(self._note_workers, self._footer, self._heard_at))

    def _repeat_after_silence(self) -> None:
        """Print the state again if nothing was written for a while."""
        if time.monotonic() - self._output.said_at < REPEAT_SECONDS:
            return
        with self._output.lock:
            lines = self._clock.lines() if self.tree.is_empty else self.tree.summary()
        self._output.say(*lines)

    def _tell_stopping(self) -> None:
        """Print once that the wait is stopping."""
        if self._told_stopping:
            return
        self._told_stopping = True
        self._output.say_footer(stopping_line())

    def _note_workers(self, before: str, heard_at: float, footer: str) -> None:
        """Show whether a worker is running, as a check found after a silence."""
        with self._output.lock:
            if self._heard_at == heard_at:
                self._footer, self._heard_at = footer, time.monotonic()
        if self._footer and not before:
            self._output.say_footer(self._footer)

    def _tell_handover(self, ends_at: float) -> None:
        """Print, after a moment, the tasks that are still being handed over."""
        if self._footer or time.monotonic() < ends_at:
            return
        left = self.tree.unfinished
        if not left:
            return
        verb, its = by_number(len(left), ("is", "its"), ("are", "their"))
        self._footer = (
            f"{named(left)} {verb} handed over at {its} next step. Ctrl-C ends without waiting."
        )
        self._output.has_changed = True
        self._output.say_footer(self._footer)


class _WorkerCheck:
    """Checks in a thread whether a worker is running: a store that does not respond must not stop
    the clock or delay the message that the command stops.
    """

    def __init__(self, unattended: Callable[[], bool], server: str | None) -> None:
        self._unattended, self._server = unattended, server
        self._thread: Thread | None = None

    def begin(self, note: Callable[[str], None]) -> None:
        """Begin a check unless one is still running, and pass on the footer that it leads to.

        If the store does not respond, the footer stays as it is.
        """
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._look, args=(note,), daemon=True)
            self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for a check to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _look(self, note: Callable[[str], None]) -> None:
        with suppress(RemitError):
            note(self._footer())

    def _footer(self) -> str:
        """Return a note if no worker is running; empty otherwise."""
        if not self._unattended():
            return ""
        if self._server is not None:
            return NO_SERVER_WORKER
        return f"No worker is running now. {start_worker()}"


class _StartClock:
    """The clock of a command that has no progress yet."""

    def __init__(self, server: str | None, log_lines: _LogLines) -> None:
        self._server, self._log_lines = server, log_lines
        self.began_at: float | None = None

    def lines(self) -> list[str]:
        """Return a clock, if nothing was shown for a second."""
        if self.began_at is None:
            return []
        seconds = time.monotonic() - self.began_at
        if seconds < 1:
            return []
        return [f"· {self._awaited_part()} · {format_elapsed(seconds)}"]

    def _awaited_part(self) -> str:
        """Return what a command without progress waits for."""
        if self._server is not None:
            return f"waiting for the server {self._server}"
        return "waiting for the store" if self._log_lines.store_is_waited_for() else "starting"


def _describe_left_alone(task_ids: Sequence[str]) -> str:
    """Return a line about the unfinished tasks that no worker works on, and how to run them."""
    count = len(task_ids)
    told, them = by_number(
        count,
        ("1 other unfinished task was", "it"),
        (f"{count} other unfinished tasks were", "them"),
    )
    how = command_line("worker")
    return f"{told} not run: {named(task_ids)}. Run {them} with: {how}"
