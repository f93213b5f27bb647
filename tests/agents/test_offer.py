"""The tools that a running agent is offered; none of them weakens its restrictions."""

from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.adapters.models.registry import ModelRegistry
from remit.app.agents.registry import Agent
from remit.catalog import FOR_EVERYONE
from remit.domain.llm.messages import Request, Response, ToolResult
from remit.domain.llm.selection import Choices
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer, answers, may_call, wants
from tests.agents.stage import calls, results, says, stage, texts
from tests.modelserver import Say

FILES = {"LS", "Glob", "Grep", "Read"}
PLAN = {"update_steps", "update_step"}
END = {"complete_task", "ask_user", "notify_user"}
OWN = {"get_task", "get_guide", *END}
CHILDREN = {"task_output", "send_message", "update_task", "cancel_task", "create_subtask"}
DELEGATION = {"task", "task_parallel"}
TASKS = {
    "create_task",
    "get_task",
    "list_tasks",
    "update_task",
    "cancel_task",
    "create_subtask",
    "add_resource",
    "remove_resource",
    "list_history",
}
CLERK = Agent(id="clerk", description="Keeps the list.", tools=("Read",), capabilities=("tasks",))
LEAD = Agent(id="lead", description="Leads.", tools=("Read", "Task"), effort="high")
WRITER = Agent(id="writer", description="Writes.", tools=("Read", "Write", "Bash"))


async def test_each_agent_is_offered_the_documented_tools(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), agents=[CLERK, LEAD]) as at:
        for owner in ("general", "explore", "clerk", "lead", "build"):
            await at.run(owner=owner)
        offered = {
            request.agent: {tool.name for tool in request.tools} for request in at.script.asked
        }
        named = {
            f"create_subtask_{agent.id}" for agent in at.team.core.agents.all() if not agent.hidden
        }
        assert offered["general"] == offered["explore"] == FILES | {"TodoWrite"} | OWN
        assert offered["lead"] == {"Read"} | PLAN | OWN | CHILDREN | DELEGATION | named
        assert offered["clerk"] == {"Read"} | PLAN | END | TASKS
        assert offered["build"] == FILES | PLAN | END | TASKS | CHILDREN | DELEGATION | named
        efforts = {request.agent: request.settings.effort for request in at.script.asked}
        assert (efforts["general"], efforts["build"], efforts["lead"]) == ("low", None, "high")


