"""What is going on while somebody waits: a tree that is drawn anew at a terminal, one line for each change elsewhere."""

import sys
import time
from typing import Any

from remit.surfaces.display import cut, display_line
from remit.surfaces.headline import headline

_MARKS = {"running": "▸", "waiting": "…", "done": "✓", "failed": "✗", "canceled": "-"}
_ENDED = ("done", "failed", "canceled")


class Node:
    """A task as it is shown."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self._since = time.monotonic()
        self._took: float | None = None

    def take(self, item: dict[str, Any]) -> None:
        """How it stands now."""
        self.item = item
        if item["state"] in _ENDED and self._took is None:
            self._took = time.monotonic() - self._since

    def line(self) -> str:
        """What is known of it, in a line."""
        seconds = time.monotonic() - self._since if self._took is None else self._took
        return f"{_MARKS.get(self.item['state'], '·')} {headline(self.item | {'questions': []})} · {seconds:.1f} s"

    def questions(self) -> list[str]:
        """What it asks people, and how to answer."""
        return [f"{item['question']}  (answer with: remit interact respond {item['id']} ANSWER)" for item in self.item["questions"]]


class Progress:
    """Takes items of progress and shows what they mean; questions are shown with how to answer them."""

    def __init__(self) -> None:
        self._err = sys.stderr
        self._live = self._err.isatty()
        self._nodes: dict[str, Node] = {}
        self._drawn = 0

    def take(self, item: dict[str, Any]) -> None:
        """One more item; results are shown in the end."""
        if item["type"] == "result":
            return
        node = self._nodes.setdefault(item["task_id"], Node(item))
        asked = [] if item["type"] == "task_started" else node.questions()
        node.take(item)
        if self._live:
            self._draw()
        elif item["type"] != "task_progress":
            self._say(node.line(), *(f"  it asks: {question}" for question in node.questions() if question not in asked))

    def end(self) -> None:
        """Leave the last picture as it is."""
        if self._live:
            self._draw()

    def _draw(self) -> None:
        lines = [line for node in self._nodes.values() if node.item["parent_id"] not in self._nodes for line in self._below(node, 0)]
        width = _width()
        clear = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._err.write(clear + "".join(f"{cut(display_line(line), width)}\n" for line in lines))
        self._err.flush()
        self._drawn = len(lines)

    def _below(self, node: Node, depth: int) -> list[str]:
        lines = [f"{'  ' * depth}{node.line()}", *(f"{'  ' * depth}  ? {question}" for question in node.questions())]
        children = [child for child in self._nodes.values() if child.item["parent_id"] == node.item["task_id"]]
        return lines + [line for child in children for line in self._below(child, depth + 1)]

    def _say(self, *lines: str) -> None:
        self._err.write("".join(f"{display_line(line)}\n" for line in lines))
        self._err.flush()


def _width() -> int:
    from shutil import get_terminal_size

    return get_terminal_size().columns - 1
