"""What is going on while somebody waits: a tree that is drawn anew at a terminal, one line for each change elsewhere."""

import sys
import time
from typing import Any

from remit.surfaces.display import cut, display_line

_MARKS = {"pending": "·", "running": "▸", "waiting": "…", "done": "✓", "failed": "✗", "canceled": "-"}
_STATES = {
    "RunStarted": "running",
    "RunYielded": "waiting",
    "RunReleased": "pending",
    "RunLost": "pending",
    "RunFailed": "pending",
    "RunTimedOut": "pending",
    "TaskCompleted": "done",
    "TaskFailed": "failed",
    "TaskCanceled": "canceled",
}
_ENDED = ("done", "failed", "canceled")


class Node:
    """A task as it is shown."""

    def __init__(self, task_id: str, data: dict[str, Any]) -> None:
        self.id, self.title, self.owner = task_id, str(data.get("title", "")), str(data.get("owner") or "")
        self.parent: str | None = data.get("parent_id")
        self.state, self.question = "pending", ""
        self.since = time.monotonic()
        self.took = 0.0
        self.tokens, self.cost, self.tools = 0, 0.0, 0

    def line(self) -> str:
        """What is known of it, in a line."""
        seconds = self.took if self.state in _ENDED else time.monotonic() - self.since
        parts = [f"{_MARKS[self.state]} #{self.id} {self.title}", self.owner, self.state, f"{seconds:.1f} s"]
        parts += [f"{self.tools} tool call{'s' if self.tools != 1 else ''}"] if self.tools else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        parts += [f"${self.cost:.4f}"] if self.cost else []
        return " · ".join(parts)


class Progress:
    """Takes events and shows what they mean; questions are shown with how to answer them."""

    def __init__(self, task: dict[str, Any] | None = None) -> None:
        self._err = sys.stderr
        self._live = self._err.isatty()
        self._nodes: dict[str, Node] = {} if task is None else {task["id"]: Node(task["id"], task)}
        self._drawn = 0

    def take(self, event: dict[str, Any]) -> None:
        """One more event."""
        task_id, kind, data = event["task_id"], event["type"], event["data"]
        if kind == "TaskCreated":
            self._nodes[task_id] = Node(task_id, data)
        node = self._nodes.get(task_id)
        if node is None:
            return
        changed = kind == "TaskCreated" or self._change(node, kind, data)
        if self._live:
            self._draw()
        elif changed:
            self._say(node.line())
        if kind == "UserInteractionRequested" and not self._live:
            self._say(f"  it asks: {data['question']}  (answer with: remit interact respond {data['interaction_id']} ANSWER)")

    def _change(self, node: Node, kind: str, data: dict[str, Any]) -> bool:
        if kind == "UserInteractionRequested":
            node.question = f"{data['question']}  (answer with: remit interact respond {data['interaction_id']} ANSWER)"
        elif kind == "UserInteractionResponded":
            node.question = ""
        elif kind == "BudgetSettled":
            usage = data.get("usage", {})
            node.tokens += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
            node.cost += usage.get("cost", 0.0)
        node.tools += sum(item.get("count", 0) for item in data.get("tool_summary") or ())
        state = _STATES.get(kind, node.state)
        if state == node.state:
            return False
        node.state = state
        if state in _ENDED:
            node.took = time.monotonic() - node.since
        return True

    def end(self) -> None:
        """Leave the last picture as it is."""
        if self._live:
            self._draw()

    def _draw(self) -> None:
        lines = [line for node in self._nodes.values() if node.parent not in self._nodes for line in self._below(node, 0)]
        width = _width()
        clear = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._err.write(clear + "".join(f"{cut(display_line(line), width)}\n" for line in lines))
        self._err.flush()
        self._drawn = len(lines)

    def _below(self, node: Node, depth: int) -> list[str]:
        lines = [f"{'  ' * depth}{node.line()}"]
        if node.question:
            lines.append(f"{'  ' * depth}  ? {node.question}")
        return lines + [line for child in self._nodes.values() if child.parent == node.id for line in self._below(child, depth + 1)]

    def _say(self, line: str) -> None:
        self._err.write(f"{display_line(line)}\n")
        self._err.flush()


def _width() -> int:
    from shutil import get_terminal_size

    return get_terminal_size().columns - 1
