"""Agent files are found by listing, stay within their folder, and cannot hang, flood or crash their
reader.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit import Remit
from remit.adapters import agent_files
from remit.adapters.agent_files import MAX_BYTES, read_agent_files, write_agent_file
from remit.app.agents.workspace_agents import load_agents
from remit.domain.agents.agent import AgentFile
from remit.errors import InvalidParam, NotFound

TEXT = "---\nname: a\ndescription: b\n---\nc\n"


def put(root: Path, path: str, content: str | bytes = TEXT) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def found(root: Path) -> dict[str, AgentFile]:
    return {file.path: file for file in read_agent_files(root)}


def test_files_are_found_where_people_have_them(tmp_path: Path) -> None:
    paths = [
        *(
            ".remit/agents/a.md",
            ".claude/agents/b.md",
            ".claude/agents/team/sub/c.md",
            ".opencode/agent/d.md",
            ".opencode/agents/e.md",
        ),
        *("agents/f/agent.json", ".claude/agents/.hidden.MD"),
    ]
    others = [
        *(
            ".remit/agents/README.md",
            ".remit/agents/below/x.md",
            ".claude/agents/readme.md",
            ".claude/agents/notes.txt",
            ".claude/x.md",
        ),
        *(
            "agents/agent.json",
            "agents/f/other.json",
            "agents/f/g/agent.json",
            "agents/x.md",
            "agents/__init__.py",
        ),
    ]
    for path in (*paths, *others):
        put(tmp_path, path)
    assert set(found(tmp_path)) == set(paths)
    assert {file.text for file in found(tmp_path).values()} == {TEXT}


def test_a_definition_in_another_format_is_reported(tmp_path: Path) -> None:
    for place in (".remit/agents", ".claude/agents"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "bee.toml").write_text('name = "bee"')
        (tmp_path / place / "notes.txt").write_text("Nothing.")
    (found,) = read_agent_files(tmp_path)
    assert (found.path, found.text) == (".remit/agents/bee.toml", "")
    assert found.problem.startswith("is not read: agents here are Markdown files")


def test_no_folders_no_files(tmp_path: Path) -> None:
    assert read_agent_files(tmp_path) == []
    (tmp_path / "agents").write_text("a file")
    (tmp_path / ".claude").write_text("a file")
    assert read_agent_files(tmp_path) == []


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    root = tmp_path / "work"
    secret = put(tmp_path, "outside/secret.md", "---\nname: s\n---\nsecret")
    put(root, ".claude/agents/real.md")
    agents = root / ".claude" / "agents"
    (agents / "inside.md").symlink_to("real.md")
    (agents / "out.md").symlink_to(secret)
    (agents / "up.md").symlink_to("../../../outside/secret.md")
    (agents / "loop.md").symlink_to("loop.md")
    (agents / "gone.md").symlink_to("gone-too.md")
    (agents / "folder").symlink_to(tmp_path / "outside")
    (agents / "through.md").symlink_to("folder/secret.md")
    files = found(root)
    assert files[".claude/agents/inside.md"].text == TEXT
    bad = {path: file for path, file in files.items() if file.problem}
    assert set(bad) == {
        f".claude/agents/{name}.md" for name in ("out", "up", "loop", "gone", "through")
    }
    assert not any("secret" in file.text for file in files.values())


@pytest.mark.parametrize("link", [".claude", ".claude/agents"])
def test_a_folder_that_is_a_link_is_reported_and_not_entered(tmp_path: Path, link: str) -> None:
    put(tmp_path, "outside/agents/a.md")
    root = tmp_path / "work"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(tmp_path / "outside" / ("" if link == ".claude" else "agents"))
    (file,) = read_agent_files(root)
    assert (file.path, file.text, "link" in file.problem) == (".claude/agents", "", True)


def test_a_file_that_is_not_text_is_refused_with_a_reason(tmp_path: Path) -> None:
    put(tmp_path, ".claude/agents/good.md")
    put(tmp_path, ".claude/agents/binary.md", b"\x7fELF\0\0")
    put(tmp_path, ".claude/agents/latin.md", b"---\nname: \xff\n---\n")
    put(tmp_path, ".claude/agents/utf16.md", TEXT.encode("utf-16"))
    put(tmp_path, ".claude/agents/large.md", TEXT + "x" * MAX_BYTES)
    agents = tmp_path / ".claude" / "agents"
    os.mkfifo(agents / "pipe.md")
    (agents / "folder.md").mkdir()
    files = found(tmp_path)
    assert {path for path, file in files.items() if not file.problem} == {".claude/agents/good.md"}
    assert {path.rpartition("/")[2] for path, file in files.items() if file.problem} == {
        "binary.md",
        "latin.md",
        "utf16.md",
        "large.md",
        "pipe.md",
    }


def test_a_name_that_is_not_text_can_be_shown(tmp_path: Path) -> None:
    put(tmp_path, ".claude/agents/a.md")
    try:
        (tmp_path / ".claude" / "agents" / os.fsdecode(b"\xff.md")).write_text(TEXT)
    except OSError:
        pytest.skip("this file system takes no such name")
    assert all(file.path.encode() for file in read_agent_files(tmp_path))


def test_there_is_an_end_to_how_many_and_how_deep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_files, "MAX_FILES", 3)
    for number in range(9):
        put(tmp_path, f".claude/agents/{number}.md")
    put(tmp_path, ".claude/agents/zz/10.md")
    files = read_agent_files(tmp_path)
    assert [bool(file.problem) for file in files] == [False, False, False, True]
    put(tmp_path, f".opencode/agent/{'d/' * 20}deep.md")
    assert len(read_agent_files(tmp_path)) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read_stops_no_other(tmp_path: Path) -> None:
    put(tmp_path, ".claude/agents/a.md").chmod(0)
    put(tmp_path, ".claude/agents/b.md")
    assert ["cannot be read" in file.problem for file in read_agent_files(tmp_path)] == [
        True,
        False,
    ]


def test_a_new_file_is_never_written_over_or_through_a_link(tmp_path: Path) -> None:
    assert write_agent_file(tmp_path, "a", TEXT) == ".remit/agents/a.md"
    with pytest.raises(FileExistsError):
        write_agent_file(tmp_path, "a", "other")
    (tmp_path / ".remit" / "agents" / "b.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_agent_file(tmp_path, "b", TEXT)
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / ".remit" / "agents" / "a.md").read_text() == TEXT


def test_reading_leaves_nothing_open(tmp_path: Path) -> None:
    for path in (".claude/agents/x/a.md", "agents/b/agent.json", ".remit/agents/c.md"):
        put(tmp_path, path)
    (tmp_path / ".claude" / "agents" / "l.md").symlink_to("x/a.md")
    before = opened()
    for _ in range(5):
        assert len(read_agent_files(tmp_path)) == 4
    assert opened() == before


def opened() -> int:
    """How many files this process has open, where the system tells."""
    return len([*Path("/proc/self/fd").iterdir()]) if Path("/proc/self/fd").exists() else 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=300)
    | st.binary(max_size=200).map(lambda inner: b"---\nname: a\n" + inner + b"\n---\n" + inner)
)
def test_no_bytes_in_a_file_raise_anything(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, ".claude/agents/a.md", content)
    put(tmp_path, "agents/a/agent.json", content)
    roster = load_agents(read_agent_files(tmp_path), {})
    assert {"build", "explore", "general", "plan", "summary"} <= {
        agent.id for agent in roster.agents
    } | {"a"}
    assert len(roster.files) == 2


async def test_no_name_that_a_caller_sends_becomes_a_path(tmp_path: Path) -> None:
    """Agents are looked up among those that were found before.

    Whatever else is asked for is refused, and no file is tried.
    """
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "mine.md").write_text(
        "---\ndescription: Mine.\n---\nYou help.\n"
    )
    (tmp_path / "canary-secret.md").write_text(
        "---\nname: canary-secret\ndescription: Not an agent.\n---\n"
    )
    away = str(tmp_path / "canary-secret")
    names = [
        "../../canary-secret",
        "canary-secret",
        "canary-secret.md",
        away,
        "mine/../../../canary-secret",
        "canary\x00secret",
    ]
    opened: list[str] = []
    async with Remit.open(tmp_path, worker=False) as remit:
        with listening(opened):
            for name in names:
                for operation, fields in (
                    ("task", {"objective": "x", "subagent_type": name, "wait": False}),
                    ("create_task", {"title": "x", "owner": name}),
                    ("get_agent", {"agent_id": name}),
                ):
                    with pytest.raises((InvalidParam, NotFound)):
                        await remit.call(operation, **fields)
            with pytest.raises(
                InvalidParam, match="Available: build, explore, general, mine, plan, summary"
            ):
                await remit.task("x", subagent_type="canary-secret")
            (tmp_path / "canary-control").write_text("x")
        assert [path for path in opened if "canary" in path] == [
            str(tmp_path / "canary-control")
        ], "and it would have been noticed"
        assert (await remit.list_tasks()).tasks == ()


_EARS: list[list[str]] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if _EARS and event in ("open", "os.listdir", "os.scandir"):
        _EARS[-1].append(str(arguments[0]))


sys.addaudithook(_heard)


@contextmanager
def listening(opened: list[str]) -> Iterator[None]:
    """Every path that is opened meanwhile."""
    _EARS.append(opened)
    try:
        yield
    finally:
        _EARS.pop()
