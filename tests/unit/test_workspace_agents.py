"""The agents of a workspace: their origin, their precedence and their names."""

from typing import Any

import pytest

from remit.app.agents import role_prompts
from remit.app.agents.registry import BUILT_IN, AgentRegistry, role_prompt
from remit.app.agents.workspace_agents import WorkspaceAgents, load_agents
from remit.domain.agents.agent import READING, TOOLS, Agent, AgentFile, Origin, granted, matching


def file(path: str, head: str, origin: Origin = "claude", body: str = "You help.") -> AgentFile:
    return AgentFile(origin, path, f"---\n{head}\n---\n{body}\n")


def roster(*files: AgentFile, **settings: dict[str, Any]) -> WorkspaceAgents:
    return load_agents(files, settings)


def by_id(found: WorkspaceAgents) -> dict[str, Agent]:
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
    assert not any(
        set(agent.tools) & {"Write", "Edit", "MultiEdit", "Bash"} for agent in found.values()
    )


def test_roles_say_what_matters() -> None:
    found = by_id(roster())
    reading = role_prompt(found["build"], found["build"].tools)
    editing = role_prompt(found["build"], (*found["build"].tools, "Edit"))
    assert role_prompts.DELEGATION.format(edits="") in reading
    assert role_prompts.DELEGATION.format(edits=", change code") in editing
    assert "change code" not in reading
    assert all(
        word in role_prompts.DELEGATION
        for word in (
            "complex",
            "in parallel",
            "`light` for simple",
            "`main`\nfor work that needs reasoning",
        )
    )
    assert all(
        word in role_prompts.SUBAGENT
        for word in ("You are a sub-agent", "only the tools that you are given", "Be brief")
    )
    for agent in BUILT_IN:
        prompt = role_prompt(agent, agent.tools)
        assert (role_prompts.SUBAGENT in prompt) is (agent.id != "build")
        assert prompt.startswith(f"You are {agent.id}.")
    assert (
        role_prompt(Agent(id="a", description="", prompt="You help."), READING)
        == f"You help.\n\n{role_prompts.SUBAGENT}"
    )
    assert role_prompt(Agent(id="a", description=""), READING) == role_prompts.SUBAGENT


@pytest.mark.parametrize("name", ["explore", "plan"])
def test_no_grant_adds_tools_to_a_read_only_agent(name: str) -> None:
    agent = by_id(roster(**{name: {"tools": [*TOOLS]}}))[name]
    assert agent.tools == READING
    assert granted(agent, allow=TOOLS) == READING
    assert granted(agent, allow=("Bash", "mcp__x", "Read")) == ("Read",)
    assert "TodoWrite" in granted(agent)


def test_a_call_can_grant_and_deny_but_not_what_the_agent_bans() -> None:
    agent = Agent(id="a", description="", disallowed_tools=("Bash",))
    assert granted(agent, allow=("Read", "Edit", "Bash")) == ("Read", "Edit")
    assert granted(agent, deny=("Read",)) == ("LS", "Glob", "Grep", "TodoWrite")


def test_the_nearest_file_counts_and_the_others_are_reported() -> None:
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
    claude = roster(
        file(".claude/agents/deep/a.md", head),
        file(".claude/agents/z.md", head),
        file(".opencode/agent/a.md", head, "opencode"),
    )
    assert by_id(claude)["helper"].source == ".claude/agents/z.md"


def test_a_broken_file_stops_no_other() -> None:
    found = roster(
        AgentFile("claude", ".claude/agents/a.md", problem="is no text"),
        file("b.md", "tools: []"),
        file("c.md", "name: c"),
        file("d.md", "name: /"),
    )
    assert [item.fate for item in found.files] == ["refused", "refused", "used", "refused"]
    assert "c" in by_id(found)


def test_a_file_may_take_the_place_of_a_built_in_agent_and_keeps_its_role_if_it_names_none() -> (
    None
):
    agent = by_id(roster(file("general.md", "tools: Read, Edit", body="")))["general"]
    assert agent.tools == ("Read", "Edit")
    assert (agent.prompt, agent.description) == (
        by_id(roster())["general"].prompt,
        by_id(roster())["general"].description,
    )
    assert by_id(roster(file("general.md", "description: Mine.")))["general"].prompt == "You help."


