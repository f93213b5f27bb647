"""Everybody in a workspace: who comes from where, who stands in front of whom, and how they are called."""

from typing import Any

import pytest

from remit.app import roles
from remit.app.agents import BUILT_IN, AgentRegistry, role_prompt
from remit.app.roster import Roster, muster
from remit.domain.agent import READING, TOOLS, Agent, AgentFile, Origin, granted, matching


def file(path: str, head: str, origin: Origin = "claude", body: str = "You help.") -> AgentFile:
    return AgentFile(origin, path, f"---\n{head}\n---\n{body}\n")


def roster(*files: AgentFile, **settings: dict[str, Any]) -> Roster:
    return muster(files, settings)


def by_id(found: Roster) -> dict[str, Agent]:
    return {agent.id: agent for agent in found.agents}


def test_the_built_in_agents_are_as_promised() -> None:
    found = by_id(roster())
    assert {name: agent.mode for name, agent in found.items()} == {
        "build": "primary",
        "explore": "subagent",
        "general": "subagent",
        "plan": "subagent",
        "summary": "subagent",
    }
    assert found["build"].capabilities == ("tasks",)
    assert found["build"].tools == (*READING, "Task")
    assert {name for name, agent in found.items() if agent.read_only} == {"explore", "plan"}
    assert not any(set(agent.tools) & {"Write", "Edit", "MultiEdit", "Bash"} for agent in found.values())


def test_roles_say_what_matters() -> None:
    found = by_id(roster())
    assert roles.DELEGATION in role_prompt(found["build"], found["build"].tools)
    assert all(word in roles.DELEGATION for word in ("complex", "in parallel", "`light` for simple", "`main`\nfor work that needs reasoning"))
    assert all(word in roles.SUBAGENT for word in ("You are a sub-agent", "only the tools that you are given", "Be brief"))
    for agent in BUILT_IN:
        prompt = role_prompt(agent, agent.tools)
        assert (roles.SUBAGENT in prompt) is (agent.id != "build")
        assert prompt.startswith(f"You are {agent.id}.")
    assert role_prompt(Agent(id="a", description="", prompt="You help."), READING) == f"You help.\n\n{roles.SUBAGENT}"
    assert role_prompt(Agent(id="a", description=""), READING) == roles.SUBAGENT


@pytest.mark.parametrize("name", ["explore", "plan"])
def test_no_grant_widens_who_is_read_only(name: str) -> None:
    agent = by_id(roster(**{name: {"tools": [*TOOLS]}}))[name]
    assert agent.tools == READING
    assert granted(agent, allow=TOOLS) == READING
    assert granted(agent, allow=("Bash", "mcp__x", "Read")) == ("Read",)
    assert "TodoWrite" in granted(agent)


def test_a_call_can_grant_and_deny_but_not_what_the_agent_bans() -> None:
    agent = Agent(id="a", description="", disallowed_tools=("Bash",))
    assert granted(agent, allow=("Read", "Edit", "Bash")) == ("Read", "Edit")
    assert granted(agent, deny=("Read",)) == ("LS", "Glob", "Grep", "TodoWrite")


def test_the_nearest_file_counts_and_the_others_are_told_of() -> None:
    head = "name: Helper\ndescription: d"
    found = roster(
        AgentFile("folder", "agents/helper/agent.json", '{"description": "folder"}'),
        file(".opencode/agent/helper.md", head, "opencode"),
        file(".claude/agents/deep/helper.md", head),
        file(".claude/agents/z.md", head),
        file(".remit/agents/helper.md", "description: ours", "remit"),
    )
    assert by_id(found)["helper"].source == ".remit/agents/helper.md"
    assert {item.reading.path: (item.fate, item.by) for item in found.files} == {
        "agents/helper/agent.json": ("shadowed", ".remit/agents/helper.md"),
        ".opencode/agent/helper.md": ("shadowed", ".remit/agents/helper.md"),
        ".claude/agents/deep/helper.md": ("shadowed", ".remit/agents/helper.md"),
        ".claude/agents/z.md": ("shadowed", ".remit/agents/helper.md"),
        ".remit/agents/helper.md": ("used", ""),
    }
    claude = roster(file(".claude/agents/deep/a.md", head), file(".claude/agents/z.md", head), file(".opencode/agent/a.md", head, "opencode"))
    assert by_id(claude)["helper"].source == ".claude/agents/z.md"


def test_a_broken_file_stops_no_other() -> None:
    found = roster(
        AgentFile("claude", ".claude/agents/a.md", problem="is no text"), file("b.md", "tools: []"), file("c.md", "name: c"), file("d.md", "name: /")
    )
    assert [item.fate for item in found.files] == ["refused", "refused", "used", "refused"]
    assert "c" in by_id(found)


def test_a_file_may_take_the_place_of_a_built_in_agent_and_keeps_its_role_if_it_names_none() -> None:
    agent = by_id(roster(file("general.md", "tools: Read, Edit", body="")))["general"]
    assert agent.tools == ("Read", "Edit")
    assert (agent.prompt, agent.description) == (by_id(roster())["general"].prompt, by_id(roster())["general"].description)
    assert by_id(roster(file("general.md", "description: Mine.")))["general"].prompt == "You help."


def test_an_agent_can_be_switched_off() -> None:
    assert "general" not in by_id(roster(file("general.md", "disable: true")))
    assert "general" not in by_id(roster(general={"disabled": True}))
    assert "general" in by_id(roster(general={"disabled": False}))


def test_settings_change_an_agent() -> None:
    found = roster(general={"tools": ["Read", "Bash"], "model": "haiku"})
    assert (by_id(found)["general"].tools, by_id(found)["general"].model) == (("Read", "Bash"), "light")
    assert {note.field: note.verdict for _, note in found.settings} == {"tools": "honoured", "model": "mapped"}


@pytest.mark.parametrize(
    ("settings", "says", "usable"),
    [
        ({"nobody": {"tools": ["Read"]}}, "no such agent", True),
        ({"general": {"tools": ["Read", "WebFetch"]}}, "WebFetch: there is no such tool", True),
        ({"general": {"tools": []}}, "come to nothing", False),
        ({"explore": {"tools": ["Read", "Bash"]}}, "Bash: out of reach for explore", True),
    ],
)
def test_a_wrong_setting_is_told_of(settings: dict[str, Any], says: str, usable: bool) -> None:
    found = roster(**settings)
    assert any(note.verdict == "problem" and says in note.text for _, note in found.settings)
    assert ("general" in by_id(found)) is usable


def test_names_are_matched_by_their_letters() -> None:
    registry = AgentRegistry((*BUILT_IN, Agent(id="code-reviewer", description="")))
    for name in ("code-reviewer", "Code Reviewer", "code_reviewer", "CodeReviewer", "  CODEREVIEWER ", "\uff43ode reviewer"):
        found = registry.find(name)
        assert found is not None, name
        assert found.id == "code-reviewer"
    assert [registry.find(name) for name in ("", "reviewer", "code/reviewer", "../code-reviewer", "general-purpose")] == [None] * 5


def test_a_name_that_fits_two_fits_none() -> None:
    known = ("code-reviewer", "coder-eviewer")
    assert matching("codereviewer", known) is None
    assert matching("code reviewer", known) == "code-reviewer"
