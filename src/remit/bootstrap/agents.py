"""The agents of a workspace: read from its files, checked, and made."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.adapters.agentfiles import read_agent_files, write_agent_file
from remit.app.agents import BUILT_IN, Agent, AgentRegistry, with_edits
from remit.config import Settings
from remit.domain.agent import TOOLS, AgentFile, agent_id, is_agent_id
from remit.errors import Conflict, invalid

if TYPE_CHECKING:
    from remit.app.roster import Roster

Result = dict[str, Any]
TRY_SECONDS = 10.0
"""How long the sandbox may take to start a command that does nothing."""


def open_agents(settings: Settings, tools: Sequence[str] = ()) -> AgentRegistry:
    """Everybody who can be given work in a workspace; further tools can be granted by name."""
    files = _files(settings)
    # Most workspaces have none, and do without what reads them.
    needs_roster = files or settings.get("agents")
    agents = _roster(settings, files, tools).agents if needs_roster else _built_in(settings)
    return AgentRegistry(agents, tools)


def check_agents(settings: Settings) -> Result:
    """What became of every file, field by field, and of what the settings say about agents."""
    roster = _roster(settings, _files(settings))
    files = [
        {
            "path": item.reading.path,
            "agent_id": item.reading.agent_id,
            "status": item.fate,
            "by": item.by or None,
            "fields": _notes(item.reading.notes),
        }
        for item in roster.files
    ]
    said = [{"agent_id": name, **note._asdict()} for name, note in roster.settings]
    problems = sum(note["verdict"] == "problem" for note in [*said, *(note for file in files for note in _fields(file))])
    return {"files": files, "settings": said, "agents": sorted(agent.id for agent in roster.agents), "problems": problems}


def new_agent(settings: Settings, fields: Result) -> Result:
    """Write a commented file for a new agent; one that is there stays as it is."""
    name = _checked_id(fields["agent_id"])
    text = _template(name, fields)
    root = settings.folder.parent
    roster = _roster(settings, _files(settings))
    for file in roster.files:
        if file.reading.agent_id == name and file.reading.path.startswith(".remit/"):
            raise Conflict(f"There is an agent {name} already, in {file.reading.path}.", hint="Change that file, or choose another id.")
    replaced = next((agent.source for agent in roster.agents if agent.id == name), None)
    try:
        path = write_agent_file(root, name, text)
    except FileExistsError:
        raise Conflict(f"There is a file .remit/agents/{name}.md already.", hint="Change that file, or choose another id.") from None
    return {"agent_id": name, "path": str(root / path), "replaces": replaced}


def _files(settings: Settings) -> list[AgentFile]:
    settings.check_workspace()
    return read_agent_files(settings.workspace) if settings.workspace else []


def _roster(settings: Settings, files: list[AgentFile], tools: Sequence[str] = ()) -> "Roster":
    from remit.app.roster import muster

    return muster(files, settings.get("agents"), frozenset({*TOOLS, *tools}), _built_in(settings))


def _built_in(settings: Settings) -> tuple[Agent, ...]:
    """The built-in agents; some of them change the workspace where the operator allows it, and run commands where a sandbox is there."""
    return with_edits(BUILT_IN, editing_tools(settings)) if settings.get("allow_edits") else BUILT_IN


def editing_tools(settings: Settings) -> tuple[str, ...]:
    """What `build` and `general` get where edits are allowed: Bash only if commands can run here."""
    root = settings.workspace or Path.cwd()
    runs_commands = sys.platform.startswith("linux") and (settings.get("allow_unsandboxed") or _sandbox_works(root))
    return ("Write", "Edit", "Bash") if runs_commands else ("Write", "Edit")


def _sandbox_works(root: Path) -> bool:
    """True if bubblewrap is installed and can contain a command; a task with Bash would fail otherwise."""
    from subprocess import DEVNULL, TimeoutExpired, run

    from remit.adapters.tools.sandbox import sandboxed
    from remit.adapters.tools.shell import first_program

    bwrap = first_program("bwrap")
    if bwrap is None:
        return False
    for nested in (False, True):
        command = sandboxed(bwrap, root, ["/bin/sh", "-c", ":"], nested=nested)
        try:
            tried = run(command, stdin=DEVNULL, capture_output=True, timeout=TRY_SECONDS, check=False)  # noqa: S603 - our own
        except TimeoutExpired:
            return True  # a busy machine says nothing about the sandbox
        if tried.returncode == 0:
            return True
    return False


def _notes(notes: Any) -> list[Result]:
    return [note._asdict() for note in notes]


def _fields(file: Result) -> list[Result]:
    found: list[Result] = file["fields"]
    return found


def _checked_id(written: str) -> str:
    made = str(agent_id(written))
    if not is_agent_id(made):
        raise invalid("ID", f"is {written!r}", "letters a to z, digits and dashes, at most 64")
    return made


def _template(name: str, fields: Result) -> str:
    from json import dumps

    from remit.app.agentfile import tier
    from remit.app.toolname import grant_of

    granted = grant_of(fields.get("tools") or ["*"], frozenset(TOOLS))
    if wrong := (*granted.unknown, *granted.patterns):
        raise invalid("--tools", f"names {wrong[0]!r}", f"names of {', '.join(TOOLS)}")
    model, meant = tier(fields.get("model") or "main")
    if not meant:
        raise invalid("--model", f"is {fields['model']!r}", "main, light, or provider:name")
    description = fields.get("description") or f"Say here when {name} should be given work."
    return _TEXT.format(
        name=name,
        description=dumps(description, ensure_ascii=False),
        tools=", ".join(granted.tools),
        model=model if ":" not in model else dumps(model),
    )


_TEXT = """\
---
# Others choose an agent by its id and this description: say when it should be given work.
name: {name}
description: {description}
# LS, Glob, Grep, Read and TodoWrite are harmless. Write, Edit, MultiEdit, Bash and Task are granted by being named here.
tools: {tools}
# main for work that needs reasoning, light for simple work, or provider:name.
model: {model}
# Taken away whatever else grants it:
# disallowedTools: Bash
# Can never change anything, whoever grants what:
# readonly: true
# How far it may go:
# maxTurns: 20
# timeout_seconds: 600
# To work with tasks of others:
# capabilities: [tasks]
---
You are {name}.

Say here who it is and how it works: what it looks at first, what a good result is, what it must not do, and what it reports.
"""
