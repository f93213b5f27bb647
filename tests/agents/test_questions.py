"""Questions of running agents to people: what can be answered, and who is said to ask."""

from pathlib import Path

import pytest

from remit.domain.message import Request, Response
from remit.errors import InvalidParam
from tests.agents.stage import calls, results, says, stage

OFFERED = {"question": "Red or blue?", "options": ["Red", "Blue"]}


async def test_an_answer_outside_the_options_is_refused_and_the_question_stays_open(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return says(answered[0]) if (answered := results(request)) else calls(("ask_user", OFFERED))

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create()
        await at.waiting(task_id)
        (asked,) = (await at.call("list_interactions"))["interactions"]
        assert (asked["options"], asked["allow_other"], asked["asked_by"]) == (
            ["Red", "Blue"],
            False,
            "agent:general",
        )
        with pytest.raises(
            InvalidParam,
            match=r"'green', which is not an option of question 1-q1; expected one of 'Red', 'Blue'",
        ):
            await at.call("respond", interaction_id=asked["id"], answer="green")
        await at.call("respond", interaction_id=asked["id"], answer=" blue")
        assert (await at.team.ended(task_id)).summary == "The person answered: Blue"


async def test_another_answer_is_accepted_where_the_agent_allows_it(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return says(answered[0]) if (answered := results(request)) else calls(("ask_user", {**OFFERED, "allow_other": True}))

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create()
        await at.waiting(task_id)
        (asked,) = (await at.call("list_interactions"))["interactions"]
        assert asked["allow_other"] is True
        await at.call("respond", interaction_id=asked["id"], answer="Green")
        assert (await at.team.ended(task_id)).summary == "The person answered: Green"


async def test_a_question_of_remit_itself_is_not_signed_by_the_agent(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("I am done.")) as at:
        task_id = (await at.call("create_task", title="Look", owner="general", completion="explicit"))["task_id"]
        for _ in range(2):
            await at.waiting(task_id)
            await at.call("run_task", task_id=task_id)
        await at.team.until(task_id, lambda task: bool(task.questions))
        (asked,) = (await at.call("list_interactions"))["interactions"]
        assert "3 runs in a row made no progress" in asked["question"]
        assert asked["asked_by"] == "system:engine"
