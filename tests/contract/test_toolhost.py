"""The results of every tool, and its errors."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import config
from remit.adapters.tools import WorkspaceTools
from remit.bootstrap.runner_selection import open_equipment
from remit.bootstrap.workspace import open_workspace
from remit.domain.agents.tools import MAX_OUTPUT, ToolCallRequest
from remit.domain.outputs.required_outputs import FileQuery
from remit.ports import ToolHost
from tests.patience import patient
from tests.toolbox import ALL, BOXES, RG, Toolbox

READING = {"LS", "Glob", "Grep", "Read"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "main.py").write_text("import os\n\ndef main():\n    print('hello')\n")
    (root / "src" / "deep" / "util.py").write_text("def helper():\n    return 'Hello'\n")
    (root / "README.md").write_text("# Title\n\nhello there\n")
    (root / ".remit").mkdir()
    (root / ".remit" / "notes.py").write_text("hello from remit\n")
    (root / ".git").mkdir()
    (root / ".git" / "HEAD.py").write_text("hello from git\n")
    return root


@pytest.fixture
async def call(workspace: Path) -> AsyncIterator[Toolbox]:
    toolbox = Toolbox(workspace)
    yield toolbox
    await toolbox.host.close()


@pytest.fixture(params=["without", *(["with"] if RG else [])])
async def searching(request: pytest.FixtureRequest, workspace: Path) -> AsyncIterator[Toolbox]:
    """Tools with and without ripgrep."""
    toolbox = Toolbox(workspace, box=BOXES[-1], rg=RG if request.param == "with" else None)
    yield toolbox
    await toolbox.host.close()


async def test_the_host_plays_its_role(workspace: Path) -> None:
    host: ToolHost = WorkspaceTools(workspace)
    specs = {spec.name: spec for spec in host.specs()}
    assert set(specs) == ALL
    assert {name for name, spec in specs.items() if not spec.effects} == READING
    assert {name for name, spec in specs.items() if spec.repeatable} == READING | {"Write"}
    assert all(spec.description and json.dumps(spec.parameters) for spec in specs.values())
    await host.close()


PARAMETERS = {
    "LS": "path?",
    "Glob": "pattern path?",
    "Grep": "pattern path? glob? type? output_mode? -i? -n? -A? -B? -C? multiline? head_limit?",
    "Read": "file_path offset? limit?",
    "Write": "file_path content",
    "Edit": "file_path old_string new_string replace_all?",
    "MultiEdit": "file_path edits",
    "Bash": "command timeout? description?",
}


def test_parameters_are_those_that_users_of_others_know(workspace: Path) -> None:
    shown: dict[str, str] = {}
    for spec in WorkspaceTools(workspace).specs():
        needed = spec.parameters.get("required", [])
        shown[spec.name] = " ".join(
            name if name in needed else f"{name}?" for name in spec.parameters["properties"]
        )
    assert shown == PARAMETERS


@pytest.mark.parametrize("tool", sorted(ALL))
async def test_a_tool_that_is_not_granted_is_refused(call: Toolbox, tool: str) -> None:
    said = await call(tool, granted=ALL - {tool})
    assert said.is_error
    assert f"'{tool}' is not a tool that this task may use" in said.text
    assert "It may use: none" in (await call(tool, granted=frozenset())).text


async def test_a_refusal_names_everything_that_can_be_called(workspace: Path) -> None:
    host = WorkspaceTools(workspace)
    try:
        request = ToolCallRequest(
            "cancel_task",
            {},
            frozenset({"LS", "Read"}),
            patient(10),
            asyncio.Event(),
            ("update_steps", "ask_user"),
        )
        said = await host.call(request)
    finally:
        await host.close()
    assert (
        said.text
        == "'cancel_task' is not a tool that this task may use. It may use: LS, Read, update_steps,"
        " ask_user."
    )


@pytest.mark.parametrize("tool", ["Nothing", "read", "", "__class__", "call", "Task"])
async def test_a_grant_does_not_create_an_unknown_tool(call: Toolbox, tool: str) -> None:
    assert "is not a tool" in (await call(tool, granted=ALL | {tool})).text


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("Read", {}, "file_path: is missing"),
        ("Read", {"file_path": 7}, "file_path: is a number; expected text"),
        ("Read", {"file_path": "README.md", "offset": 0}, "offset: is 0; expected 1 to"),
        (
            "Read",
            {"file_path": "README.md", "ofset": 1},
            "ofset: is not a field of Read. Did you mean offset?",
        ),
        ("Read", {"file_path": "a\0b"}, "file_path: contains a NUL"),
        ("Read", {"file_path": "\ud800"}, "file_path: contains a lone surrogate"),
        ("Grep", {"pattern": "x", "-A": "3"}, "-A: is '3'; expected a whole number"),
        (
            "Grep",
            {"pattern": "x", "output_mode": "all"},
            "output_mode: is 'all'; expected one of content",
        ),
        ("Glob", {"pattern": "[a"}, "pattern: has a [ that is not closed"),
        ("Glob", {"pattern": "{a,b"}, "pattern: has a { that is not closed"),
        (
            "Glob",
            {"pattern": "*", "path": "README.md"},
            "path: 'README.md' is a file; expected a folder",
        ),
        ("Grep", {"pattern": "x", "glob": "{a"}, "glob: has a { that is not closed"),
        (
            "Write",
            {"file_path": "a", "content": "x" * 1_000_001},
            "content: is larger than 1,000,000 bytes",
        ),
        ("LS", {"path": "missing"}, "path: 'missing' does not exist"),
        ("MultiEdit", {"file_path": "README.md", "edits": []}, "edits: is empty"),
        (
            "Bash",
            {"command": "true", "timeout": 10**9},
            "timeout: is 1000000000; expected 1 to 600,000",
        ),
    ],
)
async def test_a_bad_argument_is_named_with_what_would_be_right(
    call: Toolbox, tool: str, arguments: dict[str, Any], said: str
) -> None:
    outcome = await call.host.call(ToolCallRequest(tool, arguments, ALL, 10, call.cancel))
    assert outcome.is_error
    assert said in outcome.text


async def test_ls_shows_folders_first_and_says_what_is_what(call: Toolbox) -> None:
    (call.workspace / "link").symlink_to("src")
    os.mkfifo(call.workspace / "pipe")
    assert (await call.said("LS", path=".")).split("\n") == [
        ".git/",
        "src/",
        "README.md",
        "link -> src",
        "pipe (device, pipe or socket)",
    ]
    assert await call.said("LS", path=str(call.workspace / "src")) == "deep/\nmain.py"
    assert await call.said("LS") == await call.said("LS", path=".")
    (call.workspace / "void").mkdir()
    assert await call.said("LS", path="void") == "(The folder is empty.)"


async def test_ls_says_when_there_is_too_much(call: Toolbox) -> None:
    (call.workspace / "many").mkdir()
    for number in range(400):
        (call.workspace / "many" / f"{number:0100}").touch()
    outcome = await call("LS", path="many")
    assert (
        outcome.cut,
        len(outcome.text) < MAX_OUTPUT + 500,
        "Use Glob with a pattern to see fewer." in outcome.text,
    ) == (True, True, True)


async def test_no_name_can_forge_a_line(searching: Toolbox) -> None:
    call = searching
    hostile = os.fsdecode(b"a\nb\x1b[2J\xff.txt")
    (call.workspace / "names").mkdir()
    (call.workspace / "names" / hostile).write_text("needle")
    for tool, arguments in (
        ("LS", {"path": "names"}),
        ("Glob", {"pattern": "names/*"}),
        ("Grep", {"pattern": "needle"}),
    ):
        line = (await call.said(tool, **arguments)).split("\n")[0]
        assert line.removeprefix("names/") == r"a\nb\x1b[2J\xff.txt"


async def test_glob_finds_files_newest_first(call: Toolbox) -> None:
    os.utime(call.workspace / "src" / "main.py", (1, 1))
    assert await call.said("Glob", pattern="**/*.py") == "src/deep/util.py\nsrc/main.py"
    assert await call.said("Glob", pattern="*.py") == "src/deep/util.py\nsrc/main.py"
    assert await call.said("Glob", pattern="src/*.py") == "src/main.py"
    assert await call.said("Glob", pattern="*.py", path="src/deep") == "src/deep/util.py"
    assert await call.said("Glob", pattern="*.{md,rst}", path=str(call.workspace)) == "README.md"
    assert await call.said("Glob", pattern="*.rs") == "No file matches '*.rs'."


async def test_glob_says_when_there_are_more(call: Toolbox) -> None:
    (call.workspace / "many").mkdir()
    for number in range(1100):
        (call.workspace / "many" / f"{number}").touch()
    outcome = await call("Glob", pattern="many/*")
    assert outcome.cut
    assert "[The newest 1,000 of 1,100 files. Use a narrower pattern" in outcome.text


async def test_grep_finds_files_lines_and_counts(searching: Toolbox) -> None:
    async def found(**arguments: Any) -> list[str]:
        return (await searching.said("Grep", **arguments)).split("\n")

    assert await found(pattern="hello") == ["README.md", "src/main.py"]
    assert await found(pattern="hello", **{"-i": True}) == [
        "README.md",
        "src/deep/util.py",
        "src/main.py",
    ]
    assert await found(pattern="hello", path="src") == ["src/main.py"]
    assert await found(pattern="hello", path="src/main.py", output_mode="content") == [
        "src/main.py:4:    print('hello')"
    ]
    assert await found(pattern="hello", output_mode="content", **{"-n": False}) == [
        "README.md:hello there",
        "src/main.py:    print('hello')",
    ]
    assert await found(pattern="e", path="src/deep", output_mode="count") == ["src/deep/util.py:2"]
    assert await found(pattern="hello", glob="*.py", **{"-i": True}) == [
        "src/deep/util.py",
        "src/main.py",
    ]
    assert await found(pattern="hello", glob="!*.py", **{"-i": True}) == ["README.md"]
    assert await found(pattern="hello", glob="src/*.py", **{"-i": True}) == ["src/main.py"]
    assert await found(pattern="nowhere at all") == ["Nothing matches 'nowhere at all'."]
    assert await found(pattern="-e") == ["Nothing matches '-e'."]
    assert await found(pattern="main", output_mode="content", **{"-B": 1}) == [
        "src/main.py:2-",
        "src/main.py:3:def main():",
    ]
    assert await found(pattern="main", output_mode="content", **{"-A": 1}) == [
        "src/main.py:3:def main():",
        "src/main.py:4-    print('hello')",
    ]
    assert len(await found(pattern="main", output_mode="content", **{"-C": 1})) == 3


async def test_grep_gives_the_first_lines_and_says_that_there_are_more(searching: Toolbox) -> None:
    (searching.workspace / "long.txt").write_text("needle\n" * 5000)
    outcome = await searching("Grep", pattern="needle", output_mode="content", head_limit=3)
    assert outcome.cut
    assert outcome.text.startswith(
        "long.txt:1:needle\nlong.txt:2:needle\nlong.txt:3:needle\n[The first 3 lines; there are"
        " more."
    )
    outcome = await searching("Grep", pattern="needle", output_mode="content")
    assert outcome.cut
    assert "characters left out. Use a narrower pattern" in outcome.text
    assert len(outcome.text) < MAX_OUTPUT + 500


async def test_grep_skips_remit_files_and_binary_files(searching: Toolbox) -> None:
    (searching.workspace / "data.bin").write_bytes(b"\0\0hello\n")
    (searching.workspace / "out").symlink_to("/etc")
    for glob in ("*", "**/*.py", ".remit/**", "!nothing"):
        text = await searching.said("Grep", pattern="hello", glob=glob)
        assert "remit/" not in text
        assert ".git/" not in text
        assert "HEAD" not in text
    assert "is reserved for remit" in await searching.refused(
        "Grep", pattern="hello", path=".remit/notes.py"
    )
    assert "outside the workspace" in await searching.refused(
        "Grep", pattern="root", path="out/passwd"
    )


async def test_read_numbers_lines(call: Toolbox) -> None:
    assert (
        await call.said("Read", file_path="README.md")
        == "     1\t# Title\n     2\t\n     3\thello there"
    )
    path = str(call.workspace / "README.md")
    middle = await call("Read", file_path=path, offset=2, limit=1)
    on = f'Read(file_path="{path}", offset=3, limit=1)'
    assert (middle.text, middle.cut) == (f"     2\t\n[Lines 2 to 2 of 3. Next: {on}]", True)
    assert "offset: is 4; expected at most 3" in await call.refused(
        "Read", file_path="README.md", offset=4
    )
    (call.workspace / "void").touch()
    assert await call.said("Read", file_path="void") == "(The file is empty.)"


async def test_read_says_where_to_go_on_and_everything_can_be_read(call: Toolbox) -> None:
    lines = [f"line {number} {'x' * (number % 90)}" for number in range(3000)]
    (call.workspace / "long").write_text("\n".join(lines))
    offset, seen = 1, []
    while True:
        outcome = await call("Read", file_path="long", offset=offset)
        assert len(outcome.text) <= MAX_OUTPUT + 200
        got = [line for line in outcome.text.split("\n") if not line.startswith("[")]
        seen += [line.partition("\t")[2] for line in got]
        if not outcome.cut:
            break
        offset = int(outcome.text.rpartition("offset=")[2].rstrip(")]"))
    assert seen == lines


async def test_read_cuts_long_lines_and_refuses_what_is_not_text(call: Toolbox) -> None:
    (call.workspace / "long").write_text("x" * 100_000)
    outcome = await call("Read", file_path="long")
    assert outcome.cut
    assert len(outcome.text) < 2200
    (call.workspace / "program").write_bytes(b"\x7fELF\0\0")
    assert "is a binary file of 6 bytes; expected a text file" in await call.refused(
        "Read", file_path="program"
    )
    (call.workspace / "latin").write_bytes(b"caf\xe9")
    assert await call.said("Read", file_path="latin") == "     1\tcaf\ufffd"


async def test_write_creates_and_replaces(call: Toolbox) -> None:
    assert (
        await call.said("Write", file_path="new/er/file.txt", content="é\n")
        == "Created new/er/file.txt (3 bytes)."
    )
    assert (
        await call.said("Write", file_path=str(call.workspace / "new/er/file.txt"), content="")
        == f"Replaced {call.workspace}/new/er/file.txt (0 bytes)."
    )
    assert (call.workspace / "new" / "er" / "file.txt").read_bytes() == b""
    assert "outside the workspace" in await call.refused("Write", file_path="../x", content="")
    assert "goes through a file" in await call.refused("Write", file_path="README.md/x", content="")


async def test_edit_replaces_what_occurs_once(call: Toolbox) -> None:
    readme = call.workspace / "README.md"
    assert (
        await call.said("Edit", file_path="README.md", old_string="Title", new_string="Name")
        == "Replaced 1 text in README.md."
    )
    assert readme.read_text() == "# Name\n\nhello there\n"
    assert "old_string: occurs 4 times" in await call.refused(
        "Edit", file_path="README.md", old_string="e", new_string="E"
    )
    assert (
        await call.said(
            "Edit", file_path="README.md", old_string="e", new_string="E", replace_all=True
        )
        == "Replaced 4 texts in README.md."
    )
    assert readme.read_text() == "# NamE\n\nhEllo thErE\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nowhere", "x", "old_string: does not occur"),
        ("", "x", "old_string: is empty"),
        ("Title", "Title", "new_string: is the same as old_string"),
    ],
)
async def test_an_edit_that_makes_no_sense_changes_nothing(
    call: Toolbox, old: str, new: str, said: str
) -> None:
    assert said in await call.refused("Edit", file_path="README.md", old_string=old, new_string=new)
    assert (call.workspace / "README.md").read_text() == "# Title\n\nhello there\n"


async def test_edit_keeps_the_line_ends_of_a_file(call: Toolbox) -> None:
    (call.workspace / "dos.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await call.said("Edit", file_path="dos.txt", old_string="one\ntwo", new_string="1\n2")
    assert (call.workspace / "dos.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_edit_refuses_what_it_would_damage(call: Toolbox) -> None:
    (call.workspace / "latin").write_bytes(b"caf\xe9")
    assert "is not UTF-8" in await call.refused(
        "Edit", file_path="latin", old_string="caf", new_string="x"
    )
    (call.workspace / "binary").write_bytes(b"caf\0")
    assert "is a binary file" in await call.refused(
        "Edit", file_path="binary", old_string="caf", new_string="x"
    )
    assert "does not exist" in await call.refused(
        "Edit", file_path="missing", old_string="caf", new_string="x"
    )


async def test_multi_edit_is_all_or_nothing(call: Toolbox) -> None:
    edits = [
        {"old_string": "Title", "new_string": "Name"},
        {"old_string": "Name", "new_string": "Word"},
    ]
    broken = [*edits, {"old_string": "nowhere", "new_string": "x"}]
    assert "edits[2].old_string: does not occur" in await call.refused(
        "MultiEdit", file_path="README.md", edits=broken
    )
    assert (call.workspace / "README.md").read_text().startswith("# Title")
    assert (
        await call.said("MultiEdit", file_path="README.md", edits=edits)
        == "Replaced 2 texts in README.md."
    )
    assert (call.workspace / "README.md").read_text().startswith("# Word")


async def test_bash_without_a_sandbox_is_refused_with_what_to_do(call: Toolbox) -> None:
    said = await call.refused("Bash", command="touch done")
    assert "no sandbox" in said
    assert "install bubblewrap" in said
    assert not (call.workspace / "done").exists()


@pytest.mark.parametrize("allowed", [None, "false", "true"])
async def test_only_the_operator_lets_commands_run_without_a_sandbox(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, allowed: str | None
) -> None:
    """As workers get their tools, on a machine where nothing is installed."""
    monkeypatch.setenv("PATH", "")
    if allowed is not None:
        monkeypatch.setenv("REMIT_ALLOW_UNSANDBOXED", allowed)
    settings = config.load(workspace, {"database_url": "memory:"})
    async with (
        open_workspace(settings) as core,
        open_equipment(core.folder, settings) as (_, tools),
    ):
        host = tools()
        outcome = await host.call(
            ToolCallRequest("Bash", {"command": "echo x >done"}, ALL, 10, asyncio.Event())
        )
        await host.close()
    assert (outcome.is_error, (workspace / "done").exists()) == (
        (False, True) if allowed == "true" else (True, False)
    )
    assert (
        allowed == "true"
        or "or to allow commands without a sandbox in the settings" in outcome.text
    )


async def test_a_workspace_does_not_let_its_own_commands_run_without_a_sandbox(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMIT_ALLOW_UNSANDBOXED", raising=False)
    (workspace / ".remit" / "config.toml").write_text("allow_unsandboxed = true\n")
    assert not config.load(workspace, {}).get("allow_unsandboxed")


async def test_a_broken_sandbox_counts_as_none(workspace: Path) -> None:
    """An installed program that fails must not mean that the command runs without it."""
    host = WorkspaceTools(workspace, bwrap="/bin/false", find_programs=False)
    outcome = await host.call(
        ToolCallRequest("Bash", {"command": "touch done"}, ALL, 10, asyncio.Event())
    )
    assert outcome.is_error
    assert "bubblewrap does not work" in outcome.text
    assert not (workspace / "done").exists()
    assert "bubblewrap does not work" in await host.refusal(ALL)
    assert await host.refusal(ALL - {"Bash"}) == ""
    await host.close()


async def test_a_sandbox_probe_that_times_out_refuses_only_the_command(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may be busy: commands are refused then, but the task can go on."""
    monkeypatch.setattr("remit.adapters.tools.shell.bash.PROBE_SECONDS", 0.01)
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    host = WorkspaceTools(workspace, bwrap=str(slow), find_programs=False)
    assert await host.refusal(ALL) == ""
    outcome = await host.call(
        ToolCallRequest("Bash", {"command": "touch done"}, ALL, 10, asyncio.Event())
    )
    assert (outcome.is_error, (workspace / "done").exists()) == (True, False)
    await host.close()


