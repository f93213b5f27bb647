"""A run that stops anywhere is taken over at that very call, and nothing that was done is done
again.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remit.adapters.models.registry import ModelRegistry
from remit.adapters.models.wires.endpoint import TimeSource
from remit.bootstrap.embedded_worker import RunningWorker
from remit.domain.llm.messages import Request
from remit.domain.llm.selection import Choices, ModelChoice
from remit.domain.task.task import State
from remit.ports import Claim
from tests.agents.stage import Gate, Stage, calls, noting, reached, results, says, stage
from tests.crash.process import until
from tests.modelserver import ModelServer, Status

LONG_SECONDS = 600.0
"""A lease so long that no heartbeat tells the run of anything: the fence alone has to stop it."""


async def robbed(at: Stage) -> None:
    """Let another worker have the job of the one run there is.

    Its task still calls that run live.
    """
    assert (
        len((await at.team.core.store.claim(Claim("thief", {"agent/general": 0}, 1, 0, 0.0))).jobs)
        == 1
    )


async def test_a_run_that_loses_its_lease_during_a_model_call_makes_no_tool_call(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()

    def rule(request: Request) -> object:
        return gate.then(calls(("note", {"text": "one"})))

    # The rule answers later.
    async with stage(any_url, tmp_path, rule, functions=[noting(made)], workers=0) as at:  # type: ignore[arg-type]
        worker = await at.hire(heartbeat_seconds=LONG_SECONDS)
        task_id = await at.create(tools=["note"])
        await reached(gate)
        await robbed(at)
        before = await at.team.events(task_id)
        gate.open.set()
        await until(lambda: worker.running == 0)
        assert (made, len(at.script.asked)) == ([], 1)
        assert (await at.team.events(task_id), await at.transcript(task_id)) == (before, [])


async def test_a_run_that_loses_its_lease_during_a_tool_call_asks_no_model_and_makes_no_other(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()

    script = [calls(("note", {"text": "one"}), ("note", {"text": "two"})), says("Done.")]
    async with stage(any_url, tmp_path, script, functions=[noting(made, gate)], workers=0) as at:
        worker = await at.hire(heartbeat_seconds=LONG_SECONDS)
        task_id = await at.create(tools=["note"])
        await reached(gate)
        await robbed(at)
        before = await at.team.events(task_id), await at.transcript(task_id)
        gate.open.set()
        await until(lambda: worker.running == 0)
        assert (made, len(at.script.asked)) == (["one"], 1)
        assert (await at.team.events(task_id), await at.transcript(task_id)) == before


@asynccontextmanager
async def pausing(
    url: str, folder: Path, gate: Gate
) -> AsyncIterator[tuple[Stage, ModelServer, RunningWorker, str]]:
    """A run whose model wants to be left alone until the gate is open."""
    async with ModelServer("openai").running() as server, stage(url, folder, [], workers=0) as at:
        desk = ModelRegistry(
            Choices({"main": ModelChoice("m", server.url)}, {}),
            ticks=TimeSource(sleep=lambda _: gate.passed()),
        )
        server.replies = [Status(429, "slow down")]
        worker = await at.hire(desk, heartbeat_seconds=LONG_SECONDS)
        task_id = await at.create()
        await reached(gate)
        try:
            yield at, server, worker, task_id
        finally:
            await desk.close()


async def test_a_run_that_loses_its_lease_does_not_ask_its_model_again(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with pausing(any_url, tmp_path, gate) as (at, server, worker, task_id):
        await robbed(at)
        before = await at.team.events(task_id)
        gate.open.set()
        await until(lambda: worker.running == 0)
        assert (len(server.asked), await at.team.events(task_id)) == (1, before)


@pytest.mark.parametrize("how", ["stop", "pause"])
async def test_a_run_gives_its_task_back_while_its_model_must_not_be_asked(
    any_url: str, tmp_path: Path, how: str
) -> None:
    async with pausing(any_url, tmp_path, Gate()) as (at, server, worker, task_id):
        if how == "stop":
            worker.stop()
        else:
            await at.call("pause_task", task_id=task_id)
        task = await at.team.until(task_id, lambda task: task.run is None)
        assert (task.state, task.attempts, len(server.asked)) == (
            State.PENDING if how == "stop" else State.PAUSED,
            0,
            1,
        )
        assert (await at.team.events(task_id))[-1] == "RunReleased"


async def test_a_run_is_taken_over_between_an_answer_and_its_call(
    durable_url: str, tmp_path: Path
) -> None:
    made: list[str] = []

    async with stage(
        durable_url,
        tmp_path,
        [calls(("note", {"text": "one"})), says("Done.")],
        functions=[noting(made)],
        workers=0,
    ) as at:
        first = await at.hire()
        gate = Gate()
        original = at.script.request

        async def request(*args: object, **more: object) -> object:
            answer = await original(*args, **more)  # type: ignore[arg-type]
            if not gate.reached.is_set():
                gate.reached.set()
                first.stop()
            return answer

        at.script.request = request  # type: ignore[assignment,method-assign]
        task_id = await at.create(tools=["note"])
        await reached(gate)
        given_back = await at.team.until(task_id, lambda task: task.run is None)
        assert (given_back.state, made) == (State.PENDING, [])
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, made, len(at.script.asked), task.usage.requests) == (
            State.DONE,
            ["one"],
            2,
            2,
        )


async def test_an_interrupted_call_that_cannot_be_repeated_is_reported_as_unknown(
    durable_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()

    async with stage(
        durable_url,
        tmp_path,
        [calls(("note", {"text": "one"})), says("I looked.")],
        functions=[noting(made, gate)],
    ) as at:
        task_id = await at.create(tools=["note"])
        await reached(gate)
        lost = await at.team.task(task_id)
        assert lost.run is not None
        await at.team.do("LoseRun", "system:engine", task_id=task_id, run_id=lost.run.id)
        task = await at.team.ended(task_id)
        assert (task.state, made, task.counts.runs) == (State.DONE, ["one"], 2)
        assert "it is not known whether it took effect" in results(at.script.asked[1])[0]
        assert task.usage.requests == 2


async def test_a_stopping_worker_cancels_a_model_call_and_the_next_run_repeats_it(
    any_url: str, tmp_path: Path
) -> None:
    gate, turns = Gate(), list[int]()

    def rule(_request: Request) -> object:
        turns.append(1)
        return (
            gate.then(says("Done."))
            if len(turns) == 2
            else calls(("note", {"text": "one"}))
            if len(turns) == 1
            else says("Done.")
        )

    made = list[str]()
    # The rule answers later.
    async with stage(any_url, tmp_path, rule, functions=[noting(made)], workers=0) as at:  # type: ignore[arg-type]
        worker = await at.hire(heartbeat_seconds=LONG_SECONDS)
        task_id = await at.create(tools=["note"])
        await reached(gate)
        worker.hand_over()
        task = await at.team.until(task_id, lambda task: task.run is None)
        assert (task.state, task.attempts, await at.team.jobs()) == (
            State.PENDING,
            0,
            [f"run/{task_id}"],
        )
        assert [item.tool for item in task.tool_summary] == ["note"], "what it did is on record"
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, task.attempts, made, len(turns), task.usage.requests) == (
            State.DONE,
            0,
            ["one"],
            3,
            2,
        )
        assert (await at.team.events(task_id)).count("RunReleased") == 1


async def test_a_stopping_worker_stops_a_tool_whose_outcome_is_then_unknown(
    any_url: str, tmp_path: Path
) -> None:
    gate, made = Gate(), list[str]()
    script = [calls(("note", {"text": "one"})), says("I looked.")]
    async with stage(any_url, tmp_path, script, functions=[noting(made, gate)], workers=0) as at:
        worker = await at.hire(heartbeat_seconds=LONG_SECONDS)
        task_id = await at.create(tools=["note"])
        await reached(gate)
        worker.hand_over()
        assert (await at.team.until(task_id, lambda task: task.run is None)).attempts == 0
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, made, task.attempts) == (State.DONE, ["one"], 0)
        assert "it is not known whether it took effect" in results(at.script.asked[1])[0]


async def test_tool_calls_of_a_lost_run_are_counted(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def todo(status: str) -> tuple[str, dict[str, object]]:
        return "TodoWrite", {"todos": [{"content": "Look", "status": status}]}

    def rule(request: Request) -> object:
        answers = sum(message.role == "tool" for message in request.messages)
        if answers == 0:
            return calls(
                todo("pending"),
                ("LS", {"path": "."}),
                ("Write", {"file_path": "x", "content": "x"}),
            )
        if answers == 1 and len(at.script.asked) == 2:
            return gate.then(says("Never."))
        return calls(todo("completed")) if answers == 1 else says("Done.")

    # The rule answers later.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create()
        await reached(gate)
        lost = await at.team.task(task_id)
        assert lost.run is not None
        await at.team.do("LoseRun", "system:engine", task_id=task_id, run_id=lost.run.id)
        task = await at.team.ended(task_id)
        assert {count.tool: count.count for count in task.tool_summary} == {"LS": 1, "TodoWrite": 2}
        assert task.usage.requests == 3
