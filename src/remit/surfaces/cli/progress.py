"""What is going on while somebody waits: a tree that is drawn anew at a terminal, one line for each change elsewhere."""

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
from remit.surfaces.display import cut, display_line, width, wrap
from remit.surfaces.headline import headline

_MARKS = {"running": "▸", "waiting": "…", "done": "✓", "failed": "✗", "canceled": "-"}
ENDED = ("done", "failed", "canceled")
_TITLE_CELLS = 12
_QUESTION_LINES = 6
_NAMED = 5
_BLINK_SECONDS, _SILENCE_SECONDS, _LAST_LOOK_SECONDS, _HANDOVER_SECONDS = 0.1, 5.0, 1.0, 1.0
_ALONE = "No worker is running any more. Start one with: remit worker, or remit serve"


class Node:
    """A task as it is shown."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self._since = time.monotonic()
        self._took: float | None = None

    def take(self, item: dict[str, Any]) -> None:
        """How it stands now."""
        self.item = item
        if self.ended and self._took is None:
            self._took = time.monotonic() - self._since

    @property
    def ended(self) -> bool:
        """True if nothing more will happen to it."""
        return self.item["state"] in ENDED

    def line(self, cells: int | None = None) -> str:
        """What is known of it, in a line; where there is not enough room, title, state and agent give way before the figures do."""
        seconds = time.monotonic() - self._since if self._took is None else self._took
        title, line = display_line(self.item["title"]), ""
        for hidden in ((), ("state",), ("state", "owner")) if self.item["state"] in _MARKS else ((), ("owner",)):
            line = self._line(title, seconds, hidden)
            over = 0 if cells is None else max(width(line) - cells, 0)
            line = self._line(cut(title, max(width(title) - over, _TITLE_CELLS)), seconds, hidden)
            if cells is None or width(line) <= cells:
                return line
        return cut(line, cells or 0)

    def _line(self, title: str, seconds: float, hidden: tuple[str, ...]) -> str:
        item: dict[str, Any] = {**self.item, "title": title, "questions": []}
        return f"{_MARKS.get(item['state'], '·')} {headline(item, hidden)} · {seconds:.1f} s"

    def questions(self) -> list[str]:
        """What it asks people, and how to answer."""
        return [f"{item['question']}  (answer with: {_how(item)})" for item in self.item["questions"]]

    def asking(self, cells: int) -> list[str]:
        """The same below its line: as much of each question as has a place there, and never less than the whole of how to answer."""
        lines: list[str] = []
        for item in self.item["questions"]:
            asked = wrap(f"  ? {display_line(item['question'])}", cells)
            lines += asked if len(asked) <= _QUESTION_LINES else [*asked[: _QUESTION_LINES - 1], "    … (the rest: remit inbox)"]
            lines += wrap(f"    answer with: {display_line(_how(item))}", cells)
        return lines


def _named(task_ids: Sequence[str]) -> str:
    names = ", ".join(f"#{task_id}" for task_id in task_ids[:_NAMED])
    return f"{names} and {len(task_ids) - _NAMED} more" if len(task_ids) > _NAMED else names


def _how(question: dict[str, Any]) -> str:
    return f"remit interact respond {question['id']} {'--option N, or ANSWER' if question['options'] else 'ANSWER'}"


class Progress:
    """Takes items of progress and shows what they mean; questions are shown with how to answer them.

    At a terminal a thread of its own draws, so that time goes on while nothing is heard and a thousand items a second are a few pictures.
    Everywhere it looks, while nothing is heard, whether there is anybody left who would go on.
    """

    def __init__(self, unattended: Callable[[], bool]) -> None:
        self._unattended, self._footer = unattended, ""
        self._ends_at: float | None = None
        self._err = sys.stderr
        self._live = self._err.isatty()
        self._nodes: dict[str, Node] = {}
        self._children: dict[str | None, list[Node]] = {}
        self._drawn, self._changed = 0, False
        self._lock, self._over = Lock(), Event()
        self._heard_at = math.inf  # before anything was heard there may be no worker yet
        self._watch = Thread(target=self._keep_watch, daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave the last picture, all of it, as it is; whoever was cut off is told what is still under way."""
        self._over.set()
        self._watch.join(_LAST_LOOK_SECONDS)
        self._footer = ""
        if self._live:
            self._draw(None)
        if kind is not None:
            self.tell_left([node.item["task_id"] for node in self._roots() if not node.ended], ", only the wait has")

    def done(self) -> list[str]:
        """The answer is there; what goes on below it, and may have to be handed over before the wait ends."""
        self._ends_at = time.monotonic() + _HANDOVER_SECONDS
        return self._left()

    def tell_left(self, task_ids: Sequence[str], remark: str = "") -> None:
        """Say which tasks go on without anybody who waits for them."""
        if task_ids:
            verb, it = ("has", "it") if len(task_ids) == 1 else ("have", "each")
            self._say(
                f"{_named(task_ids)} {verb} not ended{remark}.",
                f"A worker goes on with {it}. Call {it} off with: remit task cancel {task_ids[0]}",
            )

    def _left(self) -> list[str]:
        return [node.item["task_id"] for node in self._nodes.values() if not node.ended]

    def take(self, item: dict[str, Any]) -> None:
        """One more item; results are shown in the end."""
        if item["type"] == "result":
            return
        with self._lock:
            node = self._nodes.get(item["task_id"]) or self._add(Node(item))
            asked = [] if item["type"] == "task_started" else node.questions()
            node.take(item)
            self._changed, self._footer, self._heard_at = True, "", time.monotonic()
        if not self._live and item["type"] != "task_progress":
            self._say(node.line(), *(f"  it asks: {question}" for question in node.questions() if question not in asked))

    def picture(self, cells: int, rows: int | None = None) -> list[str]:
        """All tasks, or where they are more than there are rows, those that go on and how many there are."""
        if self._footer:
            return [*self._pictured(cells, None if rows is None else rows - 1), cut(self._footer, cells)]
        return self._pictured(cells, rows)

    def _pictured(self, cells: int, rows: int | None) -> list[str]:
        every = self._tree(cells, lambda _: True)
        if rows is None or len(every) <= rows:
            return every
        counts = Counter(node.item["state"] for node in self._nodes.values())
        total = f"{len(self._nodes)} tasks: {', '.join(f'{count} {state}' for state, count in counts.items())}"
        return [*self._tree(cells, self._goes_on)[: max(rows - 1, 0)], cut(total, cells)]

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
            if self._ends_at is not None:
                self._hand_over()
            elif time.monotonic() - self._heard_at >= _SILENCE_SECONDS:
                self._look()
            if self._live and (self._changed or time.monotonic() - drawn_at >= 1):
                self._draw(get_terminal_size().lines - 1)
                drawn_at = time.monotonic()

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
            self._footer, self._changed = f"{_named(left)} {verb} handed over at the next step. Ctrl-C leaves {it} at once.", True
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
        self._err.write("".join(f"{display_line(line)}\n" for line in lines))
        self._err.flush()