@pytest.mark.parametrize("tool", sorted(ALL))
async def test_a_canceled_call_does_nothing(call: Toolbox, tool: str) -> None:
    call.cancel.set()
    arguments: dict[str, dict[str, Any]] = {
        "LS": {"path": "."},
        "Glob": {"pattern": "*"},
        "Grep": {"pattern": "x"},
        "Read": {"file_path": "README.md"},
        "Write": {"file_path": "done", "content": ""},
        "Edit": {"file_path": "README.md", "old_string": "Title", "new_string": "x"},
        "MultiEdit": {
            "file_path": "README.md",
            "edits": [{"old_string": "Title", "new_string": "x"}],
        },
        "Bash": {"command": "touch done"},
    }
    assert await call.refused(tool, **arguments[tool]) == f"{tool} was canceled before it finished."
    assert not (call.workspace / "done").exists()
    assert (call.workspace / "README.md").read_text().startswith("# Title")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Glob", {"pattern": "*"}),
        ("Grep", {"pattern": "x"}),
        ("Write", {"file_path": "done", "content": ""}),
    ],
)
async def test_a_call_ends_at_its_deadline(
    call: Toolbox, tool: str, arguments: dict[str, Any]
) -> None:
    assert f"{tool} was stopped after 0 seconds" in await call.refused(tool, seconds=0, **arguments)
    assert not (call.workspace / "done").exists()


