"""A parent reads the result of a subtask once, and its task block never runs ahead of the
reports.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit.app.conversations.conversation import Conversation
from remit.app.runs.run_handle import CallRecord, CallStatus
from remit.domain.llm.messages import Request, ToolResult
from remit.domain.records.serialize import dumps
from tests.agents.stage import Gate, calls, says, stage, texts
from tests.patience import patient

FOUND = "Found it in main.py."
START = ("task", {"objective": "Look", "subagent_type": "explore", "wait": False})


async def test_a_result_that_task_output_returned_is_not_delivered_again(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says(FOUND))
        answers = [message for message in request.messages if message.role == "tool"]
        if not answers:
            return calls(START)
        if len(answers) == 1:
            return calls(("task_output", {"task_id": "2", "wait_seconds": 60}))
        return says("It is in main.py.")

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(owner="build")
        await at.waiting("1")
        gate.open.set()
        parent = await at.team.ended("1")
        assert parent.summary == "It is in main.py."
        asked = [request for request in at.script.asked if request.agent == "build"]
        assert len(asked) == 3, "the read report costs no further turn"
        assert "[Subtask ended]" not in texts(asked[-1])


@pytest.mark.parametrize(
    "reading",
    [
        ("get_task", {"task_id": "2"}),
        ("task_output", {"task_id": "2"}),
        ("task_output", {"task_id": "2", "wait_seconds": 5}),
        ("task_output", {"task_id": "2", "format": "envelope"}),
    ],
)
async def test_a_result_that_a_call_showed_is_not_delivered_again(
    any_url: str, tmp_path: Path, reading: tuple[str, dict[str, Any]]
) -> None:
    gate = Gate()

    async def later() -> Any:
        await at.team.until("1", lambda task: bool(task.queued))
        return calls(reading)

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says(FOUND))
        answers = [message for message in request.messages if message.role == "tool"]
        if not answers:
            return calls(START)
        if len(answers) == 1:
            gate.open.set()
            return later()
        return says("It is in main.py.")

    async with stage(any_url, tmp_path, rule, concurrency=4) as at:
        await at.create(owner="build")
        parent = await at.team.ended("1")
        assert parent.summary == "It is in main.py."
        assert all("[Subtask ended]" not in texts(request) for request in at.script.asked)
        assert sum(request.agent == "build" for request in at.script.asked) == 3
        updates = (await at.call("list_updates", task_id="1"))["updates"]
        assert [(item["type"], item["status"]) for item in updates] == [("subtask", "delivered")]


async def test_a_report_that_was_not_read_is_delivered(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says(FOUND))
        answers = [message for message in request.messages if message.role == "tool"]
        if not answers:
            return calls(START)
        if len(answers) == 1:
            return calls(("task_output", {"task_id": "2"}))
        return says("Done." if "[Subtask ended]" in texts(request) else "I wait.")

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(owner="build")
        await at.waiting("1")
        gate.open.set()
        assert (await at.team.ended("1")).summary == "Done."


async def test_the_task_block_shows_an_end_no_sooner_than_its_report(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    async def after_the_end() -> Any:
        gate.open.set()
        await at.team.ended("2")
        return calls(("LS", {"path": "."}))

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says(FOUND))
        answers = [message for message in request.messages if message.role == "tool"]
        if not answers:
            return calls(START)
        if len(answers) < 4:
            return after_the_end()
        return says("Done." if "[Subtask ended]" in texts(request) else "I wait.")

    async with stage(any_url, tmp_path, rule, concurrency=4) as at:
        await at.create(owner="build")
        await at.team.ended("1")
        for request in at.script.asked:
            if request.agent == "build":
                shows_end = "subtask 2: done" in request.messages[-1].text
                assert shows_end == ("[Subtask ended]" in texts(request))


async def test_the_report_of_a_successor_names_the_task_that_it_replaces(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says("Never."))
        if request.agent == "plan":
            return says(FOUND)
        if not any(message.role == "tool" for message in request.messages):
            return calls(START)
        return says("Done." if "[Subtask ended]" in texts(request) else "I wait.")

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(owner="build")
        await at.waiting("1")
        await asyncio.wait_for(gate.reached.wait(), patient(60))
        await at.call("update_task", task_id="2", owner="plan")
        await at.team.ended("1")
        told = texts([request for request in at.script.asked if request.agent == "build"][-1])
        assert '[Subtask ended]\nTask 3 "Look" (plan, replaces task 2): done after ' in told


def everything(request: Request) -> str:
    """The texts that a model read, with the results of its calls."""
    parts = [part for message in request.messages for part in message.parts]
    return "\n".join(
        [texts(request), *(part.text for part in parts if isinstance(part, ToolResult))]
    )


@pytest.mark.parametrize("slow", ["read by the call", "still running"])
async def test_a_result_that_task_parallel_returned_is_not_delivered_again(
    any_url: str, tmp_path: Path, slow: str
) -> None:
    gate = Gate()
    is_read = slow == "read by the call"

    async def last() -> Any:
        await at.team.ended("3")
        return says("One.")

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            if "Two" in request.messages[0].text:
                return says(FOUND) if is_read else gate.then(says(FOUND))
            return last() if is_read else says("One.")
        if not any(message.role == "tool" for message in request.messages):
            items = [
                {"objective": "One", "subagent_type": "explore"},
                {"objective": "Two", "subagent_type": "explore", "wait": False},
            ]
            return calls(("task_parallel", {"tasks": items}))
        gate.open.set()
        return says("Done." if FOUND in everything(request) else "I wait.")

    async with stage(any_url, tmp_path, rule, concurrency=4) as at:
        await at.create(owner="build")
        assert (await at.team.ended("1")).summary == "Done."
        last_asked = at.script.asked[-1]
        assert ("[Subtask ended]" in texts(last_asked)) == (not is_read)
        assert everything(last_asked).count(FOUND) == 1


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_receipt_that_shows_a_result_counts_as_read(status: str) -> None:
    def receipt(call_id: str, call_status: CallStatus, answer: dict[str, str]) -> CallRecord:
        return CallRecord(
            task_id=1,
            call_id=call_id,
            run_id="r",
            tool="task",
            arguments="{}",
            repeatable=1,
            started_at="",
            status=call_status,
            result=dumps(answer),
        )

    ended = receipt(
        "a",
        "failed" if status == "failed" else "done",
        {"task_id": "2", "status": status, "result": FOUND},
    )
    running = receipt("b", "done", {"task_id": "3", "status": "running"})
    assert Conversation("1", [], {"a": ended, "b": running}).results_read == {"2"}
