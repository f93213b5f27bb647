"""Agents from files: the same on every surface, checked and made on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from remit import Remit, config
from remit.bootstrap import open_core
from remit.bootstrap.agent_loading import open_agents
from remit.bootstrap.local_host import WorkspaceHost
from remit.catalog import OPERATIONS, Caller, lean_answer
from remit.domain.agents.agent import READING
from remit.errors import Conflict, InvalidParam, NotFound
from remit.surfaces.cli.main import main
from remit.surfaces.mcp.server import mcp_server
from tests.surfaces.http import house

CLAUDE = """\
---
name: Code Reviewer
description: Use it after a change. user: "Look at this" assistant: "I will"
tools: Read, Grep, WebFetch, Agent(explore)
model: haiku
color: red
mcpServers: {tracker: {env: {KEY: s3cret}}}
---
You review.
"""
OPENCODE = """\
---
description: Writes documents
mode: all
permission:
  edit: allow
  bash: ask
temperature: 0.1
---
You write.
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    config.make_workspace(root)
    files = {
        ".claude/agents/review.md": CLAUDE,
        ".opencode/agent/writer.md": OPENCODE,
        "agents/mailer/agent.json": '{"description": "Mails.", "capabilities": ["tasks"]}',
        ".remit/agents/broken.md": "---\nname: broken\ndescription: x\ntools: []\n---\n",
        ".claude/agents/writer.md": "---\nname: writer\ndescription: Theirs.\n---\n",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / ".remit" / "config.toml").write_text(
        '[agents.general]\ntools = ["Read", "Edit"]\nmodel = "light"\n[agents.summary]\ndisabled ='
        " true\n"
    )
    return root


Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["--workspace", str(folder), *argv], WorkspaceHost)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def json_of(said: tuple[int, str, str]) -> Any:
    import json

    return json.loads(said[1])


async def test_every_surface_knows_the_same_agents(folder: Path) -> None:
    settings = config.load(folder)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("list_agents", {}),
        ("get_agent", {"agent_id": "code-reviewer"}),
        ("get_agent", {"agent_id": "general"}),
    ]
    async with Remit.open(folder) as remit:
        expected = [await remit.call(name, **sent) for name, sent in asked]
    async with (
        open_core("memory:", open_agents(settings)) as core,
        Client(mcp_server(core, Caller(actor="user:ann"), "1")) as client,
    ):
        assert [
            (await client.call_tool(name, sent)).structured_content for name, sent in asked
        ] == [
            lean_answer(OPERATIONS[name], sent, answer)
            for (name, sent), answer in zip(asked, expected, strict=True)
        ]
    async with house(agents=open_agents(settings)) as at:
        paths = ("/api/agents", "/api/agents/code-reviewer", "/api/agents/general")
        assert [(await at.ask("GET", path)).json for path in paths] == expected


def test_the_command_line_knows_them_too(typed: Typed) -> None:
    listed = json_of(typed("agents", "list", "--json"))["agents"]
    assert [item["id"] for item in listed] == [
        "build",
        "code-reviewer",
        "explore",
        "general",
        "mailer",
        "plan",
        "writer",
    ]
    assert not any("prompt" in item or "extra" in item for item in listed)
    code, out, _ = typed("agents", "list")
    assert code == 0
    assert out.splitlines()[0].split()[:5] == ["ID", "MODE", "MODEL", "TOOLS", "SOURCE"]
    assert any(
        row.split()[:3] == ["code-reviewer", "subagent", "light"]
        and ".claude/agents/review.md" in row
        for row in out.splitlines()
    )
    assert json_of(typed("task", "list", "--json"))["agents"] == [item["id"] for item in listed]


def test_an_agent_is_shown_whole_but_for_what_may_be_secret(typed: Typed) -> None:
    shown = json_of(typed("agents", "show", "Code Reviewer", "--json"))
    assert shown == {
        "id": "code-reviewer",
        "description": 'Use it after a change. user: "Look at this" assistant: "I will"',
        "mode": "subagent",
        "model": "light",
        "tools": ["Read", "Grep", "Task"],
        "disallowed_tools": [],
        "spawnable": ["explore"],
        "capabilities": [],
        "read_only": False,
        "hidden": False,
        "max_turns": None,
        "timeout_seconds": None,
        "effort": None,
        "source": ".claude/agents/review.md",
        "prompt": "You review.",
        "extra": {"color": "red", "mcpServers": "(kept)"},
    }
    page = typed("agents", "show", "codereviewer")[1]
    assert "delegates to explore" in page
    assert page.endswith("Role\n  You review.\n")
    assert json_of(typed("agents", "show", "general", "--json"))["tools"] == ["Read", "Edit"]
    assert json_of(typed("agents", "show", "mailer", "--json"))["tools"] == list(READING)


