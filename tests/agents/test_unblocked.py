"""Subtasks that run in the background, and subtasks that a caller waits for: by agents and from
outside.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request
from remit.domain.task.task import State
from remit.errors import Unavailable
from tests.agents.stage import Gate, calls, reached, results, says, stage

AHEAD = ("task", {"objective": "Dig", "subagent_type": "explore", "wait": False})
OUTPUT = {"task_id": "2"}


def dialogue(work: Any, *turns: Any) -> Any:
    """A boss that says one thing after the other; `turns` may look at the request.

    What its workers do is given.
    """
    left = list(turns)

    def rule(request: Request) -> Any:
        if "Dig" in request.system:
            return work(request)
        turn = left.pop(0)
        return turn(request) if callable(turn) else turn

    return rule


async def test_a_receipt_comes_at_once_and_the_end_wakes_the_parent(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    rule = dialogue(
        lambda _: gate.then(says("Dug.")),
        calls(AHEAD),
        says("Meanwhile."),
        calls(("task_output", OUTPUT)),
        lambda request: says(json.loads(results(request)[0])["result"]),
    )
    async with stage(any_url, tmp_path, rule, concurrency=1) as at:
        task_id = await at.create(owner="build")
        waiting = await at.waiting(task_id)
        receipt = json.loads(results(at.script.asked[1])[0])
        assert list(receipt) == ["task_id", "status", "note"]
        assert (receipt["task_id"], receipt["status"]) == ("2", "running")
        assert receipt["note"].startswith("Get its result with task_output")
        assert waiting.wait is not None
        assert [(item.kind, item.ref, item.call_id) for item in waiting.wait.on] == [
            ("subtask", "2", None)
        ]
        await reached(gate)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.state, task.final_message, task.counts.runs) == (State.DONE, "Dug.", 2)


async def test_an_agent_waits_for_chosen_subtasks(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def work(request: Request) -> Any:
        return gate.then(says("Dug.")) if "deep" in request.messages[0].text else says("Scratched.")

    items = [
        {"objective": "Dig deep", "wait": False},
        {"objective": "Dig"},
        {"objective": "Dig", "wait": "no"},
    ]
    rule = dialogue(
        work,
        calls(
            ("task_parallel", {"tasks": items}),
            ("task_parallel", {"tasks": [{"objective": "Dig deep", "wait": False}, {}]}),
        ),
        says("Meanwhile."),
        calls(("task_output", {**OUTPUT, "wait_seconds": 600})),
        lambda request: says(json.loads(results(request)[0])["result"]),
    )
    async with stage(any_url, tmp_path, rule, concurrency=3) as at:
        task_id = await at.create(owner="build")
        waiting = await at.team.until(task_id, lambda task: task.final_message == "Meanwhile.")
        mixed, receipts = results(
            next(
                request
                for request in at.script.asked
                if request.agent == "build" and results(request)
            )
        )
        first, second, third = json.loads(mixed)["results"]
        assert (first["task_id"], first["status"]) == ("2", "running")
        assert first["note"].startswith("Get its result with task_output")
        assert (second["task_id"], second["status"], second["result"]) == (
            "3",
            "completed",
            "Scratched.",
        )
        assert third["error"] == {
            "code": "INVALID_PARAM",
            "message": "tasks[2].wait: is 'no'; expected true or false.",
        }
        receipt, _ = json.loads(receipts)["results"]
        assert (receipt["task_id"], receipt["status"]) == ("4", "running")
        assert waiting.wait is not None
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.state, task.final_message) == (State.DONE, "Dug.")


async def test_an_agent_waits_for_an_output_without_holding_its_slot(
    any_url: str, tmp_path: Path
) -> None:
    rule = dialogue(
        lambda _: says("Dug."),
        calls(AHEAD),
        calls(("task_output", {**OUTPUT, "wait_seconds": 600})),
        lambda request: says(json.loads(results(request)[0])["result"]),
    )
    async with stage(any_url, tmp_path, rule, concurrency=1) as at:
        task = await at.run(owner="build")
        assert (task.state, task.final_message, task.counts.runs) == (State.DONE, "Dug.", 2)
        await at.team.idle()  # the timer that was not needed is gone too


async def test_the_time_for_an_output_can_run_out(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    rule = dialogue(
        lambda _: gate.then(says("Dug.")),
        calls(AHEAD),
        calls(("task_output", {**OUTPUT, "wait_seconds": 0.2})),
        lambda request: says(json.loads(results(request)[0])["status"]),
        says("Over."),
    )
    async with stage(any_url, tmp_path, rule, concurrency=2) as at:
        task_id = await at.create(owner="build")
        task = await at.team.until(task_id, lambda task: task.final_message is not None)
        assert (task.state, task.final_message, task.counts.runs) == (
            State.WAITING,
            "running",
            2,
        ), "its child still keeps it from ending"
        assert "TimerFired" in await at.team.events(task_id)
        gate.open.set()
        assert (await at.team.ended(task_id)).final_message == "Over."


async def test_an_existing_output_is_returned_without_a_wait(any_url: str, tmp_path: Path) -> None:
    rule = dialogue(
        lambda _: says("Dug."),
        calls(("task", {"objective": "Dig", "subagent_type": "explore"})),
        calls(
            ("task_output", {**OUTPUT, "wait_seconds": 600}),
            ("task_output", {"task_id": "1", "wait_seconds": 5}),
        ),
        lambda request: says("|".join(results(request))),
    )
    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        there, other = (task.final_message or "").split("|")
        assert (json.loads(there)["result"], task.counts.runs) == ("Dug.", 2)
        assert other == (
            "wait_seconds: is 5, but task 1 is not your subtask; expected 0, which returns its"
            " state at once: you can wait only for tasks that you create as subtasks."
        )


async def test_an_agent_speaks_to_its_child_and_calls_it_off(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    async def then_speak(_: Request) -> Any:
        await gate.reached.wait()
        return calls(
            ("send_message", {"task_id": "2", "message": "Faster"}),
            ("cancel_task", {"task_id": "2", "message": "Too slow"}),
        )

    rule = dialogue(
        lambda _: gate.then(says("Late.")),
        calls(AHEAD),
        then_speak,
        says("Called off."),
        says("And heard of it."),
    )
    async with stage(any_url, tmp_path, rule) as at:
        assert (await at.run(owner="build")).state is State.DONE
        sent, canceled = map(
            json.loads,
            next(found for request in at.script.asked if len(found := results(request)) == 2),
        )
        assert (sent["success"], canceled["canceled"]) == (True, ["2"])
        child = await at.team.task("2")
        assert (child.state, child.failure_reason) == (State.CANCELED, "Too slow")
        gate.open.set()


@pytest.mark.parametrize("wait", ["block", "wake", "none"])
async def test_an_agent_makes_a_subtask_of_each_kind(
    any_url: str, tmp_path: Path, wait: str
) -> None:
    """`block` is answered with what came of it, `wake` keeps the task from ending, `none` does
    not.
    """
    gate, steps = Gate(), [{"title": "Look", "done": True}]
    fields = {"task_id": "1", "title": "Dig", "owner": "explore", "step_index": 0, "wait": wait}
    rule = dialogue(
        lambda _: gate.then(says("Dug.")),
        calls(("update_steps", {"steps": steps})),
        calls(("create_subtask", fields)),
        lambda request: says(json.loads(results(request)[0])["task"]["state"]),
        says("Woken."),
    )
    async with stage(any_url, tmp_path, rule, concurrency=2) as at:
        task_id = await at.create(owner="build")
        await reached(gate)
        if wait == "none":
            assert (await at.team.ended(task_id)).final_message in ("pending", "running")
        else:
            task = await at.waiting(task_id)
            assert task.wait is not None
            assert [(item.ref, item.call_id is not None) for item in task.wait.on] == [
                ("2", wait == "block")
            ]
        gate.open.set()
        task, child = await at.team.ended(task_id), await at.team.ended("2")
        assert (task.state, task.steps[0].task_id, child.step_index, len(task.children)) == (
            State.DONE,
            "2",
            0,
            1,
        )
        assert wait == "none" or task.final_message == {"block": "done", "wake": "Woken."}[wait]


async def test_subtasks_that_cannot_be_created_are_reported(any_url: str, tmp_path: Path) -> None:
    fields = {"task_id": "1", "title": "Dig", "owner": "explore", "wait": "block"}
    rule = dialogue(
        None,
        calls(
            ("create_subtask", {**fields, "owner": "nobody"}),
            ("create_subtask", {**fields, "task_id": "9"}),
            ("create_subtask", {**fields, "idempotency_key": "k"}),
            ("create_subtask", {**fields, "tsgs": ["nothing"]}),
            ("task", {"objective": "Dig", "wait": "later"}),
        ),
        lambda request: says("|".join(results(request))),
    )
    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        told = (task.final_message or "").split("|")
        wanted = (
            "owner: is 'nobody'",
            "wait: is 'block', but task 9 is not yours",
            "idempotency_key",
            "no guide nothing",
            "wait: is 'later'",
        )
        assert [part in text for part, text in zip(wanted, told, strict=True)] == [True] * 5
        assert task.children == ()


# From outside.


async def test_a_call_from_outside_waits_itself(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, lambda _: gate.then(says("Dug."))) as at:
        parent = await at.create(owner="build", status="draft")
        fields = {"task_id": parent, "title": "Dig", "owner": "explore", "wait": "block"}
        left, waiting = (asyncio.create_task(at.call("create_subtask", **fields)) for _ in range(2))
        await reached(gate)
        await at.team.until(parent, lambda task: len(task.children) == 2)
        left.cancel()
        await asyncio.wait({left})
        before = await at.team.task(parent)
        assert (before.state, before.wait, waiting.done()) == (State.DRAFT, None, False)
        gate.open.set()
        made = await waiting
        assert (made["task"]["state"], made["task"]["final_message"]) == ("done", "Dug.")
        states = {(await at.team.ended(child.id)).state for child in before.children}
        assert (len(before.children), states) == (
            2,
            {State.DONE},
        ), "whoever left has canceled nothing"


async def test_a_call_without_a_worker_is_refused(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        parent = await at.create(owner="build", status="draft")
        with pytest.raises(Unavailable, match="No running worker works on task"):
            await at.call(
                "create_subtask", task_id=parent, title="Dig", owner="explore", wait="block"
            )
        assert (await at.team.task("2")).state is State.PENDING
