"""What is going on while somebody waits: a tree that is drawn anew at a terminal, one line for each change elsewhere."""

import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from shutil import get_terminal_size
from threading import Event, Lock, Thread
from typing import Any, Self

from remit.errors import RemitError
from remit.surfaces.cli.outlook import ENDED, named, typed_answer
from remit.surfaces.display import cut, display_line, width, wrap
from remit.surfaces.headline import headline

MARKS = {"running": "▸", "waiting": "…", "done": "✓", "failed": "✗", "canceled": "-"}
_MARKED = ((), ("state",), ("state", "owner"), ("state", "owner", "waits_for"))
_UNMARKED = ((), ("owner",), ("owner", "waits_for"))
"""What is hidden, step by step, where a line has no room; a mark tells the state as well."""
_TITLE_CELLS = 12
_QUESTION_LINES = 6
_LISTED_TASKS = 5
_BLINK_SECONDS, _SILENCE_SECONDS, _LAST_LOOK_SECONDS, _HANDOVER_SECONDS = 0.1, 5.0, 1.0, 1.0
REPEAT_SECONDS = 7.0
"""After how long without a line a command whose output is piped says again how things stand.

It promises a line every 10 seconds; the rest is for a busy machine."""
_ALONE = "No worker is running any more. Start one with: remit worker, or remit serve"
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""
STOPPING = "Stopping… Ctrl-C again to quit now."


class _LogLines(logging.Handler):
    """Shows warnings as lines above the picture, which would cover them otherwise."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Show one."""
        self._say(*self.format(record).splitlines())


class Node:
    """A task as it is shown."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self._since = self._taken_at = time.monotonic()
        self._took: float | None = None

    def take(self, item: dict[str, Any]) -> bool:
        """How it stands now; False if that is what was known."""
        repeated = _lasting(item) == _lasting(self.item)
        self.item, self._taken_at = item, time.monotonic()
        if self.ended and self._took is None:
            self._took = time.monotonic() - self._since
        return not repeated

    @property
    def ended(self) -> bool:
        """True if nothing more will happen to it."""
        return self.item["state"] in ENDED

    def line(self, cells: int | None = None) -> str:
        """What is known of it, in a line; where there is not enough room, title, state and agent give way before the figures do."""
        seconds = time.monotonic() - self._since if self._took is None else self._took
        title, line = display_line(self.item["title"]), ""
        for hidden in _MARKED if self.item["state"] in MARKS else _UNMARKED:
            line = self._line(title, seconds, hidden)
            over = 0 if cells is None else max(width(line) - cells, 0)
            line = self._line(cut(title, max(width(title) - over, _TITLE_CELLS)), seconds, hidden)
            if cells is None or width(line) <= cells:
                return line
        return cut(line, cells or 0)

    def _line(self, title: str, seconds: float, hidden: tuple[str, ...]) -> str:
        item: dict[str, Any] = {**self.item, "title": title, "questions": []}
        item["seconds"] += time.monotonic() - self._taken_at
        mark = MARKS.get(item["state"], "·")
        parts = (*hidden, "seconds", *(["waits_for"] if self.item["questions"] else []))
        return f"{mark} {headline(item, parts)} · {seconds:.1f} s"

    def questions(self) -> list[str]:
        """What it asks people, and how to answer."""
        return [f"{' '.join([item['question'], *_numbered(item)])}  (answer with: {_how(item)})" for item in self.item["questions"]]

    def asking(self, cells: int) -> list[str]:
        """The same below its line: as much of each question as has a place there, and never less than the whole of how to answer."""
        lines: list[str] = []
        for item in self.item["questions"]:
            asked = wrap(f"  ? {display_line(item['question'])}", cells)
            lines += asked if len(asked) <= _QUESTION_LINES else [*asked[: _QUESTION_LINES - 1], "    … (the rest: remit inbox)"]
            lines += _option_lines(item, cells)
            lines += wrap(f"    answer with: {display_line(_how(item))}", cells)
        return lines


def _lasting(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what changes while nothing happens."""
    return {name: value for name, value in item.items() if name not in ("type", "seconds")}


def _option_lines(question: dict[str, Any], cells: int) -> list[str]:
    lines = [line for option in _numbered(question) for line in wrap(f"      {display_line(option)}", cells)]
    return lines if len(lines) <= _QUESTION_LINES else [*lines[: _QUESTION_LINES - 1], "      … (the rest: remit inbox)"]


def _numbered(question: dict[str, Any]) -> list[str]:
    """The options of a question, each with the number that it is answered by."""
    return [f"{number}: {option}" for number, option in enumerate(question["options"] or (), 1)]


