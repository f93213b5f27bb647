"""Turns an agent file of Claude Code, opencode and others into an agent.

Every field gets a note on what remit made of it.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from remit.app.agents.agent_notes import Note, Notes, listed, shown
from remit.app.agents.field_values import (
    read_effort,
    read_flag,
    read_minutes,
    read_mode,
    read_seconds,
    read_text,
    read_turns,
)
from remit.app.agents.file_fields import FileFields
from remit.app.agents.front_matter import read
from remit.app.agents.tool_grants import ToolsReader
from remit.app.agents.tool_names import is_map, tool_names
from remit.domain.agents.agent import (
    ALWAYS_READ_ONLY,
    CAPABILITIES,
    READING,
    TOOLS,
    Agent,
    AgentFile,
    Mode,
    agent_id,
    is_agent_id,
    may_use,
)
from remit.domain.records.pick import among, beyond
from remit.domain.records.record import replace

_WORDS = (
    "id name description tools allowed-tools allowedTools disallowedTools disallowed_tools"
    " permission permissionMode permission_mode readonly readOnly read_only model effort"
    " reasoningEffort maxTurns max_turns steps maxSteps max_steps timeout_seconds timeout_mins mode"
    " hidden disable disabled capabilities prompt color skills mcpServers mcp_servers hooks memory"
    " background isolation initialPrompt temperature top_p variant kind display_name is_background"
    " approvalMode aliases version author license tags category"
)
_SPELLINGS = frozenset(_WORDS.split())
"""Keys that start a field if front matter must be read line by line."""
_TIERS = dict.fromkeys(
    ("main", "inherit", "default", "opus", "sonnet", "fable"), "main"
) | dict.fromkeys(("light", "haiku", "fast"), "light")
NO_FRONT_MATTER = (
    "has no front matter: --- on the first line, fields, --- again, then the role prompt"
)
READS_ONLY = (
    "it can only read. To let it change files or run commands, add a line such as `tools: Read,"
    " Grep, Edit, Bash`"
)


class Reading(NamedTuple):
    """The result of reading a file; without an agent, a note says why."""

    path: str
    notes: tuple[Note, ...]
    agent_id: str | None = None
    agent: Agent | None = None
    disabled: bool = False
    tools_field: str = "tools"


class _Unusable(Exception):
    """The file does not define a usable agent."""

    def __init__(self, field: str, text: str) -> None:
        self.note = Note(field, "problem", text)


def read_agent(file: AgentFile, known: frozenset[str] = frozenset(TOOLS)) -> Reading:
    """Return the agent that a file defines, with notes on its fields.

    `known` are the tools that can be granted.
    """
    reader = _AgentFileReader(file, known)
    try:
        agent = reader.read()
    except _Unusable as why:
        return Reading(file.path, (*reader.notes, why.note), reader.agent_id)
    tools_field = reader.fields.names.get("tools", "tools")
    return Reading(file.path, tuple(reader.notes), agent.id, agent, reader.disabled, tools_field)


def tier(value: str) -> tuple[str, bool]:
    """Return the model that a name stands for, and whether the name is a known one.

    Aliases map to a tier by family; `provider:name` stays as it is.
    """
    name = value.strip()
    if name in ("main", "light") or re.fullmatch(r"[a-z0-9][a-z0-9_.-]*:\S{1,200}", name):
        return name, True
    for word in re.split(r"[^a-z]+", name.lower()):
        if word in _TIERS:
            return _TIERS[word], True
    return "main", False


class _AgentFileReader:
    """Reads one agent file and collects notes on its fields."""

    def __init__(self, file: AgentFile, known: frozenset[str]) -> None:
        self.file, self.known = file, known
        self.notes = Notes()
        self.agent_id: str | None = None
        self.disabled = False
        self.fields = FileFields(file.origin, self.notes)

    def read(self) -> Agent:
        """Return the agent; raise `_Unusable` if the file does not define one."""
        raw, body = self._read_raw()
        self.fields.assign(raw)
        self.agent_id = self._read_id()
        self.disabled = bool(self.fields.read("disabled", read_flag))
        agent = Agent(
            id=self.agent_id,
            description=self._read_description(),
            mode=self._read_mode(),
            model=self._read_model(),
            capabilities=self._read_capabilities(),
            read_only=self._read_read_only(),
            hidden=bool(self.fields.read("hidden", read_flag)),
            max_turns=self.fields.read("max_turns", read_turns),
            timeout_seconds=self._read_timeout(),
            effort=self.fields.read("effort", read_effort),
            source=self.file.path,
            prompt=self._read_prompt(body),
            extra=self.fields.extra,
        )
        return self._add_tools(agent)

    def _read_raw(self) -> tuple[Mapping[str, Any], str]:
        """Return the fields as they are written, and the text after them."""
        if self.file.problem:
            raise _Unusable("", self.file.problem)
        if self.file.origin == "folder":
            return _parse_json(self.file.text), ""
        found = read(self.file.text, _SPELLINGS)
        if not found.fields:
            raise _Unusable("", NO_FRONT_MATTER)
        if found.refusal:
            text = f"is not strict YAML ({found.refusal}); its known keys were read line by line"
            self.notes.add("", "mapped", text)
        for name in found.repeated:
            self.notes.add(name, "problem", "is given twice; the first one is used")
        return found.fields, found.body

    def _read_id(self) -> str:
        """Return the id: the field `id`, else `name`, else the name of the file."""
        if "id" in self.fields:
            return self._make_id("id")
        if "name" in self.fields:
            return self._make_id("name")
        return _validate_id("", self._file_name())

    def _make_id(self, field: str) -> str:
        """Return the id from a field, with notes."""
        name, written = self.fields.names[field], self.fields.values[field]
        made = _validate_id(name, written)
        if field == "id" and "name" in self.fields:
            self.notes.add(self.fields.names["name"], "ignored", f"the id is {made}")
        self.notes.add_result(name, same=made == written, mapped_to=f"the id {made}")
        return made

    def _file_name(self) -> str:
        """Return the name of the file, or of its folder if each agent has one."""
        *folders, last = self.file.path.split("/")
        if self.file.origin == "folder":
            return folders[-1]
        return last.removesuffix(".md")

    def _read_description(self) -> str:
        """Return the description; empty, with a note, if the file has none."""
        found: str | None = self.fields.read("description", read_text)
        if found is None:
            self.notes.add(
                "description", "problem", "is missing; callers choose an agent by its description"
            )
            return ""
        return found

    def _read_prompt(self, body: str) -> str:
        """Return the text after the fields, else the field `prompt`."""
        if not body:
            return self.fields.read("prompt", read_text) or ""
        self.fields.note_outranked("prompt", "the text below the front matter")
        return body

    def _read_mode(self) -> Mode:
        """Return how the agent may be used; opencode has another default."""
        found: Mode | None = self.fields.read("mode", read_mode)
        if found is not None:
            return found
        if self.file.origin == "opencode":
            return "all"
        return "subagent"

    def _read_model(self) -> str:
        """Return the model; the main one if the file names none."""
        written = self.fields.values.get("model")
        if not isinstance(written, str) or not written.strip():
            self.fields.read("model", read_text)
            return "main"
        found, is_known = tier(written)
        mapped_to = found
        if not is_known:
            mapped_to += f": {shown(written)} is not a provider:name"
        self.notes.add_result(
            self.fields.names["model"], same=found == written, mapped_to=mapped_to
        )
        return found

    def _read_timeout(self) -> float | None:
        """Return the time limit in seconds, which can be written in minutes."""
        seconds: float | None = self.fields.read("timeout_seconds", read_seconds)
        if seconds is None:
            minutes: float | None = self.fields.read("timeout_mins", read_minutes)
            return minutes
        self.fields.note_outranked("timeout_mins", self.fields.names["timeout_seconds"])
        return seconds

    def _read_capabilities(self) -> tuple[str, ...]:
        """Return the known capabilities."""
        if "capabilities" not in self.fields:
            return ()
        name, written = self.fields.names["capabilities"], self.fields.values["capabilities"]
        found = tool_names(written)
        if found is None:
            self.notes.add_dropped(name, written, "a list such as [tasks]")
            return ()
        known = tuple(among(CAPABILITIES, found))
        unknown = beyond(found, CAPABILITIES)
        if known:
            self.notes.add(name, "honored", ", ".join(known))
        if unknown:
            self.notes.add(name, "ignored", f"unknown capability {listed(unknown)}")
        return known

    def _read_read_only(self) -> bool:
        """Return whether the agent may only read."""
        flag = self.fields.read("read_only", read_flag)
        # Fail closed: an unparsable restriction still restricts.
        is_asked = "read_only" in self.fields and flag is not False
        return any((is_asked, self._has_plan_mode(), self.agent_id in ALWAYS_READ_ONLY))

    def _has_plan_mode(self) -> bool:
        """Return whether the permission mode is `plan`; other modes have no effect."""
        if "permission_mode" not in self.fields:
            return False
        name = self.fields.names["permission_mode"]
        if self.fields.values["permission_mode"] == "plan":
            self.notes.add(name, "mapped", "to read_only")
            return True
        self.notes.add(name, "ignored", "only its tools determine what an agent may do")
        return False

    def _add_tools(self, agent: Agent) -> Agent:
        """Give the agent the tools that its file grants and that it may use."""
        found = ToolsReader(self.fields.values, self.fields.names, self.known, self.notes).read()
        agent = replace(agent, disallowed_tools=found.disallowed, spawnable=found.spawnable)
        tools = may_use(agent, found.listed)
        if agent.read_only:
            self._note_lost_tools(found.listed)
        if not tools:
            text = f"grant nothing; available: {', '.join(TOOLS)}"
            raise _Unusable(self.fields.names.get("tools", "tools"), text)
        if "tools" not in self.fields and not agent.read_only:
            self._note_default_tools(tools)
        return replace(agent, tools=tools)

    def _note_lost_tools(self, tools: tuple[str, ...]) -> None:
        """Note the tools that a read-only agent does not get."""
        lost = beyond(tools, READING)
        if lost:
            text = f"{listed(lost)}: not granted, {self.agent_id} is read-only"
            self.notes.add(self.fields.names.get("tools", "permission"), "problem", text)

    def _note_default_tools(self, tools: tuple[str, ...]) -> None:
        """Note that a file without tools gets only the tools that read."""
        if frozenset(tools) <= frozenset(READING):
            text = f"to {', '.join(tools)}, because the file lists no tools: {READS_ONLY}"
            self.notes.add("tools", "mapped", text)


def _validate_id(field: str, written: Any) -> str:
    """Return a text as an id; raise `_Unusable` if it cannot be one."""
    made = agent_id(written)
    if not isinstance(made, str) or not is_agent_id(made):
        text = f"{shown(written)} is not a valid id: use a to z, digits and dashes, at most 64"
        raise _Unusable(field, text)
    return made


def _parse_json(text: str) -> Mapping[str, Any]:
    """Parse a JSON object; raise `_Unusable` for anything else."""
    from json import loads

    try:
        found = loads(text.removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _Unusable("", f"is not JSON ({str(error)[:200]})") from None
    if not is_map(found):
        raise _Unusable("", "is not a JSON object")
    return found


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