def test_files_are_checked_field_by_field(typed: Typed, folder: Path) -> None:
    code, out, err = typed("agents", "check")
    assert (code, err) == (1, "7 agents, 1 problem.\n")
    for line in (
        ".claude/agents/review.md: code-reviewer, used",
        "  mapped   name to the id code-reviewer",
        "  mapped   model to light",
        "  ignored  tools unknown tool WebFetch",
        "  ignored  color is not used by remit; it is kept",
        "  honored  permission.edit allow Write, Edit, MultiEdit",
        ".opencode/agent/writer.md: writer, shadowed by .claude/agents/writer.md",
        ".remit/agents/broken.md: broken, refused",
        "  honored  [agents.general] model light",
    ):
        assert line in out.splitlines()
    assert "problem  tools grant nothing" in out
    found = json_of(typed("agents", "check", "--json"))
    assert found["problems"] == 1
    assert {file["path"]: file["status"] for file in found["files"]}[
        ".remit/agents/broken.md"
    ] == "refused"
    (folder / ".remit" / "agents" / "broken.md").unlink()
    assert typed("agents", "check")[0] == 0


def test_a_new_agent_is_written_once_and_is_sound(typed: Typed, folder: Path) -> None:
    (folder / ".remit" / "agents" / "broken.md").unlink()
    description = 'Says "hi": a # b \\ é'
    code, out, err = typed(
        "agents",
        "new",
        "My Helper",
        "--description",
        description,
        "--tools",
        "Read,Edit",
        "--model",
        "openai:gpt-5",
    )
    assert (code, out) == (0, f"Wrote {folder}/.remit/agents/my-helper.md\n")
    assert f"remit --workspace {folder} agents check" in err
    made = json_of(typed("agents", "show", "my-helper", "--json"))
    assert (made["description"], made["tools"], made["model"]) == (
        description,
        ["Read", "Edit"],
        "openai:gpt-5",
    )
    assert typed("agents", "new", "plain")[0] == 0
    assert json_of(typed("agents", "show", "plain", "--json"))["tools"] == list(READING)
    assert typed("agents", "check")[0] == 0
    again = typed("agents", "new", "my_helper")
    assert (again[0], "already" in again[2]) == (4, True)
    replaced = json_of(typed("agents", "new", "general", "--json"))
    assert replaced == {
        "agent_id": "general",
        "path": f"{folder}/.remit/agents/general.md",
        "replaces": "built in",
    }


@pytest.mark.parametrize(
    "argv",
    [
        ("../x",),
        ("x", "--tools", "Nope"),
        ("x", "--tools", "Bash(git:*)"),
        ("x", "--model", "gpt-5"),
        ("",),
    ],
)
def test_a_new_agent_that_could_not_work_is_not_written(
    typed: Typed, folder: Path, argv: tuple[str, ...]
) -> None:
    code, _, err = typed("agents", "new", *argv)
    assert (code, err.startswith("error: ")) == (2, True)
    assert not (folder / ".remit" / "agents" / "x.md").exists()


def test_without_a_workspace_there_is_nothing_to_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    host = WorkspaceHost({})
    with pytest.raises(NotFound, match="remit init"):
        host.new_agent({"agent_id": "x"})
    assert host.check_agents() == {
        "files": [],
        "settings": [],
        "agents": ["build", "explore", "general", "plan", "summary"],
        "problems": 0,
    }


def test_owners_are_matched_by_their_letters_and_never_guessed(folder: Path) -> None:
    host = WorkspaceHost({"workspace": str(folder)})
    task = host.call("create_task", {"title": "Review", "owner": "CodeReviewer"})["task"]
    assert task["owner"] == "code-reviewer"
    for name in ("code-reviewer", "Code Reviewer", "codereviewer", "CODE_REVIEWER"):
        assert [item["id"] for item in host.call("list_tasks", {"owner": name})["tasks"]] == ["1"]
    assert (
        host.call("update_task", {"task_id": "1", "owner": "Code Reviewer"})["task"]["version"]
        == task["version"]
    )
    assert (
        host.call("update_task", {"task_id": "1", "owner": "WRITER"})["task"]["owner"] == "writer"
    )
    with pytest.raises(InvalidParam, match="code-reviewer, explore, general, mailer"):
        host.call("create_task", {"title": "x", "owner": "summary"})
    with pytest.raises(InvalidParam, match="agent id"):
        host.call("list_tasks", {"owner": "../x"})
    with pytest.raises(Conflict):
        host.new_agent({"agent_id": "broken"})
