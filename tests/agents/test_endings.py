"""Ends of a task: automatic, by its agent, at a limit, or by a person."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.domain.llm.failures import FailureKind, ModelFailed, Price
from remit.domain.llm.messages import Request, Response, Tokens
from remit.domain.task.task import State
from remit.domain.text.counting import counted, in_seconds
from tests.agents.stage import Gate, calls, results, says, stage, texts
from tests.patience import patient


async def test_a_final_message_completes_the_task_unless_completion_is_explicit(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Finished.")) as at:
        task = await at.run()
        assert (task.state, task.summary, task.verification) == (State.DONE, "Finished.", "none")
        explicit = await at.waiting(await at.create(completion="explicit"))
        assert explicit.wait is not None
        assert [item.kind for item in explicit.wait.on] == ["tick"]


async def test_open_steps_hold_completion_until_they_are_done(any_url: str, tmp_path: Path) -> None:
    script = [
        calls(("update_steps", {"steps": ["One", "Two"]})),
        says("Planned."),
        says("Planned, and nothing is done yet."),
        calls(
            ("update_step", {"index": 0, "done": True}), ("update_step", {"index": 1, "done": True})
        ),
        says("Both done."),
    ]
    async with stage(any_url, tmp_path, script) as at:
        task_id = await at.create()
        held = await at.waiting(task_id)
        assert held.final_message == "Planned.\n\nPlanned, and nothing is done yet."
        assert [step.done for step in held.steps] == [False, False]
        await at.call("run_task", task_id=task_id)
        assert (await at.team.ended(task_id)).summary == "Both done."
        later = at.script.asked[3]
        assert later.messages[-2].text.startswith("[Continue]\nContinue your task.")
        assert "[ ] 0. One" in later.messages[-1].text


async def test_a_live_child_holds_completion_and_its_end_wakes(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if "Look around" in request.system:
            return gate.then(says("I looked."))
        if not results(request) and "[Subtask ended]" not in texts(request):
            return calls(
                ("create_subtask", {"task_id": "1", "title": "Look around", "owner": "explore"})
            )
        return says("Nothing else to do.")

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        held = await at.waiting(task_id)
        assert held.wait is not None
        assert [(item.kind, item.ref) for item in held.wait.on] == [("subtask", "2")]
        gate.open.set()
        assert (await at.team.ended(task_id)).state is State.DONE
        assert "- subtask 2: done" in at.script.asked[-1].messages[-1].text


async def test_missing_outputs_are_named_twice_and_then_fail_the_task(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done, I think.")) as at:
        task = await at.run(outputs=["report"])
        assert (task.state, task.reason) == (State.FAILED, "acceptance")
        assert "report" in (task.failure_reason or "")
        assert len(at.script.asked) == 3
        assert [
            text.count("The required output report is missing.")
            for text in map(texts, at.script.asked)
        ] == [0, 1, 2]
        assert task.usage.requests == 3


async def test_a_missing_output_can_still_be_given(any_url: str, tmp_path: Path) -> None:
    script = [
        says("Done."),
        calls(("complete_task", {"outputs": {"report": "All is well."}, "summary": "Reported."})),
    ]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(outputs=["report"])
        assert (task.state, task.completion_outputs, task.counts.runs) == (
            State.DONE,
            {"report": "All is well."},
            1,
        )


async def test_three_runs_without_progress_go_to_a_person(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Still thinking.")) as at:
        task_id = await at.create(completion="explicit")
        for runs in (1, 2):
            await at.team.until(
                task_id,
                lambda task, runs=runs: task.state is State.WAITING and task.counts.runs == runs,  # type: ignore[misc]
            )
            await at.call("run_task", task_id=task_id)
        stuck = await at.team.until(task_id, lambda task: bool(task.questions))
        assert (stuck.state, stuck.counts.runs) == (State.WAITING, 3)
        (question,) = (await at.call("list_interactions"))["interactions"]
        assert "Still thinking." in question["question"]
        await at.call("respond", interaction_id=question["id"], answer="Give up the idea.")
        again = await at.team.until(
            task_id, lambda task: task.state is State.WAITING and task.counts.runs == 4
        )
        assert again.questions == ()
        assert "Give up the idea." in at.script.asked[-1].messages[-2].text


async def test_the_time_of_a_task_ends_it_in_the_middle_of_a_call(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, lambda _: gate.then(says("Too late."))) as at:
        task = await at.run(limits={"timeout_seconds": 0.2})
        assert (task.state, task.reason, task.counts.runs) == (State.FAILED, "timeout", 1)
        assert task.duration >= 0.2
        envelope = await at.call("task_output", task_id=task.id)
        assert (envelope["data"]["status"], envelope["error"]["code"]) == ("timeout", "TIMEOUT")


async def test_the_end_of_time_leaves_a_turn_for_a_report(
    any_url: str, tmp_path: Path, time_to_report: None
) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if not request.may_call:
            return says("Half of it.")
        return gate.then(says("Too late.")) if results(request) else calls(("LS", {"path": "."}))

    async with stage(any_url, tmp_path, rule) as at:
        seconds = round(patient(1))
        task = await at.run(limits={"timeout_seconds": seconds})
        assert (task.state, task.reason, task.counts.runs) == (State.FAILED, "timeout", 1)
        assert (
            task.failure_reason
            == f"The time limit of {in_seconds(seconds)} is reached. Its report: Half of it."
        )
        why = (
            f"This task has reached its limit ({in_seconds(seconds)}). This is your last turn:"
            " you cannot call tools, even if a message above asks you to."
        )
        assert why in at.script.asked[2].messages[-1].text
        assert (task.usage.requests, [(item.tool, item.count) for item in task.tool_summary]) == (
            2,
            [("LS", 1)],
        )
        report, end = (await at.transcript(task.id))[-2:]
        assert report["parts"][0]["text"] == "Half of it."
        assert end["parts"][0]["text"] == f"[Task failed: timeout] {task.failure_reason}"
        envelope = await at.call("task_output", task_id=task.id)
        assert (envelope["data"]["status"], envelope["error"]["code"]) == ("timeout", "TIMEOUT")
        assert "Half of it." in envelope["data"]["result"]


async def test_a_tool_interrupted_by_the_time_limit_is_reported_as_unknown(
    any_url: str, tmp_path: Path, time_to_report: None
) -> None:
    def rule(request: Request) -> Response:
        return (
            calls(("Bash", {"command": "echo begun > begun.txt; sleep 60"}))
            if request.may_call
            else says(results(request)[0])
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"timeout_seconds": patient(1.5)}, tools=["Bash"])
        assert (task.reason, (tmp_path / "begun.txt").exists()) == ("timeout", True)
        assert "This call was interrupted" in (task.failure_reason or "")


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_a_missing_report_blocks_no_task(any_url: str, tmp_path: Path, how: str) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if not request.may_call and how == "fails":
            raise ModelFailed("overloaded", "Not now.")
        return gate.then(says("Too late.")) if results(request) else calls(("LS", {"path": "."}))

    async with stage(any_url, tmp_path, rule) as at:
        seconds = round(patient(1))
        task = await at.run(limits={"timeout_seconds": seconds})
        assert (task.state, task.reason, task.counts.runs, len(at.script.asked)) == (
            State.FAILED,
            "timeout",
            1,
            3,
        )
        assert task.failure_reason == f"The time limit of {in_seconds(seconds)} is reached."


async def test_time_is_summed_over_runs_and_stops_for_a_person(
    any_url: str, tmp_path: Path
) -> None:
    away_seconds = 1

    async def slow(request: Request) -> Response:
        await asyncio.sleep(0.15)
        return says("Done.") if results(request) else calls(("ask_user", {"question": "Go on?"}))

    async with stage(any_url, tmp_path, slow) as at:
        began = time.monotonic()
        task_id = await at.create(limits={"timeout_seconds": patient(30)})
        asked = await at.waiting(task_id)
        first = asked.duration
        await asyncio.sleep(away_seconds)
        await at.call("respond", interaction_id=asked.questions[0].id, answer="Yes")
        task = await at.team.ended(task_id)
        most = time.monotonic() - began - away_seconds
        assert first >= 0.15
        assert first + 0.15 <= task.duration <= most, "the time of the person is not counted"
        late = await at.run(limits={"timeout_seconds": 0.1})
        assert late.reason == "timeout"


async def test_time_in_blocked_subtasks_counts(any_url: str, tmp_path: Path) -> None:
    async def rule(request: Request) -> Response:
        if "Dig" in request.system:
            await asyncio.sleep(0.3)
            return says("Dug.")
        return (
            says("Done.")
            if results(request)
            else calls(("task", {"objective": "Dig", "subagent_type": "explore"}))
        )

    async with stage(any_url, tmp_path, rule) as at:
        assert (await at.run(owner="build")).duration >= 0.3
        late = await at.run(owner="build", limits={"timeout_seconds": 0.2})
        assert (late.state, late.reason) == (State.FAILED, "timeout")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("authentication", "did not accept the API key"),
        ("forbidden", "refused access"),
        ("not_found", "did not find the model"),
        ("quota", "has no quota left"),
        ("rejected_request", "rejected the request: No. Check the settings"),
        ("misconfigured", "cannot be used: No."),
    ],
)
async def test_a_permanent_error_of_the_model_fails_at_once(
    tmp_path: Path, kind: FailureKind, told: str
) -> None:
    def rule(_: Request) -> Response:
        raise ModelFailed(kind, "No.")

    async with stage("memory:", tmp_path, rule) as at:
        task = await at.run()
        assert (task.state, task.reason, len(at.script.asked)) == (State.FAILED, "error", 1)
        assert told in (task.failure_reason or "")


@pytest.mark.parametrize(
    ("kind", "reason", "told"),
    [
        ("rate_limited", "error", "accepts no more requests for now"),
        ("overloaded", "error", "is overloaded"),
        ("stalled", "timeout", "stopped in the middle of its answer"),
    ],
)
async def test_other_errors_are_tried_again_and_end_in_a_typed_state(
    tmp_path: Path, kind: FailureKind, reason: str, told: str
) -> None:
    def rule(_: Request) -> Response:
        raise ModelFailed(kind, "Not now.")

    async with stage("memory:", tmp_path, rule) as at:
        task = await at.run(limits={"max_attempts": 2})
        assert (task.state, task.reason, len(at.script.asked)) == (State.FAILED, reason, 2)
        envelope = await at.call("task_output", task_id=task.id)
        assert (envelope["status"], envelope["data"]["status"] in ("failed", "timeout")) == (
            "error",
            True,
        )
        assert told in envelope["error"]["message"]


async def test_an_error_that_passes_is_not_felt(any_url: str, tmp_path: Path) -> None:
    failures = [ModelFailed("overloaded", "Not now.")]

    def rule(_: Request) -> Response:
        if failures:
            raise failures.pop()
        return says("Here I am.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run()
        assert (task.state, task.counts.runs, task.attempts) == (State.DONE, 2, 1)
        assert at.script.asked[0].messages == at.script.asked[1].messages


async def test_tokens_are_limited_with_a_last_report(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return (
            calls(("LS", {"path": "."}))._replace(tokens=Tokens(3000, 1000))
            if request.may_call
            else says("Half of it.")
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_tokens": 19_500})
        assert (task.state, task.reason) == (State.FAILED, "budget")
        assert "Half of it." in (task.failure_reason or "")
        assert (task.usage.requests, task.usage.input_tokens, task.usage.output_tokens) == (
            4,
            9010,
            3005,
        )
        assert [(item.tool, item.count) for item in task.tool_summary] == [("LS", 3)]
        said = await at.transcript(task.id)
        assert (said[-2]["parts"][0]["text"], said[-2]["model"]) == ("Half of it.", "scripted")


async def test_cost_is_limited_over_runs(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if not request.may_call:
            return says("I spent it.")
        return calls(("ask_user", {"question": "May I?"}))._replace(
            cost=0.3, tokens=Tokens(3000, 1000)
        )

    async with stage(any_url, tmp_path, rule, price=Price(75, 75)) as at:
        task_id = await at.create(limits={"max_cost": 1.15})
        for number in (1, 2):
            asked = await at.team.until(
                task_id,
                lambda task, number=number: (  # type: ignore[misc]
                    task.counts.interactions == number and bool(task.wait) and not task.run
                ),
            )
            await at.call("respond", interaction_id=asked.questions[0].id, answer="Yes")
        task = await at.team.ended(task_id)
        assert (task.reason, len(at.script.asked), round(task.usage.cost, 2)) == ("budget", 3, 0.6)
        assert "I spent it." in (task.failure_reason or "")


async def test_the_last_turn_counts_toward_the_use(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return calls(("LS", {"path": "."})) if request.may_call else says("Some of it.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_turns": 2})
        assert (task.reason, task.usage.requests, task.usage.tool_calls) == ("turns", 3, 2)
        found = await at.call("task_output", task_id=task.id)
        assert (found["error"]["code"], found["stats"]["tokens"]) == ("LIMIT_EXCEEDED", 45)


@pytest.mark.parametrize(
    ("limits", "turns"), [({}, 2), ({"max_turns": 1}, 1), ({"max_turns": 3}, 3)]
)
async def test_the_turns_of_an_agents_own_file_hold_unless_the_task_says_otherwise(
    any_url: str, tmp_path: Path, limits: dict[str, Any], turns: int
) -> None:
    brisk = Agent(id="brisk", description="Brief.", max_turns=2)

    def rule(request: Request) -> Response:
        return calls(("LS", {"path": "."})) if request.may_call else says("Some of it.")

    async with stage(any_url, tmp_path, rule, agents=[brisk]) as at:
        task = await at.run(owner="brisk", limits=limits)
        assert (task.reason, len(at.script.asked)) == ("turns", turns + 1)
        assert (
            task.failure_reason
            == f"The limit of {counted(turns, 'turn')} is reached. Its report: Some of it."
        )


async def test_a_task_ends_at_its_limit_where_its_report_is_refused(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.may_call:
            return calls(("LS", {"path": "."}))
        raise ModelFailed("context_overflow", "That is too much.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_turns": 2})
        assert (task.state, task.reason, task.counts.runs, len(at.script.asked)) == (
            State.FAILED,
            "turns",
            1,
            3,
        )
        assert (
            task.failure_reason
            == "The limit of 2 turns is reached. It could not report: That is too much."
        )


async def test_the_default_limit_is_fifty_turns(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return calls(("LS", {"path": "."})) if request.may_call else says("Some of it.")

    async with stage(any_url, tmp_path, rule) as at:
        assert ((await at.run()).reason, len(at.script.asked)) == ("turns", 51)


async def test_a_tool_has_a_time_limit_and_the_agent_continues(
    any_url: str, tmp_path: Path
) -> None:
    milliseconds = round(patient(0.3) * 1000)
    script = [
        calls(
            ("Bash", {"command": "echo begun; sleep 600", "timeout": milliseconds}),
            ("LS", {"path": "."}),
        ),
        says("Without it."),
    ]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(tools=["Bash", "LS"])
        assert task.state is State.DONE
        stopped, listed = results(at.script.asked[1])
        assert (
            f"begun\n[Stopped after {milliseconds / 1000:g} seconds, with all its processes."
            in stopped
        )
        assert "empty" in listed or "remit.db" in listed


@pytest.mark.parametrize(
    ("limits", "cost"), [({"max_tokens": 7000}, 0.0), ({"max_cost": 0.5}, 0.3)]
)
async def test_a_subtask_at_its_own_limit_reports_and_its_parent_continues(
    any_url: str, tmp_path: Path, limits: dict[str, Any], cost: float
) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "build":
            return (
                says(results(request)[0])
                if results(request)
                else calls(
                    ("task", {"objective": "Waste", "subagent_type": "explore", "limits": limits})
                )
            )
        answer = calls(("LS", {"path": "."})) if request.may_call else says("Half of it.")
        return answer._replace(tokens=Tokens(3000, 1000), cost=cost)

    async with stage(any_url, tmp_path, rule, price=Price(75, 75)) as at:
        task = await at.run(owner="build")
        child = await at.team.task("2")
        assert (task.state, child.state, child.reason, child.usage.requests) == (
            State.DONE,
            State.FAILED,
            "budget",
            3,
        )
        assert "Half of it." in (task.final_message or "")


async def test_an_explicit_completion_counts_its_tools(any_url: str, tmp_path: Path) -> None:
    script = [
        says("Thinking."),
        calls(("LS", {"path": "."})),
        calls(("complete_task", {"summary": "Complete."})),
    ]
    async with stage(any_url, tmp_path, script) as at:
        task_id = await at.create(completion="explicit")
        await at.waiting(task_id)
        await at.call("run_task", task_id=task_id)
        task = await at.team.ended(task_id)
        found = await at.call("task_output", task_id=task_id)
        assert found["data"]["result"] == "Complete."
        assert {item.tool: item.count for item in task.tool_summary}["LS"] == 1
        assert task.usage.requests == 3
