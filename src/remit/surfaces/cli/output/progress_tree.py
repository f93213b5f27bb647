"""The tasks of a waiting command as lines: each task with its questions, subtasks indented."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

from remit.surfaces.cli.output.next_steps import ENDED, how_to_answer
from remit.surfaces.text.display import (
    cut,
    display_line,
    rows_of,
    rows_of_all,
    width,
    wrap,
    wrap_before_command,
)
from remit.surfaces.text.printed_commands import command_line
from remit.surfaces.text.progress_line import headline

MARKS = {"running": "▸", "waiting": "…", "done": "✓", "failed": "✗", "canceled": "-"}
_MARKED = (
    (),
    ("elapsed",),
    ("elapsed", "state"),
    ("elapsed", "state", "owner"),
    ("elapsed", "state", "owner", "waits_for"),
)
_UNMARKED = ((), ("elapsed",), ("elapsed", "owner"), ("elapsed", "owner", "waits_for"))
"""The parts to hide, step by step, if a line is too long; a mark also shows the state."""
_TITLE_CELLS = 12
_QUESTION_LINES = 6
_LISTED_TASKS = 5


class Node:
    """A task in the tree."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self._since = self._taken_at = time.monotonic()
        self._took: float | None = None

    def take(self, item: dict[str, Any]) -> bool:
        """Store the latest item; return False if nothing changed."""
        repeated = _lasting_part(item) == _lasting_part(self.item)
        self.item, self._taken_at = item, time.monotonic()
        if self.ended and self._took is None:
            self._took = time.monotonic() - self._since
        return not repeated

    @property
    def ended(self) -> bool:
        """True if the task has ended."""
        return self.item["state"] in ENDED

    def line(self, cells: int | None = None) -> str:
        """Return the task in one line.

        If there is not enough room, title, state and agent are cut before the figures.
        """
        seconds = self._took
        if seconds is None:
            seconds = time.monotonic() - self._since
        title, line = display_line(self.item["title"]), ""
        if cells is None:
            return self._format(title, seconds, ())
        for hidden in _MARKED if self.item["state"] in MARKS else _UNMARKED:
            missing = max(width(self._format(title, seconds, hidden)) - cells, 0)
            short_title = cut(title, max(width(title) - missing, _TITLE_CELLS))
            line = self._format(short_title, seconds, hidden)
            if width(line) <= cells:
                return line
        return cut(line, cells)

    def _format(self, title: str, seconds: float, hidden: tuple[str, ...]) -> str:
        """Return the line of a task with this title and without the hidden parts."""
        item: dict[str, Any] = {**self.item, "title": title, "questions": []}
        item["seconds"] += time.monotonic() - self._taken_at
        mark = MARKS.get(item["state"], "·")
        parts = (*hidden, "seconds")
        if self.item["questions"]:
            parts = (*parts, "waits_for")
        took = f"{seconds:.1f} s" if "elapsed" in hidden else format_elapsed(seconds)
        return f"{mark} {headline(item, parts)} · {took}"

    def questions(self) -> list[str]:
        """Return the questions of the task, and how to answer each."""
        return [
            f"{' '.join([item['question'], *_numbered(item)])} · answer with: {how_to_answer(item)}"
            for item in self.item["questions"]
        ]

    def news(self, asked_before: Sequence[str]) -> list[str]:
        """Return the task in one line, and a line for each of its other questions."""
        new = [question for question in self.questions() if question not in asked_before]
        return [self.line(), *map("  it asks: {}".format, new)]

    def question_lines(self, cells: int) -> list[str]:
        """Return its questions as lines below it: as much of each as fits, but always how to
        answer.
        """
        lines: list[str] = []
        for item in self.item["questions"]:
            asked = wrap(f"  ? {display_line(item['question'])}", cells)
            options: list[str] = []
            for option in _numbered(item):
                options += wrap(f"      {display_line(option)}", cells)
            lines += _shorten(asked, indent=4)
            lines += _shorten(options, indent=6)
            how = f"    answer with: {display_line(how_to_answer(item))}"
            lines += wrap_before_command(how, cells)
        return lines


