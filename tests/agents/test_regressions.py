"""Mistakes that others have made with sub-agents, each as a behaviour that must hold here.

Others of the kind stand where they belong: errors of a model taken for success (test_model_faults), a message that comes while a child
finishes (test_updates), messages of agents that pass for approval and spawns that are not allowed (test_authority), tools of an agent's
file that come to nothing (unit/test_agentfile). Mistakes with worktrees will be here once there are worktrees.
"""

import asyncio
from pathlib import Path

import pytest

from remit.domain.message import Request, Response, Tokens
from remit.domain.model import ModelFailed
from remit.domain.value import State
from remit.errors import Conflict
from tests.agents.stage import Gate, calls, in_turn, results, says, stage, texts
from tests.agents.test_interruption import reached


async def test_a_run_that_goes_on_keeps_its_prompt_tools_model_and_depth(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "build":
            return (
                says("Done.")
                if results(request)
                else calls(("task", {"objective": "Ask", "subagent_type": "explore", "model": "main", "tools": ["Read"]}))
            )
        return says("Asked.") if results(request) else calls(("ask_user", {"question": "Which?"}))

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        await at.team.until(task_id, lambda task: bool(task.children) and task.run is None)
        child = await at.team.until("2", lambda task: bool(task.questions) and task.run is None)
        await at.call("respond", interaction_id=child.questions[0].id, answer="This")
        await at.team.ended(task_id)
        before, after = (request for request in at.script.asked if request.agent == "explore")
        assert (before.system, before.tools, before.model) == (after.system, after.tools, after.model)
        assert (await at.team.task("2")).depth == 1


async def test_a_rate_limited_child_is_a_failure_and_never_an_empty_success(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            raise ModelFailed("rate_limited", "Too many requests.")
        if results(request):
            return says(results(request)[0])
        return calls(("task", {"objective": "Look", "subagent_type": "explore", "limits": {"max_attempts": 1}}))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        assert (task.final_message or "").startswith("Subagent (explore, light) failed.")
        assert "Too many requests." in (task.final_message or "")
        child = await at.team.task("2")
        assert (child.state, child.reason, child.run) == (State.FAILED, "error", None)


async def test_a_canceled_child_is_never_run_again(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("never")], workers=0) as at:
        task_id = await at.create()
        await at.call("cancel_task", task_id=task_id)
        await at.hire()
        await at.team.idle()
        assert (at.script.asked, (await at.team.task(task_id)).counts.runs) == ([], 0)


async def test_a_grant_of_nothing_offers_no_tool_of_the_workspace(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [calls(("Read", {"file_path": "a"})), says("I could not.")]) as at:
        task = await at.run(tools={"allow": []})
        assert task.state is State.DONE
        assert not {tool.name for tool in at.script.asked[0].tools} & {"Read", "LS", "Glob", "Grep", "TodoWrite"}
        assert "not a tool that this task may use" in results(at.script.asked[1])[0]


async def test_two_tasks_with_one_name_do_not_get_each_others_messages(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), workers=0) as at:
        one, two = [await at.create(title="Twin") for _ in range(2)]
        await at.call("send_message", task_id=two, message="For the second.")
        await at.hire()
        await at.team.ended(one)
        await at.team.ended(two)
        told = {request.messages[-1].text.split(">")[0]: "For the second." in request.messages[0].text for request in at.script.asked}
        assert told == {f"<Task id={one}": False, f"<Task id={two}": True}


async def test_a_message_is_called_sent_only_where_somebody_will_read_it(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says("Looked.")
        found = results(request)
        if not found:
            return calls(("task", {"objective": "Look", "subagent_type": "explore"}))
        return calls(("send_message", {"task_id": "2", "message": "Look again"})) if "Looked." in found[0] else says(found[0])

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        assert "an ended task never changes" in (task.final_message or "")
        with pytest.raises(Conflict):
            await at.call("send_message", task_id="2", message="Look again")
        assert (await at.call("list_updates", task_id="2"))["updates"] == []


async def test_urgent_words_during_the_start_of_a_run_neither_stop_it_nor_get_lost(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda request: says(texts(request))) as at:

        async def one(number: int) -> tuple[str, int]:
            task_id = await at.create(title=f"Work {number}", priority="low")
            await at.team.until(task_id, lambda task: task.in_flight or task.state.terminal)
            try:
                await at.call("send_message", task_id=task_id, message=f"Word {number}.")
                await at.call("update_task", task_id=task_id, priority="urgent")
            except Conflict:
                return "done", 1  # it was faster, and the sender was told
            task = await at.team.ended(task_id)
            return task.state.value, (task.final_message or "").count(f"Word {number}.")

        assert set(await asyncio.gather(*(one(number) for number in range(20)))) == {("done", 1)}


async def test_an_end_is_never_missed_by_who_waits_for_it(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), workers=2) as at:

        async def one(number: int) -> str:
            if number % 2:
                return str((await at.call("task", objective="Go"))["data"]["status"])
            receipt = await at.call("task", objective="Go", wait=False)
            return str((await at.call("task_output", task_id=receipt["data"]["task_id"], wait_seconds=20))["data"]["status"])

        async with asyncio.timeout(20):
            assert await asyncio.gather(*map(one, range(40))) == ["completed"] * 40


