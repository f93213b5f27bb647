"""Agent files as people write them are parsed, and no file can do harm."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.app.agents.agent_file import Reading, read_agent, tier
from remit.domain.agents.agent import CHANGING, READING, TOOLS, Agent, AgentFile, Origin


def reading(
    text: str, origin: Origin = "claude", path: str = ".claude/agents/file-name.md"
) -> Reading:
    return read_agent(AgentFile(origin, path, text))


def agent(head: str, origin: Origin = "claude", body: str = "You help.") -> Agent:
    found = reading(f"---\ndescription: Helps.\n{head}\n---\n{body}\n", origin).agent
    assert found is not None
    return found


def notes(head: str, origin: Origin = "claude") -> dict[str, tuple[str, str]]:
    found = reading(f"---\ndescription: Helps.\n{head}\n---\nYou help.\n", origin)
    return {
        note.field: (note.verdict, note.text) for note in found.notes if note.field != "description"
    }


def test_a_plain_file_gives_an_agent_with_the_default_tools() -> None:
    found = reading(
        "---\nname: reviewer\ndescription: Reviews changes.\n---\n\nYou review.\n\nWell.\n"
    )
    assert found.agent == Agent(
        id="reviewer",
        description="Reviews changes.",
        source=".claude/agents/file-name.md",
        prompt="You review.\n\nWell.",
    )
    assert [(note.field, note.verdict) for note in found.notes] == [
        ("name", "honored"),
        ("description", "honored"),
        ("tools", "mapped"),
    ]
    assert found.agent.tools == READING


def test_a_file_without_tools_is_reported_as_read_only_with_the_remedy() -> None:
    told = (
        "to LS, Glob, Grep, Read, TodoWrite, because the file lists no tools: it can only read. "
        "To let it change files or run commands, add a line such as `tools: Read, Grep, Edit, Bash`"
    )
    assert notes("name: a")["tools"] == ("mapped", told)
    assert notes("name: a\ntools: Read, Edit")["tools"] == ("honored", "Read, Edit")
    assert "tools" not in notes("name: a\nreadonly: true"), "the author has said so"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("name: Code Reviewer", "code-reviewer"),
        ("name: code_reviewer", "code-reviewer"),
        ("name: '\uff23\uff2f\uff24\uff25  reviewer'", "code-reviewer"),
        ("name: php-8.3", "php-8-3"),
        ("id: x\nname: Y", "x"),
        ("", "file-name"),
        ("name: 42x", "42x"),
    ],
)
def test_a_name_becomes_an_id(head: str, expected: str) -> None:
    assert agent(head).id == expected


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "a/b",
        "'-a'",
        "''",
        "ünïcode",
        "a..b",
        ".a",
        "x" * 65,
        "[a]",
        "1",
        "'a\\0'",
    ],
)
def test_a_name_without_an_id_is_refused(name: str) -> None:
    found = reading(f"---\nname: {name}\ndescription: Helps.\n---\n")
    assert (found.agent, found.notes[-1].verdict) == (None, "problem")
    assert "is not a valid id" in found.notes[-1].text


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("tools: Read, Grep", ("Read", "Grep")),
        ("tools: Read,Write,  Bash", ("Read", "Write", "Bash")),
        ("tools: [Read, 'Edit']", ("Read", "Edit")),
        ("tools:\n  - Read\n  - MultiEdit, Grep", ("Read", "MultiEdit", "Grep")),
        ("tools: read, bash, list, todo_write", ("Read", "Bash", "LS", "TodoWrite")),
        ("tools: '*'", READING),
        ("tools: *", READING),
        ("tools: '*, Write'", (*READING, "Write")),
        ("tools:", READING),
        ("tools: Read, Read, WebFetch, mcp__github__*", ("Read",)),
        ("tools: Task, Read", ("Task", "Read")),
        ("tools: Agent, Read", ("Task", "Read")),
        ("tools: 7", READING),
        ("allowed-tools: Read", ("Read",)),
        ("tools:\n  write: true\n  read: false", ("LS", "Glob", "Grep", "TodoWrite", "Write")),
        ("tools:\n  '*': false\n  read: true", ("Read",)),
        ("tools: {bash: maybe}", READING),
        ("tools: Read, Bash\ndisallowedTools: Bash", ("Read",)),
        ("tools: Read, Bash\ndisallowedTools: [bash, WebFetch]", ("Read",)),
        ("tools: Read, Bash\ndisallowedTools: Bash(rm:*)", ("Read",)),
        ("tools: Read, Bash\ndisallowedTools: 7", ("Read",)),
        ("tools: Read, Bash(git:*)", ("Read",)),
        ("tools: Read, Bash(*)", ("Read", "Bash")),
        ("permission: {edit: allow}", (*READING, "Write", "Edit", "MultiEdit")),
        ("permission: {edit: deny, bash: ask, webfetch: deny}", READING),
        ("tools: Read, Write, Edit, Bash\npermission: {edit: deny}", ("Read", "Bash")),
        ("permission: {'*': deny, read: allow, grep: allow}", ("Grep", "Read")),
        ("permission: {'*': allow}", READING),
        ("permission: allow", READING),
        ("permission: {bash: {'*': allow}}", (*READING, "Bash")),
        ("permission: {bash: {'git *': allow}}", READING),
        ("tools: Read, Bash\npermission: {bash: {'*': allow, 'rm *': deny}}", ("Read",)),
        ("tools: Read, Bash\npermission: {bash: never}", ("Read",)),
        ("tools: Read, Bash\npermission: never", ("Read",)),
        ("tools: Read, Bash\nreadonly: true", ("Read",)),
        ("tools: Read, Bash\nreadonly: perhaps", ("Read",)),
        ("tools: Read, Bash\nreadonly: false", ("Read", "Bash")),
        ("tools: Read, Bash\npermissionMode: plan", ("Read",)),
        ("tools: Read, Bash\npermissionMode: bypassPermissions", ("Read", "Bash")),
        ("permissionMode: bypassPermissions", READING),
    ],
)
def test_tools_are_granted_by_name_and_never_by_accident(
    tools: str, expected: tuple[str, ...]
) -> None:
    assert agent(tools).tools == expected


@pytest.mark.parametrize(
    "tools",
    [
        "tools: []",
        "tools: ''",
        "tools: WebFetch, mcp__x",
        "tools: Bash(git:*)",
        "tools: Read\ndisallowedTools: '*'",
        "permission: deny",
    ],
)
def test_tools_that_come_to_nothing_are_an_error_of_this_agent(tools: str) -> None:
    found = reading(f"---\nname: a\ndescription: Helps.\n{tools}\n---\n")
    assert (found.agent, found.agent_id, found.notes[-1].verdict) == (None, "a", "problem")
    assert "grant nothing" in found.notes[-1].text


@pytest.mark.parametrize("name", ["explore", "Plan", "EXPLORE"])
def test_explore_and_plan_stay_read_only_whatever_a_file_says(name: str) -> None:
    found = agent(
        f"name: {name}\ntools: Read, Write, Edit, Bash, Task, TodoWrite\nreadonly:"
        " false\npermission: {bash: allow}"
    )
    assert (found.read_only, found.tools) == (True, ("Read", "TodoWrite"))
    assert "read-only" in notes(f"name: {name}\ntools: Read, Write")["tools"][1]


def test_the_list_of_allowed_sub_agents_is_kept() -> None:
    assert agent("tools: Read, Task").spawnable is None
    assert agent("tools: Read, Agent(Code Reviewer, explore), Task(plan)").spawnable == (
        "code-reviewer",
        "explore",
        "plan",
    )
    assert agent("tools: Read, Task()").spawnable == ()


@pytest.mark.parametrize(
    ("written", "expected", "meant"),
    [
        ("opus", "main", True),
        ("sonnet", "main", True),
        ("inherit", "main", True),
        ("haiku", "light", True),
        ("fast", "light", True),
        ("main", "main", True),
        ("light", "light", True),
        ("Haiku", "light", True),
        ("claude-3-5-haiku-20241022", "light", True),
        ("anthropic/claude-sonnet-4", "main", True),
        ("openai:gpt-5", "openai:gpt-5", True),
        ("gpt-5", "main", False),
        ("breakfast", "main", False),
    ],
)
def test_a_model_is_a_tier_or_named_in_full(written: str, expected: str, meant: bool) -> None:
    assert tier(written) == (expected, meant)
    assert agent(f"model: {written}").model == expected
    assert notes(f"model: {written}")["model"][0] == (
        "honored" if written == expected else "mapped"
    )


def test_limits_and_the_rest_are_honored() -> None:
    found = agent(
        "maxTurns: '20'\ntimeout_mins: 1.5\neffort: med\nmode: primary\nhidden: true\ncapabilities:"
        " [tasks, mail]\ncolor: blue\nmcpServers: {a: {b: c}}"
    )
    assert (found.max_turns, found.timeout_seconds, found.effort, found.mode, found.hidden) == (
        20,
        90.0,
        "medium",
        "primary",
        True,
    )
    assert found.capabilities == ("tasks",)
    assert found.extra == {"color": "blue", "mcpServers": {"a": {"b": "c"}}}
    assert [
        agent(f"{key}: 7").max_turns for key in ("steps", "maxSteps", "max_turns", "max-turns")
    ] == [7, 7, 7, 7]
    assert agent("timeout_seconds: 30\ntimeout_mins: 9").timeout_seconds == 30
    assert (agent("").mode, agent("", "opencode").mode) == ("subagent", "all")
    assert reading("---\nname: a\ndescription: b\ndisable: true\n---\n").disabled


@pytest.mark.parametrize(
    "head",
    [
        *(
            "maxTurns: 0",
            "maxTurns: many",
            "maxTurns: true",
            "timeout_mins: -1",
            "timeout_seconds: x",
            "effort: 3",
            "effort: huge",
            "mode: boss",
        ),
        *(
            "hidden: perhaps",
            "disable: 3",
            "capabilities: 7",
            "model: 7",
            "maxTurns: 1\nsteps: 2",
            "description2: x\nmodel: [a]",
        ),
    ],
)
def test_a_wrong_value_is_dropped_with_a_word_and_nothing_else_is(head: str) -> None:
    found = agent(f"{head}\ntools: Read")
    assert (found.tools, found.model, found.mode, found.effort, found.hidden) == (
        ("Read",),
        "main",
        "subagent",
        None,
        False,
    )
    assert "problem" in {verdict for verdict, _ in notes(head).values()}


def test_a_missing_description_is_a_problem_but_no_end() -> None:
    found = reading("---\nname: a\n---\nYou help.")
    assert found.agent is not None
    assert [note.verdict for note in found.notes] == ["honored", "problem", "mapped"]


def test_a_file_with_invalid_yaml_is_read_and_reported() -> None:
    found = reading("---\nname: a\ndescription: Use it. user: 'x'\ntools: Read\n---\nYou help.")
    assert found.agent is not None
    assert (found.agent.description, found.agent.tools) == ("Use it. user: 'x'", ("Read",))
    assert "is not strict YAML" in found.notes[0].text


def test_a_folder_with_agent_json_is_named_after_itself() -> None:
    text = json.dumps(
        {
            "name": "The Mailer",
            "description": "Mails.",
            "capabilities": ["tasks"],
            "systemPrompt": "You mail.",
            "tools": ["Read"],
        }
    )
    found = reading(text, "folder", "agents/mailer/agent.json").agent
    assert found is not None
    assert (found.id, found.prompt, found.capabilities, found.tools) == (
        "mailer",
        "You mail.",
        ("tasks",),
        ("Read",),
    )
    assert found.extra == {"name": "The Mailer"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', "[" * 100_000, '"x"', "\ufeff7"])
def test_a_broken_agent_json_is_refused(text: str) -> None:
    found = reading(text, "folder", "agents/mailer/agent.json")
    assert (found.agent, found.notes[-1].verdict) == (None, "problem")


@pytest.mark.parametrize("value", ["a\0b", "\ud800", 10**30, [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]])
def test_fields_that_no_store_can_hold_are_dropped(value: Any) -> None:
    found = reading(
        json.dumps({"description": "Mails.", "other": value}), "folder", "agents/mailer/agent.json"
    )
    assert found.agent is not None
    assert (found.agent.extra, found.notes[0].verdict) == ({}, "problem")


def test_tools_that_a_program_adds_can_be_granted_by_name() -> None:
    file = AgentFile(
        "remit", ".remit/agents/a.md", "---\ndescription: b\ntools: Read, look_up\n---\n"
    )
    found = read_agent(file, frozenset({*TOOLS, "look_up"})).agent
    assert found is not None
    assert found.tools == ("Read", "look_up")


KEYS = [
    "name",
    "description",
    "tools",
    "disallowedTools",
    "permission",
    "model",
    "maxTurns",
    "timeout_mins",
    "effort",
    "mode",
    "capabilities",
    "x",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*TOOLS, "allow", "deny", "*", "Task(a,b)"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from([*TOOLS, "*"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8))
def test_no_fields_break_the_reading_or_widen_a_read_only_agent(fields: dict[str, Any]) -> None:
    for name in ("explore", "helper"):
        found = reading(
            json.dumps(fields | {"id": name}), "folder", f"agents/{name}/agent.json"
        ).agent
        if found is not None:
            assert found.tools
            assert not (set(found.tools) & set(CHANGING) if name == "explore" else set())
            json.dumps(dict(found.extra), allow_nan=False).encode()


@given(st.text(max_size=200), st.sampled_from(["claude", "opencode", "remit", "folder"]))
def test_no_text_breaks_the_reading(text: str, origin: Origin) -> None:
    for whole in (text, f"---\nname: a\n{text}\n---\n{text}", f"---\n{text}"):
        found = reading(whole, origin, "agents/a/agent.json" if origin == "folder" else "a.md")
        assert found.agent is not None or found.notes[-1].verdict == "problem"
