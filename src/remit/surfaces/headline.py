"""What goes on in a task that somebody waits for, in a line."""

from collections.abc import Collection
from typing import Any

from remit.domain.counting import counted, dollars
from remit.surfaces.display import cut, display_line

QUESTION_CELLS = 200
"""How many cells of a question a line has room for."""


def headline(item: dict[str, Any], hidden: Collection[str] = ()) -> str:
    """An item of progress in a line, for people and programs; some parts can be hidden."""
    if item["type"] == "result":
        return _result(item)
    if item["type"] == "waiting":
        return f"no news yet · {item['seconds']:.0f} s"
    parts = [f"#{item['task_id']} {item['title']}", *(item[name] or "" for name in ("owner", "state") if name not in hidden)]
    parts += [item["tool"]] if item["tool"] and item["state"] == "running" else []
    parts += [_waits_for(item)] if "waits_for" not in hidden else []
    parts += [f"{item['seconds']:.0f} s"] if item["seconds"] >= 1 and "seconds" not in hidden else []
    parts += [counted(item["tool_calls"], "tool call")] if item["tool_calls"] else []
    parts += [counted(item["tokens"], "token")] if item["tokens"] else []
    parts += [dollars(item["cost"])] if item["cost"] else []
    parts += [_asks(question) for question in item["questions"]]
    return display_line(" · ".join(part for part in parts if part))


def _asks(question: dict[str, Any]) -> str:
    asked = cut(question["question"], QUESTION_CELLS)
    return f"waits for your answer: {asked} (remit inbox, {question['id']})"


def _waits_for(item: dict[str, Any]) -> str:
    """What it waits for, unless its questions say so or a worker is about to take it."""
    soon = item["state"] == "pending" and item["seconds"] < 1
    return "" if item["waits_for"] is None or item["questions"] or soon else f"waits for {item['waits_for']}"


def _result(item: dict[str, Any]) -> str:
    status = item["result"].get("data", item["result"])["status"]
    return f"#{item['task_id']} {status}" if item["task_id"] else "not taken on"
