"""Completion of an agent's work, and its evidence."""

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from tests.agents.stage import Gate, Stage, calls, results, says, stage, texts


async def test_a_criterion_without_a_check_is_attested_by_the_agent_and_does_not_block(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("I read it twice.")) as at:
        task = await at.run(acceptance=["It reads well"])
        (criterion,) = task.acceptance
        assert (task.state, task.verification) == (State.DONE, "unverified")
        assert (criterion.status, criterion.evidence, criterion.by) == (
            "attested",
            "I read it twice.",
            "agent:general",
        )
        assert (await at.run()).verification == "none"


async def test_a_claim_without_a_word_leaves_the_criterion_unverified(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: calls(("complete_task", {}))) as at:
        task = await at.run(acceptance=["It reads well"])
        assert (task.state, task.acceptance[0].status, task.verification) == (
            State.DONE,
            "unverified",
            "unverified",
        )


async def test_a_tick_continues_with_open_steps(any_url: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("wait", "state"), [("wake", State.WAITING), ("block", State.WAITING), ("none", State.DONE)]
)
async def test_a_live_child_holds_the_end_of_its_parent_unless_it_is_not_awaited(
    any_url: str, tmp_path: Path, wait: str, state: State
) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if "Look around" in request.system:
            return gate.then(says("I looked."))
        if results(request) or "[Subtask ended]" in texts(request):
            return says("Nothing else to do.")
        return calls(
            (
                "create_subtask",
                {"task_id": "1", "title": "Look around", "owner": "explore", "wait": wait},
            )
        )

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        rested = await at.team.until(
            task_id, lambda task: task.run is None and task.counts.runs == 1
        )
        assert rested.state is state
        await gate.reached.wait()
        gate.open.set()
        assert (await at.team.ended("2")).state is State.DONE
        assert (await at.team.ended(task_id)).state is State.DONE


