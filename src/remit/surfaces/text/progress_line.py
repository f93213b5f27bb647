"""The progress of an awaited task, in one line."""

from collections.abc import Collection
from typing import Any

from remit.domain.text.counting import counted, dollars
from remit.surfaces.text.display import cut, display_line, outcome_word
from remit.surfaces.text.printed_commands import command_line, with_commands

_COUNTS = {"tool_calls": "tool call", "tokens": "token"}
QUESTION_CELLS = 200
"""The number of cells for a question in a line."""


def headline(item: dict[str, Any], hidden: Collection[str] = ()) -> str:
    """Return an item of progress as one line; some parts can be hidden."""
    if item["type"] == "result":
        return _result(item)
    if item["type"] == "waiting":
        return f"no news yet · {item['seconds']:.0f} s"
    facts = {
        "owner": item["owner"],
        "state": item["state"],
        "tool": _current_tool(item),
        "waits_for": _waits_for(item),
        "seconds": _silence(item["seconds"]),
    }
    parts = [
        f"#{item['task_id']} {item['title']}",
        *(text for name, text in facts.items() if name not in hidden),
        *_figures(item),
        *map(_asks, item["questions"]),
    ]
    return display_line(" · ".join(filter(None, parts)))


def _current_tool(item: dict[str, Any]) -> Any:
    """Return the name of the tool that a running task uses; None if it uses none."""
    if item["state"] != "running":
        return None
    return item["tool"]


def _silence(seconds: float) -> str:
    """Return how long a task has sent no news; empty below a second."""
    if seconds < 1:
        return ""
    return f"no news for {seconds:.0f} s"


def _figures(item: dict[str, Any]) -> list[str]:
    """Return the tool calls, tokens and cost of a task."""
    figures = [counted(item[name], noun) for name, noun in _COUNTS.items() if item[name]]
    if item["cost"]:
        figures.append(dollars(item["cost"]))
    return figures


def _asks(question: dict[str, Any]) -> str:
    """Return a question and where to answer it, in one line."""
    asked = cut(question["question"], QUESTION_CELLS)
    return f"waits for your answer: {asked} ({command_line('inbox')}, {question['id']})"


def _waits_for(item: dict[str, Any]) -> str:
    """Return what a task waits for, unless a question says so or it is about to start."""
    starts_soon = item["state"] == "pending" and item["seconds"] < 1
    if item["waits_for"] is None or item["questions"] or starts_soon:
        return ""
    return f"waits for {with_commands(item['waits_for'])}"


def _result(item: dict[str, Any]) -> str:
    """Return the outcome of one of several delegations."""
    if not item["task_id"]:
        return "not taken on"
    status = item["result"].get("data", item["result"])["status"]
    return f"#{item['task_id']} {outcome_word(status)}"
