"""Mistakes that others have made with sub-agents, each as a behaviour that must hold here."""

from pathlib import Path

from remit.domain.message import Request, Response
from remit.domain.model import ModelFailed
from remit.domain.value import State
from tests.agents.stage import calls, results, says, stage


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
