"""A time limit that changes while its task is at work: the current one holds."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from remit.domain.text.counting import in_seconds
from tests.agents.stage import Gate, Stage, calls, results, says, stage
from tests.patience import patient

LONG = {"timeout_seconds": patient(600)}


@pytest.mark.parametrize("after", [LONG, {}])
async def test_a_limit_that_is_raised_or_removed_does_not_cut_off_a_request(
    any_url: str, tmp_path: Path, after: dict[str, Any]
) -> None:
    seconds = patient(2)

    async def rule(request: Request) -> Response:
        await at.call("update_task", task_id="1", limits=after)
        await asyncio.sleep(seconds)  # it outlasts the first limit
        return says("Done.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"timeout_seconds": seconds})
        assert (task.state, task.failure_reason, task.usage.requests) == (State.DONE, None, 1)
        assert len(at.script.asked) == 1, "nothing is asked again"
        assert task.duration > seconds


@pytest.mark.parametrize("before", [LONG, {}])
async def test_a_limit_that_is_lowered_or_set_ends_a_request(
    any_url: str, tmp_path: Path, time_to_report: None, before: dict[str, Any]
) -> None:
    gate, seconds = Gate(), patient(0.5)

    async def rule(request: Request) -> Response:
        if not request.may_call:
            return says("A file.")
        if not results(request):
            return calls(("LS", {"path": "."}))
        await at.call("update_task", task_id="1", limits={"timeout_seconds": seconds})
        return await gate.then(says("Late."))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits=before)
        assert (task.state, task.reason) == (State.FAILED, "timeout")
        assert (
            task.failure_reason
            == f"The time limit of {in_seconds(seconds)} is reached. Its report: A file."
        )


async def test_a_limit_below_the_used_time_ends_the_run_before_another_request(
    any_url: str, tmp_path: Path, time_to_report: None
) -> None:
    async def rule(request: Request) -> Response:
        if not request.may_call:
            return says("Nothing.")
        await at.call("update_task", task_id="1", limits={"timeout_seconds": 0.001})
        return calls(("LS", {"path": "."}))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits=LONG)
        assert (task.state, task.reason) == (State.FAILED, "timeout")
        assert len([request for request in at.script.asked if request.may_call]) == 1


def leading(gate: Gate) -> Any:
    def rule(request: Request) -> Any:
        if "Dig" in request.system:
            return gate.then(says("Dug."))
        if not request.may_call:
            return says("They dig.")
        return (
            says("Done.")
            if results(request)
            else calls(("task", {"objective": "Dig", "subagent_type": "explore"}))
        )

    return rule


async def blocked(at: Stage, limits: dict[str, Any]) -> None:
    """A boss that waits for its worker."""
    await at.create(owner="build", limits=limits)
    await at.waiting("1")


@pytest.mark.parametrize("before", [LONG, {}])
async def test_a_limit_that_is_lowered_or_set_ends_a_blocked_task(
    any_url: str, tmp_path: Path, time_to_report: None, before: dict[str, Any]
) -> None:
    gate, seconds = Gate(), patient(0.5)
    async with stage(any_url, tmp_path, leading(gate)) as at:
        await blocked(at, before)
        await at.call("update_task", task_id="1", limits={"timeout_seconds": seconds})
        task = await at.team.ended("1")
        assert (
            task.failure_reason
            == f"The time limit of {in_seconds(seconds)} is reached. Its report: They dig."
        )
        gate.open.set()
        await at.team.idle()


@pytest.mark.parametrize("after", [LONG, {}])
async def test_a_blocked_task_goes_on_after_its_limit_is_raised_or_removed(
    any_url: str, tmp_path: Path, after: dict[str, Any]
) -> None:
    gate, seconds = Gate(), patient(2)
    async with stage(any_url, tmp_path, leading(gate)) as at:
        await blocked(at, {"timeout_seconds": seconds})
        await at.call("update_task", task_id="1", limits=after)
        await asyncio.sleep(seconds)  # it waits longer than the first limit
        gate.open.set()
        task = await at.team.ended("1")
        assert (task.state, task.failure_reason, task.counts.runs) == (State.DONE, None, 2)
        assert task.duration > seconds
