"""A denied call does not count as a use of a tool, and its error lists the available tools."""

import asyncio
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from remit import Progress, Remit, StreamEnd, TaskResult
from remit.app.agents.registry import Agent
from remit.catalog import Caller
from remit.domain.llm.messages import Request, Response, Tokens, ToolCall, ToolResult
from remit.domain.task.task import State
from tests.agents.stage import Gate, calls, says, stage
from tests.engine.fleet import ANN
from tests.patience import patient

LEAD = Agent(id="lead", description="Leads.", tools=("Read", "Task"), spawnable=("explore",))
WRITER = Agent(id="writer", description="Writes.", tools=("Read", "Bash"))


def found_in(request: Request) -> list[ToolResult]:
    parts = [part for message in request.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


async def test_denied_calls_are_not_counted(any_url: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n")

    def rule(request: Request) -> Response:
        if found_in(request):
            return says("Done.")
        return calls(
            ("Read", {"file_path": "notes.txt"}),
            ("Read", {"file_path": "missing.txt"}),
            ("Write", {"file_path": "new.txt", "content": "x"}),
            ("Raed", {"file_path": "notes.txt"}),
            ("cancel_task", {"task_id": "1"}),
            ("task", {"objective": "Write it", "subagent_type": "general"}),
        )

    async with stage(any_url, tmp_path, rule, agents=[LEAD]) as at:
        other = await at.create(owner=None)
        task = await at.run(owner="lead")
        assert other == "1"
        found = found_in(at.script.asked[-1])
        assert [result.is_error for result in found] == [False, True, True, True, True, True]
        assert {count.tool: count.count for count in task.tool_summary} == {"Read": 2}
        assert not (tmp_path / "new.txt").exists()


def malformed(name: str, raw: str) -> ToolCall:
    return ToolCall(f"broken-{name}", name, {}, raw)


async def test_a_denied_call_is_denied_before_its_arguments_are_read(
    any_url: str,
    tmp_path: Path,
) -> None:
    broken = (
        malformed("frobnicate", '{"a":'),
        malformed("Bash", '{"command":'),
        malformed("Write", "[1]"),
        malformed("Read", '{"file_path":'),
        malformed("task", '{"objective":'),
        malformed("complete_task", "[1]"),
    )

    def rule(request: Request) -> Response:
        if found_in(request):
            return says("Done.")
        return Response(broken, "tool_calls", Tokens(10, 5), "scripted")

    async with stage(any_url, tmp_path, rule, agents=[LEAD]) as at:
        task = await at.run(owner="lead")
        said = [result.text for result in found_in(at.script.asked[-1])]
        for text, call in zip(said[:3], broken, strict=False):
            assert text.startswith(f"'{call.name}' is not a tool that this task may use.")
        for text in said[3:]:
            assert text.startswith("The arguments are not a JSON object")
        counts = {count.tool: count.count for count in task.tool_summary}
        assert counts == {"Read": 1, "complete_task": 1, "task": 1}


async def test_progress_and_result_count_the_same_calls(any_url: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    gate = Gate()

    def rule(request: Request) -> Any:
        if found_in(request):
            return gate.then(says("Done."))
        return calls(
            ("Read", {"file_path": "notes.txt"}),
            ("Read", {"file_path": "missing.txt"}),
            ("Write", {"file_path": "new.txt", "content": "x"}),
            ("cancel_task", {"task_id": "1"}),
        )

    async with asyncio.timeout(patient(20)), stage(any_url, tmp_path, rule, agents=[LEAD]) as at:
        await at.create(owner=None)
        at.team.core.progress_seconds = 0.1
        remit = Remit(at.team.core, Caller(actor=ANN))
        counts: list[int] = []
        async with aclosing(remit.stream("task", objective="Go", subagent_type="lead")) as items:
            async for item in items:
                counts += [item.tool_calls] if isinstance(item, Progress) else []
                if counts and counts[-1] == 2 and len(at.script.asked) == 2:
                    gate.open.set()
                if isinstance(item, StreamEnd):
                    assert isinstance(item.answer, TaskResult)
                    assert item.answer.usage.tool_calls == 2
        assert counts[-1] == 2, counts


async def test_an_unknown_tool_is_answered_with_all_that_can_be_called(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        return says("Done.") if found_in(request) else calls(("Raed", {"file_path": "notes.txt"}))

    async with stage(any_url, tmp_path, rule, agents=[LEAD]) as at:
        await at.run(owner="lead")
        (said,) = found_in(at.script.asked[-1])
        assert said.is_error
        listed = said.text.partition("It may use: ")[2].rstrip(".").split(", ")
        assert {tool.name for tool in at.script.asked[0].tools} <= set(listed)
        assert {"Read", "complete_task", "task", "create_subtask_explore"} <= set(listed)


async def test_a_command_that_no_sandbox_contains_is_not_counted(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url,
        tmp_path,
        lambda _: says("Done."),
        agents=[WRITER],
        unsandboxed=False,
        programs=False,
    ) as at:
        task = await at.run(owner="writer")
        assert task.reason == "rejected"
        assert task.tool_summary == ()


@pytest.mark.parametrize("named", [True, False])
async def test_mark_task_complete_completes_the_task_like_complete_task(
    any_url: str, tmp_path: Path, named: bool
) -> None:
    def rule(request: Request) -> Response:
        own = {"task_id": "1"} if named else {}
        return calls(("mark_task_complete", {"summary": "All done.", **own}))

    async with stage(any_url, tmp_path, rule, agents=[LEAD]) as at:
        task = await at.run(owner="lead", completion="explicit")
        assert (task.state, task.summary, len(at.script.asked)) == (State.DONE, "All done.", 1)
        assert "mark_task_complete" not in {tool.name for tool in at.script.asked[0].tools}
        assert task.usage.requests == 1


@pytest.mark.parametrize(
    "call",
    [
        ("get_task", {"task_id": "99"}),
        ("cancel_task", {"task_id": "99"}),
        ("create_subtask", {"task_id": "99", "title": "Go", "owner": "explore"}),
        ("task", {"objective": "Go", "subagent_type": "explore", "depends_on": ["99"]}),
        ("task_output", {"task_id": "99"}),
        ("get_guide", {"guide_id": "g99"}),
    ],
)
async def test_an_unknown_id_is_refused_without_naming_tools_that_the_agent_lacks(
    any_url: str, tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:
    def rule(request: Request) -> Response:
        return says("Done.") if found_in(request) else calls(call)

    async with stage(any_url, tmp_path, rule, agents=[LEAD]) as at:
        await at.run(owner="lead")
        (said,) = found_in(at.script.asked[-1])
        assert "99" in said.text
        assert not {"list_tasks", "list_history", "list_guides"} & set(
            re.findall(r"\w+", said.text)
        )


async def test_paths_that_the_rules_refuse_are_not_counted(any_url: str, folder: Path) -> None:
    (folder / ".remit" / "config.toml").write_text("")
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("Read", {"file_path": "/etc/passwd"}),
        ("Read", {"file_path": "../other.txt"}),
        ("Read", {"file_path": ".remit/config.toml"}),
        ("Read", {"file_path": ".remit/picture.png"}),
        ("Glob", {"pattern": "*", "path": "/"}),
        ("Grep", {"pattern": "x", "path": "/etc"}),
        ("LS", {"path": ".remit"}),
        ("Write", {"file_path": ".git/config", "content": "x"}),
        ("Edit", {"file_path": "/etc/passwd", "old_string": "a", "new_string": "b"}),
        ("Read", {"file_path": "missing.txt"}),
        ("Read", {"file_path": 7}),
    ]
    writer = Agent(
        id="writer", description="Writes.", tools=("Read", "Glob", "Grep", "LS", "Write", "Edit")
    )
    async with stage(any_url, folder, [calls(*wanted), says("Done.")], agents=[writer]) as at:
        task = await at.run(owner="writer")
        shown = [
            part
            for message in await at.transcript("1")
            for part in message["parts"]
            if part["type"] == "tool_result"
        ]
        assert [part["status"] for part in shown] == ["denied"] * 9 + ["failed"] * 2
        assert {count.tool: count.count for count in task.tool_summary} == {"Read": 2}