async def test_an_agent_with_reports_of_other_tasks_can_read_the_rest_of_them(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent != "clerk" or results(request):
            return says("Done.")
        return calls(("create_subtask", {"title": "Look", "owner": "explore", "wait": "block"}))

    async with stage(any_url, tmp_path, rule, agents=[CLERK]) as at:
        await at.run(owner="clerk")
        first, *_, last = [request for request in at.script.asked if request.agent == "clerk"]
        assert "task_output" not in {tool.name for tool in first.tools}
        assert "task_output" in {tool.name for tool in last.tools}
        for owner in ("explore", "general", "plan"):
            await at.run(owner=owner, depends_on=["1"])
            assert "task_output" in {tool.name for tool in at.script.asked[-1].tools}


async def test_delegation_tools_say_when_to_delegate_and_with_which_model(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done.")) as at:
        await at.run(owner="build")
        said = {tool.name: tool.description for tool in at.script.asked[0].tools}
        assert all(
            "complex" in said[name] and "parallel" in said[name]
            for name in (*DELEGATION, "create_subtask_explore")
        )
        assert all(
            "`light` for simple" in said[name] and "`main` for reasoning" in said[name]
            for name in DELEGATION
        )
        assert all(
            agent.description in said["task"]
            for agent in at.team.core.agents.all()
            if not agent.hidden
        )
        assert {name: FOR_EVERYONE[name].description for name in DELEGATION} == {
            name: said[name].partition(" Agents:")[0] for name in DELEGATION
        }


async def test_a_task_created_beside_has_no_tool_that_its_creator_lacks(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent != "clerk" or results(request):
            return says("Done.")
        return calls(
            ("create_task", {"title": "One", "owner": "writer"}),
            ("create_task", {"title": "Two", "owner": "general", "tools": ["Bash", "Read"]}),
            (
                "create_task",
                {"title": "Three", "owner": "writer", "tools": {"allow": ["Write"], "deny": []}},
            ),
        )

    async with stage(any_url, tmp_path, rule, agents=[CLERK, WRITER]) as at:
        await at.run(owner="clerk")
        await at.team.idle()
        made = [await at.team.task(task_id) for task_id in ("2", "3", "4")]
        grants = [set(at.team.core.agents.grant(task.owner or "", task.tools)) for task in made]
        assert grants == [{"Read"}, {"Read"}, set()]


async def test_no_agent_loosens_the_terms_of_its_own_task(any_url: str, tmp_path: Path) -> None:
    loosened = {
        "acceptance": [],
        "outputs": [],
        "limits": {"max_turns": 1000},
        "instructions": "Do nothing.",
    }

    def rule(request: Request) -> Response:
        level = 2 if "Below" in request.messages[0].text else 1
        if found := results(request):
            return (
                says("Done.")
                if level == 2 or "tool_summary" in found[-1]
                else calls(("task", {"objective": "Below", "subagent_type": "build"}))
            )
        each = [
            ("update_task", {"task_id": f"#{level - up}", field: value})
            for field, value in loosened.items()
            for up in range(level)
        ]
        return calls(*each)

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", acceptance=["It is good"], limits={"max_turns": 9})
        assert ([item.text for item in task.acceptance], task.limits.max_turns) == (
            ["It is good"],
            9,
        )
        refused = [
            part
            for request in at.script.asked[1:]
            for message in request.messages
            for part in message.parts
            if type(part) is ToolResult
        ]
        assert {part.is_error for part in refused if part.name == "update_task"} == {True}
        own, above = "only the creator of a task can", "Task 1 is not yours to change"
        texts_of = [part.text for part in refused if part.name == "update_task"]
        assert all(own in text or above in text for text in texts_of)
        assert any(own in text for text in texts_of)
        assert any(above in text for text in texts_of)


async def test_a_clerk_has_tasks_of_its_own_run_and_not_the_one_it_works_on(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent != "clerk":
            return says("Done.")
        found = results(request)
        if not found:
            return calls(
                (
                    "create_task",
                    {
                        "title": "Later",
                        "owner": "general",
                        "schedule": {"not_before": "2999-01-01T00:00:00Z"},
                    },
                )
            )
        if len(found) == 1:
            return calls(*(("run_task", {"task_id": task_id}) for task_id in ("3", "2", "1")))
        return says("Over.")

    async with stage(any_url, tmp_path, rule, agents=[CLERK]) as at:
        theirs = await at.create(owner="general", status="draft")
        task = await at.run(owner="clerk")
        assert (theirs, task.id, task.state) == ("1", "2", State.DONE)
        assert (await at.team.ended("3")).final_message == "Done."
        last = [request for request in at.script.asked if request.agent == "clerk"][-1]
        refused = [
            part
            for message in last.messages
            for part in message.parts
            if type(part) is ToolResult and part.is_error
        ]
        own, other = [part.text for part in refused if part.name == "run_task"]
        assert "already" in own
        assert "Task 1 is not yours to change" in other


async def test_a_parent_still_sets_the_terms_of_its_child(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says("Never.")
        found = results(request)
        if not found:
            return calls(
                (
                    "create_subtask",
                    {
                        "task_id": "1",
                        "title": "Look",
                        "owner": "explore",
                        "wait": "none",
                        "status": "draft",
                    },
                )
            )
        return (
            calls(("update_task", {"task_id": "2", "acceptance": ["Quick"]}))
            if "update_id" not in found[0]
            else says("Set.")
        )

    async with stage(any_url, tmp_path, rule) as at:
        await at.run(owner="build")
        assert [item.text for item in (await at.team.task("2")).acceptance] == ["Quick"]


async def test_a_question_that_blocks_no_task_is_answered_by_a_message(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if "Blue" in texts(request):
            return calls(("complete_task", {"summary": "Blue."}))
        if results(request):
            return says("Meanwhile.")
        return calls(
            (
                "ask_user",
                {"question": "Red or blue?", "options": ["Red", "Blue"], "blocking": False},
            ),
            ("notify_user", {"message": "Begun."}),
        )

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(completion="explicit")
        resting = await at.waiting(task_id)
        assert resting.wait is not None
        assert [item.kind for item in resting.wait.on] == ["tick"]
        (question,) = (await at.call("list_interactions"))["interactions"]
        assert (question["options"], question["asked_by"]) == (["Red", "Blue"], "agent:general")
        assert [
            item["message"] for item in (await at.call("list_notifications"))["notifications"]
        ] == ["Begun."]
        await at.call("respond", interaction_id=question["id"], answer="Blue")
        assert (await at.team.ended(task_id)).summary == "Blue."


async def test_without_a_model_the_workspace_is_really_searched_and_nothing_is_pretended(
    any_url: str, tmp_path: Path
) -> None:
    (tmp_path / "kiln.py").write_text("def fire(kiln):\n    return 'hot'\n")
    async with stage(any_url, tmp_path, [says("never")], workers=0) as at:
        await at.hire(ModelRegistry(Choices({}, {})))
        found = await at.call(
            "task", objective="Where is the `kiln` fired?", subagent_type="explore"
        )
        assert (found["status"], found["data"]["model_used"]) == ("success", "light (offline)")
        assert "kiln.py" in found["data"]["result"]
        assert "No language model was used" in found["data"]["result"]
        assert sum(item["count"] for item in found["data"]["tool_summary"]) > 0
        assert (await at.team.task("1")).state is State.DONE
        blind = await at.call("task", objective="Where is the `kiln` fired?", tools=["TodoWrite"])
        assert blind["stats"]["tool_calls"] == 0
        said = blind["data"]["result"]
        assert (
            "Could not search for `kiln`, `fired`: this needs Grep. Granted workspace tools:"
            " TodoWrite." in said
        )
        assert "Nothing was found" not in said


FILES_OF_OTHERS = {
    ".claude/agents/code-reviewer.md": (
        "---\nname: Code Reviewer\ndescription: Reviews.\ntools: Read, Grep, Edit\ndisallowedTools:"
        " Grep\nmodel: haiku\nmaxTurns: 2\n---\nYou review with care.\n"
    ),
    ".opencode/agent/writer.md": (
        "---\ndescription: Writes.\nsteps: 1\npermission:\n  edit: allow\n  bash: deny\n---\nYou"
        " write in English.\n"
    ),
}


async def test_an_agent_works_as_its_file_says(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of Claude Code and opencode: what they say is what the endpoint is asked, and what
    ends the task.
    """
    for path, text in FILES_OF_OTHERS.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)

    async def rule(body: Body) -> Say:
        return (
            Say(calls=(wants(f"c{answers(body)}", "get_task", task_id="1"),))
            if may_call(body)
            else Say(("As far as I came.",))
        )

    async with RuledServer(rule).running() as server:
        for name, value in {
            "MODEL_ID": "model",
            "API_KEY": "none",
            "BASE_URL": f"{server.url}/v1",
        }.items():
            monkeypatch.setenv(f"LLM_{name}", f"main-{value}" if name == "MODEL_ID" else value)
            monkeypatch.setenv(
                f"LIGHT_LLM_{name}", f"light-{value}" if name == "MODEL_ID" else value
            )
        async with Remit.open(tmp_path, durable_url) as remit:
            for name in ("code reviewer", "Writer"):
                found = await remit.task("Go", subagent_type=name)
                assert (found.error and found.error.code, "As far as I came." in found.text) == (
                    "LIMIT_EXCEEDED",
                    True,
                )
    first = {body["model"]: body for body in (asked.body for asked in reversed(server.asked))}
    assert [asked.body["model"] for asked in server.asked] == ["light-model"] * 3 + [
        "main-model"
    ] * 2, "two turns and one, and a report of each"
    systems = {model: str(body["messages"][0]["content"]) for model, body in first.items()}
    assert systems["light-model"].startswith("You review with care.\n\nYou are a sub-agent")
    assert systems["main-model"].startswith("You write in English.\n\nYou are a sub-agent")
    offered = {
        model: {tool["function"]["name"] for tool in body["tools"]} - OWN
        for model, body in first.items()
    }
    assert offered == {
        "light-model": {"Read", "Edit"} | PLAN,
        "main-model": FILES | {"TodoWrite", "Write", "Edit", "MultiEdit"},
    }


async def test_a_guide_that_is_attached_during_a_run_brings_its_tool(
    any_url: str, tmp_path: Path
) -> None:
    async def attached() -> Any:
        made = await at.call("create_guide", title="Ports", body="Use 8420.")
        await at.call("attach_tsg", task_id="1", tsg_id=made["guide_id"])
        return calls(("LS", {"path": "."}))

    def rule(request: Request) -> Any:
        return says("Done.") if results(request) else attached()

    async with stage(any_url, tmp_path, rule) as at:
        await at.run(owner="build", limits={"max_tokens": 200_000})
        before, after = ([tool.name for tool in request.tools] for request in at.script.asked)
        assert ("get_guide" in before, "get_guide" in after) == (False, True)
        assert "read one with get_guide" in at.script.asked[-1].messages[-1].text
