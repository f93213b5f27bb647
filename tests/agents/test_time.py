"""The time of a task that waits for its subtasks: it runs out, the agent may report, and it
stands still while only a person can help.
"""

import json
from pathlib import Path
from typing import Any

from remit.app.engine.recovery import Recovery
from remit.domain.agents.agent import Agent
from remit.domain.llm.messages import Request
from remit.domain.task import commands as cmd
from remit.domain.task.task import State
from remit.domain.text.counting import in_seconds
from remit.ports import Unit
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage
from tests.patience import patient

LIMIT = "limit/1"


def leading(work: Any, *more: tuple[str, dict[str, Any]]) -> Any:
    """A boss that hands out one piece of work and waits; what its worker does is given."""

    def rule(request: Request) -> Any:
        if "Dig" in request.system:
            return work(request)
        return (
            says("Done.")
            if results(request)
            else calls(("task", {"objective": "Dig", "subagent_type": "explore"}), *more)
        )

    return rule


async def due(at: Stage, there: bool) -> None:
    """Wait until the time limit job of task 1 is in the queue, or has left it."""
    await at.team.until(
        "1", lambda task: (task.state is State.WAITING and task.clock_since is not None) is there
    )
    assert (LIMIT in await at.team.jobs()) is there


async def test_a_blocked_task_whose_time_is_up_gets_one_last_turn_to_report(
    any_url: str, tmp_path: Path, time_to_report: None
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if "Dig" in request.system:
            return gate.then(says("Dug."))
        if "Look" in request.system:
            return says("Three rocks.")
        if not request.may_call:
            return says("Rocks were found; the digging goes on.")
        pieces = [
            {"objective": "Look", "subagent_type": "explore"},
            {"objective": "Dig", "subagent_type": "explore"},
            {"objective": ""},
        ]
        return calls(("task_parallel", {"tasks": pieces}))

    async with stage(any_url, tmp_path, rule) as at:
        seconds = round(patient(2))
        task = await at.run(owner="build", limits={"timeout_seconds": seconds})
        assert (task.state, task.reason, task.counts.runs) == (State.FAILED, "timeout", 2)
        assert task.duration >= seconds
        assert (
            task.failure_reason
            == f"The time limit of {in_seconds(seconds)} is reached. Its report: Rocks were found;"
            " the digging goes on."
        )
        (told,) = [request for request in at.script.asked if not request.may_call]
        (found,) = results(told)
        looked, digs, wrong = json.loads(found)["results"]
        assert (looked["task_id"], looked["status"], looked["result"]) == (
            "2",
            "completed",
            "Three rocks.",
        )
        assert (digs["task_id"], digs["status"], digs["note"]) == (
            "3",
            "running",
            "It has not ended yet.",
        )
        assert "tasks[2].objective: is missing" in wrong["error"]["message"], (
            "what was refused of it is told too"
        )
        assert "build" in told.system
        await reached(gate)
        child = await at.team.task("3")
        assert (child.state, child.parent_id) == (State.RUNNING, "1"), "what was handed out goes on"
        gate.open.set()
        assert (await at.team.ended("3")).state is State.DONE
        await at.team.idle()


async def test_it_fails_without_a_report_if_no_slot_comes(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with stage(
        any_url, tmp_path, leading(lambda _: gate.then(says("Dug."))), concurrency=1
    ) as at:
        seconds = round(patient(2))
        task = await at.run(owner="build", limits={"timeout_seconds": seconds})
        assert (task.reason, task.counts.runs, task.failure_reason) == (
            "timeout",
            1,
            f"The time limit of {in_seconds(seconds)} is reached.",
        )
        assert (await at.team.events("1"))[-2:] == ["TaskWoken", "TaskFailed"]
        gate.open.set()
        await at.team.idle()


async def in_line(at: Stage) -> None:
    """A parent whose time is up while no worker can run it."""
    boss = await at.hire(agents=("build",))
    await at.create(owner="build", limits={"timeout_seconds": patient(600)})
    await at.waiting("1")
    boss.stop()
    await at.team.staff(0)
    await at.call("update_task", task_id="1", limits={"timeout_seconds": 0.001})
    await at.team.core.service.execute(
        cmd.EndTime(task_id="1", seconds=0.001, report=True), "system:engine"
    )
    task = await at.team.task("1")
    assert (task.state, task.overdue is not None, task.wait is not None) == (
        State.PENDING,
        True,
        True,
    )
    assert {LIMIT, "run/1"} <= set(await at.team.jobs())


async def test_a_queued_task_that_gets_more_time_continues_to_wait(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(
        any_url, tmp_path, leading(lambda _: gate.then(says("Dug."))), workers=0
    ) as at:
        await in_line(at)
        await at.call("update_task", task_id="1", limits={"timeout_seconds": patient(600)})
        assert LIMIT not in await at.team.jobs()
        await at.hire()
        await due(at, there=True)
        gate.open.set()
        task = await at.team.ended("1")
        assert (task.state, task.counts.runs) == (State.DONE, 3)


async def test_a_pause_takes_it_out_of_the_line(
    any_url: str, tmp_path: Path, time_to_report: None
) -> None:
    gate = Gate()
    async with stage(
        any_url, tmp_path, leading(lambda _: gate.then(says("Dug."))), workers=0
    ) as at:
        await in_line(at)
        await at.call("pause_task", task_id="1")
        assert LIMIT not in await at.team.jobs()
        await at.hire()
        await at.call("resume_task", task_id="1")
        task = await at.team.ended("1")
        assert (task.reason, task.counts.runs) == ("timeout", 2)
        gate.open.set()
        await at.team.idle()


async def test_it_runs_out_in_whichever_process_is_there(any_url: str, tmp_path: Path) -> None:
    """No worker here serves the agent of the child.

    The worker that saw the wait begin is gone by the time it ends.
    """
    async with stage(any_url, tmp_path, leading(None), workers=0) as at:
        first = await at.hire(agents=("build",))
        task_id = await at.create(owner="build", limits={"timeout_seconds": patient(1.5)})
        await at.waiting(task_id)
        first.stop()
        await at.hire(agents=("plan",))
        task = await at.team.ended(task_id)
        assert (task.reason, task.counts.runs, (await at.team.task("2")).state) == (
            "timeout",
            1,
            State.PENDING,
        )


async def test_an_agents_own_time_holds_too(any_url: str, tmp_path: Path) -> None:
    quick = Agent(id="quick", description="In a hurry.", tools=("Task",), timeout_seconds=1)
    gate = Gate()
    async with stage(
        any_url, tmp_path, leading(lambda _: gate.then(says("Late."))), agents=[quick]
    ) as at:
        assert (await at.run(owner="quick")).reason == "timeout"
        gate.open.set()


async def test_a_child_that_ends_in_time_takes_the_end_of_time_away(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, leading(lambda _: gate.then(says("Dug.")))) as at:
        task_id = await at.create(owner="build", limits={"timeout_seconds": patient(600)})
        await due(at, there=True)
        gate.open.set()
        assert (await at.team.ended(task_id)).state is State.DONE
        await at.team.idle()


async def test_a_pause_stops_the_clock_of_a_blocked_task(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, leading(lambda _: gate.then(says("Dug.")))) as at:
        task_id = await at.create(owner="build", limits={"timeout_seconds": patient(600)})
        await due(at, there=True)
        await at.call("pause_task", task_id=task_id)
        await due(at, there=False)
        await at.call("resume_task", task_id=task_id)
        await due(at, there=True)
        gate.open.set()
        assert (await at.team.ended(task_id)).state is State.DONE


async def test_a_question_of_its_own_stops_the_clock(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with stage(
        any_url,
        tmp_path,
        leading(lambda _: gate.then(says("Dug.")), ("ask_user", {"question": "Shall I?"})),
    ) as at:
        task_id = await at.create(owner="build", limits={"timeout_seconds": patient(600)})
        task = await at.waiting(task_id)
        await due(at, there=False)
        await at.call("respond", interaction_id=task.questions[0].id, answer="Yes")
        await due(at, there=True)
        gate.open.set()
        assert (await at.team.ended(task_id)).state is State.DONE


async def test_a_question_far_below_stops_every_clock_above(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        level = int(request.messages[0].text.removeprefix("Level "))
        if found := results(request):
            return (
                gate.then(says("Dug.")) if "answered" in found[0] else says(f"Level {level} done.")
            )
        if level == 2:
            return calls(("ask_user", {"question": "Deeper?"}))
        return calls(("task", {"objective": f"Level {level + 1}", "subagent_type": "build"}))

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(
            owner="build", instructions="Level 0", limits={"timeout_seconds": patient(600)}
        )
        held = await at.team.until(task_id, lambda task: task.held)
        assert (held.state, held.clock_since, LIMIT in await at.team.jobs()) == (
            State.WAITING,
            None,
            False,
        )
        await at.call("respond", interaction_id="3-q1", answer="Yes")
        await reached(gate)
        await due(at, there=True)
        gate.open.set()
        done = await at.team.ended(task_id)
        assert (done.state, done.held) == (State.DONE, False)
        for name in ("1", "2"):
            assert [event for event in await at.team.events(name) if event.startswith("Clock")] == [
                "ClockStopped",
                "ClockStarted",
            ]


async def test_one_child_that_can_work_keeps_the_clock_going(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if "Enquire" in request.system:
            return (
                says("Asked.") if results(request) else calls(("ask_user", {"question": "Which?"}))
            )
        if "Dig" in request.system:
            return gate.then(says("Dug."))
        return (
            says("Done.")
            if results(request)
            else calls(("task", {"objective": "Dig"}), ("task", {"objective": "Enquire"}))
        )

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build", limits={"timeout_seconds": patient(600)})
        await at.waiting(task_id)
        await at.waiting("3")
        await reached(gate)
        await due(at, there=True)
        gate.open.set()
        held = await at.team.until(task_id, lambda task: task.held)
        assert held.clock_since is None
        await at.call("cancel_task", task_id="3")
        done = await at.team.ended(task_id)
        assert (done.state, await at.team.jobs()) == (State.DONE, [])


async def test_a_lost_time_limit_job_is_restored(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, leading(lambda _: gate.then(says("Dug.")))) as at:
        core = at.team.core
        await at.create(owner="build", limits={"timeout_seconds": patient(600)})
        await due(at, there=True)
        await core.store.commit(Unit((), (), drops=(LIMIT,)))
        recovery = Recovery(core.store, core.service)
        assert (await recovery.examine()).waiting_without_alarm == ("1",)
        await recovery.repair()
        assert LIMIT in await at.team.jobs()
        gate.open.set()
