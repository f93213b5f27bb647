"""The budget of a task that takes the place of a root."""

from pathlib import Path

from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from tests.agents.spending import ANSWER, left, looking
from tests.agents.stage import stage


async def test_a_rerun_of_a_root_has_its_own_budget(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, looking, workers=0) as at:
        worker = await at.hire()
        assert (await at.run(limits={"max_tokens": 6_000})).reason == "budget"
        worker.stop()
        await at.team.staff(0)
        again = (await at.call("rerun_task", task_id="1"))["task_id"]
        assert (await at.team.task(again)).root_id == again
        await at.call(
            "update_task", task_id=again, limits={"max_tokens": 1_000_000, "max_turns": 2}
        )
        await at.hire()
        task = await at.team.ended(again)
        shown = [left(request) for request in at.script.asked[1:3]]
        assert (task.reason, shown) == ("turns", [1_000_000, 1_000_000 - sum(ANSWER[:2])])


async def test_a_root_that_is_handed_over_obeys_the_limits_of_its_successor(
    any_url: str, tmp_path: Path
) -> None:
    async def rule(request: Request) -> Response:
        if len(at.script.asked) == 2:
            await at.call("update_task", task_id="1", owner="plan")
        if len(at.script.asked) == 3:
            await at.call(
                "update_task", task_id="2", limits={"max_tokens": 900_000, "max_turns": 2}
            )
        return looking(request)

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(limits={"max_tokens": 60_000, "max_turns": 9})
        await at.team.until("1", lambda task: task.state is State.CANCELED)
        task = await at.team.ended("2")
        assert (task.root_id, task.reason) == ("1", "turns")
        third, fourth = (left(request) or 0 for request in at.script.asked[2:4])
        assert third < 60_000, "what its predecessor used counts"
        assert fourth == 900_000 - (60_000 - third) - sum(ANSWER[:2])
