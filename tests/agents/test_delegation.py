"""Work that people and programs delegate to sub-agents, and its results."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from remit.app.context import AppContext
from remit.app.delegation import cancellation, delegate, envelopes
from remit.app.runs.run_handle import RunHandle
from remit.catalog import Caller, attend
from remit.domain.delegation.result_envelope import Envelope
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from remit.errors import InvalidParam, NotFound, TimedOut
from tests.agents.stage import Gate, calls, reached, says, stage, texts
from tests.engine.fleet import ANN
from tests.patience import patient


def echo(request: Request) -> Response:
    """A model that says what it was told to do, or fails at it."""
    objective = request.messages[0].text
    if "fail" in objective:
        raise ModelFailed("rejected_request", "I will not.")
    return says(f"Did: {objective}")


async def test_a_delegation_answers_in_its_callers_words(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, echo) as at:
        found = await at.call(
            "task",
            objective="Look",
            description="A look",
            subagent_type="Explore",
            context={"a": [1]},
            session_id="s1",
        )
        assert found["data"] == {
            "status": "completed",
            "task_id": "1",
            "result": 'Did: Look\n\nContext:\n{"a": [1]}',
            "tool_summary": [],
            "model_used": "light (scripted)",
            "subagent_type": "explore",
        }
        assert found["context"] == {
            "cwd": str(tmp_path),
            "params_input": {
                "objective": "Look",
                "description": "A look",
                "subagent_type": "explore",
                "context": {"a": [1]},
                "session_id": "s1",
            },
        }
        assert found["stats"] | {"time_ms": 0} == {
            "time_ms": 0,
            "tool_calls": 0,
            "model": "light (scripted)",
            "tokens": 15,
        }
        task = await at.call("get_task", task_id="1")
        assert (task["title"], task["parent_session_id"], task["limits"]["timeout_seconds"]) == (
            "A look",
            "s1",
            120.0,
        )


async def test_a_flat_result_has_one_level(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, echo) as at:
        done = await at.call("task", prompt="Look", format="flat")
        assert [
            done[name]
            for name in ("task_id", "objective", "agent_type", "status", "result", "error")
        ] == [
            "1",
            "Look",
            "general",
            "completed",
            "Did: Look",
            None,
        ]
        assert done["started_at"] <= done["completed_at"]
        failed = await at.call("task", prompt="Please fail", format="flat")
        assert (failed["status"], failed["result"], "I will not." in failed["error"]) == (
            "failed",
            None,
            True,
        )


async def test_a_receipt_comes_at_once_and_the_output_when_it_is_there(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, lambda _: gate.then(says("At last."))) as at:
        receipt = await at.call("task", objective="Take your time", wait=False)
        assert (receipt["status"], receipt["data"]["status"]) == ("success", "running")
        await reached(gate)
        task_id = receipt["data"]["task_id"]
        assert (await at.call("task_output", task_id=task_id, wait_seconds=0.05))["data"][
            "status"
        ] == "running"
        waiting = asyncio.create_task(
            at.call("task_output", task_id=task_id, wait_seconds=patient(20))
        )
        gate.open.set()
        assert (await waiting)["data"]["result"] == "At last."
        assert (await at.call("task_output", task_id=task_id, format="flat"))[
            "result"
        ] == "At last."


async def test_limits_acceptance_outputs_and_tools_reach_the_task(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url,
        tmp_path,
        lambda _: calls(("complete_task", {"outputs": {"list": "a, b"}, "summary": "Listed."})),
    ) as at:
        found = await at.call(
            "task",
            objective="List",
            outputs=["list"],
            acceptance=["It is sorted"],
            limits={"max_turns": 7},
            timeout_seconds=9,
            tools=["Read"],
            priority="high",
            model="light",
        )
        assert (found["data"]["result"], found["data"]["outputs"]) == ("Listed.", {"list": "a, b"})
        task = await at.team.task("1")
        assert (
            task.limits.max_turns,
            task.limits.timeout_seconds,
            task.tools.allow,
            task.priority,
            task.model,
        ) == (7, 9, ("Read",), 1, "light")
        assert task.acceptance[0].status == "attested"
        assert [tool.name for tool in at.script.asked[0].tools if tool.name[0].isupper()] == [
            "Read"
        ]


async def test_work_waits_for_what_it_depends_on(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        is_first = request.messages[0].text == "First"
        return gate.then(says("First.")) if is_first else says("Second.")

    async with stage(any_url, tmp_path, rule) as at:
        first = (await at.call("task", objective="First", wait=False))["data"]["task_id"]
        second = asyncio.create_task(at.call("task", objective="Then", depends_on=[first]))
        await reached(gate)
        assert len(at.script.asked) == 1
        gate.open.set()
        assert (await second)["data"]["result"] == "Second."
        with pytest.raises(InvalidParam):
            await at.call("task", objective="Never", depends_on=["99"])


@pytest.mark.parametrize("count", [3, 5, 10])
async def test_one_that_fails_one_that_is_wrong_and_one_that_hangs_fail_alone(
    any_url: str, tmp_path: Path, count: int
) -> None:
    async def rule(request: Request) -> Response:
        if "hang" in request.messages[0].text:
            await asyncio.Event().wait()
        return echo(request)

    works: list[Any] = [
        {"objective": "fail"},
        {"objective": "No such agent", "subagent_type": "nobody"},
        {"objective": "hang", "timeout_seconds": 0.3},
    ]
    works += [
        {"objective": f"Work {number}", "subagent_type": "explore"} for number in range(count - 1)
    ] + ["In a word"]
    async with stage(any_url, tmp_path, rule) as at:
        results = (await at.call("task_parallel", tasks=works))["results"]
        assert [result["data"]["status"] for result in results] == [
            "failed",
            "failed",
            "timeout",
            *["completed"] * count,
        ]
        assert [result["data"]["result"] for result in results[3:]] == [
            *(f"Did: Work {number}" for number in range(count - 1)),
            "Did: In a word",
        ]
        assert "I will not." in results[0]["error"]["message"]
        assert (results[1]["error"]["code"], results[1]["data"]["task_id"]) == (
            "INVALID_PARAM",
            None,
        )
        assert "build, explore, general, plan, summary" in results[1]["error"]["message"]
        assert results[2]["error"]["code"] == "TIMEOUT"
        assert [result["context"]["params_input"].get("objective") for result in results[:2]] == [
            "fail",
            "No such agent",
        ]


async def test_invalid_requests_are_reported_in_place_and_the_others_run(
    any_url: str, tmp_path: Path
) -> None:
    odd: list[Any] = [
        5,
        None,
        [],
        True,
        {"objective": ["x"]},
        {"objective": "x", "colour": "red"},
        {"objective": "x", "timeout_seconds": "long"},
    ]
    async with stage(any_url, tmp_path, echo) as at:
        first, *refused, last = (
            await at.call("task_parallel", tasks=["First", *odd, {"objective": "Last"}])
        )["results"]
        assert [first["data"]["result"], last["data"]["result"]] == ["Did: First", "Did: Last"]
        assert {
            (one["status"], one["data"]["status"], one["data"]["task_id"], one["error"]["code"])
            for one in refused
        } == {("error", "failed", None, "INVALID_PARAM")}
        said = (
            "objective: is a number",
            "objective: is missing",
            "objective: is a list",
            "objective: is true or false",
        )
        more = ("objective: is a list", "colour: is not a field", "timeout_seconds: is 'long'")
        for place, (one, why) in enumerate(zip(refused, said + more, strict=True), 1):
            assert one["error"]["message"].startswith(f"tasks[{place}]")
            assert why in one["error"]["message"]
        assert len((await at.call("list_history"))["tasks"]) == 2


async def test_an_item_says_itself_whether_it_is_waited_for_and_how_its_result_looks(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        return gate.then(says("Slow.")) if "slow" in texts(request) else echo(request)

    works: list[Any] = [
        {"objective": "slow", "wait": False},
        "Look",
        {"objective": "Flat", "format": "flat"},
        {"objective": "slow and flat", "wait": False, "format": "flat"},
        {"objective": "", "format": "flat"},
        {"objective": "Again", "format": None},
    ]
    async with stage(any_url, tmp_path, rule, concurrency=4) as at:
        ahead, look, flat, flat_ahead, refused, again = (
            await at.call("task_parallel", tasks=works)
        )["results"]
        assert (ahead["data"]["status"], ahead["data"]["task_id"], look["data"]["result"]) == (
            "running",
            "1",
            "Did: Look",
        )
        assert (flat["status"], flat["result"], flat_ahead["status"], flat_ahead["task_id"]) == (
            "completed",
            "Did: Flat",
            "running",
            "4",
        )
        assert (refused["status"], refused["task_id"], again["data"]["result"]) == (
            "failed",
            None,
            "Did: Again",
        )
        turned = (
            await at.call(
                "task_parallel",
                tasks=["Look", {"objective": "Look", "format": "envelope"}],
                format="flat",
            )
        )["results"]
        assert (turned[0]["result"], turned[1]["data"]["result"]) == ("Did: Look", "Did: Look")
        gate.open.set()
        assert (await at.call("task_output", task_id="1", wait_seconds=patient(20)))["data"][
            "result"
        ] == "Slow."


@pytest.mark.parametrize("form", ["round", ["flat"], "", 1])
async def test_an_item_without_a_valid_form_is_refused_in_that_of_the_call(
    any_url: str, tmp_path: Path, form: Any
) -> None:
    async with stage(any_url, tmp_path, echo, workers=0) as at:
        works = [{"objective": "Look", "format": form}]
        (refused,) = (await at.call("task_parallel", tasks=works, format="flat"))["results"]
        assert (refused["status"], refused["objective"]) == ("failed", "Look")
        assert "tasks[0].format" in refused["error"]
        (refused,) = (await at.call("task_parallel", tasks=works))["results"]
        assert (refused["data"]["status"], refused["error"]["code"]) == ("failed", "INVALID_PARAM")


async def test_receipts_alone_need_no_worker(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, echo, workers=0) as at:
        found = (
            await at.call(
                "task_parallel",
                tasks=[{"objective": "A", "wait": False}, {"objective": "B", "wait": "no"}],
            )
        )["results"]
        assert [one["data"]["status"] for one in found] == ["running", "failed"]
        assert "tasks[1].wait: is 'no'; expected true or false" in found[1]["error"]["message"]


async def test_results_come_as_they_settle(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        return gate.then(says("Slow.")) if "slow" in texts(request) else says("Quick.")

    async with stage(any_url, tmp_path, rule) as at:
        came: list[dict[str, Any]] = []
        async for item in attend(
            at.team.core, "task_parallel", {"tasks": ["slow", "quick"]}, Caller(actor=ANN)
        ):
            came.append(item)
            if item["type"] == "result":
                gate.open.set()
        results = [item for item in came if item["type"] == "result"]
        assert [
            (item["index"], item["task_id"], item["result"]["data"]["result"]) for item in results
        ] == [(1, "2", "Quick."), (0, "1", "Slow.")]
        assert came[-1] == {
            "type": "end",
            "answer": {"results": [results[1]["result"], results[0]["result"]]},
        }


async def test_the_exact_tool_of_others_is_the_same_work(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, echo) as at:
        found = await at.call(
            "Task", description="A look", prompt="Look", subagent_type="explore", model="main"
        )
        assert (found["status"], found["text"]) == (
            "success",
            "Subagent (explore, main) completed.\n\nDid: Look",
        )
        with pytest.raises(InvalidParam):
            await at.call(
                "Task",
                description="A look",
                prompt="Look",
                subagent_type="explore",
                model="openai:gpt",
            )


async def test_cancel_all_stops_the_tasks_that_a_session_created(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, lambda _: gate.then(says("Late."))) as at:
        mine = [
            (await at.call("task", objective=f"Work {n}", wait=False, session_id="s1"))["data"][
                "task_id"
            ]
            for n in range(3)
        ]
        other = (await at.call("task", objective="Other", wait=False, session_id="s2"))["data"][
            "task_id"
        ]
        await reached(gate)
        async with asyncio.timeout(patient(20)):
            assert sorted((await at.call("cancel_all", session_id="s1"))["canceled"]) == sorted(
                mine
            )
        assert not [key for key in await at.team.jobs() if key.removeprefix("run/") in mine]
        asked = len(at.script.asked)
        gate.open.set()
        assert (await at.team.ended(other)).state is State.DONE
        assert len(at.script.asked) <= asked + 1
        envelope = await at.call("task_output", task_id=mine[0])
        assert (envelope["status"], envelope["data"]["status"]) == ("error", "cancelled")


class Deaf:
    """A runner that cannot be stopped until the test allows it."""

    def __init__(self) -> None:
        self.reached, self.over = asyncio.Event(), asyncio.Event()

    async def run(self, _: RunHandle) -> None:
        self.reached.set()
        while not self.over.is_set():
            with suppress(asyncio.CancelledError):
                await self.over.wait()


async def test_cancel_all_says_what_has_not_stopped(
    any_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "STOP_SECONDS", 0.2)
    deaf = Deaf()
    async with stage(any_url, tmp_path, echo, workers=0) as at:
        await at.team.hire(deaf)
        running = (await at.call("task", objective="Work", wait=False, session_id="s1"))["data"][
            "task_id"
        ]
        async with asyncio.timeout(patient(20)):
            await deaf.reached.wait()
        draft = (await at.call("create_task", title="Later", status="draft", parent_session="s1"))[
            "task_id"
        ]
        try:
            for canceled in ([draft, running], []):  # asked again, it is not forgotten
                with pytest.raises(
                    TimedOut, match=f"these have not stopped within 0.2 seconds: {running}"
                ) as told:
                    await at.call("cancel_all", session_id="s1")
                assert told.value.details == {"canceled": canceled, "running": [running]}
                assert (await at.call("cancel_all", session_id="s2"))["canceled"] == []
        finally:
            deaf.over.set()
        monkeypatch.setattr(cancellation, "STOP_SECONDS", patient(20))
        assert await at.call("cancel_all", session_id="s1") == {"success": True, "canceled": []}
        assert not [key for key in await at.team.jobs() if key == f"run/{running}"]


async def test_an_unknown_agent_or_task_is_refused_with_the_known_ones(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, echo) as at:
        with pytest.raises(InvalidParam, match="build, explore, general, plan, summary"):
            await at.call("task", objective="Look", subagent_type="nobody")
        with pytest.raises(NotFound):
            await at.call("task_output", task_id="99")
        assert (await at.call("list_tasks"))["tasks"] == []


async def test_the_same_key_is_the_same_work(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, echo) as at:
        first, again = [
            await at.call("task", objective="Once", idempotency_key="k1") for _ in range(2)
        ]
        assert (first["data"]["task_id"], first["data"]["result"]) == (
            again["data"]["task_id"],
            again["data"]["result"],
        )
        assert len(at.script.asked) == 1


async def test_the_result_of_task_repeats_only_what_the_caller_sent(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, echo) as at:
        sent = {"description": "A look", "prompt": "Look", "subagent_type": "explore"}
        found = await at.call("Task", **sent)
        assert found["context"]["params_input"] == sent
        assert (await at.team.task("1")).limits.timeout_seconds == 3600


async def test_a_result_is_computed_once(
    any_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    compute = envelopes.task_envelope

    async def counted(core: AppContext, task_id: str, *rest: Any) -> Envelope:
        made.append(task_id)
        return await compute(core, task_id, *rest)

    monkeypatch.setattr(delegate, "task_envelope", counted)
    async with stage(any_url, tmp_path, echo) as at:
        assert (await at.call("task", objective="Look"))["data"]["result"] == "Did: Look"
        assert made == ["1"]