def _how(question: dict[str, Any]) -> str:
    return f"remit interact respond {question['id']} {typed_answer(question)}"


class Progress:
    """Takes items of progress and shows what they mean; questions are shown with how to answer them.

    At a terminal a thread of its own draws, so that time goes on while nothing is heard and a thousand items a second are a few pictures.
    Everywhere it looks, while nothing is heard, whether there is anybody left who would go on.
    """

    def __init__(
        self,
        unattended: Callable[[], bool],
        worker_command: str = "remit worker",
        on_stop: Callable[[], object] = bool,
    ) -> None:
        self._unattended, self._footer, self._on_stop = unattended, "", on_stop
        self._stopping = self._told_stopping = False
        self._worker_command = worker_command
        self._ends_at: float | None = None
        self._err = sys.stderr
        self._live = self._err.isatty()
        self._nodes: dict[str, Node] = {}
        self._children: dict[str | None, list[Node]] = {}
        self._drawn, self._changed = 0, False
        self._lock, self._over = Lock(), Event()
        self._began_at: float | None = None
        self._said_at = 0.0
        self._heard_at = math.inf  # before anything was heard there may be no worker yet
        self._watch = Thread(target=self._keep_watch, daemon=True)
        self._looking: Thread | None = None
        self._log_lines = _LogLines(self.say)

    def __enter__(self) -> Self:
        self._began_at = self._said_at = time.monotonic()
        self._watch.start()
        logging.getLogger("remit").addHandler(self._log_lines)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture as it is, complete."""
        logging.getLogger("remit").removeHandler(self._log_lines)
        self._over.set()
        for thread in (self._watch, self._looking):
            if thread is not None:
                thread.join(_LAST_LOOK_SECONDS)
        if self._stopping and not self._told_stopping:
            self._tell_stopping()
        self._footer = ""
        if self._live:
            self._draw(None)

    @property
    def awaited(self) -> list[str]:
        """The tasks at the top, which somebody waits for."""
        return [node.item["task_id"] for node in self._roots()]

    def stop(self) -> None:
        """Show that the wait is being stopped; may be called from a signal handler."""
        self._stopping = self._changed = True
        self._on_stop()

    def done(self) -> list[str]:
        """The answer is there; what goes on below it, and may have to be handed over before the wait ends."""
        self._ends_at = time.monotonic() + _HANDOVER_SECONDS
        return self._left()

    def say(self, *lines: str) -> None:
        """Write lines below everything else, wrapped at words where that is a terminal."""
        cells = get_terminal_size().columns - 1
        self._say(*(part for line in lines for part in (wrap(display_line(line), cells) if self._live else [line])))

    def _left(self) -> list[str]:
        return [node.item["task_id"] for node in self._nodes.values() if not node.ended]

    def take(self, item: dict[str, Any]) -> None:
        """One more item; results are shown in the end."""
        if item["type"] in ("result", "waiting"):
            return
        if item["type"] == "left_alone":
            self._tell_left_alone(item["task_ids"])
            return
        with self._lock:
            known = self._nodes.get(item["task_id"])
            node = known or self._add(Node(item))
            asked = [] if item["type"] == "task_started" else node.questions()
            news = node.take(item) or known is None
            if news:
                self._changed, self._footer, self._heard_at = True, "", time.monotonic()
        if not self._live and item["type"] != "task_progress":
            self._say(node.line(), *(f"  it asks: {question}" for question in node.questions() if question not in asked))

    def _tell_left_alone(self, task_ids: Sequence[str]) -> None:
        """Say which unfinished tasks no worker works on, and how to continue them."""
        one = len(task_ids) == 1
        count, verb, them = ("1 other unfinished task", "was", "it") if one else (f"{len(task_ids)} other unfinished tasks", "were", "them")
        self.say(f"{count} {verb} left alone: {named(task_ids)}. Continue {them} with: {self._worker_command}")

    def picture(self, cells: int, rows: int | None = None) -> list[str]:
        """All tasks, or where they are more than there are rows, those that go on and how many there are."""
        footer = STOPPING if self._stopping else self._footer
        if footer:
            return [*self._pictured(cells, None if rows is None else rows - 1), cut(footer, cells)]
        return self._pictured(cells, rows)

    def _pictured(self, cells: int, rows: int | None) -> list[str]:
        if not self._nodes:
            return [] if self._over.is_set() else self._starting()
        every = self._tree(cells, lambda _: True)
        if rows is None or len(every) <= rows:
            return every
        return [*self._tree(cells, self._goes_on)[: max(rows - 1, 0)], cut(self._total(), cells)]

    def _starting(self) -> list[str]:
        """A clock, if it takes longer than a moment until there is anything to show."""
        seconds = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        return [f"· starting · {seconds:.1f} s"] if seconds >= 1 else []

    def _standing(self) -> list[str]:
        """How things stand, in a few lines."""
        live = [node for node in self._nodes.values() if not node.ended]
        if not self._nodes:
            return self._starting()
        return [node.line() for node in live] if len(live) <= _LISTED_TASKS else [self._total()]

    def _total(self) -> str:
        counts = Counter(node.item["state"] for node in self._nodes.values())
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        return f"{len(self._nodes)} tasks: {states}"

    def _add(self, node: Node) -> Node:
        self._nodes[node.item["task_id"]] = node
        self._children.setdefault(node.item["parent_id"], []).append(node)
        return node

    def _roots(self) -> list[Node]:
        return [node for parent, nodes in self._children.items() if parent not in self._nodes for node in nodes]

    def _tree(self, cells: int, shown: Callable[[Node], bool]) -> list[str]:
        return [line for node in self._roots() if shown(node) for line in self._below(node, "", cells, shown)]

    def _below(self, node: Node, indent: str, cells: int, shown: Callable[[Node], bool]) -> list[str]:
        room = max(cells - len(indent), _TITLE_CELLS)
        lines = [f"{indent}{line}" for line in (node.line(room), *node.asking(room))]
        children = self._children.get(node.item["task_id"], [])
        return lines + [line for child in children if shown(child) for line in self._below(child, f"{indent}  ", cells, shown)]

    def _goes_on(self, node: Node) -> bool:
        return not node.ended or any(map(self._goes_on, self._children.get(node.item["task_id"], [])))

    def _keep_watch(self) -> None:
        drawn_at = time.monotonic()
        while not self._over.wait(_BLINK_SECONDS):
            if self._stopping:
                if not self._told_stopping:
                    self._tell_stopping()
            elif self._ends_at is not None:
                self._hand_over()
            elif time.monotonic() - self._heard_at >= _SILENCE_SECONDS:
                self._look_aside()
            if not self._live and time.monotonic() - self._said_at >= REPEAT_SECONDS:
                with self._lock:
                    lines = self._standing()
                self._say(*lines)
            if self._live and (self._changed or time.monotonic() - drawn_at >= 1):
                self._draw(get_terminal_size().lines - 1)
                drawn_at = time.monotonic()

    def _tell_stopping(self) -> None:
        self._told_stopping = True
        if not self._live:
            self._say(STOPPING)

    def _look_aside(self) -> None:
        """Look in a thread: a store that does not answer must keep neither the clock nor the word that it stops."""
        if self._looking is None or not self._looking.is_alive():
            self._looking = Thread(target=self._look, daemon=True)
            self._looking.start()

    def _look(self) -> None:
        """See whether anybody is left to work; a store that does not answer says nothing of that."""
        before, heard_at = self._footer, self._heard_at
        with suppress(RemitError):
            alone = self._unattended()
            with self._lock:
                if self._heard_at == heard_at:
                    self._footer, self._heard_at = _ALONE if alone else "", time.monotonic()
        if self._footer and not before and not self._live:
            self._say(self._footer)

    def _hand_over(self) -> None:
        left = self._left()
        if left and not self._footer and self._ends_at is not None and time.monotonic() >= self._ends_at:
            verb, it = ("is", "it") if len(left) == 1 else ("are", "them")
            self._footer, self._changed = f"{named(left)} {verb} handed over at the next step. Ctrl-C leaves {it} at once.", True
            if not self._live:
                self._say(self._footer)

    def _draw(self, rows: int | None) -> None:
        with self._lock:
            if rows is not None and self._over.is_set():  # the last picture is there
                return
            lines, self._changed = self.picture(get_terminal_size().columns - 1, rows), False
            up = f"\x1b[{self._drawn}F" if self._drawn else ""
            # Line over line: nothing flickers, and no terminal takes a cleared screen for something to keep.
            self._err.write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
            self._err.flush()
            self._drawn = len(lines)

    def _say(self, *lines: str) -> None:
        self._said_at = time.monotonic()
        with self._lock:
            # A picture that is on the screen goes first: it is drawn anew below these lines.
            # Line over line: a terminal may keep a screen that is cleared from its first line on.
            covers = bool(self._drawn) and not self._over.is_set()
            up, rest, below = (f"\x1b[{self._drawn}F", "\x1b[K", "\x1b[J") if covers else ("", "", "")
            if covers:
                self._drawn, self._changed = 0, True
            self._err.write(up + "".join(f"{display_line(line)}{rest}\n" for line in lines) + below)
            self._err.flush()
