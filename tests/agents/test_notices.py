"""Notices to an agent before a limit is reached, and every check of its result."""

from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.failures import Price
from remit.domain.llm.messages import Request, Response, Tokens, ToolResult
from remit.domain.task.task import State
from tests.agents.stage import calls, says, stage, texts

LAST = (
    "This is your last turn with tools: finish now. If the task is not finished after it, it fails."
)
TAKEN = Tokens(19_000, 1_000)
NEAR = "This may be your last turn: finish now. If the task is not finished after it, it fails."


def block(request: Request) -> str:
    return request.messages[-1].text


def look() -> Response:
    return calls(("LS", {"path": "."}))


async def test_the_last_turn_is_announced_and_the_report_is_small(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        return look() if request.may_call else says("Half of it.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(
            limits={"max_turns": 3},
            instructions="Look " * 200,
            acceptance=["It is complete"],
            resources=[{"type": "url", "value": "https://example.org/"}],
        )
        assert (task.state, task.reason) == (State.FAILED, "turns")
        *before, last, report = at.script.asked
        assert not any("last turn" in block(request) for request in before)
        assert "This is your last turn:" not in block(last)
        assert "This is your last turn: you cannot call tools" in block(report)
        assert f"Left: 1 turn\n{LAST}\nTo finish: " in block(last)
        assert "[Last turn]" in block(report)
        assert len(block(report)) < 500, "the terms are in the messages before it"


async def test_an_agent_that_heeds_the_notice_finishes_in_time(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        return says("What I have.") if LAST in block(request) else look()

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_turns": 2})
        assert (task.state, task.summary, len(at.script.asked)) == (State.DONE, "What I have.", 2)


@pytest.mark.parametrize(
    ("delegated", "how"),
    [
        (True, "end with one message that holds the whole result."),
        (False, 'call complete_task with {"summary": <the whole result>}.'),
    ],
)
async def test_the_last_turn_asks_for_no_work_on_open_steps(
    any_url: str, tmp_path: Path, delegated: bool, how: str
) -> None:
    def rule(request: Request) -> Response:
        if LAST not in block(request):
            return calls(("update_steps", {"steps": ["Look"]}))
        return says("All of it.") if delegated else calls(("complete_task", {"summary": "It."}))

    async with stage(any_url, tmp_path, rule) as at:
        if delegated:
            work = {"objective": "Look", "subagent_type": "build", "limits": {"max_turns": 2}}
            await at.call("task", **work)
        else:
            await at.run(owner="build", limits={"max_turns": 2})
        assert f"To finish: {how}\n" in block(at.script.asked[-1])
        assert (await at.team.ended("1")).state is State.DONE


@pytest.mark.parametrize("limits", [{"max_tokens": 60_000}, {"max_cost": 0.065}])
async def test_a_budget_that_may_not_cover_another_turn_is_announced(
    any_url: str, tmp_path: Path, limits: dict[str, Any]
) -> None:
    def rule(request: Request) -> Response:
        return says("What I have.") if NEAR in block(request) else look()._replace(tokens=TAKEN)

    async with stage(any_url, tmp_path, rule, price=Price(1, 1)) as at:
        task = await at.run(limits=limits)
        found = (task.state, task.summary, len(at.script.asked))
        assert found == (State.DONE, "What I have.", 3), task.failure_reason


CHECKS: list[dict[str, Any]] = [
    {"text": "The file is there", "check": {"file": "notes.md"}},
    {"text": "The file names it", "check": {"file": "main.md", "contains": "port 8420"}},
    {"text": "The report names it", "check": {"output": "report", "contains": "8420"}},
    {"text": "The number is right", "check": {"output": "port", "equals": 8420}},
]
SHOWN = (
    "the file notes.md exists",
    'the file main.md contains "port 8420"',
    'the output report contains "8420"',
    "the output port is 8420",
)
SCHEMA = {"type": "integer", "minimum": 8_000}


async def test_every_check_is_shown_up_front_and_in_a_rejection(
    any_url: str, tmp_path: Path
) -> None:
    handed = {"outputs": {"report": "None.", "port": 9_000}, "summary": "Done."}
    async with stage(any_url, tmp_path, lambda _: calls(("complete_task", handed))) as at:
        (tmp_path / "main.md").write_text("nothing")
        task = await at.run(
            acceptance=CHECKS,
            outputs=["report", {"name": "port", "kind": "json", "schema": SCHEMA}],
        )
        assert (task.state, task.reason) == (State.FAILED, "acceptance")
        first, second = (texts(request) for request in at.script.asked[:2])
        told = second.partition("[Not accepted yet]\n")[2].partition("<Task ")[0]
        for check in SHOWN:
            assert f"(check: {check})" in first
            assert f"  Check: {check}." in told
        assert told.count("  Found: ") == len(CHECKS)
        assert '{"type":"integer","minimum":8000}' in first


async def test_a_text_that_is_too_long_to_quote_is_named_with_the_call_that_shows_it(
    any_url: str, tmp_path: Path
) -> None:
    needle = {"text": "It has all", "check": {"output": "report", "contains": "x" * 5_000}}
    async with stage(any_url, tmp_path, lambda _: says("Done.")) as at:
        await at.run(acceptance=[needle])
        assert '(get_task(task_id="1") shows it whole)' in block(at.script.asked[0])


async def test_a_rejection_before_the_first_request_is_shown_in_it(
    any_url: str, tmp_path: Path
) -> None:
    handed = calls(("complete_task", {"outputs": {"report": "8420"}}))
    async with stage(any_url, tmp_path, lambda _: handed, workers=0) as at:
        task_id = await at.create(acceptance=[CHECKS[2]], outputs=["report"])
        await at.call("complete_task", task_id=task_id, outputs={"report": "None."})
        await at.hire()
        task = await at.team.ended(task_id)
        assert task.state is State.DONE
        first = texts(at.script.asked[0])
        assert "[Not accepted yet]" in first
        assert f"  Check: {SHOWN[2]}.\n  Found: output report: does not contain" in first
        (update,) = (await at.call("list_updates", task_id=task_id))["updates"]
        assert (update["type"], update["status"], update["turn"]) == ("rejection", "delivered", 1)


# Optional texts that are blank.


async def test_a_blank_optional_text_of_a_running_agent_counts_as_not_given(
    any_url: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("hello\n")

    def rule(request: Request) -> Response:
        done = sum(message.role == "tool" for message in request.messages)
        if request.agent != "build":
            return says("Done.")
        part = {"title": "Part", "owner": "explore", "status": "draft", "instructions": " "}
        script = [
            calls(("create_subtask", {**part, "wait": "none", "model": ""})),
            calls(
                ("update_task", {"task_id": "2", "title": "New", "description": "", "owner": " "}),
                ("Grep", {"pattern": "hello", "glob": "", "path": ""}),
                ("task", {"objective": "Look.", "description": "", "subagent_type": ""}),
            ),
            says("All done."),
        ]
        return script[done]

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        told = [
            part.text
            for message in at.script.asked[-1].messages
            if message.role == "tool"
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
        assert (task.state, task.summary) == (State.DONE, "All done."), told
        assert not any("is blank" in text for text in told), told
        assert (await at.team.task("2")).title == "New"
        assert "a.txt" in told[2]
