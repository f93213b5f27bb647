"""A sub-agent that plans, ticks nothing and answers: everyone who delegated the work or waits
for it gets the answer in time.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.catalog import Caller, attend
from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State, Task
from tests.agents.endpoint import Body, RuledServer, tool_results, wants
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage, texts
from tests.engine.fleet import ANN
from tests.modelserver import ModelServer, Say
from tests.patience import patient
from tests.surfaces.mcp_http import MODERN, ok, over_http
from tests.surfaces.planner import asked, model_of, remit_in
from tests.surfaces.shell import Shell, served

ANSWER = "The answer is 42."
PLAN = ["Look", "Think"]
SECONDS = 60


def plan_and_answer(request: Request) -> Response:
    """A model that plans two steps, never ticks one, and answers."""
    planned = any(message.role == "tool" for message in request.messages)
    return says(ANSWER) if planned else calls(("update_steps", {"steps": PLAN}))


def must_have_open_steps(task: Task) -> None:
    """The task completed with its answer, and the plan shows what was left open."""
    assert (task.state, task.summary) == (State.DONE, ANSWER)
    assert [(step.title, step.done) for step in task.steps] == [("Look", False), ("Think", False)]


def must_be_completed(envelope: dict[str, Any]) -> None:
    """A delegation that ended well."""
    data = envelope.get("data", envelope)  # MCP clients get it without the envelope
    assert (data["status"], data["result"], envelope["status"]) == (
        "completed",
        ANSWER,
        "success" if "data" in envelope else "completed",
    )


async def parked(at: Stage, **fields: Any) -> str:
    """A task that nobody waits for, parked on the next tick with open steps."""
    task_id = await at.create(**fields)
    task = await at.waiting(task_id)
    assert task.wait is not None
    assert [item.kind for item in task.wait.on] == ["tick"]
    return task_id


async def run_again(at: Stage, task_id: str) -> Task:
    """A task after one more run."""
    runs = (await at.team.task(task_id)).counts.runs
    await at.call("run_task", task_id=task_id)
    return await at.team.until(task_id, lambda task: task.counts.runs > runs and task.run is None)


async def stalled(at: Stage, **fields: Any) -> str:
    """A task that nobody waits for, about which remit asked a person after three idle runs."""
    task_id = await parked(at, **fields)
    for _ in range(2):
        await run_again(at, task_id)
    task = await run_again(at, task_id)
    assert [question.asked_by for question in task.questions] == ["system:engine"]
    return task_id


# The library.


@asynccontextmanager
async def planning_endpoint(
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> AsyncIterator[ModelServer]:
    """The same model behind a real endpoint; with a monkeypatch the environment names it."""

    async def rule(body: Body) -> Say:
        planned = tool_results(body)
        return Say((ANSWER,)) if planned else Say(calls=(wants("c1", "update_steps", steps=PLAN),))

    async with RuledServer(rule).running() as server:
        for name, value in model_of(server).items():
            if monkeypatch is not None:
                monkeypatch.setenv(name, value)
        yield server


async def test_the_library_gets_the_answer(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        planning_endpoint(monkeypatch),
        asyncio.timeout(patient(60)),
        Remit.open(tmp_path, durable_url) as remit,
    ):
        must_be_completed((await remit.task("Go", timeout_seconds=SECONDS)).envelope())
        must_be_completed(
            (await remit.Task(description="Go", prompt="Go", subagent_type="explore")).envelope()
        )
        several = await remit.task_parallel(
            tasks=["One", {"objective": "Two"}], timeout_seconds=SECONDS
        )
        for found in several.results:
            must_be_completed(found.envelope())
        task = await remit.get_task(task_id="1")
        assert [step.done for step in task.steps] == [False, False]


async def test_a_receipt_leads_to_the_answer(durable_url: str, tmp_path: Path) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at:
        receipt = await at.call("task", objective="Go", wait=False)
        must_have_open_steps(await at.team.ended(receipt["data"]["task_id"]))


# The network.


async def test_rest_gets_the_answer(durable_url: str, tmp_path: Path) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        one = await asked(
            at, "POST", "/api/delegate", {"objective": "Go", "timeout_seconds": SECONDS}
        )
        must_be_completed(one)
        many = await asked(
            at, "POST", "/api/delegate/parallel", {"tasks": ["A", "B"], "timeout_seconds": SECONDS}
        )
        for envelope in many["results"]:
            must_be_completed(envelope)
        task_id = await parked(at)
        must_be_completed(await asked(at, "GET", f"/api/tasks/{task_id}/result?wait_seconds=60"))


async def test_mcp_gets_the_answer(durable_url: str, tmp_path: Path) -> None:
    async with (
        stage(durable_url, tmp_path, plan_and_answer) as at,
        asyncio.timeout(patient(60)),
        over_http(at, MODERN) as client,
    ):
        must_be_completed(await ok(client, "task", objective="Go", timeout_seconds=SECONDS))
        must_be_completed(
            await ok(client, "Task", description="Go", prompt="Go", subagent_type="explore")
        )
        task_id = await parked(at)
        must_be_completed(await ok(client, "task_output", task_id=task_id, wait_seconds=60))


# The command line.


async def test_the_command_line_gets_the_answer(durable_url: str, tmp_path: Path) -> None:
    async with planning_endpoint() as server:
        variables = model_of(server) | {"REMIT_DATABASE_URL": durable_url}
        code, out, err = await remit_in(
            tmp_path, variables, "run", "Go", "--timeout", str(SECONDS), "--json"
        )
        assert (code, err.count("Traceback")) == (0, 0), err
        must_be_completed(json.loads(out))


async def test_running_a_parked_task_on_the_command_line_ends_it(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at:
        task_id = await parked(at)
    await must_run_without_model(durable_url, tmp_path, task_id)


async def must_run_without_model(durable_url: str, tmp_path: Path, task_id: str) -> None:
    """`remit task run` gives the answer that is there."""
    async with planning_endpoint() as server:
        variables = model_of(server) | {"REMIT_DATABASE_URL": durable_url}
        code, out, err = await remit_in(tmp_path, variables, "task", "run", task_id, "--json")
        assert code == 0, err
        task = json.loads(out)["task"]
        assert (task["state"], task["summary"]) == ("done", ANSWER)
        assert server.asked == []


async def test_running_a_task_about_which_remit_asks_gives_its_answer(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at:
        task_id = await stalled(at)
    await must_run_without_model(durable_url, tmp_path, task_id)


async def test_running_a_task_about_which_remit_asks_through_a_server_gives_its_answer(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at:
        task_id = await stalled(at)
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    with served(shell) as front:
        there = Shell(tmp_path, REMIT_URL=front.url, REMIT_TOKEN=front.token)
        said = there.remit("task", "run", task_id, "--json")
    assert said.code == 0, said.err
    task = said.json["task"]
    assert (task["state"], task["summary"]) == ("done", ANSWER)


async def test_waiting_for_a_subtask_on_the_command_line_shows_its_progress(
    durable_url: str, tmp_path: Path
) -> None:
    async with planning_endpoint() as server:
        variables = model_of(server) | {"REMIT_DATABASE_URL": durable_url}
        made = await remit_in(tmp_path, variables, "task", "create", "Above", "--draft")
        assert made[0] == 0
        words = ("task", "subtask", "1", "Below", "general", "--wait", "block", "--json")
        code, out, err = await remit_in(tmp_path, variables, *words)
        assert (code, json.loads(out)["task"]["state"]) == (0, "done"), err
        assert "#2 Below" in err


# Those who wait inside.


async def test_a_blocked_parent_gets_the_answer(durable_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if "Below" in request.system:
            return plan_and_answer(request)
        return (
            says(results(request)[0])
            if results(request)
            else calls(("task", {"objective": "Below", "subagent_type": "explore"}))
        )

    async with stage(durable_url, tmp_path, rule) as at:
        parent = await at.run(owner="build")
        assert parent.state is State.DONE
        assert ANSWER in (parent.summary or "")
        must_have_open_steps(await at.team.task("2"))


@pytest.mark.parametrize("wait", ["wake", "none", "block"])
async def test_every_subtask_ends(durable_url: str, tmp_path: Path, wait: str) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        parent = await at.create(status="draft")
        made = await at.call(
            "create_subtask", task_id=parent, title="Below", owner="explore", wait=wait
        )
        must_have_open_steps(await at.team.ended(made["task_id"]))


# What the agent is told, and what stays as it was.


async def test_the_agent_is_reminded_once_of_its_open_steps(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        await at.call("task", objective="Go", timeout_seconds=SECONDS)
        task = await at.team.task("1")
        must_have_open_steps(task)
        assert (
            task.counts.runs,
            task.attempts,
            task.idle_runs,
            task.rounds,
            task.usage.requests,
        ) == (1, 0, 0, 0, 3)
        told = [text.count("[Open steps]\n") for text in map(texts, at.script.asked)]
        assert told == [0, 0, 1]
        reminder = at.script.asked[2].messages[-2].text
        assert "0: Look" in reminder
        assert "1: Think" in reminder
        assert 'call TodoWrite with the whole list, with "status": "completed"' in reminder
        (update,) = (await at.call("list_updates", task_id="1"))["updates"]
        assert (update["type"], update["status"]) == ("steps", "delivered")


async def test_a_step_can_be_ticked_after_the_reminder(durable_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if "[Open steps]\n" not in texts(request):
            return plan_and_answer(request)
        if results(request):
            return says(ANSWER)
        return calls(*(("update_step", {"index": index, "done": True}) for index in range(2)))

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        must_be_completed(await at.call("task", objective="Go", timeout_seconds=SECONDS))
        assert all(step.done for step in (await at.team.task("1")).steps)


async def test_a_task_that_is_not_awaited_is_reminded_in_each_run_and_waits_for_its_tick(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at:
        task_id = await parked(at)
        assert len(at.script.asked) == 3
        await at.call("run_task", task_id=task_id)
        again = await at.team.until(
            task_id, lambda task: task.state is State.WAITING and task.counts.runs == 2
        )
        assert len(at.script.asked) == 5
        assert (again.final_message, again.summary) == (ANSWER, None)


async def test_a_wait_for_a_parked_task_ends_with_the_answer_that_it_gave(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        asked = len(at.script.asked)
        must_be_completed(await at.call("task_output", task_id=task_id, wait_seconds=60))
        must_have_open_steps(await at.team.task(task_id))
        events = await at.team.events(task_id)
        assert events[-3:] == ["TaskAwaited", "CompletionClaimed", "TaskCompleted"]
        assert len(at.script.asked) == asked


async def test_watching_a_parked_task_until_its_end_counts_as_waiting(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
        said = await asyncio.to_thread(shell.remit, "task", "watch", task_id)
        assert said.code == 0, said.err
        events = await at.team.events(task_id)
        assert events[-3:] == ["TaskAwaited", "CompletionClaimed", "TaskCompleted"]


@pytest.mark.parametrize("remote", [False, True], ids=["store", "server"])
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
async def test_watching_a_task_before_it_parks_counts_as_waiting(
    durable_url: str, tmp_path: Path, remote: bool, paused: bool
) -> None:
    gate = Gate()

    async def rule(request: Request) -> Response:
        await gate.passed()
        return plan_and_answer(request)

    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await at.create()
        await reached(gate)
        if paused:
            await at.call("pause_task", task_id=task_id)
        with served(shell, "--no-worker") if remote else nullcontext() as server:
            if server is not None:
                shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
            with shell.started("task", "watch", task_id) as watching:
                assert watching.stdout is not None
                await asyncio.to_thread(watching.stdout.readline)
                gate.open.set()
                if paused:
                    await at.call("resume_task", task_id=task_id)
                try:
                    must_have_open_steps(await at.team.ended(task_id))
                    assert await asyncio.to_thread(watching.wait, patient(20)) == 0
                finally:
                    watching.kill()


async def test_a_parked_task_with_an_unread_message_runs_again(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        asked = len(at.script.asked)
        await at.call("send_message", task_id=task_id, message="Hurry.")
        must_be_completed(await at.call("task_output", task_id=task_id, wait_seconds=60))
        assert len(at.script.asked) > asked


async def test_a_delegation_that_depends_on_a_parked_task_gets_its_answer(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        must_be_completed(
            await at.call("task", objective="Go", depends_on=[task_id], timeout_seconds=SECONDS)
        )
        must_have_open_steps(await at.team.task(task_id))


async def test_a_late_caller_gets_the_end_of_a_stalled_task_whose_output_is_missing(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await stalled(at, outputs=["report"])
        found = await at.call("task_output", task_id=task_id, wait_seconds=60)
        assert (found["status"], found["data"]["status"]) == ("error", "failed")
        assert (await at.call("list_interactions"))["interactions"] == []


async def test_a_delegation_that_depends_on_a_stalled_task_ends_with_it(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await stalled(at, outputs=["report"])
        found = await at.call("task", objective="Go", depends_on=[task_id])
        assert (found["status"], found["data"]["status"]) == ("error", "failed")
        assert (await at.team.task(task_id)).reason == "acceptance"


async def test_a_stalled_task_that_only_complete_task_completes_gets_another_run_for_a_late_caller(
    durable_url: str, tmp_path: Path
) -> None:
    waiting: list[str] = []

    def rule(request: Request) -> Response:
        if waiting:
            return calls(("complete_task", {"summary": "Good."}))
        return plan_and_answer(request)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await stalled(at, completion="explicit")
        waiting.append(task_id)
        found = await at.call("task_output", task_id=task_id, wait_seconds=60)
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", "Good.")


async def test_a_late_caller_is_told_that_a_person_must_decide(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await stalled(at, completion="explicit")
        wanted = {"task_id": task_id, "wait_seconds": 60}
        items = attend(at.team.core, "task_output", wanted, Caller(actor=ANN))
        async with aclosing(items):
            questions: list[Any] = []
            while not any("without calling complete_task" in text for text in questions):
                item = await anext(items)
                questions = [asked["question"] for asked in item.get("questions", ())]


def claimed_by(events: list[dict[str, Any]]) -> dict[str, str]:
    """Who recorded that somebody waits, the claim, and the completion."""
    wanted = ("TaskAwaited", "CompletionClaimed", "CriterionChecked", "TaskCompleted")
    return {event["type"]: event["actor"] for event in events if event["type"] in wanted}


BY_THE_AGENT = {
    "CompletionClaimed": "agent:general",
    "CriterionChecked": "agent:general",
    "TaskCompleted": "agent:general",
}


@pytest.mark.parametrize("make", [parked, stalled])
async def test_a_caller_that_waits_claims_nothing(
    make: Callable[..., Awaitable[str]], durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await make(at, acceptance=["It is short"])
        await at.call("task_output", task_id=task_id)
        events = (await at.call("get_events", task_id=task_id))["events"]
        assert claimed_by(events) == {"TaskAwaited": ANN, **BY_THE_AGENT}
        task = await at.team.task(task_id)
        assert [criterion.by for criterion in task.acceptance] == ["agent:general"]


async def test_a_run_that_delegates_on_top_of_a_parked_task_claims_nothing_for_it(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent != "build":
            return plan_and_answer(request)
        work = {"objective": "Go", "depends_on": ["1"]}
        return says("Done.") if results(request) else calls(("task", work))

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at, owner="general", acceptance=["It is short"])
        await at.team.ended(await at.create(owner="build"))
        events = (await at.call("get_events", task_id=task_id))["events"]
        assert claimed_by(events) == {"TaskAwaited": "agent:build", **BY_THE_AGENT}


async def test_a_caller_that_polls_gets_the_answer_of_a_parked_task(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        must_be_completed(await at.call("task_output", task_id=task_id))
        must_be_completed(await at.call("task_output", task_id=task_id))
        assert (await at.team.events(task_id)).count("TaskAwaited") == 1


@pytest.mark.parametrize("when", ["parked", "running"])
async def test_a_run_that_polls_a_task_that_it_created_gets_its_answer(
    durable_url: str, tmp_path: Path, when: str
) -> None:
    gate = Gate()

    async def below(request: Request) -> Response:
        await gate.passed()
        return plan_and_answer(request)

    async def rule(request: Request) -> Response:
        if request.agent == "explore":
            return await below(request)
        answers = [message for message in request.messages if message.role == "tool"]
        if not answers:
            return calls(("create_task", {"title": "Below", "owner": "explore"}))
        if len(answers) == 1:
            await reached(gate)
        if when == "parked" and len(answers) == 1:
            gate.open.set()
            await at.waiting("2")
        if when == "running" and len(answers) == 2:
            gate.open.set()
            await at.team.ended("2")
        found = results(request)[0]
        if ANSWER in found or len(answers) > 3:
            return says(found)
        return calls(("task_output", {"task_id": "2"}))

    async with stage(durable_url, tmp_path, rule, concurrency=2) as at:
        await at.call("task", objective="Go", subagent_type="build", wait=False)
        parent = await at.team.ended("1")
        must_have_open_steps(await at.team.task("2"))
        assert ANSWER in (parent.summary or "")
        assert (await at.team.events("2")).count("TaskAwaited") == 1


async def test_only_the_first_poll_is_recorded(durable_url: str, tmp_path: Path) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at:
        made = await at.call("create_task", title="Go", owner="general", status="draft")
        for _ in range(3):
            await at.call("task_output", task_id=made["task_id"])
        assert await at.team.events(made["task_id"]) == ["TaskCreated", "TaskAwaited"]
        await at.call("get_task", task_id=made["task_id"])
        assert (await at.team.task(made["task_id"])).version == 2


async def test_the_same_key_finds_a_task_that_was_made_without_waiting(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, plan_and_answer) as at, asyncio.timeout(patient(60)):
        same = {
            "title": "Go",
            "instructions": "Go",
            "limits": {"timeout_seconds": 120},
        }
        made = await at.call("create_task", **same, owner="general", idempotency_key="k")
        await at.waiting(made["task_id"])
        found = await at.call("task", objective="Go", idempotency_key="k")
        assert found["data"]["task_id"] == made["task_id"]
        must_be_completed(found)