async def test_a_canceled_call_ends_with_a_known_outcome(call: Toolbox) -> None:
    """Once the cancel is through, the file is written or it never will be."""
    for number in range(50):
        running = asyncio.ensure_future(call("Write", file_path=f"out/{number}", content="x"))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        there = (call.workspace / "out" / str(number)).exists()
        await asyncio.to_thread(lambda: None)
        assert (call.workspace / "out" / str(number)).exists() == there


async def test_calls_can_be_made_at_once(searching: Toolbox) -> None:
    found = await asyncio.gather(
        *(searching.said("Grep", pattern="hello") for _ in range(8)),
        *(searching.said("LS", path=".") for _ in range(8)),
    )
    assert len(set(found)) == 2


# The fingerprint of the workspace.


async def test_the_fingerprint_changes_with_every_file_that_tools_can_see(
    call: Toolbox, workspace: Path
) -> None:
    seen = [await call.host.fingerprint()]
    for change in (
        lambda: (workspace / "src" / "main.py").write_text(
            "import sys\n\ndef main():\n    print('hullo')\n"
        ),
        lambda: (workspace / "src" / "main.py").chmod(0o600),
        (workspace / "src" / "empty").mkdir,
        lambda: (workspace / "src" / "link").symlink_to("main.py"),
        lambda: (workspace / ".git" / "HEAD.py").write_text("another branch\n"),
        lambda: (workspace / "README.md").rename(workspace / "READ.md"),
        lambda: os.mkfifo(workspace / "pipe"),
    ):
        change()
        seen.append(await call.host.fingerprint())
    assert len(set(seen)) == len(seen)
    assert None not in seen
    (workspace / ".remit" / "notes.py").write_text("remit's own business\n")
    assert await call.host.fingerprint() == seen[-1]


