"""Everybody in a workspace: the built-in agents, those from files, and what the settings say about them."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from remit.app.agentfile import Note, Reading, read_agent, tier
from remit.app.agents import BUILT_IN
from remit.app.toolname import grant_of, tool_names
from remit.domain.agent import TOOLS, Agent, AgentFile, Origin, agent_id, may_use
from remit.domain.record import replace
from remit.errors import advice

RANK: Mapping[Origin, int] = {"remit": 0, "claude": 1, "opencode": 2, "folder": 3}
"""Which file counts where several define one agent: the lowest."""
Settings = Mapping[str, Mapping[str, Any]]
Fate = Literal["used", "shadowed", "disabled", "refused"]


class Standing(NamedTuple):
    """A file, and whether the agent in it is the one that is used; `by` names the file that counts instead."""

    reading: Reading
    fate: Fate
    by: str = ""


class Roster(NamedTuple):
    """All agents, and how they came to be."""

    agents: tuple[Agent, ...]
    files: tuple[Standing, ...]
    settings: tuple[tuple[str, Note], ...]


def muster(
    files: Iterable[AgentFile],
    settings: Settings,
    known: frozenset[str] = frozenset(TOOLS),
    built_in: Iterable[Agent] = BUILT_IN,
) -> Roster:
    """Everybody who can be given work. A file or a setting that is wrong is told of, and never stands in the way of others."""
    found = {agent.id: agent for agent in built_in}
    taken: dict[str, Standing] = {}
    standings = [_stand(read_agent(file, known), taken) for file in sorted(files, key=_order)]
    for name, standing in taken.items():
        if standing.reading.agent is not None and standing.fate == "used":
            found[name] = _completed(standing.reading.agent, found.get(name))
        else:
            found.pop(name, None)
    notes = [note for name, setting in settings.items() for note in _apply(name, setting, found, known)]
    return Roster(tuple(found.values()), tuple(sorted(standings, key=lambda item: item.reading.path)), tuple(notes))


def _order(file: AgentFile) -> tuple[int, int, str]:
    return RANK[file.origin], file.path.count("/"), file.path


def _stand(reading: Reading, taken: dict[str, Standing]) -> Standing:
    if reading.agent is None:
        return Standing(reading, "refused")
    if (other := taken.get(reading.agent.id)) is not None:
        return Standing(reading, "shadowed", other.reading.path)
    taken[reading.agent.id] = Standing(reading, "disabled" if reading.disabled else "used")
    return taken[reading.agent.id]


def _completed(agent: Agent, built_in: Agent | None) -> Agent:
    """An agent from a file; what a file for a built-in one leaves unsaid about the role stays as it is."""
    if built_in is None:
        return agent
    return replace(agent, prompt=agent.prompt or built_in.prompt, description=agent.description or built_in.description)


def _apply(name: str, setting: Mapping[str, Any], found: dict[str, Agent], known: frozenset[str]) -> list[tuple[str, Note]]:
    """Change an agent as the settings say; one whose tools come to nothing cannot be used."""
    agent = found.get(agent_id(name))
    if agent is None:
        return [(name, Note("", "problem", f"there is no such agent. {advice(name, found)}"))]
    if setting.get("disabled"):
        del found[agent.id]
        return [(name, Note("disabled", "honoured"))]
    notes = [Note("concurrency", "honoured", f"{setting['concurrency'] or 'any number of'} runs at once")] if "concurrency" in setting else []
    if "model" in setting:
        model, meant = tier(setting["model"])
        notes.append(
            Note("model", "honoured" if model == setting["model"] else "mapped", model if meant else f"to {model}: that is no provider:name")
        )
        agent = replace(agent, model=model)
    if "effort" in setting:
        agent = replace(agent, effort=setting["effort"])
        notes.append(Note("effort", "honoured", setting["effort"]))
    if "tools" in setting:
        granted = grant_of(tool_names(list(setting["tools"])) or [], known)
        agent = replace(agent, tools=may_use(agent, granted.tools), spawnable=granted.spawnable or agent.spawnable)
        notes += [Note("tools", "problem", f"{name}: there is no such tool") for name in (*granted.unknown, *granted.patterns)]
        notes += [Note("tools", "problem", f"{tool}: out of reach for {agent.id}") for tool in granted.tools if tool not in agent.tools]
        notes.append(Note("tools", "honoured", ", ".join(agent.tools)) if agent.tools else Note("tools", "problem", "come to nothing"))
    found[agent.id] = agent
    if not agent.tools:
        del found[agent.id]
    return [(name, note) for note in notes]
