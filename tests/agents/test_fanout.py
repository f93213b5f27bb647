"""Many sub-agents at once: in order, in time, each by itself, and through a wait of hours."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.clock import SystemClock
from remit.app.maintenance.verify import verify
from remit.domain.llm.messages import Request, Response, ToolResult
from remit.domain.task.task import State
from tests.agents.stage import Gate, calls, reached, results, says, stage, texts
from tests.patience import patient
from tests.unit.given import CHILD, created, given


async def test_hanging_subtasks_time_out_and_queued_ones_do_not(
    any_url: str, tmp_path: Path
) -> None:
    async def rule(request: Request) -> Response:
        if "hang" in request.messages[0].text:
            await asyncio.Event().wait()
        await asyncio.sleep(0.02)
        return says(f"Did: {request.messages[0].text}")

    works = [
        {
            "objective": f"{'hang' if number % 3 == 0 else 'work'} {number}",
            "timeout_seconds": 1 if number % 3 == 0 else patient(10),
        }
        for number in range(15)
    ]
    async with stage(any_url, tmp_path, rule, concurrency=5) as at:
        found = (await at.call("task_parallel", tasks=works))["results"]
        assert [
            (item["data"]["status"], item["data"]["result"].split(":")[0])
            for item in found
            if "work" in objective(item)
        ] == [("completed", "Did")] * 10
        late = [item for item in found if "hang" in objective(item)]
        assert [(item["status"], item["error"]["code"]) for item in late] == [
            ("error", "TIMEOUT")
        ] * 5
        assert all(item["stats"]["time_ms"] >= 1000 for item in late)
        assert [objective(item) for item in found] == [work["objective"] for work in works]
        await at.team.idle()


def objective(item: dict[str, Any]) -> str:
    """The objective that a delegation repeats beside its result."""
    said: str = item["context"]["params_input"]["objective"]
    return said


async def test_one_after_the_other_they_run_in_the_order_they_were_asked_for(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if "Lead" not in request.messages[0].text:
            return says("Done.")
        return (
            says("All done.")
            if results(request)
            else calls(("task_parallel", {"tasks": [f"Work {number}" for number in range(12)]}))
        )

    async with stage(any_url, tmp_path, rule, concurrency=1) as at:
        await at.run(owner="build", instructions="Lead")
        assert [request.messages[0].text for request in at.script.asked[1:-1]] == [
            f"Work {number}" for number in range(12)
        ]


async def test_eight_run_at_once_and_the_others_wait_in_the_order_of_their_priority(
    any_url: str, tmp_path: Path
) -> None:
    gates = [Gate() for _ in range(8)]

    def rule(request: Request) -> Response | Awaitable[Response]:
        number = len(at.script.asked) - 1
        return gates[number].then(says("Done.")) if number < len(gates) else says("Done.")

    async with stage(any_url, tmp_path, rule, workers=0) as at:
        first = [await at.create(instructions=f"First {number}") for number in range(8)]
        await at.hire()
        for gate in gates:
            await reached(gate)
        more = [
            await at.create(instructions=f"Work {number}", priority=4 - number % 5)
            for number in range(8, 20)
        ]
        assert (len(at.script.asked), len(await at.team.jobs())) == (8, 20)
        gates[0].open.set()
        assert {(await at.team.ended(task_id)).state for task_id in more} == {State.DONE}
        ran = [
            int(request.messages[0].text.removeprefix("Work ")) for request in at.script.asked[8:]
        ]
        assert ran == sorted(range(8, 20), key=lambda number: (4 - number % 5, number))
        for gate in gates:
            gate.open.set()
        assert {(await at.team.ended(task_id)).state for task_id in first} == {State.DONE}


async def test_children_at_once_share_nothing(any_url: str, tmp_path: Path) -> None:
    names = [f"<{name}>" for name in ("ash", "birch", "cedar", "elm", "fir")]
    here = asyncio.Barrier(len(names))

    async def rule(request: Request) -> Response:
        mine = next(name for name in names if name in request.messages[0].text)
        await here.wait()  # they are all at the same place, each time
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn == 0:
            return calls(
                (
                    "TodoWrite",
                    {"todos": [{"content": mine, "status": "pending", "activeForm": mine}]},
                ),
                ("update_steps", {"steps": [mine]}),
            )
        if turn == 1:
            return calls(("update_step", {"index": 0, "done": True}), ("Grep", {"pattern": mine}))
        return says(mine)

    works = [
        {"objective": f"Plant {name}", "context": {"tree": name}, "subagent_type": "general"}
        for name in names
    ]
    async with stage(any_url, tmp_path, rule) as at:
        found = (await at.call("task_parallel", tasks=works))["results"]
        assert [item["data"]["result"] for item in found] == names
        for request in at.script.asked:
            told = texts(request) + str(
                [
                    part.text
                    for message in request.messages
                    for part in message.parts
                    if isinstance(part, ToolResult)
                ]
            )
            assert [name for name in names if name in told] == [
                name for name in names if name in request.messages[0].text
            ]
        assert [
            (await at.team.task(item["data"]["task_id"])).steps[0].title for item in found
        ] == names


async def test_each_type_of_agent_has_its_own_role_model_and_tools(
    any_url: str, tmp_path: Path
) -> None:
    types = ["explore", "plan", "general", "summary"]
    works = [{"objective": f"As {name}", "subagent_type": name} for name in types]
    async with stage(any_url, tmp_path, lambda request: says(request.agent)) as at:
        found = (await at.call("task_parallel", tasks=works))["results"]
        assert [(item["data"]["result"], item["data"]["subagent_type"]) for item in found] == [
            (name, name) for name in types
        ]
        asked = {request.agent: request for request in at.script.asked}
        assert len({request.system for request in asked.values()}) == 4
        assert [asked[name].system.startswith(f"You are {name}") for name in types] == [True] * 4
        assert not any(
            {"Write", "Edit", "Bash", "Task", "task"} & {tool.name for tool in request.tools}
            for request in asked.values()
        )


async def test_a_parent_waits_for_hours_while_a_person_is_away(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rule(request: Request) -> Response:
        found = results(request)
        if request.agent == "explore":
            return (
                says(f"So it is: {found[0]}")
                if found
                else calls(("ask_user", {"question": "Red or blue?"}))
            )
        return (
            says(found[0])
            if found
            else calls(
                (
                    "task",
                    {
                        "objective": "Ask",
                        "subagent_type": "explore",
                        "timeout_seconds": patient(60),
                    },
                )
            )
        )

    async with stage(durable_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        await at.waiting(task_id)
        child = await at.team.until("2", lambda task: bool(task.questions) and task.run is None)
        await at.team.idle()
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + timedelta(hours=2))
    async with stage(durable_url, tmp_path, rule, workers=0) as at:
        assert [item["path"] for item in (await at.call("list_interactions"))["interactions"]] == [
            [task_id, "2"]
        ]
        await at.call("respond", interaction_id=child.questions[0].id, answer="Blue")
        await at.hire()
        task = await at.team.ended(task_id)
        assert (
            task.state,
            (task.final_message or "").count("So it is: The person answered: Blue"),
        ) == (State.DONE, 1)
        assert (await at.team.task("2")).duration < 3600
        assert (await at.team.events(task_id)).count("SubtaskSettled") == 1


async def test_a_tree_reads_the_same_however_often_its_events_are_repeated(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says("Looked.")
        return (
            says("Done.")
            if results(request)
            else calls(
                ("task_parallel", {"tasks": [{"objective": "A", "subagent_type": "explore"}, "B"]})
            )
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        before: dict[str, Any] = await at.call("get_task", task_id=task.id)
        for _ in range(3):
            await at.team.do("SettleSubtasks", "system:engine", task_id=task.id)
        after = await at.call("get_task", task_id=task.id)
        assert (before["child_ids"], before) == (["2", "3"], after)
        child = await at.call("get_task", task_id="2")
        wanted = {
            "parent_id": task.id,
            "root_id": task.id,
            "depth": 1,
            "summary": "Looked.",
            "final_message": "Looked.",
            "created_by": "agent:build",
        }
        assert {name: child[name] for name in wanted} == wanted
        assert (await verify(at.team.core.store)).faults == ()


def test_a_link_recorded_twice_is_one_child() -> None:
    assert [child.id for child in given(created(), CHILD, CHILD).children] == ["2"]
