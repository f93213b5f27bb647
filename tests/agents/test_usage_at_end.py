"""What a run has used is recorded whichever way its task ends, and every call counts once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.tools.functions import repeatable
from remit.domain.llm.messages import Request
from remit.domain.task.task import State, Task
from tests.agents.stage import Gate, calls, noting, reached, results, says, stage
from tests.patience import patient

LOOK = calls(("LS", {"path": "."}), ("LS", {"path": "."}))


def used(task: Task) -> tuple[int, int, dict[str, int]]:
    """Return the requests, the tokens and the uses of tools that a task has recorded."""
    usage = task.usage
    tools = {item.tool: item.count for item in task.tool_summary}
    return usage.requests, usage.input_tokens + usage.output_tokens, tools


def looking_then(gate: Gate) -> Any:
    """Return a rule of a model that looks twice and then waits at the gate."""

    def rule(request: Request) -> Any:
        return gate.then(says("Late.")) if results(request) else LOOK

    return rule


@pytest.mark.parametrize(
    ("how", "fields"),
    [
        ("cancel_task", {}),
        ("complete_task", {"summary": "By me."}),
        ("fail_task", {"message": "No."}),
        ("update_task", {"status": "canceled"}),
        ("update_task", {"owner": "explore"}),
    ],
)
async def test_the_usage_of_a_run_that_a_person_ends_is_recorded(
    any_url: str, tmp_path: Path, how: str, fields: dict[str, Any]
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking_then(gate)) as at:
        task_id = await at.create()
        await reached(gate)
        await at.call(how, task_id=task_id, **fields)
        task = await at.team.task(task_id)
        assert task.state.terminal
        assert used(task) == (1, 15, {"LS": 2})
        gate.open.set()
        await at.team.idle()
        assert used(await at.team.task(task_id)) == (1, 15, {"LS": 2})
        result = await at.call("task_output", task_id=task_id)
        if "owner" not in fields:
            assert result["data"]["tool_summary"] == [{"tool": "LS", "count": 2}]
            assert result["stats"]["tokens"] == 15


async def test_the_usage_of_subtasks_that_a_cancel_reaches_is_recorded(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "build":
            return calls(("task", {"objective": "Look", "subagent_type": "explore"}))
        return gate.then(says("Late.")) if results(request) else LOOK

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(owner="build")
        await reached(gate)
        await at.call("cancel_task", task_id="1")
        assert used(await at.team.task("2")) == (1, 15, {"LS": 2})
        gate.open.set()


async def test_the_usage_of_a_lost_run_that_no_other_follows_is_recorded(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking_then(gate)) as at:
        task_id = await at.create(limits={"max_attempts": 1})
        await reached(gate)
        run = (await at.team.task(task_id)).run
        assert run is not None
        await at.team.do("LoseRun", "system:engine", task_id=task_id, run_id=run.id)
        task = await at.team.task(task_id)
        assert (task.state, task.reason) == (State.FAILED, "lost")
        assert used(task) == (1, 15, {"LS": 2})
        gate.open.set()


@pytest.mark.parametrize(
    ("call", "state"),
    [
        (("fail_task", {"message": "I cannot."}), State.FAILED),
        (("cancel_task", {}), State.CANCELED),
        (("update_task", {"status": "canceled"}), State.CANCELED),
    ],
)
async def test_the_usage_of_a_run_that_ends_its_own_task_is_recorded(
    any_url: str, tmp_path: Path, call: tuple[str, dict[str, Any]], state: State
) -> None:
    name, fields = call
    script = [LOOK, calls((name, {"task_id": "1", **fields}))]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="build")
        assert task.state is state
        assert used(task) == (2, 30, {"LS": 2, name: 1})


async def test_the_tools_of_a_task_without_its_outputs_are_counted(
    any_url: str, tmp_path: Path
) -> None:
    script = [LOOK, says("Done."), says("Done."), says("Done.")]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(outputs=["report"])
        assert (task.state, task.reason) == (State.FAILED, "acceptance")
        assert used(task) == (4, 60, {"LS": 2})


# Each call counts once.


def noting_once() -> list[Any]:
    """Return the script of an agent that notes once."""
    return [calls(("note", {"text": "one"})), says("Done.")]


async def test_a_call_in_the_middle_of_which_its_worker_stops_counts_once(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()
    tools = [noting(made, gate)]
    async with stage(any_url, tmp_path, noting_once(), functions=tools, workers=0) as at:
        first = await at.hire()
        task_id = await at.create(tools=["note"])
        await reached(gate)
        first.hand_over()
        released = await at.team.until(task_id, lambda task: task.run is None)
        assert used(released) == (1, 15, {})
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, made) == (State.DONE, ["one"])
        assert used(task) == (2, 30, {"note": 1})


async def test_a_call_in_the_middle_of_which_the_task_is_canceled_counts_once(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()
    async with stage(any_url, tmp_path, noting_once(), functions=[noting(made, gate)]) as at:
        task_id = await at.create(tools=["note"])
        await reached(gate)
        await at.call("cancel_task", task_id=task_id)
        assert used(await at.team.task(task_id)) == (1, 15, {"note": 1})
        gate.open.set()


async def test_a_call_in_the_middle_of_which_the_time_ends_counts_once(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()
    async with stage(any_url, tmp_path, noting_once(), functions=[noting(made, gate)]) as at:
        task = await at.run(tools=["note"], limits={"timeout_seconds": patient(1)})
        assert (task.state, task.reason, made) == (State.FAILED, "timeout", ["one"])
        assert used(task)[2] == {"note": 1}


async def test_a_call_that_is_repeated_after_a_pause_counts_once(
    any_url: str, tmp_path: Path
) -> None:
    gate, turns = Gate(), list[int]()

    @repeatable
    async def look() -> str:
        """Look around; the first time, this does not end."""
        turns.append(1)
        gate.reached.set()
        if len(turns) == 1:
            await asyncio.Event().wait()
        return "seen"

    script = [calls(("look", {})), says("Done.")]
    async with stage(any_url, tmp_path, script, functions=[look]) as at:
        task_id = await at.create(tools=["look"])
        await reached(gate)
        await at.call("pause_task", task_id=task_id)
        await at.team.until(task_id, lambda task: task.run is None)
        await at.call("resume_task", task_id=task_id)
        task = await at.team.ended(task_id)
        assert len(turns) == 2
        assert used(task) == (2, 30, {"look": 1})