async def test_what_no_store_can_keep_never_leaves_a_task_running(any_url: str, tmp_path: Path) -> None:
    odd = "a\0b\ud800c"

    def fetch() -> str:
        """Text from somewhere."""
        return odd

    def burst() -> str:
        """Never well."""
        raise RuntimeError(odd)

    script = [calls(("fetch", {}), ("burst", {})), says("Done.")]
    async with stage(any_url, tmp_path, script, functions=[fetch, burst]) as at:
        task = await at.run(tools=["fetch", "burst"])
        assert (task.state, task.counts.runs) == (State.DONE, 1)
        assert ["a" in text and "c" in text for text in results(at.script.asked[1])] == [True, True]


async def test_a_fault_of_our_own_ends_the_task_with_its_name(any_url: str, tmp_path: Path) -> None:
    def rule(_: Request) -> Response:
        raise RuntimeError("a\0fault")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_attempts": 1})
        assert (task.state, task.reason, task.run) == (State.FAILED, "error", None)
        assert "RuntimeError: a" in (task.failure_reason or "")
        await at.team.idle()


async def test_children_in_the_background_spend_from_the_same_budget(any_url: str, tmp_path: Path) -> None:
    cap = 40_000

    def rule(request: Request) -> Response:
        if "Waste" in request.messages[0].text:
            answer = calls(("LS", {"path": "."})) if request.tools else says("I must stop.")
        elif results(request):
            answer = says("Let them work.")
        else:
            made = [{"task_id": "1", "title": f"Waste {number}", "owner": "general", "wait": "none"} for number in range(4)]
            answer = calls(*(("create_subtask", fields) for fields in made))
        return answer._replace(tokens=Tokens(1500, 500))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", limits={"max_tokens": cap})
        assert task.state is State.DONE
        children = [await at.team.ended(child.id) for child in task.children]
        assert len(children) == 4
        assert {(child.state, child.reason) for child in children} == {(State.FAILED, "budget")}
        spent = sum(each.usage.input_tokens + each.usage.output_tokens for each in [task, *children])
        assert cap // 2 < spent <= cap


async def test_outputs_that_never_fit_are_asked_for_twice_again(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return calls(("complete_task", {"outputs": {"count": "many"}})) if request.tools else says("I cannot.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(outputs=[{"name": "count", "kind": "url"}])
        assert (task.state, task.reason, len(at.script.asked)) == (State.FAILED, "acceptance", 3)
        assert "count" in results(at.script.asked[1])[0]


async def test_a_turn_of_the_calendar_is_no_word_of_a_person(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [calls(("ask_user", {"question": "May I?"})), says("Thank you.")]) as at:
        task_id = await at.create()
        asked = await at.team.until(task_id, lambda task: bool(task.questions) and task.run is None)
        await at.team.do("Tick", "system:scheduler", task_id=task_id)
        with pytest.raises(Conflict):
            await at.call("run_task", task_id=task_id)
        await at.call("send_message", task_id=task_id, message="Yes, you may.")
        still = await at.team.task(task_id)
        assert (still.state, still.questions, len(at.script.asked)) == (State.WAITING, asked.questions, 1)
        await at.call("respond", interaction_id=asked.questions[0].id, answer="No")
        await at.team.ended(task_id)
        assert "The person answered: No" in [part.text for part in at.script.asked[1].messages[2].parts]  # type: ignore[union-attr]


async def test_the_folder_of_a_child_is_not_the_folder_of_its_parent(any_url: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    def rule(request: Request) -> Response:
        found = results(request)
        if "Child" in request.messages[0].text:
            return says(found[0]) if found else calls(("Bash", {"command": "cd sub && pwd"}))
        if not found:
            return calls(("task", {"objective": "Child", "tools": ["Bash"]}))
        return calls(("Bash", {"command": "pwd"})) if "Subagent" in found[0] else says(found[0])

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", tools=["Bash", "Task"])
        assert str(tmp_path / "sub") in ((await at.team.task("2")).final_message or "")
        assert [line for line in (task.final_message or "").splitlines() if line.startswith("/")] == [str(tmp_path)]


async def test_a_run_that_another_worker_takes_up_keeps_its_limits_and_never_its_old_words(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    first = in_turn(calls(("LS", {"path": "."})), calls(("LS", {"path": "."})))
    async with stage(any_url, tmp_path, lambda _: gate.then(first(_)), workers=0) as at:  # type: ignore[arg-type]  # answers come later
        worker = await at.hire()
        task_id = await at.create(instructions="Old words.", tools=["LS"], model="light", limits={"max_turns": 2})
        await reached(gate)
        await at.call("update_task", task_id=task_id, instructions="New words.")
        worker.stop()
        gate.open.set()
        await at.team.until(task_id, lambda task: task.run is None)
        at.script._rule = lambda request: calls(("LS", {"path": "."})) if request.tools else says(texts(request))
        await at.hire()
        task = await at.team.ended(task_id)
        before, after = at.script.asked[0], at.script.asked[1]
        assert (after.system, after.tools, after.model) == (before.system, before.tools, before.model)
        assert [message.text for message in after.messages if message.role == "user"][1] == "[Task Update: Instructions Modified]\nNew words."
        assert (task.reason, task.counts.runs, len(at.script.asked)) == ("turns", 2, 3)
