"""What goes on in a task that somebody waits for, in a line."""

from collections.abc import Collection
from typing import Any

from remit.surfaces.display import display_line


def headline(item: dict[str, Any], hidden: Collection[str] = ()) -> str:
    """A task's item of progress, or the result of one, as people and programs read it; its owner and state can be hidden."""
    if item["type"] == "result":
        return _result(item)
    parts = [f"#{item['task_id']} {item['title']}", *(item[name] or "" for name in ("owner", "state") if name not in hidden)]
    parts += [item["tool"]] if item["tool"] and item["state"] == "running" else []
    parts += [f"{item['tool_calls']} tool call{'s' if item['tool_calls'] != 1 else ''}"] if item["tool_calls"] else []
    parts += [f"{item['tokens']:,} tokens"] if item["tokens"] else []
    parts += [f"${item['cost']:.4f}"] if item["cost"] else []
    parts += [f"asks a person ({question['id']}): {question['question']}" for question in item["questions"]]
    return display_line(" · ".join(part for part in parts if part))


def _result(item: dict[str, Any]) -> str:
    status = item["result"].get("data", item["result"])["status"]
    return f"#{item['task_id']} {status}" if item["task_id"] else "not taken on"
