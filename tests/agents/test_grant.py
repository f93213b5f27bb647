"""A grant that cannot be honored ends its task before any model is asked, and says what would
be right.
"""

from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import BUILT_IN, with_edits
from remit.domain.task.task import State
from tests.agents.stage import calls, in_turn, noting, says, stage

KNOWN = "LS, Glob, Grep, Read, Write, Edit, MultiEdit, Bash, note, TodoWrite, Task"
READING = "LS, Glob, Grep, Read, TodoWrite"
NEITHER = (
    "this worker does not know Nonsense, and explore may not use Bash;"
    f" expected at least one of {READING}."
)


@pytest.mark.parametrize(
    ("owner", "tools", "told"),
    [
        (
            "general",
            ["Nonsense", "read"],
            (f"this worker does not know Nonsense, read; expected at least one of {KNOWN}."),
        ),
        ("explore", ["Bash", "Nonsense"], NEITHER),
        (
            "general",
            {"allow": ["Read"], "deny": ["Read"]},
            "general may not use Read; expected at least one of LS",
        ),
        (
            "general",
            {"allow": ["Nonsense", "Read"], "offer": ["Nonsense"]},
            "this worker does not know Nonsense; expected",
        ),
        ("build", ["get_task"], "this worker does not know get_task; expected"),
    ],
)
async def test_tools_that_come_to_nothing_end_the_task(
    any_url: str, tmp_path: Path, owner: str, tools: Any, told: str
) -> None:
    async with stage(any_url, tmp_path, [], functions=[noting([])]) as at:
        found = await at.call("task", objective="Work", subagent_type=owner, tools=tools)
        assert (found["data"]["status"], found["error"]["code"]) == ("failed", "INVALID_PARAM")
        assert found["error"]["message"].startswith(f"tools.allow: contains no usable tool: {told}")
        task = await at.team.task("1")
        assert (task.state, task.reason, task.counts.runs) == (State.FAILED, "rejected", 1)
        assert at.script.asked == []


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        ([], set[str]()),
        (["Nonsense", "Read"], {"Read"}),
        (["note"], {"note"}),
        ({"allow": ["elsewhere"], "offer": []}, set[str]()),
        ({"allow": ["elsewhere", "Read"], "offer": ["Read"]}, {"Read"}),
    ],
)
async def test_an_agent_that_has_its_tools_or_requests_none_works(
    any_url: str, tmp_path: Path, tools: Any, offered: set[str]
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], functions=[noting([])]) as at:
        assert (await at.run(tools=tools)).state is State.DONE
        assert {tool.name for tool in at.script.asked[0].tools} & {
            "LS",
            "Read",
            "note",
            "elsewhere",
            "Nonsense",
        } == offered


async def test_an_agent_that_can_only_delegate_delegates(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        assert (await at.run(owner="build", tools=["Task"])).state is State.DONE
        assert "task_parallel" in {tool.name for tool in at.script.asked[0].tools}


async def test_bash_without_a_sandbox_ends_the_task_before_it_begins(
    any_url: str, tmp_path: Path
) -> None:
    """On a machine where nothing is installed."""
    async with stage(any_url, tmp_path, [], unsandboxed=False, programs=False) as at:
        found = await at.call("task", objective="Work", tools=["Read", "Bash"])
        assert (found["data"]["status"], found["error"]["code"]) == ("failed", "INVALID_PARAM")
        assert (
            "Bash is not available: this machine has no sandbox (bubblewrap is not"
            " installed)" in found["error"]["message"]
        )
        assert "allow_unsandboxed" in found["error"]["message"]
        task = await at.team.task("1")
        assert (task.state, task.reason, task.counts.runs) == (State.FAILED, "rejected", 1)
        assert at.script.asked == []


@pytest.mark.parametrize(
    ("tools", "unsandboxed"),
    [
        (["Read", "Bash"], True),
        (["Read"], False),
        ({"allow": ["Read", "Bash"], "offer": ["Read"]}, False),
    ],
)
async def test_a_task_runs_if_bash_works_here_or_is_not_offered(
    any_url: str, tmp_path: Path, tools: Any, unsandboxed: bool
) -> None:
    """A tool that is only passed on is checked where it is used."""
    async with stage(
        any_url, tmp_path, [says("Done.")], unsandboxed=unsandboxed, programs=False
    ) as at:
        assert (await at.run(tools=tools)).state is State.DONE
        assert ("Bash" in {tool.name for tool in at.script.asked[0].tools}) is unsandboxed


EDITORS = with_edits(BUILT_IN, ("Write", "Edit", "Bash"))


async def test_with_allow_edits_general_changes_files_and_its_prompt_says_so(
    any_url: str, tmp_path: Path
) -> None:
    note = {"file_path": str(tmp_path / "note.md"), "content": "Done.\n"}
    async with stage(
        any_url, tmp_path, in_turn(calls(("Write", note)), says("Written.")), agents=EDITORS
    ) as at:
        assert (await at.run(owner="general")).state is State.DONE
        assert (tmp_path / "note.md").read_text() == "Done.\n"
        request = at.script.asked[0]
        assert {"Write", "Edit", "Bash"} <= {tool.name for tool in request.tools}
        assert "You can change files in this workspace." in request.system


async def test_without_allow_edits_no_prompt_mentions_editing(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Read.")) as at:
        for owner in ("build", "general"):
            await at.run(owner=owner)
        for request in at.script.asked:
            assert not {"Write", "Edit", "MultiEdit", "Bash"} & {
                tool.name for tool in request.tools
            }
            role = request.system.partition("# Task")[0]
            assert "you cannot change it" in role
            assert not any(
                word in role
                for word in ("You can change files", "Bash", "Make the smallest change")
            )


async def test_a_call_that_grants_edits_changes_the_prompt(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Read.")) as at:
        await at.run(owner="general", tools=["Read", "Edit"])
        system = at.script.asked[0].system
        assert ("You can change files" in system, "You cannot run commands here" in system) == (
            True,
            True,
        )
