"""An awaited task ends within its limits: the reminder of open steps costs no answer, and no wait
outlasts the time limit.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import Request
from remit.domain.task import commands as cmd
from remit.domain.task.task import State
from remit.errors import InvalidParam
from tests.agents.shown import told
from tests.agents.stage import Gate, calls, results, says, stage, texts
from tests.patience import patient

ANSWER = "The answer is 42."
REMINDER = "[Open steps]\n"
LEAD = Agent(id="lead", description="Leads.", tools=("Read", "Task"), capabilities=("tasks",))
SLOW = {"task_id": "1", "title": "Slow", "owner": "explore", "wait": "wake"}


def planner(request: Request) -> Any:
    """A model that plans, ticks nothing and answers."""
    planned = any(message.role == "tool" for message in request.messages)
    return says(ANSWER) if planned else calls(("update_steps", {"steps": ["Look"]}))


async def test_the_answer_stands_if_no_turn_is_left_for_the_reminder(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, planner) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", limits={"max_turns": 2})
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)
        assert len(at.script.asked) == 2


async def test_the_answer_stands_if_the_turns_are_used_up_after_the_reminder(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        return calls(("LS", {})) if REMINDER in texts(request) else planner(request)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", limits={"max_turns": 5})
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)


async def test_the_answer_stands_if_the_budget_of_a_subtask_is_used_up(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return planner(request)
        work = {"objective": "Go", "subagent_type": "explore", "limits": {"max_tokens": 30}}
        return says("Done.") if results(request) else calls(("task", work))

    async with stage(durable_url, tmp_path, rule) as at:
        await at.run(owner="build")
        child = await at.team.task("2")
        assert (child.state, child.summary, child.usage.requests) == (State.DONE, ANSWER, 2)


async def test_the_answer_stands_if_the_time_is_up_during_the_reminder(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        return gate.then(says("Never.")) if REMINDER in texts(request) else planner(request)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", timeout_seconds=patient(3))
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)


async def test_the_answer_stands_if_nothing_is_said_to_the_reminder(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        return says("") if REMINDER in texts(request) else planner(request)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go")
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)
        assert "RunFailed" not in await at.team.events("1")


async def test_the_answer_stands_if_the_agent_ticks_its_steps_and_then_says_nothing(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        if REMINDER not in texts(request):
            return planner(request)
        ticked = "[x] 0. Look" in request.messages[-1].text
        return says("") if ticked else calls(("update_step", {"index": 0, "done": True}))

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go")
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)


@pytest.mark.parametrize(
    "kind",
    ["context_overflow", "authentication", "rejected_request", "quota", "tool_calls_as_text"],
)
async def test_the_answer_stands_if_the_model_fails_at_the_reminder(
    durable_url: str, tmp_path: Path, kind: Any
) -> None:
    def rule(request: Request) -> Any:
        if REMINDER in texts(request):
            raise ModelFailed(kind, "no")
        return planner(request)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go")
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)
        assert [step.done for step in (await at.team.task("1")).steps] == [False]


@pytest.mark.parametrize("kind", ["overloaded", "refused", "stalled", "bad_response"])
async def test_the_answer_stands_once_the_attempts_at_the_reminder_are_used_up(
    durable_url: str, tmp_path: Path, kind: Any
) -> None:
    asked = 0

    def rule(request: Request) -> Any:
        nonlocal asked
        if REMINDER in texts(request):
            asked += 1
            raise ModelFailed(kind, "no")
        return planner(request)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", limits={"max_attempts": 2})
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)
        assert asked == (1 if kind == "bad_response" else 2)


async def test_the_answer_stands_if_the_model_fails_after_it_marked_its_steps(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        if REMINDER not in texts(request):
            return planner(request)
        if "[x] 0. Look" in request.messages[-1].text:
            raise ModelFailed("authentication", "no")
        return calls(("update_step", {"index": 0, "done": True}))

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go")
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)


async def test_an_answer_from_before_new_instructions_does_not_stand(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if "Something else." in texts(request):
            raise ModelFailed("authentication", "no")
        if REMINDER in texts(request):
            return gate.then(calls(("update_step", {"index": 0, "done": True})))
        return planner(request)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        made = await at.call("task", objective="Go", wait=False)
        task_id = made["data"]["task_id"]
        await gate.reached.wait()
        await at.call("update_task", task_id=task_id, instructions="Something else.")
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.state, task.reason, task.final_message) == (State.FAILED, "error", ANSWER)


async def test_the_answer_stands_if_the_time_is_up_in_a_later_run(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if REMINDER not in texts(request):
            return planner(request)
        if not gate.reached.is_set():
            return gate.then(says("Never."))
        raise AssertionError("no turn is left")

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        made = await at.call("task", objective="Go", wait=False)
        task_id = made["data"]["task_id"]
        await gate.reached.wait()
        await at.call("update_task", task_id=task_id, limits={"max_turns": 2})
        run = (await at.team.task(task_id)).run
        assert run is not None
        lost = cmd.LoseRun(task_id=task_id, run_id=run.id)
        await at.team.core.service.execute(lost, "system:engine")
        task = await at.team.ended(task_id)
        assert (task.state, task.summary, task.counts.runs) == (State.DONE, ANSWER, 2)


async def test_the_answer_is_kept_over_a_wait_for_a_subtask(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return says("Found.")
        if REMINDER not in texts(request):
            return planner(request)
        if not any("create_subtask" in str(message.parts) for message in request.messages):
            return calls(("create_subtask", {**SLOW, "title": "Quick"}))
        return says("All done." if "I wait." in texts(request) else "I wait.")

    async with (
        stage(durable_url, tmp_path, rule, agents=(LEAD,)) as at,
        asyncio.timeout(patient(60)),
    ):
        found = await at.call("task", objective="Go", subagent_type="lead")
        assert found["data"]["result"].startswith(ANSWER)
        assert found["data"]["result"].endswith("All done.")


async def test_there_is_one_reminder_also_if_the_agent_then_makes_a_subtask(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return says("Found.")
        if REMINDER not in texts(request):
            return planner(request)
        made = any("create_subtask" in str(message.parts) for message in request.messages)
        return (
            says("All of it, at last.")
            if made
            else calls(("create_subtask", {**SLOW, "title": "Quick"}))
        )

    async with (
        stage(durable_url, tmp_path, rule, agents=(LEAD,)) as at,
        asyncio.timeout(patient(60)),
    ):
        await at.call("task", objective="Go", subagent_type="lead")
        events = await at.team.events("1")
        assert (events.count("AgentReminded"), events[-1]) == (1, "TaskCompleted")


async def test_an_update_beside_the_reminder_is_not_answered_by_the_earlier_message(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        return gate.then(says(ANSWER)) if results(request) else planner(request)

    async with stage(durable_url, tmp_path, rule) as at:
        task_id = (await at.call("task", objective="Go", wait=False, limits={"max_turns": 2}))[
            "data"
        ]["task_id"]
        await gate.reached.wait()
        await at.call("update_task", task_id=task_id, instructions="Something else.")
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.state, task.reason) == (State.FAILED, "turns")


async def test_a_reminder_survives_the_loss_of_its_run(durable_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        reminded = REMINDER in texts(request)
        return (
            gate.then(says("Never."))
            if reminded and not gate.reached.is_set()
            else planner(request)
        )

    async with stage(durable_url, tmp_path, rule) as at:
        task_id = (await at.call("task", objective="Go", wait=False))["data"]["task_id"]
        await gate.reached.wait()
        run = (await at.team.task(task_id)).run
        assert run is not None
        await at.team.core.service.execute(
            cmd.LoseRun(task_id=task_id, run_id=run.id), "system:engine"
        )
        task = await at.team.ended(task_id)
        assert (task.state, task.summary, task.counts.runs) == (State.DONE, ANSWER, 2)
        assert texts(at.script.asked[-1]).count(REMINDER) == 1


async def test_the_time_limit_bounds_the_wait_for_wake_children(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says("Late."))
        return (
            says("I wait.")
            if results(request) or not request.may_call
            else calls(("create_subtask", SLOW))
        )

    async with (
        stage(durable_url, tmp_path, rule, agents=[LEAD]) as at,
        asyncio.timeout(patient(60)),
    ):
        found = await at.call("task", objective="Go", subagent_type="lead", timeout_seconds=3)
        assert (found["data"]["status"], found["error"]["code"]) == ("timeout", "TIMEOUT")
        assert (await at.team.task("1")).duration >= 3
        gate.open.set()
        assert (await at.team.ended("2")).state is State.DONE


async def test_a_wake_child_that_asked_a_person_before_stops_the_clock(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return says("Red.") if results(request) else calls(("ask_user", {"question": "Which?"}))
        if "subtask 2: done" in request.messages[-1].text:
            return says(ANSWER)
        return gate.then(says("I wait.")) if results(request) else calls(("create_subtask", SLOW))

    async with (
        stage(durable_url, tmp_path, rule, agents=[LEAD]) as at,
        asyncio.timeout(patient(60)),
    ):
        task_id = (await at.call("task", objective="Go", subagent_type="lead", wait=False))["data"][
            "task_id"
        ]
        await gate.reached.wait()
        child = await at.team.until("2", lambda task: bool(task.questions) and task.run is None)
        gate.open.set()
        await at.team.until(task_id, lambda task: task.state is State.WAITING and task.held)
        assert f"limit/{task_id}" not in await at.team.jobs()
        await at.call("respond", interaction_id=child.questions[0].id, answer="Red")
        assert (await at.team.ended(task_id)).summary == ANSWER


async def test_a_delegation_that_only_complete_task_completes_goes_to_the_inbox(
    durable_url: str, tmp_path: Path
) -> None:
    async with (
        stage(durable_url, tmp_path, lambda _: says(ANSWER)) as at,
        asyncio.timeout(patient(60)),
    ):
        parent = await at.create(status="draft")
        made = await at.call(
            "create_subtask", task_id=parent, title="Below", owner="explore", completion="explicit"
        )
        task = await at.team.until(
            made["task_id"], lambda task: bool(task.questions) and task.run is None
        )
        assert (task.state, len(at.script.asked), task.clock_since) == (State.WAITING, 2, None)
        assert "call complete_task" in texts(at.script.asked[1])
        (question,) = (await at.call("list_interactions"))["interactions"]
        assert ANSWER in question["question"]
        await at.call("complete_task", task_id=task.id, summary="Good.")
        assert (await at.team.task(task.id)).state is State.DONE


NOT_COMPLETED = """\
[Not completed]
A message does not complete this task. Only complete_task does.
If the work is done, {call}. If you need a person to decide, call ask_user.
If you end with another message instead, a person is asked how to go on."""
CALL = 'call complete_task with {"outputs": {"report": "<the text>"}}'


@pytest.mark.parametrize(("outputs", "call"), [([], "call complete_task"), (["report"], CALL)])
async def test_an_explicit_task_without_steps_is_not_reminded_of_open_steps(
    durable_url: str,
    tmp_path: Path,
    outputs: list[str],
    call: str,
) -> None:
    done = {"summary": "Good.", "outputs": dict.fromkeys(outputs, "All is well.")}
    script = [says(ANSWER), calls(("complete_task", done))]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        terms: dict[str, Any] = {"completion": "explicit", "outputs": outputs}
        parent = await at.create(status="draft")
        fields = {"task_id": parent, "title": "Below", "owner": "explore", **terms}
        made = await at.call("create_subtask", **fields)
        assert (await at.team.ended(made["task_id"])).summary == f"{ANSWER}\n\nGood."
        assert at.script.asked[1].messages[-2].text == NOT_COMPLETED.format(call=call)
        assert REMINDER not in texts(at.script.asked[1])


async def test_an_explicit_task_is_reminded_of_open_steps_too(
    durable_url: str, tmp_path: Path
) -> None:
    script = [says(ANSWER), calls(("complete_task", {"summary": "Good."}))]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        task_id = await at.create(steps=["Look"], completion="explicit")
        await at.team.ended(task_id)
        told = at.script.asked[1].messages[-2].text
        assert told.startswith(REMINDER)
        assert "\nA message does not complete this task. Only complete_task does.\n" in told
        end = "the task waits for its next scheduled run."
        assert told.endswith(f"\nIf you end with another message instead, {end}")


async def test_a_reminder_asks_for_outstanding_outputs(durable_url: str, tmp_path: Path) -> None:
    steps = calls(("update_steps", {"steps": ["Look"]}))
    script = [steps, says(ANSWER), calls(("complete_task", {"outputs": {"report": ANSWER}}))]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        await at.call("task", objective="Go", outputs=["report"])
        told = at.script.asked[2].messages[-2].text
        assert told.startswith(REMINDER)
        assert told.endswith(f"\nThen {CALL}. A message alone does not complete this task.")


async def test_a_person_is_asked_if_no_turn_is_left(durable_url: str, tmp_path: Path) -> None:
    async with stage(durable_url, tmp_path, [says(ANSWER)]) as at, asyncio.timeout(patient(60)):
        terms: dict[str, Any] = {"completion": "explicit", "limits": {"max_turns": 1}}
        parent = await at.create(status="draft")
        fields = {"task_id": parent, "title": "Below", "owner": "explore", **terms}
        made = await at.call("create_subtask", **fields)
        task_id = made["task_id"]
        task = await at.team.until(task_id, lambda task: task.run is None and task.counts.runs > 0)
        assert (task.state, len(task.questions), len(at.script.asked)) == (State.WAITING, 1, 1)


async def test_a_caller_of_a_recurring_task_gets_its_answer(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, planner) as at, asyncio.timeout(patient(60)):
        task_id = await at.create(schedule={"cron": "0 0 1 1 *"})
        await at.call("run_task", task_id=task_id)
        await at.waiting(task_id)
        found = await at.call("task_output", task_id=task_id, wait_seconds=60)
        assert found["data"]["result"] == ANSWER


async def test_a_subtask_that_is_a_draft_is_not_waited_for(
    durable_url: str, tmp_path: Path
) -> None:
    draft = SLOW | {"wait": "block", "status": "draft"}

    def rule(request: Request) -> Any:
        return says(results(request)[0]) if results(request) else calls(("create_subtask", draft))

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", subagent_type="build")
        assert "wait: is 'block', but a draft does not run" in found["data"]["result"]
        parent = await at.create(status="draft")
        with pytest.raises(InvalidParam, match="wait: is 'block', but a draft does not run"):
            await at.call("create_subtask", **draft | {"task_id": parent})


async def test_a_draft_that_an_agent_made_does_not_stop_the_clock(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        return (
            says("Waiting.")
            if results(request)
            else calls(("create_subtask", SLOW | {"status": "draft"}))
        )

    async with (
        stage(durable_url, tmp_path, rule, agents=[LEAD]) as at,
        asyncio.timeout(patient(60)),
    ):
        found = await at.call(
            "task", objective="Go", subagent_type="lead", timeout_seconds=patient(2)
        )
        assert found["data"]["status"] == "timeout"
        assert (await at.team.task("2")).state is State.DRAFT


async def test_a_subtask_that_an_agent_paused_does_not_stop_the_clock(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent != "lead":
            return gate.then(says("Never."))
        done = len([message for message in request.messages if message.role == "assistant"])
        steps = [("create_subtask", SLOW), ("pause_task", {"task_id": "2"})]
        return calls(steps[done]) if done < len(steps) else says("Waiting.")

    async with (
        stage(durable_url, tmp_path, rule, agents=[LEAD]) as at,
        asyncio.timeout(patient(60)),
    ):
        found = await at.call(
            "task", objective="Go", subagent_type="lead", timeout_seconds=patient(2)
        )
        gate.open.set()
        assert found["data"]["status"] == "timeout"


PARKING: list[tuple[str, dict[str, Any]]] = [
    ("pause_task", {}),
    ("assign_task", {"subagent_session_id": "s9"}),
    ("run_task", {}),
    ("rerun_task", {}),
    ("resume_task", {}),
    ("update_task", {"depends_on": [{"task_id": "2", "on": "settled"}]}),
    ("update_task", {"owner": "explore"}),
    ("update_task", {"status": "draft"}),
    ("update_task", {"schedule": {"not_before": "2099-01-01T00:00:00Z"}}),
]
"""Calls with which an agent could make its own task wait for what does not come."""


@pytest.mark.parametrize(("name", "fields"), PARKING, ids=lambda part: str(part)[:30])
async def test_an_agent_cannot_park_the_task_that_a_caller_waits_for(
    durable_url: str, tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    def rule(request: Request) -> Any:
        steps = [
            ("create_subtask", SLOW | {"status": "draft", "wait": "none"}),
            (name, {"task_id": "1", **fields}),
        ]
        done = len([message for message in request.messages if message.role == "assistant"])
        return calls(steps[done]) if done < len(steps) else says("Here is the answer.")

    async with (
        stage(durable_url, tmp_path, rule, agents=[LEAD]) as at,
        asyncio.timeout(patient(20)),
    ):
        found = await at.call("task", objective="Go", subagent_type="lead", timeout_seconds=60)
        assert found["data"]["result"] == "Here is the answer."
        assert told(at.script.asked[-1])[-1].is_error
