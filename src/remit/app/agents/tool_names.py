"""Maps the tool names and permissions of agent files to remit's tools."""

import re
from typing import Any, NamedTuple, TypeGuard

from remit.domain.agents.agent import READING, TOOLS, agent_id

_TOOLS = {tool.lower(): tool for tool in TOOLS} | {
    "list": "LS",
    "todoread": "TodoWrite",
    "agent": "Task",
}
_EDITING = ("Write", "Edit", "MultiEdit")


def tool_names(value: Any) -> list[str] | None:
    """Return tool names from a comma-separated string or a list; None for anything else."""
    if isinstance(value, str):
        return _split_names(value)
    if not is_list(value):
        return None
    found: list[str] = []
    for item in value:
        if not isinstance(item, str):
            return None
        found += _split_names(item)
    return found


def _split_names(text: str) -> list[str]:
    """Return the names between commas; commas within parentheses do not separate."""
    parts = re.findall(r"(?:[^,(]|\([^)]*\)?)+", text)
    names = [part.strip(" \t\n\"'[]") for part in parts]
    return list(filter(None, names))


class Granted(NamedTuple):
    """The tools that a list of names grants."""

    tools: tuple[str, ...]
    unknown: tuple[str, ...]
    patterns: tuple[str, ...]
    spawnable: tuple[str, ...] | None


def grant_of(names: list[str], known: frozenset[str]) -> Granted:
    """Return the tools with these names; `*` stands for the default ones.

    A tool with argument patterns is not granted: the whole tool would be too much.
    """
    tools: list[str] = []
    unknown: list[str] = []
    patterns: list[str] = []
    spawnable: tuple[str, ...] | None = None
    for entry in names:
        name, bracket, inner = entry.partition("(")
        arguments = inner.rstrip(") ")
        tool = tool_of(name, known)
        if entry == "*":
            tools += READING
        elif tool is None:
            unknown.append(entry)
        elif bracket and tool == "Task":
            tools.append(tool)
            spawnable = _add_agents(spawnable, arguments)
        elif arguments not in ("", "*"):
            patterns.append(entry)
        else:
            tools.append(tool)
    return Granted(tuple(dict.fromkeys(tools)), tuple(unknown), tuple(patterns), spawnable)


def _add_agents(known: tuple[str, ...] | None, names: str) -> tuple[str, ...]:
    """Add the agents that are named between commas, each once."""
    added = [agent_id(name) for name in names.split(",") if name.strip()]
    return tuple(dict.fromkeys([*(known or ()), *added]))


def tool_of(name: str, known: frozenset[str]) -> str | None:
    """Return the tool with a name, ignoring case; None if there is none."""
    stripped = name.strip()
    if stripped in known:
        return stripped
    return _TOOLS.get(stripped.replace("_", "").lower())


def rule_of(written: Any) -> str | None:
    """Return what a permission means for a whole tool; None if it is invalid."""
    if not is_map(written):
        return _rule_of_text(written)
    rules = set(map(_rule_of_text, written.values()))
    return _common_rule(rules, has_default="*" in written)


def _common_rule(rules: set[str | None], *, has_default: bool) -> str | None:
    """Return what the rules for patterns of arguments mean for the whole tool.

    The tool is denied if one is denied, and allowed if all are allowed, also the default.
    """
    if not rules or None in rules:
        return None
    if "deny" in rules:
        return "deny"
    if has_default and rules == {"allow"}:
        return "allow"
    return "ask"


def _rule_of_text(written: Any) -> str | None:
    """Return a rule if it is a valid one."""
    if written in ("allow", "ask", "deny"):
        return str(written)
    return None


def permission_tools(key: str, known: frozenset[str]) -> tuple[str, ...]:
    """Return the tools that a permission key covers; `edit` covers all tools that write files."""
    tool = tool_of(key, known)
    if tool is None:
        return ()
    if tool == "Edit":
        return _EDITING
    return (tool,)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Return True for a list."""
    return isinstance(value, list)


def is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True for a map."""
    return isinstance(value, dict)
