"""The agents of a workspace: built-in agents, agent files, and settings."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from remit.app.agents.agent_file import Reading, read_agent, tier
from remit.app.agents.agent_notes import Note, Notes, Verdict, delegation_notes
from remit.app.agents.registry import BUILT_IN
from remit.app.agents.tool_names import Granted, grant_of, tool_names
from remit.domain.agents.agent import TOOLS, Agent, AgentFile, Origin, agent_id, may_use
from remit.domain.records.pick import beyond, by_id
from remit.domain.records.record import replace
from remit.domain.task.task import Effort
from remit.errors import advice

RANK: Mapping[Origin, int] = {"remit": 0, "claude": 1, "opencode": 2, "folder": 3}
"""The precedence of origins if several files define one agent: the lowest wins."""
Settings = Mapping[str, Mapping[str, Any]]
Fate = Literal["used", "shadowed", "disabled", "refused"]


class AgentSource(NamedTuple):
    """An agent file, and whether its agent is used.

    `by` is the path of the file that takes precedence.
    """

    reading: Reading
    fate: Fate
    by: str = ""


class WorkspaceAgents(NamedTuple):
    """All agents of a workspace and their sources."""

    agents: tuple[Agent, ...]
    files: tuple[AgentSource, ...]
    settings: tuple[tuple[str, Note], ...]


def load_agents(
    files: Iterable[AgentFile],
    settings: Settings,
    known: frozenset[str] = frozenset(TOOLS),
    built_in: Iterable[Agent] = BUILT_IN,
) -> WorkspaceAgents:
    """Return all agents that can be given work.

    A faulty file or setting is reported and does not affect the others.
    """
    found = by_id(built_in)
    taken: dict[str, AgentSource] = {}
    sources = [_rank_source(read_agent(file, known), taken) for file in sorted(files, key=_order)]
    for name, source in taken.items():
        _use_file(name, source, found)
    notes: list[tuple[str, Note]] = []
    for name, setting in settings.items():
        notes += _with_name(name, _apply(name, setting, found, known))
    for name, setting in settings.items():
        notes += _with_name(name, _note_delegation(name, setting, found, known))
    sources = [_add_delegation_notes(source, found) for source in sources]
    sources.sort(key=lambda source: source.reading.path)
    return WorkspaceAgents(tuple(found.values()), tuple(sources), tuple(notes))


def _use_file(name: str, source: AgentSource, found: dict[str, Agent]) -> None:
    """Add the agent of a file; a disabled one removes the built-in agent with its id."""
    agent = source.reading.agent
    if agent is None or source.fate != "used":
        found.pop(name, None)
        return
    found[name] = _complete(agent, found.get(name))


def _with_name(name: str, notes: Iterable[Note]) -> list[tuple[str, Note]]:
    """Return notes with the name of the agent whose settings they are about."""
    return [(name, note) for note in notes]


def _order(file: AgentFile) -> tuple[int, int, str]:
    """Return the precedence of a file: by origin, then by depth and path."""
    return RANK[file.origin], file.path.count("/"), file.path


def _rank_source(reading: Reading, taken: dict[str, AgentSource]) -> AgentSource:
    """Return whether the agent of a file is used; the first file of an agent takes its id."""
    if reading.agent is None:
        return AgentSource(reading, "refused")
    name = reading.agent.id
    if name in taken:
        return AgentSource(reading, "shadowed", taken[name].reading.path)
    fate: Fate = "disabled" if reading.disabled else "used"
    taken[name] = AgentSource(reading, fate)
    return taken[name]


def _add_delegation_notes(source: AgentSource, found: Mapping[str, Agent]) -> AgentSource:
    """Add notes on the sub-agents that a file names; they are known after all files are read."""
    reading = source.reading
    if reading.agent is None:
        return source
    added = delegation_notes(reading.tools_field, reading.agent.spawnable, found)
    return source._replace(reading=reading._replace(notes=(*reading.notes, *added)))


def _note_delegation(
    name: str,
    setting: Mapping[str, Any],
    found: Mapping[str, Agent],
    known: frozenset[str],
) -> list[Note]:
    """Return notes on the sub-agents that the settings of an agent name."""
    if agent_id(name) not in found or "tools" not in setting:
        return []
    granted = _read_tools(setting["tools"], known)
    return delegation_notes("tools", granted.spawnable, found)


def _read_tools(written: Iterable[str], known: frozenset[str]) -> Granted:
    """Return the tools that the settings of an agent grant."""
    names = tool_names(list(written)) or []
    return grant_of(names, known)


def _complete(agent: Agent, built_in: Agent | None) -> Agent:
    """Fill in the prompt and description that a file for a built-in agent leaves out."""
    if built_in is None:
        return agent
    return replace(
        agent,
        prompt=agent.prompt or built_in.prompt,
        description=agent.description or built_in.description,
    )


def _apply(
    name: str, setting: Mapping[str, Any], found: dict[str, Agent], known: frozenset[str]
) -> list[Note]:
    """Apply the settings of an agent; an agent without any tool is removed."""
    agent = found.get(agent_id(name))
    if agent is None:
        return [Note("", "problem", f"unknown agent. {advice(name, found)}")]
    if setting.get("disabled"):
        del found[agent.id]
        return [Note("disabled", "honored")]
    notes = Notes()
    agent = _configure(agent, setting, known, notes)
    found[agent.id] = agent
    if not agent.tools:
        del found[agent.id]
    return notes


def _configure(
    agent: Agent, setting: Mapping[str, Any], known: frozenset[str], notes: Notes
) -> Agent:
    """Return an agent with its settings, and note each of them."""
    for name, apply in _SETTINGS.items():
        if name in setting:
            agent = apply(agent, setting[name], known, notes)
    return agent


def _note_concurrency(agent: Agent, most: int, _known: frozenset[str], notes: Notes) -> Agent:
    """Note how many runs of an agent may be live; workers read the setting."""
    limit = most or "any number of"
    notes.add("concurrency", "honored", f"{limit} runs at once")
    return agent


def _apply_model(agent: Agent, written: str, _known: frozenset[str], notes: Notes) -> Agent:
    """Give an agent the model that a setting names."""
    model, is_known = tier(written)
    text = model if is_known else f"to {model}: not a provider:name"
    verdict: Verdict = "honored" if model == written else "mapped"
    notes.add("model", verdict, text)
    return replace(agent, model=model)


def _apply_effort(agent: Agent, effort: Effort, _known: frozenset[str], notes: Notes) -> Agent:
    """Give an agent the effort of a setting."""
    notes.add("effort", "honored", effort)
    return replace(agent, effort=effort)


def _apply_tools(
    agent: Agent, written: Iterable[str], known: frozenset[str], notes: Notes
) -> Agent:
    """Give an agent the tools that a setting names and that it may use."""
    granted = _read_tools(written, known)
    tools = may_use(agent, granted.tools)
    for name in (*granted.unknown, *granted.patterns):
        notes.add("tools", "problem", f"unknown tool {name}")
    for tool in beyond(granted.tools, tools):
        notes.add("tools", "problem", f"{tool}: not available to {agent.id}")
    if tools:
        notes.add("tools", "honored", ", ".join(tools))
    else:
        notes.add("tools", "problem", "grant nothing")
    return replace(agent, tools=tools, spawnable=granted.spawnable or agent.spawnable)


_SETTINGS: Mapping[str, Callable[[Agent, Any, frozenset[str], Notes], Agent]] = {
    "concurrency": _note_concurrency,
    "model": _apply_model,
    "effort": _apply_effort,
    "tools": _apply_tools,
}
"""Applies each setting of an agent, in this order."""
