"""Agents that are paused, stopped or overruled during their work."""

import asyncio
from pathlib import Path

import pytest

from remit.adapters.tools.functions import repeatable
from remit.domain.llm.messages import Request
from remit.domain.task.task import State
from remit.errors import Conflict
from tests.agents.processes import sleepers
from tests.agents.stage import Gate, Stage, calls, noting, reached, results, says, stage
from tests.patience import patient


async def stopped(at: Stage) -> None:
    """Wait until no worker has anything under way."""
    await at.team.idle()


async def test_a_pause_during_a_model_call_stops_before_its_tools(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()

    def rule(request: Request) -> object:
        return says("Done.") if results(request) else gate.then(calls(("note", {"text": "one"})))

    # The rule answers now or later.
    async with stage(any_url, tmp_path, rule, functions=[noting(made)]) as at:  # type: ignore[arg-type]
        task_id = await at.create(tools=["note"])
        await reached(gate)
        await at.call("pause_task", task_id=task_id)
        gate.open.set()
        held = await at.team.until(task_id, lambda task: task.run is None)
        assert (held.state, made, len(at.script.asked)) == (State.PAUSED, [], 1)
        await at.call("resume_task", task_id=task_id)
        task = await at.team.ended(task_id)
        assert (task.state, made, len(at.script.asked), task.attempts) == (
            State.DONE,
            ["one"],
            2,
            0,
        )


async def test_a_pause_between_two_effects_leaves_the_second_for_later(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()

    script = [calls(("note", {"text": "one"}), ("note", {"text": "two"})), says("Done.")]
    async with stage(any_url, tmp_path, script, functions=[noting(made, gate)]) as at:
        task_id = await at.create(tools=["note"])
        await reached(gate)
        await at.call("pause_task", task_id=task_id)
        await at.team.until(task_id, lambda task: task.run is None)
        assert made == ["one"]
        gate.open.set()
        await at.call("resume_task", task_id=task_id)
        assert (await at.team.ended(task_id)).state is State.DONE
        assert made == ["one", "two"]
        assert results(at.script.asked[1]) == ["note was stopped before it finished.", "noted"]


async def test_a_long_command_is_stopped_by_a_cancel(any_url: str, tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    command = f"echo begun > {marker}; sleep 60; echo ended > {marker}"
    async with stage(any_url, tmp_path, lambda _: calls(("Bash", {"command": command}))) as at:
        task_id = await at.create(tools=["Bash"])
        async with asyncio.timeout(patient(20)):
            # Another process writes it, and rings no bell.
            while not marker.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await at.call("cancel_task", task_id=task_id))["canceled"] == [task_id]
        async with asyncio.timeout(patient(20)):
            await stopped(at)
            while sleepers(command):  # noqa: ASYNC110 - a process that ends rings no bell
                await asyncio.sleep(0.01)
        assert (marker.read_text(), len(at.script.asked)) == ("begun\n", 1)


async def test_a_cancel_during_a_model_call_lets_no_other_begin(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> object:
        return gate.then(calls(("LS", {"path": "."})))

    # The rule answers later.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create()
        await reached(gate)
        await at.call("cancel_task", task_id=task_id)
        gate.open.set()
        async with asyncio.timeout(patient(20)):
            await stopped(at)
        task = await at.team.task(task_id)
        assert (task.state, task.counts.runs, len(at.script.asked)) == (State.CANCELED, 1, 1)
        with pytest.raises(Conflict):
            await at.call("run_task", task_id=task_id)


async def test_a_cancel_reaches_children_in_the_middle_of_their_calls(
    any_url: str, tmp_path: Path
) -> None:
    gates = {name: Gate() for name in ("Alpha", "Beta")}

    def rule(request: Request) -> object:
        name = next((name for name in gates if name in request.system), None)
        if name is not None:
            return gates[name].then(calls(("LS", {"path": "."})))
        return calls(
            (
                "task_parallel",
                {
                    "tasks": [
                        {"objective": "Alpha", "subagent_type": "explore"},
                        {"objective": "Beta"},
                    ]
                },
            )
        )

    # The rule answers now or later.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create(owner="build")
        for gate in gates.values():
            await reached(gate)
        canceled = (await at.call("cancel_task", task_id=task_id))["canceled"]
        for gate in gates.values():
            gate.open.set()
        async with asyncio.timeout(patient(20)):
            await stopped(at)
        assert sorted(canceled) == ["1", "2", "3"]
        assert [(await at.team.task(name)).state for name in canceled] == [State.CANCELED] * 3
        assert len(at.script.asked) == 3


@pytest.mark.parametrize("how", ["complete_task", "fail_task"])
async def test_the_word_of_a_person_ends_the_run(any_url: str, tmp_path: Path, how: str) -> None:
    gate, made = Gate(), list[str]()

    async with stage(
        any_url,
        tmp_path,
        lambda _: gate.then(calls(("note", {"text": "late"}))),
        functions=[noting(made)],
    ) as at:
        task_id = await at.create(tools=["note"])
        await reached(gate)
        fields = (
            {"summary": "I did it."} if how == "complete_task" else {"message": "Not worth it."}
        )
        await at.call(how, task_id=task_id, **fields)
        gate.open.set()
        async with asyncio.timeout(patient(20)):
            await stopped(at)
        task = await at.team.task(task_id)
        assert (task.state, made, len(at.script.asked)) == (
            State.DONE if how == "complete_task" else State.FAILED,
            [],
            1,
        )
        said = await at.transcript(task_id)
        ends = [] if how == "complete_task" else ["[Task failed: error] Not worth it."]
        assert [part["text"] for message in said for part in message["parts"]] == ["Do it.", *ends]


async def test_a_worker_that_stops_gives_back_at_the_boundary(any_url: str, tmp_path: Path) -> None:
    gate, made = Gate(), list[str]()

    script = [calls(("note", {"text": "one"})), says("Done.")]
    async with stage(any_url, tmp_path, script, functions=[noting(made, gate)], workers=0) as at:
        first = await at.hire()
        task_id = await at.create(tools=["note"])
        await reached(gate)
        first.stop()
        gate.open.set()
        released = await at.team.until(task_id, lambda task: task.run is None)
        assert (released.state, released.attempts, len(at.script.asked)) == (State.PENDING, 0, 1)
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, task.counts.runs, made) == (State.DONE, 2, ["one"])


async def test_a_timeout_in_a_tool_does_not_time_out_the_task(any_url: str, tmp_path: Path) -> None:
    @repeatable
    def slow() -> str:
        """Never in time."""
        raise TimeoutError("the disk")

    async with stage(
        any_url, tmp_path, [calls(("slow", {})), says("Without it.")], functions=[slow]
    ) as at:
        task = await at.run(tools=["slow"], limits={"timeout_seconds": patient(60)})
        assert task.state is State.DONE