async def test_a_workspace_with_too_many_files_has_no_fingerprint(
    call: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await call.host.fingerprint() is not None
    monkeypatch.setattr("remit.adapters.tools.workspace_paths.MAX_ENTRIES", 3)
    assert await call.host.fingerprint() is None


# Looking up files for checks.


async def test_files_are_looked_for_as_the_tools_see_them(workspace: Path) -> None:
    host = WorkspaceTools(workspace)
    os.mkfifo(workspace / "pipe")
    (workspace / "loop").symlink_to("loop")
    wanted: dict[FileQuery, tuple[bool | None, str]] = {
        FileQuery("README.md"): (True, ""),
        FileQuery(str(workspace / "README.md"), "hello"): (True, ""),
        FileQuery("README.md", "Hello"): (False, "does not contain 'Hello'"),
        FileQuery("missing", "x"): (False, "does not exist"),
        FileQuery("README.md/below"): (False, "is not a folder, or goes through a file"),
        FileQuery("src"): (False, "is a folder"),
        FileQuery("src", "x"): (False, "is a folder"),
        FileQuery("pipe"): (False, "is a device, pipe or socket"),
        FileQuery("../elsewhere"): (None, "is outside the workspace"),
        FileQuery(".remit/notes.py", "hello"): (None, "is reserved for remit"),
        FileQuery("loop"): (None, "is outside the workspace"),
    }
    assert await host.look_for(list(wanted)) == wanted
    await host.close()


async def test_a_file_that_cannot_be_read_in_time_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = WorkspaceTools(Path("/proc/self"))
    memory = FileQuery("mem", "x")
    assert await host.look_for([memory]) == {memory: (None, "cannot be read (Input/output error)")}
    monkeypatch.setattr("remit.adapters.tools.tool_host.SEARCH_SECONDS", 0.0)
    assert await host.look_for([memory]) == {
        memory: (None, "could not be checked within 0 seconds")
    }
    await host.close()