def test_an_agent_can_be_switched_off() -> None:
    assert "general" not in by_id(roster(file("general.md", "disable: true")))
    assert "general" not in by_id(roster(general={"disabled": True}))
    assert "general" in by_id(roster(general={"disabled": False}))


def test_settings_change_an_agent() -> None:
    found = roster(general={"tools": ["Read", "Bash"], "model": "haiku"})
    assert (by_id(found)["general"].tools, by_id(found)["general"].model) == (
        ("Read", "Bash"),
        "light",
    )
    assert {note.field: note.verdict for _, note in found.settings} == {
        "tools": "honored",
        "model": "mapped",
    }


@pytest.mark.parametrize(
    ("settings", "says", "usable"),
    [
        ({"nobody": {"tools": ["Read"]}}, "unknown agent", True),
        ({"general": {"tools": ["Read", "WebFetch"]}}, "unknown tool WebFetch", True),
        ({"general": {"tools": []}}, "grant nothing", False),
        ({"explore": {"tools": ["Read", "Bash"]}}, "Bash: not available to explore", True),
    ],
)
def test_a_wrong_setting_is_reported(settings: dict[str, Any], says: str, usable: bool) -> None:
    found = roster(**settings)
    assert any(note.verdict == "problem" and says in note.text for _, note in found.settings)
    assert ("general" in by_id(found)) is usable


def test_names_are_matched_by_their_letters() -> None:
    registry = AgentRegistry((*BUILT_IN, Agent(id="code-reviewer", description="")))
    for name in (
        "code-reviewer",
        "Code Reviewer",
        "code_reviewer",
        "CodeReviewer",
        "  CODEREVIEWER ",
        "\uff43ode reviewer",
    ):
        found = registry.find(name)
        assert found is not None, name
        assert found.id == "code-reviewer"
    assert [
        registry.find(name)
        for name in ("", "reviewer", "code/reviewer", "../code-reviewer", "general-purpose")
    ] == [None] * 5


def test_a_name_that_fits_two_fits_none() -> None:
    known = ("code-reviewer", "coder-eviewer")
    assert matching("codereviewer", known) is None
    assert matching("code reviewer", known) == "code-reviewer"


def test_an_unknown_agent_in_a_list_of_sub_agents_is_a_problem() -> None:
    found = roster(
        file(
            "a.md",
            "name: lead\ndescription: Leads.\nallowed-tools: Read, Task(explor, helper, gone)",
        ),
        file("b.md", "name: helper\ndescription: Helps.\ntools: Read"),
        file("c.md", "name: gone\ndescription: It is off.\ntools: Read\ndisabled: true"),
        general={"tools": ["Read", "Task(agent-250, plan)"]},
    )
    notes = found.files[0].reading.notes
    available = "Available: build, explore, general, helper, lead, plan, summary."
    told = [
        (note.field, note.verdict, note.text)
        for note in notes
        if "agent" in note.text or "delegate" in note.text
    ]
    assert told == [
        ("allowed-tools", "honored", "may delegate only to helper"),
        ("allowed-tools", "problem", f"unknown agent 'explor'. Did you mean explore? {available}"),
        ("allowed-tools", "problem", f"unknown agent 'gone'. {available}"),
    ]
    assert ("general", "problem", f"unknown agent 'agent-250'. {available}") in [
        (name, note.verdict, note.text) for name, note in found.settings
    ]


def test_a_list_of_unknown_sub_agents_is_not_called_honored() -> None:
    found = roster(file("a.md", "name: lead\ndescription: Leads.\ntools: Read, Task(agent-250)"))
    notes = [
        note
        for note in found.files[0].reading.notes
        if "agent" in note.text or "delegate" in note.text
    ]
    assert [note.verdict for note in notes] == ["problem"]
    assert notes[0].text.startswith("unknown agent 'agent-250'. ")
