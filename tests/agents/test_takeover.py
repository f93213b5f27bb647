"""A run that stops anywhere is taken over at that very call, and nothing that was done is done again."""

from pathlib import Path

from remit.domain.message import Request
from remit.domain.value import State
from remit.ports import Claim
from tests.agents.stage import Gate, Stage, calls, noting, results, says, stage
from tests.agents.test_interruption import reached
from tests.crash.process import until

LONG_SECONDS = 600.0
"""A lease so long that no heartbeat tells the run of anything: the fence alone has to stop it."""


async def robbed(at: Stage) -> None:
    """Let another worker have the job of the one run there is; its task still calls that run live."""
    assert len((await at.team.core.store.claim(Claim("thief", {"agent/general": 0}, 1, 0, 0.0))).jobs) == 1


async def test_a_run_that_loses_its_lease_during_a_model_call_makes_no_tool_call(any_url: str, tmp_path: Path) -> None:
    gate, made = Gate(), list[str]()

    def rule(request: Request) -> object:
        return gate.then(calls(("note", {"text": "one"})))

    async with stage(any_url, tmp_path, rule, functions=[noting(made)], workers=0) as at:  # type: ignore[arg-type]  # the rule answers later
        worker = await at.hire(heartbeat_seconds=LONG_SECONDS)
        task_id = await at.create(tools=["note"])
        await reached(gate)
        await robbed(at)
        before = await at.team.events(task_id)
        gate.open.set()
        await until(lambda: worker.running == 0)
        assert (made, len(at.script.asked)) == ([], 1)
        assert (await at.team.events(task_id), await at.transcript(task_id)) == (before, [])


async def test_a_run_that_loses_its_lease_during_a_tool_call_asks_no_model_and_makes_no_other(any_url: str, tmp_path: Path) -> None:
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


async def test_a_run_is_taken_over_between_an_answer_and_its_call(durable_url: str, tmp_path: Path) -> None:
    made: list[str] = []

    async with stage(durable_url, tmp_path, [calls(("note", {"text": "one"})), says("Done.")], functions=[noting(made)], workers=0) as at:
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
        assert (task.state, made, len(at.script.asked), task.usage.requests) == (State.DONE, ["one"], 2, 2)


async def test_an_interrupted_call_that_cannot_be_repeated_is_reported_as_unknown(durable_url: str, tmp_path: Path) -> None:
    gate, made = Gate(), list[str]()

    async with stage(durable_url, tmp_path, [calls(("note", {"text": "one"})), says("I looked.")], functions=[noting(made, gate)]) as at:
        task_id = await at.create(tools=["note"])
        await reached(gate)
        lost = await at.team.task(task_id)
        assert lost.run is not None
        await at.team.do("LoseRun", "system:engine", task_id=task_id, run_id=lost.run.id)
        task = await at.team.ended(task_id)
        assert (task.state, made, task.counts.runs) == (State.DONE, ["one"], 2)
        assert "nobody knows whether it took effect" in results(at.script.asked[1])[0]
        assert task.usage.requests == 2
