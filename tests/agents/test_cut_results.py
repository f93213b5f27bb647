"""A result that is cut for its size names the call that reads the rest."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from tests.agents.stage import calls, results, says, stage, texts

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def named_call(text: str) -> tuple[str, dict[str, Any]]:
    """The call that a note names, as a model would make it."""
    found = re.search(r"(\w+)\(((?:\w+=(?:\"[^\"]*\"|\d+)(?:, )?)+)\)", text)
    assert found, text[-300:]
    pairs = re.findall(r"(\w+)=(\"[^\"]*\"|\d+)", found[2])
    return found[1], {name: json.loads(value) for name, value in pairs}


async def test_the_named_calls_read_a_result_to_its_end(any_url: str, tmp_path: Path) -> None:
    whole = f"{'x' * 27}{FAMILY}" * 10_000
    parts: list[str] = []

    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says(whole)
        if not (found := results(request)):
            return calls(("task", {"objective": "Dump", "subagent_type": "explore"}))
        told = json.loads(found[0])
        parts.append(told["result"])
        return calls(named_call(told["note"])) if "note" in told else says("Read.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        assert (task.state, task.summary) == (State.DONE, "Read."), task.failure_reason
    assert "".join(parts) == whole
    assert len(parts) > 2
    assert all(part.startswith(("x", FAMILY)) for part in parts), "no character is cut in two"


async def test_a_report_that_is_cut_names_the_call_that_reads_the_rest(
    any_url: str, tmp_path: Path
) -> None:
    lines = "\n".join(f"line {number} {FAMILY}" for number in range(1_000))

    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says(lines)
        told = texts(request)
        if "[Subtask ended]" not in told:
            part = {"title": "Look", "owner": "explore"}
            return says("Waiting.") if results(request) else calls(("create_subtask", part))
        found = results(request)
        return says("Read.") if found else calls(named_call(told.partition("(Cut ")[2]))

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(owner="build")
        task = await at.team.ended("1")
        assert (task.state, task.summary) == (State.DONE, "Read."), task.failure_reason
        asked = [request for request in at.script.asked if request.agent == "build"]
        (found,) = results(asked[-1])
        report = texts(asked[-1])
        shown = re.findall(r"^> (line .*)$", report, re.MULTILINE)
        rest = json.loads(found)["result"].splitlines()
        assert [*shown, *rest] == lines.splitlines(), "only whole lines are shown"
        assert f"of {len(lines):,} characters" in report


async def test_read_names_the_call_that_reads_on(any_url: str, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("\n".join(f"row {number}" for number in range(4_500)))
    seen: list[str] = []

    def rule(request: Request) -> Response:
        if not (found := results(request)):
            return calls(("Read", {"file_path": "long.txt"}))
        seen.append(found[0])
        return calls(named_call(found[0][-200:])) if found[0].endswith("]") else says("Read.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary) == (State.DONE, "Read."), task.failure_reason
    assert re.findall(r"\trow (\d+)", "\n".join(seen)) == [str(n) for n in range(4_500)]


async def test_a_dependent_of_every_agent_reads_a_long_result_to_its_end(
    any_url: str, tmp_path: Path
) -> None:
    whole = f"{'x' * 27}{FAMILY}" * 10_000
    parts: list[str] = []

    def rule(request: Request) -> Response:
        first = request.messages[0].text
        if not first.startswith("Combine"):
            return says(whole)
        if not (found := results(request)):
            parts.append(first.partition("\n> ")[2].partition("\n(Cut")[0])
            return calls(named_call(first.partition("(Cut ")[2]))
        told = json.loads(found[0])
        parts.append(told["result"])
        return calls(named_call(told["note"])) if "note" in told else says("Read.")

    async with stage(any_url, tmp_path, rule) as at:
        needed = await at.create()
        task = await at.run(instructions="Combine.", depends_on=[needed], owner="general")
        assert (task.state, task.summary) == (State.DONE, "Read."), task.failure_reason
        assert "task_output" in {tool.name for tool in at.script.asked[-1].tools}
    assert "".join(parts) == whole


@pytest.mark.parametrize(
    ("depends_on", "end"),
    [
        (["1"], 'task_output(task_id="1") returns the result in parts.]'),
        ([], " characters. get_task does not return more of it.]"),
    ],
)
async def test_a_task_that_is_too_long_to_read_names_a_call_that_the_agent_is_offered(
    any_url: str, tmp_path: Path, depends_on: list[str], end: str
) -> None:
    def rule(request: Request) -> Response:
        if not request.messages[0].text.startswith("Read"):
            return says("x" * 300_000)
        if not results(request):
            return calls(("get_task", {"task_id": "1"}))
        return says("Read.")

    async with stage(any_url, tmp_path, rule) as at:
        await at.run()
        await at.run(instructions="Read it.", depends_on=depends_on)
        (found,) = results(at.script.asked[-1])
        assert found.endswith(end)


async def test_the_results_of_one_call_share_a_limit(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "build":
            tasks = [
                {"objective": f"Part {number}", "subagent_type": "explore"} for number in "abc"
            ]
            return says("Done.") if results(request) else calls(("task_parallel", {"tasks": tasks}))
        return says("Short." if "Part c" in texts(request) else f"{'x' * 210_000}end")

    async with stage(any_url, tmp_path, rule) as at:
        await at.run(owner="build")
        (told,) = [text for request in at.script.asked for text in results(request)]
        assert len(told) < 205_000
        first, second, third = json.loads(told)["results"]
        assert (third["result"], "note" in third) == ("Short.", False)
        for number, item in ((2, first), (3, second)):
            shown = len(item["result"])
            assert 95_000 < shown < 100_000
            named = f'task_output(task_id="{number}", offset={shown})'
            assert item["note"].endswith(f"of 210,003. Next: {named}]"), item["note"]
        outside = await at.call("task_output", task_id="2")
        assert outside["data"]["result"].endswith("end")


async def test_the_reports_of_many_prerequisites_share_a_limit(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        return says("Read." if request.messages[0].text.startswith("Combine") else "word " * 4_000)

    async with stage(any_url, tmp_path, rule) as at:
        needed = [await at.create(title=f"Part {number}") for number in range(25)]
        await at.run(instructions="Combine.", depends_on=needed)
        first = at.script.asked[-1].messages[0].text
        assert len(first) < 32_000
        for task_id in needed:
            assert f'task_output(task_id="{task_id}", offset=960) returns the rest.)' in first
