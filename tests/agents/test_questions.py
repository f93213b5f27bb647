"""Questions of running agents to people: which can be answered, and who asks."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State, Task
from remit.errors import Conflict, InvalidParam
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage
from tests.patience import patient

OFFERED = {"question": "Red or blue?", "options": ["Red", "Blue"]}


async def test_an_answer_outside_the_options_is_refused_and_the_question_stays_open(
    any_url: str, tmp_path: Path
) -> None:
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
            match=(
                r"'green', which is not an option of question 1-q1; expected one of 'Red', 'Blue'"
            ),
        ):
            await at.call("respond", interaction_id=asked["id"], answer="green")
        await at.call("respond", interaction_id=asked["id"], answer=" blue")
        assert (await at.team.ended(task_id)).summary == "The person answered: Blue"


async def test_another_answer_is_accepted_where_the_agent_allows_it(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        return (
            says(answered[0])
            if (answered := results(request))
            else calls(("ask_user", {**OFFERED, "allow_other": True}))
        )

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create()
        await at.waiting(task_id)
        (asked,) = (await at.call("list_interactions"))["interactions"]
        assert asked["allow_other"] is True
        await at.call("respond", interaction_id=asked["id"], answer="Green")
        assert (await at.team.ended(task_id)).summary == "The person answered: Green"


async def test_a_parent_that_looks_at_its_child_sees_the_question(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says("Blue.") if results(request) else calls(("ask_user", OFFERED))
        if not results(request):
            work = {"objective": "Look", "subagent_type": "explore", "wait": False}
            return says("Done.") if len(request.messages) > 2 else calls(("task", work))
        told = json.loads(results(request)[0])
        if "questions" in told:
            seen.append(told)
            return says("I wait.")
        return calls(("task_output", {"task_id": told["task_id"], "wait_seconds": 0.01}))

    seen: list[dict[str, Any]] = []
    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        await at.team.until(task_id, lambda task: bool(task.children))
        await at.team.until(task_id, lambda _: bool(seen))
        (question,) = seen[0]["questions"]
        assert question == OFFERED | {"interaction_id": "2-q1", "task_id": "2"}
        assert seen[0]["note"].startswith("It waits for a person")
        assert "respond" not in seen[0]["note"], "a running agent cannot answer for a person"
        await at.call("respond", interaction_id="2-q1", answer="Blue")
        await at.team.ended(task_id)


async def test_a_question_of_remit_itself_is_not_signed_by_the_agent(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("I am done.")) as at:
        task_id = (
            await at.call("create_task", title="Look", owner="general", completion="explicit")
        )["task_id"]
        for _ in range(2):
            await at.waiting(task_id)
            await at.call("run_task", task_id=task_id)
        await at.team.until(task_id, lambda task: bool(task.questions))
        (asked,) = (await at.call("list_interactions"))["interactions"]
        assert "3 runs in a row made no progress" in asked["question"]
        assert asked["asked_by"] == "system:engine"
        events = (await at.call("get_events", task_id=task_id))["events"]
        signed = {event["type"]: event["actor"] for event in events}
        assert signed["UserInteractionRequested"] == "system:engine"
        assert signed["RunYielded"] == "agent:general", "only the question is signed by remit"


async def test_a_caller_gets_the_answer_of_a_task_about_which_remit_asked(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, planned_answer) as at:
        await idle_with_a_question(at)
        found = await at.call("task_output", task_id="1", wait_seconds=patient(20))
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)
        assert (await at.call("list_interactions"))["interactions"] == []
        task = await at.team.ended("1")
        assert [step.done for step in task.steps] == [False]


async def test_running_a_task_answers_the_question_of_remit(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, planned_answer) as at:
        task = await idle_with_a_question(at)
        await at.call("run_task", task_id="1")
        await at.team.until("1", lambda now: now.counts.runs > task.counts.runs and not now.run)
        open_questions = (await at.call("list_interactions"))["interactions"]
        assert "1-q1" not in [question["id"] for question in open_questions]


ANSWER = "The answer is 42."


def planned_answer(request: Request) -> Response:
    """Plan a step, leave it open, and answer in every run."""
    return says(ANSWER) if results(request) else calls(("update_steps", {"steps": ["Look"]}))


async def idle_with_a_question(at: Stage) -> Task:
    """A task that answered in each run until remit asked a person."""
    await at.call("create_task", title="Look", owner="general")
    for _ in range(3):
        task = await at.waiting("1")
        if task.questions:
            return task
        await at.call("run_task", task_id="1")
    return await at.team.until("1", lambda task: bool(task.questions))


LEAD = Agent(id="lead", description="Leads.", tools=("Read", "Task"), capabilities=("tasks",))
PART = {"task_id": "2", "title": "Part", "owner": "explore", "wait": "wake"}
NO_PROGRESS = "I still wait for my subtask."


async def test_messages_to_a_task_that_waits_for_its_subtask_do_not_stop_the_delegation(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says("The part is done."))
        if request.agent == "lead":
            created = any(message.role == "tool" for message in request.messages)
            return says(NO_PROGRESS) if created else calls(("create_subtask", PART))
        work = {"objective": "Lead", "subagent_type": "lead", "timeout_seconds": patient(30)}
        return says("All done.") if results(request) else calls(("task", work))

    async with (
        stage(any_url, tmp_path, rule, agents=(LEAD,)) as at,
        asyncio.timeout(patient(60)),
        asyncio.TaskGroup() as group,
    ):
        delegated = group.create_task(at.call("task", objective="Go", subagent_type="build"))
        await reached(gate)
        for number in range(1, 4):

            def waits_again(task: Task, runs: int = number) -> bool:
                is_read = not task.queued
                return task.state is State.WAITING and task.counts.runs == runs and is_read

            task = await at.team.until("2", waits_again)
            assert task.wait is not None
            assert [(item.kind, item.ref) for item in task.wait.on] == [("subtask", "3")]
            await at.call("send_message", task_id="2", message=f"Status {number}?")
        await at.team.until("2", lambda task: task.counts.runs == 4 and task.run is None)
        assert (await at.call("list_interactions"))["interactions"] == []
        gate.open.set()
        assert (await delegated)["data"]["result"] == "All done."


@pytest.mark.parametrize("news", ["message", "instructions", "subtask"])
async def test_news_closes_a_question_of_remit_itself_and_wakes_the_task(
    any_url: str, tmp_path: Path, news: str
) -> None:
    async with (
        stage(any_url, tmp_path, lambda _: says("I am done."), agents=(LEAD,)) as at,
        asyncio.timeout(patient(60)),
    ):
        task_id = await at.create(owner="lead", completion="explicit", metadata={})
        for _ in range(2):
            await at.waiting(task_id)
            await at.call("run_task", task_id=task_id)
        await at.team.until(task_id, lambda task: bool(task.questions))
        if news == "message":
            await at.call("send_message", task_id=task_id, message="Go on.")
        elif news == "instructions":
            await at.call("update_task", task_id=task_id, instructions="Go on.")
        else:
            await at.call("create_subtask", task_id=task_id, title="Part", owner="explore")
        await at.team.until(task_id, lambda task: task.counts.runs > 3)
        assert "1-q1" not in str((await at.call("list_interactions"))["interactions"])
        with pytest.raises(Conflict, match=r"1-q1 was closed.*send_message"):
            await at.call("respond", interaction_id="1-q1", answer="Go on")
