"""A queued rejection is written with the terms that apply when the agent reads it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request
from remit.domain.task.commands import CheckCriteria
from remit.domain.task.task import State
from tests.agents.stage import Gate, calls, says, stage
from tests.patience import patient

CRITERION = {"text": "port", "check": {"output": "report", "contains": "8420"}}


@pytest.mark.parametrize(
    ("change", "fields", "handed"),
    [
        ("waive_criterion", {"criterion_id": "c1", "reason": "Fine."}, {}),
        ("update_task", {"acceptance": ["Short"], "outputs": ["two"]}, {"two": "2"}),
    ],
)
async def test_an_agent_does_not_read_an_outdated_gap(
    durable_url: str, tmp_path: Path, change: str, fields: dict[str, Any], handed: dict[str, str]
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.messages[0].text == "Hold the slot.":
            return gate.then(says("Held."))
        if any("[Not accepted yet]" in message.text for message in request.messages):
            return calls(("complete_task", {"outputs": handed} if handed else {}))
        return says("More at the next tick.")

    async with (
        stage(durable_url, tmp_path, rule, concurrency=1) as at,
        asyncio.timeout(patient(60)),
    ):
        terms = {"acceptance": [CRITERION], "outputs": ["report"], "completion": "explicit"}
        task_id = await at.create(**terms)
        await at.waiting(task_id)
        await at.create(instructions="Hold the slot.")
        await gate.reached.wait()
        await at.call("complete_task", task_id=task_id, outputs={"report": "none"})
        await at.team.core.service.execute(CheckCriteria(task_id=task_id), "system:engine")
        await at.call(change, task_id=task_id, **fields)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert task.state is State.DONE
        (news,) = [
            message.text
            for message in at.script.asked[-1].messages
            if message.text.startswith("[Not accepted yet]")
        ]
        assert "that rejection no longer applies" in news
        assert "8420" not in news
        assert "report" not in news
