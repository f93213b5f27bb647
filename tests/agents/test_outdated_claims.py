"""Terms that change while a claim is checked: the claim was made for the earlier terms, so its
task goes on.
"""

from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from tests.agents.stage import calls, stage, texts

CHECKED = {"text": "It says one.", "check": {"output": "one", "contains": "1"}}
CHANGES: list[dict[str, Any]] = [
    {"outputs": ["one", "two"]},
    {"outputs": ["two"], "acceptance": ["It is good."]},
    {"instructions": "Do it well."},
    {"acceptance": []},
]


def handing(request: Request) -> Response:
    """Hand over what is asked for."""
    outputs = {"one": "1", "two": "2"} if "two" in texts(request) else {"one": "1"}
    return calls(("complete_task", {"outputs": outputs, "summary": "Done."}))


@pytest.mark.parametrize("change", CHANGES)
async def test_a_claim_before_a_change_does_not_complete_the_task(
    any_url: str, tmp_path: Path, change: dict[str, Any]
) -> None:
    async with stage(any_url, tmp_path, handing, workers=0) as at:
        task_id = await at.create(owner="explore", outputs=["one"], acceptance=[CHECKED])
        await at.call("complete_task", task_id=task_id, outputs={"one": "1"})
        answer = await at.call("update_task", task_id=task_id, **change)
        assert answer["task"]["state"] == "pending"
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, task.rounds, task.counts.runs) == (State.DONE, 0, 1)
        assert {output.name for output in task.outputs} <= set(task.completion_outputs or {})
        statuses = {
            update["status"]
            for update in (await at.call("list_updates", task_id=task_id))["updates"]
        }
        assert statuses == {"delivered"}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_session_reads_what_changed_after_its_claim(
    any_url: str, tmp_path: Path, change: dict[str, Any]
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(
            owner=None, session_id="s1", outputs=["one"], acceptance=[CHECKED]
        )
        await at.call("assign_task", task_id=task_id, subagent_session_id="s2")
        await at.call("pre_request", session_id="s2")
        await at.call("complete_task", task_id=task_id, outputs={"one": "1"})
        await at.call("update_task", task_id=task_id, **change)
        told = (await at.call("pre_request", session_id="s2"))["context"]
        assert told.count("[Task Update: ") == len(change)
        assert (await at.team.task(task_id)).state is State.RUNNING


async def test_a_change_that_the_claimer_need_not_know_leaves_the_claim(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(owner=None, outputs=["one"], acceptance=[CHECKED])
        await at.call("complete_task", task_id=task_id, outputs={"one": "1"})
        answer = await at.call("update_task", task_id=task_id, priority=0, outputs=["one"])
        assert answer["task"]["state"] == "verifying"
        await at.hire()
        assert (await at.team.ended(task_id)).verification == "verified"