async def test_an_agents_own_word_ends_its_task_whatever_is_open(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if "Look around" in request.system:
            return gate.then(says("I looked."))
        child = ("create_subtask", {"task_id": "1", "title": "Look around", "owner": "explore"})
        return (
            calls(("complete_task", {"summary": "Enough."}))
            if results(request)
            else calls(("update_steps", {"steps": ["Look", "Write"]}), child)
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", completion="explicit")
        assert (task.state, task.summary, [step.done for step in task.steps]) == (
            State.DONE,
            "Enough.",
            [False, False],
        )
        gate.open.set()
        assert (await at.team.ended("2")).state is State.DONE


PORT: dict[str, Any] = {
    "text": "It names the port",
    "check": {"output": "report", "contains": "8420"},
}
GOOD = ("complete_task", {"outputs": {"report": "port 8420"}})
OTHERS = "Handed over by others (part of the result unless you replace it)"
NOT_ACCEPTED = f"""\
[Not accepted yet]
The result that user:ann handed over does not meet these criteria:
- c1: It names the port
  Check: the output report contains "8420".
  Found: output report: does not contain "8420".
{OTHERS}: report: "none" (user:ann)
Close these gaps. Then call complete_task with {{"outputs": {{"report": "<the new text>"}}}}."""


async def claimed_by_person(at: Stage, **fields: Any) -> str:
    """A task with a wrong result that a person claimed before any worker was there."""
    task_id = await at.create(acceptance=[PORT], outputs=["report"], **fields)
    await at.call("complete_task", task_id=task_id, outputs={"report": "none"})
    return task_id


async def statuses(at: Stage, task_id: str) -> list[tuple[str, str, int | None]]:
    """The updates of a task with their receipts."""
    updates = (await at.call("list_updates", task_id=task_id))["updates"]
    return [(item["type"], item["status"], item["turn"]) for item in updates]


async def test_an_early_rejection_is_delivered_once(any_url: str, tmp_path: Path) -> None:
    script = [calls(("LS", {"path": "."})), calls(GOOD)]
    async with stage(any_url, tmp_path, script, workers=0) as at:
        task_id = await claimed_by_person(at)
        await at.call("send_message", task_id=task_id, message="Hurry.")
        await at.hire()
        assert (await at.team.ended(task_id)).state is State.DONE
        first, later = at.script.asked
        message = "[Task Update: Message]\nHurry."
        assert first.messages[0].text == f"Do it.\n\n{NOT_ACCEPTED}\n\n{message}"
        assert texts(later).count(NOT_ACCEPTED) == 1
        expected = [("message", "delivered", 1), ("rejection", "delivered", 1)]
        assert await statuses(at, task_id) == expected


async def test_only_one_of_two_early_rejections_is_delivered(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [calls(GOOD)], workers=0) as at:
        task_id = await claimed_by_person(at)
        for report in ("none", "nothing"):
            await at.call("complete_task", task_id=task_id, outputs={"report": report})
            await at.team.do("CheckCriteria", "system:engine", task_id=task_id)
        await at.hire()
        assert (await at.team.ended(task_id)).state is State.DONE
        assert texts(at.script.asked[0]).count("[Not accepted yet]\n") == 1


@pytest.mark.parametrize("by", ["waiver", "update"])
async def test_an_annulled_rejection_is_not_delivered(
    any_url: str, tmp_path: Path, by: str
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        task_id = await claimed_by_person(at)
        await at.team.do("CheckCriteria", "system:engine", task_id=task_id)
        if by == "waiver":
            waived = {"task_id": task_id, "criterion_id": "c1", "reason": "Not needed."}
            await at.call("waive_criterion", **waived)
        else:
            await at.call("update_task", task_id=task_id, acceptance=["It is short"])
        await at.hire()
        assert (await at.team.ended(task_id)).state is State.DONE
        assert at.script.asked[0].messages[0].text == "Do it."


async def test_a_new_owner_reads_an_early_rejection(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [calls(GOOD)], workers=0) as at:
        task_id = await claimed_by_person(at)
        await at.team.do("CheckCriteria", "system:engine", task_id=task_id)
        await at.call("update_task", task_id=task_id, owner="build")
        await at.hire()
        assert (await at.team.ended(task_id)).state is State.DONE
        assert at.script.asked[0].messages[0].text == f"Do it.\n\n{NOT_ACCEPTED}"


ASKS = calls(("ask_user", {"question": "Which port?"}))


async def asked(at: Stage) -> str:
    """A task with a criterion whose agent waits for an answer."""
    task_id = await at.create(acceptance=[PORT], outputs=["report"])
    await at.waiting(task_id)
    return task_id


async def test_a_rejected_claim_leaves_an_open_question_open(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [ASKS, calls(GOOD)]) as at:
        task_id = await asked(at)
        await at.call("complete_task", task_id=task_id, outputs={"report": "none"})
        task = await at.team.until(task_id, lambda task: task.rounds == 1)
        assert task.state is State.WAITING
        (question,) = (await at.call("list_interactions"))["interactions"]
        await at.call("respond", interaction_id=question["id"], answer="8420")
        task = await at.team.ended(task_id)
        assert (task.state, task.counts.runs) == (State.DONE, 2)
        request = at.script.asked[-1]
        assert "The person answered: 8420" in str(request.messages)
        assert texts(request).count(NOT_ACCEPTED) == 1


async def test_a_rejected_draft_does_not_start(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [calls(GOOD)]) as at:
        task_id = await claimed_by_person(at, status="draft")
        task = await at.team.until(task_id, lambda task: task.rounds == 1)
        assert (task.state, task.started_at) == (State.DRAFT, None)
        await at.call("update_task", task_id=task_id, status="active")
        assert (await at.team.ended(task_id)).state is State.DONE
        assert at.script.asked[0].messages[0].text == f"Do it.\n\n{NOT_ACCEPTED}"


@pytest.mark.parametrize("is_outdated", [False, True])
async def test_a_rejected_paused_task_stays_paused(
    any_url: str, tmp_path: Path, is_outdated: bool
) -> None:
    async with stage(any_url, tmp_path, [calls(GOOD)], workers=0) as at:
        task_id = await at.create(acceptance=[PORT], outputs=["report"])
        await at.call("pause_task", task_id=task_id)
        await at.call("complete_task", task_id=task_id, outputs={"report": "none"})
        if is_outdated:
            await at.call("update_task", task_id=task_id, instructions="Do it well.")
        else:
            await at.team.do("CheckCriteria", "system:engine", task_id=task_id)
        task = await at.team.task(task_id)
        assert (task.state, task.paused_from) == (State.PAUSED, State.PENDING)
        await at.call("resume_task", task_id=task_id)
        await at.hire()
        assert (await at.team.ended(task_id)).state is State.DONE


async def test_an_agent_sees_the_values_that_others_handed_over(
    any_url: str, tmp_path: Path
) -> None:
    note = "n" * 300
    script = [calls(GOOD), calls(("complete_task", {"outputs": {"note": "Mine."}}))]
    missing = {"text": "Made", "check": {"file": "made.txt"}}
    async with stage(any_url, tmp_path, script, workers=0) as at:
        task_id = await at.create(acceptance=[PORT, missing], outputs=["report", "note"])
        given = {"report": "none", "note": note}
        await at.call("complete_task", task_id=task_id, outputs=given)
        await at.team.do("CheckCriteria", "system:engine", task_id=task_id)
        await at.hire()
        await at.team.until(task_id, lambda task: task.rounds == 2)
        await at.team.until(task_id, lambda task: task.state.terminal)
        first, second = at.script.asked
        shown = f'report: "none" (user:ann), note: "{note[:199]} […] (user:ann)'
        assert f"\n{OTHERS}: {shown}\n" in first.messages[-1].text
        assert "Handed over already" not in first.messages[-1].text
        told = second.messages[-2].text
        assert "The result that you handed over does not meet these criteria:\n- c2" in told
        assert told.endswith("If the next result is not accepted either, the task fails.")
        assert OTHERS not in told
        block = second.messages[-1].text
        assert "\nHanded over already (send one again only to replace it): report\n" in block
        assert f'\n{OTHERS}: note: "{note[:199]} […] (user:ann)\n' in block
