"""The tools that an agent file grants: its list, then its permissions, then its disallowed
tools.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from remit.app.agents.agent_notes import Notes, Verdict, listed, shown
from remit.app.agents.field_values import is_off
from remit.app.agents.tool_names import (
    Granted,
    grant_of,
    is_map,
    permission_tools,
    rule_of,
    tool_names,
    tool_of,
)
from remit.domain.agents.agent import CHANGING, READING, TOOLS
from remit.domain.records.pick import among, beyond

LIST_EXPECTED = "names between commas, a list, or a map of names to true or false"


class FileTools(NamedTuple):
    """The tools of an agent file."""

    listed: tuple[str, ...]
    """The tools that its list and its permissions grant."""
    disallowed: tuple[str, ...]
    spawnable: tuple[str, ...] | None
    """The only agents that it may delegate to; None for any."""


class ToolsReader:
    """Reads the tools of an agent file.

    `names` are the keys that the file uses for the fields, and `known` the tools that can be
    granted.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        names: Mapping[str, str],
        known: frozenset[str],
        notes: Notes,
    ) -> None:
        self._fields, self._names, self._known, self._notes = fields, names, known, notes
        self._switched_off: list[str] = []

    def read(self) -> FileTools:
        """Return what the file grants and what it denies."""
        found, spawnable = self._read_list()
        permitted, denied = self._apply_permission(found)
        disallowed = (*self._switched_off, *denied, *self._read_disallowed())
        return FileTools(permitted, tuple(dict.fromkeys(disallowed)), spawnable)

    def _read_list(self) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Return the tools that the file lists, and the agents that it may delegate to."""
        if "tools" not in self._fields:
            return READING, None
        name, value = self._names["tools"], self._fields["tools"]
        if is_map(value):
            return self._read_switches(name, value), None
        names = tool_names(value)
        if names is None:
            self._notes.add_dropped(name, value, LIST_EXPECTED)
            return READING, None
        found = grant_of(names, self._known)
        self._note_tools(name, found.tools, names)
        self._note_grant(name, found)
        return found.tools, found.spawnable

    def _note_tools(self, name: str, tools: tuple[str, ...], written: list[str]) -> None:
        """Note the tools that a list grants."""
        text = ", ".join(tools)
        if list(tools) != written and tools:
            self._notes.add(name, "mapped", f"to {text}")
        elif tools:
            self._notes.add(name, "honored", text)

    def _read_switches(self, name: str, switches: dict[str, Any]) -> tuple[str, ...]:
        """Return the tools of a map of names to true or false.

        It starts from the default tools, or from none if `*` is off.
        """
        found: dict[str, None] = {}
        if not is_off(switches.get("*")):
            found = dict.fromkeys(READING)
        for key, value in switches.items():
            granted = grant_of([key], self._known)
            self._note_grant(name, granted)
            if key != "*":
                self._switch(name, key, value, granted.tools, found)
        self._notes.add(name, "mapped", f"to {', '.join(found) or 'nothing'}")
        return tuple(found)

    def _switch(
        self, name: str, key: str, value: Any, tools: Iterable[str], found: dict[str, None]
    ) -> None:
        """Turn tools on or off."""
        for tool in tools:
            if value is True:
                found[tool] = None
            elif is_off(value):
                found.pop(tool, None)
                self._switched_off.append(tool)
            else:
                text = f"{shown(key)} is {shown(value)} and was dropped; expected true or false"
                self._notes.add(name, "problem", text)

    def _note_grant(self, name: str, found: Granted) -> None:
        """Note the names that grant no tool."""
        self._note_unknown(name, found)
        for pattern in found.patterns:
            self._notes.add(
                name,
                "problem",
                f"{shown(pattern)} is not granted: a tool cannot be granted for some arguments"
                " only",
            )

    def _note_unknown(self, name: str, found: Granted) -> None:
        """Note the names that are not known tools."""
        if found.unknown:
            self._notes.add(name, "ignored", f"unknown tool {listed(found.unknown)}")

    def _apply_permission(self, found: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tools with a permission map applied, and the tools that it denies."""
        if "permission" not in self._fields:
            return found, ()
        name, value = self._names["permission"], self._fields["permission"]
        rules: dict[str, Any] = value if is_map(value) else {"*": value}
        every = (*TOOLS, *sorted(self._known.difference(TOOLS)))
        allowed: set[str] = set()
        denied = _denied_by_default(rules, every)
        for key, written in rules.items():
            tools = permission_tools(key, self._known)
            rule = rule_of(written)
            if rule == "allow":
                denied.difference_update(tools)
                allowed.update(tools)
            elif rule != "ask":
                denied.update(tools)
            self._note_rule(name, key, written, tools)
        added = among(every, allowed.difference(found))
        permitted = beyond((*found, *added), denied)
        return tuple(permitted), tuple(among(every, denied))

    def _note_rule(self, name: str, key: str, written: Any, tools: tuple[str, ...]) -> None:
        """Note what a permission means."""
        verdict, text = _meaning(key, written, tools)
        self._notes.add(f"{name}.{key}", verdict, text)

    def _read_disallowed(self) -> tuple[str, ...]:
        """Return the tools that the file disallows."""
        if "disallowed_tools" not in self._fields:
            return ()
        name, value = self._names["disallowed_tools"], self._fields["disallowed_tools"]
        names = tool_names(value)
        if names is None:
            text = f"is {shown(value)}; expected names; only read-only tools are granted"
            self._notes.add(name, "problem", text)
            return CHANGING
        found = grant_of(beyond(names, ("*",)), self._known)
        denied = (*found.tools, *self._deny_patterns(name, found.patterns))
        if "*" in names:
            denied = TOOLS
        if denied:
            self._notes.add(name, "honored", f"without {', '.join(denied)}")
        self._note_unknown(name, found)
        return denied

    def _deny_patterns(self, name: str, patterns: Iterable[str]) -> list[str]:
        """Return the whole tools of entries that name some arguments."""
        denied: list[str] = []
        for entry in patterns:
            self._notes.add(name, "mapped", f"{shown(entry)}: the whole tool is denied")
            tool = tool_of(entry.partition("(")[0], self._known)
            if tool is not None:
                denied.append(tool)
        return denied


def _meaning(key: str, written: Any, tools: tuple[str, ...]) -> tuple[Verdict, str]:
    """Return what a permission for these tools means, as a note says it."""
    rule = rule_of(written)
    if rule is None:
        return "problem", f"is {shown(written)} and counts as deny; expected allow, ask or deny"
    if not tools and key != "*":
        return "ignored", "unknown tool"
    if _grants_nothing(rule, key):
        return (
            "ignored",
            "grants nothing, as remit does not ask for permission; list each tool by name",
        )
    if is_map(written):
        return "mapped", f"{rule} for the whole tool; rules for arguments are not supported"
    names = ", ".join(tools) or "all"
    return "honored", f"{rule} {names}"


def _grants_nothing(rule: str, key: str) -> bool:
    """True for a permission to ask, and for one that allows all tools without naming them."""
    return rule == "ask" or (rule == "allow" and key == "*")


def _denied_by_default(rules: Mapping[str, Any], every: tuple[str, ...]) -> set[str]:
    """Return the tools that the rule for all tools denies.

    Fail closed: an invalid rule denies the tools that change something.
    """
    defaults: dict[str | None, set[str]] = {"deny": set(every), None: set(CHANGING)}
    return defaults.get(rule_of(rules.get("*", "ask")), set())
