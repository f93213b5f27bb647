"""What names of tools and permissions, as agent files have them, come to here."""

import re
from typing import Any, NamedTuple, TypeGuard

from remit.domain.agent import READING, TOOLS, agent_id

_TOOLS = {tool.lower(): tool for tool in TOOLS} | {"list": "LS", "todoread": "TodoWrite", "agent": "Task"}
_EDITING = ("Write", "Edit", "MultiEdit")


def tool_names(value: Any) -> list[str] | None:
    """Names of tools from a comma string or a list; nothing if it is neither. Commas within parentheses do not part."""
    if isinstance(value, str):
        return [name for part in re.findall(r"(?:[^,(]|\([^)]*\)?)+", value) if (name := part.strip(" \t\n\"'[]"))]
    if not is_list(value) or not all(isinstance(item, str) for item in value):
        return None
    return [name for item in value for name in tool_names(item) or ()]


class Granted(NamedTuple):
    """What names of tools come to here."""

    tools: tuple[str, ...]
    unknown: tuple[str, ...]
    patterns: tuple[str, ...]
    spawnable: tuple[str, ...] | None


def grant_of(names: list[str], known: frozenset[str]) -> Granted:
    """Tools by name; `*` stands for the default ones. A tool for some arguments alone cannot be granted: all of it would be too much."""
    tools: list[str] = []
    unknown: list[str] = []
    patterns: list[str] = []
    spawnable: list[str] | None = None
    for entry in names:
        name, bracket, inner = entry.partition("(")
        tool = tool_of(name, known)
        if entry == "*":
            tools += READING
        elif tool is None:
            unknown.append(entry)
        elif bracket and tool == "Task":
            tools.append(tool)
            spawnable = [*(spawnable or ()), *(agent_id(item) for item in inner.rstrip(") ").split(",") if item.strip())]
        elif bracket and inner.rstrip(") ") not in ("", "*"):
            patterns.append(entry)
        else:
            tools.append(tool)
    return Granted(tuple(dict.fromkeys(tools)), tuple(unknown), tuple(patterns), None if spawnable is None else tuple(dict.fromkeys(spawnable)))


def tool_of(name: str, known: frozenset[str]) -> str | None:
    """The tool that a name means, in whatever case; nothing if there is none."""
    stripped = name.strip()
    return stripped if stripped in known else _TOOLS.get(stripped.replace("_", "").lower())


def rule_of(written: Any) -> str | None:
    """What a permission comes to for a whole tool: with patterns, the tool is allowed if all are, denied if one is."""
    if not is_map(written):
        return written if written in ("allow", "ask", "deny") else None
    rules = [rule_of(part) if not is_map(part) else None for part in written.values()]
    if None in rules or not rules:
        return None
    if "deny" in rules:
        return "deny"
    return "allow" if set(rules) == {"allow"} and "*" in written else "ask"


def permission_tools(key: str, known: frozenset[str]) -> tuple[str, ...]:
    """The tools that a permission is about; the one to edit is the one to write, too."""
    if key == "*":
        return ()
    tool = tool_of(key, known)
    return _EDITING if tool == "Edit" else (tool,) if tool else ()


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """True for a list."""
    return isinstance(value, list)


def is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    """True for a map."""
    return isinstance(value, dict)
