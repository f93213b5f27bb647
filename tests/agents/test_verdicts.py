"""When the work of an agent counts as done, and what stands behind it."""

from collections.abc import Awaitable
from pathlib import Path

import pytest

from remit.domain.message import Request, Response
from remit.domain.value import State
from tests.agents.stage import Gate, calls, results, says, stage, texts


async def test_what_code_cannot_decide_is_attested_by_the_agents_own_words_and_does_not_block(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("I read it twice.")) as at:
        task = await at.run(acceptance=["It reads well"])
        (criterion,) = task.acceptance
        assert (task.state, task.verification) == (State.DONE, "unverified")
        assert (criterion.status, criterion.evidence, criterion.by) == ("attested", "I read it twice.", "agent:general")
        assert (await at.run()).verification == "none"


async def test_a_claim_without_a_word_leaves_the_criterion_unverified(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: calls(("complete_task", {}))) as at:
        task = await at.run(acceptance=["It reads well"])
        assert (task.state, task.acceptance[0].status, task.verification) == (State.DONE, "unverified", "unverified")


async def test_a_tick_goes_on_with_open_steps(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if results(request):
            return says("Ready.")
        done = "Continue your task." in texts(request)
        return calls(("update_step", {"index": 0, "done": True})) if done else says("Later.")

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(steps=["Look"])
        held = await at.waiting(task_id)
        assert held.wait is not None
        assert [item.kind for item in held.wait.on] == ["tick"]
        await at.team.do("Tick", "system:scheduler", task_id=task_id)
        assert (await at.team.ended(task_id)).summary == "Ready."


@pytest.mark.parametrize(("wait", "state"), [("wake", State.WAITING), ("block", State.WAITING), ("none", State.DONE)])
async def test_a_live_child_holds_the_end_of_its_parent_unless_nobody_waits_for_it(any_url: str, tmp_path: Path, wait: str, state: State) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if "Look around" in request.system:
            return gate.then(says("I looked."))
        if results(request) or "[Subtask ended]" in texts(request):
            return says("Nothing else to do.")
        return calls(("create_subtask", {"task_id": "1", "title": "Look around", "owner": "explore", "wait": wait}))

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        rested = await at.team.until(task_id, lambda task: task.run is None and task.counts.runs == 1)
        assert rested.state is state
        await gate.reached.wait()
        gate.open.set()
        assert (await at.team.ended("2")).state is State.DONE
        assert (await at.team.ended(task_id)).state is State.DONE


async def test_an_agents_own_word_ends_its_task_whatever_is_open(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if "Look around" in request.system:
            return gate.then(says("I looked."))
        child = ("create_subtask", {"task_id": "1", "title": "Look around", "owner": "explore"})
        return calls(("complete_task", {"summary": "Enough."})) if results(request) else calls(("update_steps", {"steps": ["Look", "Write"]}), child)

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", completion="explicit")
        assert (task.state, task.summary, [step.done for step in task.steps]) == (State.DONE, "Enough.", [False, False])
        gate.open.set()
        assert (await at.team.ended("2")).state is State.DONE
