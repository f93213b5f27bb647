"""The agents of a workspace: reads and checks agent files, and writes new ones."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.adapters.agent_files import read_agent_files, write_agent_file
from remit.app.agents.registry import BUILT_IN, Agent, AgentRegistry, with_edits
from remit.config import Settings
from remit.domain.agents.agent import TOOLS, AgentFile, agent_id, is_agent_id
from remit.errors import Conflict, invalid

if TYPE_CHECKING:
    from remit.app.agents.workspace_agents import WorkspaceAgents

Result = dict[str, Any]
TRY_SECONDS = 10.0
"""How long the sandbox may take to start a command that does nothing."""


def open_agents(settings: Settings, tools: Sequence[str] = ()) -> AgentRegistry:
    """Return the agents of a workspace; `tools` can be granted in addition to the built-in ones."""
    files = _files(settings)
    # Most workspaces have none and need not import the reader.
    if not files and not settings.get("agents"):
        return AgentRegistry(_built_in(settings), tools)
    return AgentRegistry(_load(settings, files, tools).agents, tools)


def check_agents(settings: Settings) -> Result:
    """Return how each field of agent files and agent settings is used."""
    loaded = _load(settings, _files(settings))
    files: list[Result] = []
    said = [{"agent_id": name, **note._asdict()} for name, note in loaded.settings]
    notes: list[Result] = [*said]
    for item in loaded.files:
        fields = [note._asdict() for note in item.reading.notes]
        notes += fields
        file: Result = {
            "path": item.reading.path,
            "agent_id": item.reading.agent_id,
            "status": item.fate,
            "by": item.by or None,
            "fields": fields,
        }
        files.append(file)
    return {
        "files": files,
        "settings": said,
        "agents": sorted(agent.id for agent in loaded.agents),
        "problems": sum(note["verdict"] == "problem" for note in notes),
    }


def new_agent(settings: Settings, fields: Result) -> Result:
    """Write a commented file for a new agent; never overwrite one."""
    name = _check_id(fields["agent_id"])
    text = _template(name, fields)
    root = settings.folder.parent
    loaded = _load(settings, _files(settings))
    for file in loaded.files:
        if file.reading.agent_id == name and file.reading.path.startswith(".remit/"):
            raise Conflict(
                f"Agent {name} already exists in {file.reading.path}.",
                hint="Change that file, or choose another id.",
            )
    sources = {agent.id: agent.source for agent in loaded.agents}
    try:
        path = write_agent_file(root, name, text)
    except FileExistsError:
        raise Conflict(
            f"The file .remit/agents/{name}.md already exists.",
            hint="Change that file, or choose another id.",
        ) from None
    return {"agent_id": name, "path": str(root / path), "replaces": sources.get(name)}


def _files(settings: Settings) -> list[AgentFile]:
    """Return the agent files of a workspace."""
    settings.check_workspace()
    if settings.workspace is None:
        return []
    return read_agent_files(settings.workspace)


def _load(
    settings: Settings, files: list[AgentFile], tools: Sequence[str] = ()
) -> "WorkspaceAgents":
    """Return all agents of a workspace, and how each file and setting is used."""
    from remit.app.agents.workspace_agents import load_agents

    return load_agents(
        files, settings.get("agents"), frozenset({*TOOLS, *tools}), _built_in(settings)
    )


def _built_in(settings: Settings) -> tuple[Agent, ...]:
    """Return the built-in agents; with `allow_edits`, some of them get editing tools."""
    if not settings.get("allow_edits"):
        return BUILT_IN
    return with_edits(BUILT_IN, editing_tools(settings))


def editing_tools(settings: Settings) -> tuple[str, ...]:
    """Return the tools that `allow_edits` adds to `build` and `general`; Bash only if commands can
    run here.
    """
    if not _runs_commands(settings):
        return ("Write", "Edit")
    return ("Write", "Edit", "Bash")


def _runs_commands(settings: Settings) -> bool:
    """Return True if agents can run commands here, in a sandbox or with `allow_unsandboxed`."""
    if not sys.platform.startswith("linux"):
        return False
    if settings.get("allow_unsandboxed"):
        return True
    return _sandbox_works(settings.root)


def _sandbox_works(root: Path) -> bool:
    """Return True if bubblewrap is installed and can run a command.

    A task with Bash would fail otherwise.
    """
    from subprocess import DEVNULL, TimeoutExpired, run

    from remit.adapters.tools.shell.bash import first_program
    from remit.adapters.tools.shell.sandbox import sandbox_command

    bwrap = first_program("bwrap")
    if bwrap is None:
        return False
    for nested in (False, True):
        command = sandbox_command(bwrap, root, ["/bin/sh", "-c", ":"], nested=nested)
        try:
            tried = run(  # noqa: S603 - our own command
                command, stdin=DEVNULL, capture_output=True, timeout=TRY_SECONDS, check=False
            )
        except TimeoutExpired:
            return True  # the machine is busy; assume that the sandbox works
        if tried.returncode == 0:
            return True
    return False


def _check_id(written: str) -> str:
    """Return the id of a new agent; refuse an invalid one."""
    made = str(agent_id(written))
    if not is_agent_id(made):
        raise invalid("ID", f"is {written!r}", "letters a to z, digits and dashes, at most 64")
    return made


def _template(name: str, fields: Result) -> str:
    """Return the text of a new agent file."""
    from json import dumps

    from remit.app.agents.agent_file import tier
    from remit.app.agents.tool_names import grant_of

    granted = grant_of(fields.get("tools") or ["*"], frozenset(TOOLS))
    if wrong := (*granted.unknown, *granted.patterns):
        raise invalid("--tools", f"names {wrong[0]!r}", f"names of {', '.join(TOOLS)}")
    model, meant = tier(fields.get("model") or "main")
    if not meant:
        raise invalid("--model", f"is {fields['model']!r}", "main, light, or provider:name")
    description = fields.get("description") or f"Say here when to use {name}."
    return _TEXT.format(
        name=name,
        description=dumps(description, ensure_ascii=False),
        tools=", ".join(granted.tools),
        model=dumps(model) if ":" in model else model,
    )


_TEXT = """\
---
# Other agents choose an agent by its id and this description: say when to use it.
name: {name}
description: {description}
# LS, Glob, Grep, Read and TodoWrite are harmless. Naming Write, Edit, MultiEdit, Bash or Task
# here grants them.
tools: {tools}
# main for work that needs reasoning, light for simple work, or provider:name.
model: {model}
# Never granted:
# disallowedTools: Bash
# Always read-only:
# readonly: true
# Limits:
# maxTurns: 20
# timeout_seconds: 600
# To work with tasks of other agents:
# capabilities: [tasks]
---
You are {name}.

Say here who it is and how it works: what it looks at first, what a good result is, what it must
not do, and what it reports.
"""
