"""From a file to an agent: what remit makes of each field that Claude Code, opencode and others write, and what it says about it."""

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Literal, NamedTuple

from remit.app.toolname import Granted, grant_of, is_list, is_map, permission_tools, rule_of, tool_names, tool_of
from remit.domain.agent import (
    ALWAYS_READ_ONLY,
    CAPABILITIES,
    CHANGING,
    EFFORTS,
    READING,
    TOOLS,
    Agent,
    AgentFile,
    Mode,
    agent_id,
    is_agent_id,
    may_use,
)
from remit.domain.frontmatter import MAX_DEPTH, read
from remit.domain.record import replace

Verdict = Literal["honoured", "mapped", "ignored", "problem"]

_FIELDS = {
    "id": "id",
    "name": "name",
    "description": "description",
    "tools": "tools",
    "allowedtools": "tools",
    "disallowedtools": "disallowed_tools",
    "permission": "permission",
    "permissionmode": "permission_mode",
    "readonly": "read_only",
    "model": "model",
    "effort": "effort",
    "reasoningeffort": "effort",
    "maxturns": "max_turns",
    "steps": "max_turns",
    "maxsteps": "max_turns",
    "timeoutseconds": "timeout_seconds",
    "timeoutmins": "timeout_mins",
    "mode": "mode",
    "hidden": "hidden",
    "disable": "disabled",
    "disabled": "disabled",
    "capabilities": "capabilities",
    "prompt": "prompt",
    "systemprompt": "prompt",
    "instructions": "prompt",
}
"""What a key means, by its letters alone: maxTurns, max_turns and max-turns are one."""
_WORDS = (
    "id name description tools allowed-tools allowedTools disallowedTools disallowed_tools permission permissionMode permission_mode readonly"
    " readOnly read_only model effort reasoningEffort maxTurns max_turns steps maxSteps max_steps timeout_seconds timeout_mins mode hidden disable"
    " disabled capabilities prompt color skills mcpServers mcp_servers hooks memory background isolation initialPrompt temperature top_p variant"
    " kind display_name is_background approvalMode aliases version author license tags category"
)
_SPELLINGS = frozenset(_WORDS.split())
"""Keys that begin a field where front matter has to be read line by line."""
_TIERS = dict.fromkeys(("main", "inherit", "default", "opus", "sonnet", "fable"), "main") | dict.fromkeys(("light", "haiku", "fast"), "light")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_INT64 = 2**63


READS_ONLY = "it only reads here. To let it change files or run commands, add a line such as `tools: Read, Grep, Edit, Bash`"


class Note(NamedTuple):
    """What became of a field."""

    field: str
    verdict: Verdict
    text: str = ""


class Reading(NamedTuple):
    """What became of a file; without an agent, a note says why."""

    path: str
    notes: tuple[Note, ...]
    agent_id: str | None = None
    agent: Agent | None = None
    disabled: bool = False


class _Unusable(Exception):
    """A file that gives no agent."""

    def __init__(self, field: str, text: str) -> None:
        self.note = Note(field, "problem", text)


def read_agent(file: AgentFile, known: frozenset[str] = frozenset(TOOLS)) -> Reading:
    """The agent that a file defines, with a word on each of its fields; `known` are the tools that can be granted."""
    sheet = _Sheet(file, known)
    try:
        agent = sheet.read()
    except _Unusable as why:
        return Reading(file.path, (*sheet.notes, why.note), sheet.agent_id)
    return Reading(file.path, tuple(sheet.notes), agent.id, agent, sheet.disabled)


def tier(value: str) -> tuple[str, bool]:
    """The model that a name stands for, and whether it was meant for just that: aliases by family, `provider:name` as it is."""
    name = value.strip()
    if name in ("main", "light") or re.fullmatch(r"[a-z0-9][a-z0-9_.-]*:\S{1,200}", name):
        return name, True
    family = next((_TIERS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _TIERS), None)
    return family or "main", family is not None