class TaskTree:
    """All tasks with reported progress, each below its parent."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._children: dict[str | None, list[Node]] = {}

    @property
    def is_empty(self) -> bool:
        """True before the first item."""
        return not self._nodes

    @property
    def awaited(self) -> list[str]:
        """The ids of the tasks at the top."""
        return _ids_of(self._roots())

    @property
    def unfinished(self) -> list[str]:
        """The ids of the tasks that have not ended."""
        return _ids_of(self._unfinished_nodes())

    def get(self, task_id: str) -> Node | None:
        """Return a task by its id, or None."""
        return self._nodes.get(task_id)

    def add(self, item: dict[str, Any]) -> Node:
        """Add a task and return it."""
        node = Node(item)
        self._nodes[item["task_id"]] = node
        self._children.setdefault(item["parent_id"], []).append(node)
        return node

    def left_of(self, task_ids: Sequence[str]) -> list[str]:
        """Return those of these tasks that have not ended, as far as this process knows."""
        ended = {task_id for task_id, node in self._nodes.items() if node.ended}
        return [task_id for task_id in task_ids if task_id not in ended]

    def lines(self, cells: int, rows: int | None) -> list[str]:
        """Return all tasks; if there are more than rows, the unfinished ones and a total."""
        every = self._draw(cells, lambda _: True)
        if rows is None or rows_of_all(every, cells + 1) <= rows:
            return every
        unfinished = self._draw(cells, self._goes_on)
        taken = accumulate(rows_of(line, cells + 1) for line in unfinished)
        fitting = sum(1 for row in taken if row < rows)
        return [*unfinished[:fitting], cut(self._total(), cells)]

    def summary(self) -> list[str]:
        """Return the state of the tasks in a few lines."""
        unfinished = self._unfinished_nodes()
        if len(unfinished) > _LISTED_TASKS:
            return [self._total()]
        return [node.line() for node in unfinished]

    def _unfinished_nodes(self) -> list[Node]:
        return [node for node in self._nodes.values() if not node.ended]

    def _total(self) -> str:
        """Return the number of tasks in each state."""
        counts = Counter(node.item["state"] for node in self._nodes.values())
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        return f"{len(self._nodes)} tasks: {states}"

    def _roots(self) -> list[Node]:
        """Return the tasks whose parent is not shown."""
        below = (nodes for parent, nodes in self._children.items() if parent not in self._nodes)
        return list(chain.from_iterable(below))

    def _children_of(self, node: Node) -> list[Node]:
        return self._children.get(node.item["task_id"], [])

    def _draw(self, cells: int, is_shown: Callable[[Node], bool]) -> list[str]:
        lines: list[str] = []
        for node in filter(is_shown, self._roots()):
            lines += self._draw_below(node, "", cells, is_shown)
        return lines

    def _draw_below(
        self, node: Node, indent: str, cells: int, is_shown: Callable[[Node], bool]
    ) -> list[str]:
        """Return the lines of a task and of those below it."""
        room = max(cells - len(indent), _TITLE_CELLS)
        lines = [f"{indent}{line}" for line in (node.line(room), *node.question_lines(room))]
        for child in filter(is_shown, self._children_of(node)):
            lines += self._draw_below(child, f"{indent}  ", cells, is_shown)
        return lines

    def _goes_on(self, node: Node) -> bool:
        """Return True if a task or one below it has not ended."""
        return not node.ended or any(map(self._goes_on, self._children_of(node)))


def _ids_of(nodes: Sequence[Node]) -> list[str]:
    return [node.item["task_id"] for node in nodes]


def format_elapsed(seconds: float) -> str:
    """Return elapsed wall-clock time; results show working time instead."""
    return f"{seconds:.1f} s elapsed"


def _lasting_part(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without the fields that change by themselves."""
    return {name: value for name, value in item.items() if name not in ("type", "seconds")}


def _numbered(question: dict[str, Any]) -> list[str]:
    """Return the options of a question with their numbers."""
    return [f"{number}: {option}" for number, option in enumerate(question["options"] or (), 1)]


def _shorten(lines: list[str], indent: int) -> list[str]:
    """Return as many lines of a question as fit, and where to read the rest."""
    if len(lines) <= _QUESTION_LINES:
        return lines
    rest = f"{' ' * indent}… (the rest: {command_line('inbox')})"
    return [*lines[: _QUESTION_LINES - 1], rest]