class _Sheet:
    """One file while it is read: its fields, and what was said about them so far."""

    def __init__(self, file: AgentFile, known: frozenset[str]) -> None:
        self.file, self.known = file, known
        self.notes: list[Note] = []
        self.agent_id: str | None = None
        self.disabled = False
        self.off: list[str] = []
        self.names: dict[str, str] = {}
        self.fields: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}

    def read(self) -> Agent:
        """The agent; _Unusable says why there is none."""
        raw, body = self._raw()
        self._sort(raw)
        self.agent_id = self._id()
        self.disabled = bool(self._take("disabled", _flag))
        agent = Agent(
            id=self.agent_id,
            description=self._description(),
            mode=self._mode(),
            model=self._model(),
            capabilities=self._capabilities(),
            read_only=self._read_only(),
            hidden=bool(self._take("hidden", _flag)),
            max_turns=self._take("max_turns", _turns),
            timeout_seconds=self._timeout(),
            effort=self._take("effort", _effort),
            source=self.file.path,
            prompt=self._prompt(body),
            extra=self.extra,
        )
        return self._with_tools(agent)

    def _raw(self) -> tuple[Mapping[str, Any], str]:
        if self.file.problem:
            raise _Unusable("", self.file.problem)
        if self.file.origin == "folder":
            return _json(self.file.text), ""
        found = read(self.file.text, _SPELLINGS)
        if not found.fields:
            raise _Unusable("", "has no front matter: --- on the first line, fields, --- again, then the role prompt")
        if found.refusal:
            self.say("", "mapped", f"is no strict YAML ({found.refusal}); its known keys were read line by line")
        for name in found.repeated:
            self.say(name, "problem", "is given twice; the first one counts")
        return found.fields, found.body

    def _sort(self, raw: Mapping[str, Any]) -> None:
        """Put each field where it belongs; what means nothing here is kept."""
        for name, value in raw.items():
            field = _FIELDS.get(re.sub(r"[-_ ]", "", name).lower())
            field = None if field == "name" and self.file.origin == "folder" else field
            if not _sound(value, 0):
                self.say(name, "problem", "holds what cannot be kept (NUL, a broken character, a huge number or too many levels); it is dropped")
            elif field is None:
                self.extra[name] = value
                self.say(name, "ignored", "means nothing to remit; it is kept")
            elif field in self.fields:
                self.say(name, "problem", f"says the same as {self.names[field]}, which counts")
            elif value is None:
                self.say(name, "ignored", "is empty")
            else:
                self.names[field], self.fields[field] = name, value

    def say(self, field: str, verdict: Verdict, text: str = "") -> None:
        """Note what became of a field."""
        self.notes.append(Note(field[:100], verdict, text))

    def _take(self, field: str, reader: Callable[[Any], Any]) -> Any:
        """A field as its reader has it; what cannot be read is dropped, with a word on what would be right."""
        if field not in self.fields:
            return None
        try:
            value = reader(self.fields[field])
        except ValueError as expected:
            self.say(self.names[field], "problem", f"is {_shown(self.fields[field])} and was dropped; expected {expected}")
            return None
        same = value == self.fields[field]
        self.say(self.names[field], "honoured" if same else "mapped", "" if same else f"to {_shown(value)}")
        return value

    def _id(self) -> str:
        given = next((field for field in ("id", "name") if field in self.fields), None)
        written = self.fields[given] if given else self._stem()
        made = agent_id(written)
        if not isinstance(made, str) or not is_agent_id(made):
            raise _Unusable(self.names[given] if given else "", f"{_shown(written)} gives no id: letters a to z, digits and dashes, at most 64")
        for field in ("id", "name"):
            if field in self.fields and field != given:
                self.say(self.names[field], "ignored", f"the id is {made}")
        if given:
            self.say(self.names[given], "honoured" if made == written else "mapped", "" if made == written else f"to the id {made}")
        return made

    def _stem(self) -> str:
        *folders, last = self.file.path.split("/")
        return folders[-1] if self.file.origin == "folder" else last.removesuffix(".md")

    def _description(self) -> str:
        found = self._take("description", _text)
        if not found:
            self.say("description", "problem", "is missing; others choose an agent by it")
        return found or ""

    def _prompt(self, body: str) -> str:
        if body and "prompt" in self.fields:
            self.say(self.names["prompt"], "problem", "says the same as the text below the front matter, which counts")
            return body
        return body or self._take("prompt", _text) or ""

    def _mode(self) -> Mode:
        found: Mode | None = self._take("mode", _mode)
        return found or ("all" if self.file.origin == "opencode" else "subagent")

    def _model(self) -> str:
        written = self.fields.get("model")
        if not isinstance(written, str) or not written.strip():
            self._take("model", _text)
            return "main"
        found, meant = tier(written)
        if found == written:
            self.say(self.names["model"], "honoured")
        else:
            self.say(self.names["model"], "mapped", f"to {found}" + ("" if meant else f": {_shown(written)} is no provider:name"))
        return found

    def _timeout(self) -> float | None:
        seconds: float | None = self._take("timeout_seconds", _seconds)
        if "timeout_mins" not in self.fields:
            return seconds
        if seconds is not None:
            self.say(self.names["timeout_mins"], "problem", f"says the same as {self.names['timeout_seconds']}, which counts")
            return seconds
        found: float | None = self._take("timeout_mins", lambda value: _seconds(value, 60))
        return found

    def _capabilities(self) -> tuple[str, ...]:
        if "capabilities" not in self.fields:
            return ()
        name, found = self.names["capabilities"], tool_names(self.fields["capabilities"])
        if found is None:
            self.say(name, "problem", f"is {_shown(self.fields['capabilities'])} and was dropped; expected a list such as [tasks]")
            return ()
        known = tuple(item for item in CAPABILITIES if item in found)
        if known:
            self.say(name, "honoured", ", ".join(known))
        if unknown := [item for item in found if item not in CAPABILITIES]:
            self.say(name, "ignored", f"{_listed(unknown)}: there is no such capability here")
        return known

    def _read_only(self) -> bool:
        # Whoever forbids something must not get it because of a slip: here, below and in a permission.
        asked = self._take("read_only", _flag) is not False and "read_only" in self.fields
        written = self.fields.get("permission_mode")
        if written == "plan":
            self.say(self.names["permission_mode"], "mapped", "to read_only")
        elif written is not None:
            self.say(self.names["permission_mode"], "ignored", "what an agent may do follows from its tools alone")
        return asked or written == "plan" or self.agent_id in ALWAYS_READ_ONLY

    # Tools: what is listed, then what is permitted or not, then what is taken away.

    def _with_tools(self, agent: Agent) -> Agent:
        listed, spawnable = self._listed()
        listed, refused = self._permitted(listed)
        disallowed = (*self.off, *refused, *self._disallowed())
        agent = replace(agent, disallowed_tools=tuple(dict.fromkeys(disallowed)), spawnable=spawnable)
        tools = may_use(agent, listed)
        if agent.read_only and (lost := [tool for tool in listed if tool not in READING]):
            self.say(self.names.get("tools", "permission"), "problem", f"{_listed(lost)}: not granted, {agent.id} is read-only")
        if not tools:
            raise _Unusable(self.names.get("tools", "tools"), f"come to nothing, so it could do nothing; tools are {', '.join(TOOLS)}")
        if "tools" not in self.fields and not agent.read_only and frozenset(tools) <= frozenset(READING):
            self.say("tools", "mapped", f"to {', '.join(tools)}, since the file has no tools: {READS_ONLY}")
        return replace(agent, tools=tools)

    def _listed(self) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        if "tools" not in self.fields:
            return READING, None
        name, value = self.names["tools"], self.fields["tools"]
        if is_map(value):
            return self._switched(name, value), None
        names = tool_names(value)
        if names is None:
            self.say(
                name, "problem", f"is {_shown(value)} and was dropped; expected names between commas, a list, or a map of names to true or false"
            )
            return READING, None
        found = grant_of(names, self.known)
        if found.tools:
            same = list(found.tools) == names
            self.say(name, "honoured" if same else "mapped", ("" if same else "to ") + ", ".join(found.tools))
        if found.spawnable is not None:
            self.say(name, "honoured", f"may delegate to {_listed(found.spawnable) or 'nobody'} alone")
        self._said_of(name, found)
        return found.tools, found.spawnable

    def _switched(self, name: str, switches: dict[str, Any]) -> tuple[str, ...]:
        """A map of names to true or false, on top of the default tools, or of none if `*` is off."""
        found: dict[str, None] = dict.fromkeys(() if _off(switches.get("*")) else READING)
        for key, value in switches.items():
            granted = grant_of([key], self.known)
            self._said_of(name, granted)
            for tool in () if key == "*" else granted.tools:
                if value is True:
                    found[tool] = None
                elif _off(value):
                    found.pop(tool, None)
                    self.off.append(tool)
                else:
                    self.say(name, "problem", f"{_shown(key)} is {_shown(value)} and was dropped; expected true or false")
        self.say(name, "mapped", f"to {', '.join(found) or 'nothing'}")
        return tuple(found)

    def _said_of(self, name: str, found: Granted) -> None:
        if found.unknown:
            self.say(name, "ignored", f"{_listed(found.unknown)}: there is no such tool here")
        for pattern in found.patterns:
            self.say(name, "problem", f"{_shown(pattern)} is not granted: a tool cannot be granted for some arguments alone")

    def _permitted(self, listed: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tools with what a permission map adds, and those that it takes away for good."""
        if "permission" not in self.fields:
            return listed, ()
        name, value = self.names["permission"], self.fields["permission"]
        rules: dict[str, Any] = value if is_map(value) else {"*": value}
        every = (*TOOLS, *sorted(self.known.difference(TOOLS)))
        denied = set({"deny": every, None: CHANGING}.get(rule_of(rules.get("*", "ask")), ()))
        allowed = set(listed)
        for key, written in rules.items():
            rule, tools = rule_of(written), permission_tools(key, self.known)
            if rule == "allow" and tools:
                denied -= set(tools)
                allowed |= set(tools)
            elif rule in ("deny", None):
                denied |= set(tools)
            self._said_of_rule(name, key, written, tools)
        tools = (*listed, *(tool for tool in every if tool in allowed.difference(listed)))
        return tuple(tool for tool in tools if tool not in denied), tuple(tool for tool in every if tool in denied)

    def _said_of_rule(self, name: str, key: str, written: Any, tools: tuple[str, ...]) -> None:
        rule, field = rule_of(written), f"{name}.{key}"
        if rule is None:
            self.say(field, "problem", f"is {_shown(written)} and counts as deny; expected allow, ask or deny")
        elif not tools and key != "*":
            self.say(field, "ignored", "there is no such tool here")
        elif rule == "ask" or (rule == "allow" and key == "*"):
            self.say(field, "ignored", "grants nothing: a tool is granted by its name, and nobody is asked")
        elif is_map(written):
            self.say(field, "mapped", f"{rule} for the whole tool: arguments are not told apart")
        else:
            self.say(field, "honoured", f"{rule} {', '.join(tools) or 'all'}")

    def _disallowed(self) -> tuple[str, ...]:
        if "disallowed_tools" not in self.fields:
            return ()
        name, names = self.names["disallowed_tools"], tool_names(self.fields["disallowed_tools"])
        if names is None:
            self.say(name, "problem", f"is {_shown(self.fields['disallowed_tools'])}; expected names; until then only reading is granted")
            return CHANGING
        found = grant_of([entry for entry in names if entry != "*"], self.known)
        whole = tuple(tool for entry in found.patterns if (tool := tool_of(entry.partition("(")[0], self.known)))
        for entry in found.patterns:
            self.say(name, "mapped", f"{_shown(entry)}: the whole tool is denied")
        denied = TOOLS if "*" in names else (*found.tools, *whole)
        if denied:
            self.say(name, "honoured", f"without {', '.join(denied)}")
        if found.unknown:
            self.say(name, "ignored", f"{_listed(found.unknown)}: there is no such tool here")
        return denied


def _json(text: str) -> Mapping[str, Any]:
    from json import loads

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        found = loads(text.removeprefix("\ufeff"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise _Unusable("", f"is no JSON ({str(error)[:200]})") from None
    if not is_map(found):
        raise _Unusable("", "is no JSON object")
    return found


def _sound(value: Any, depth: int) -> bool:
    """True for what can be kept and shown everywhere."""
    if isinstance(value, str):
        return "\0" not in value and not re.search("[\ud800-\udfff]", value)
    if isinstance(value, int | float):
        return -_INT64 <= value < _INT64 and isfinite(value)
    if depth > MAX_DEPTH:
        return False
    if is_map(value):
        return all(_sound(part, depth + 1) for pair in value.items() for part in pair)
    return all(_sound(item, depth + 1) for item in value) if is_list(value) else value is None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value.strip()


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in _TRUE + _FALSE:
        raise ValueError("true or false")
    return value.lower() in _TRUE


def _off(value: Any) -> bool:
    return value is False or (isinstance(value, str) and value.lower() in _FALSE)


def _turns(value: Any) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value.strip()) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 10_000:
        raise ValueError("a whole number from 1 to 10,000")
    return number


def _seconds(value: Any, unit: int = 1) -> float:
    number = float(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", value.strip()) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0.001 <= number * unit <= 31_536_000:
        raise ValueError("a number above 0, at most a year")
    return number * unit


def _effort(value: Any) -> str:
    found = {"med": "medium"}.get(value, value) if isinstance(value, str) else None
    if found not in EFFORTS:
        raise ValueError(f"one of {', '.join(EFFORTS)}")
    return str(found)


def _mode(value: Any) -> str:
    if value not in ("subagent", "primary", "all"):
        raise ValueError("subagent, primary or all")
    return str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in names[:20]) + (" and more" if len(names) > 20 else "")
