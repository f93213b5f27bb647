"""TodoWrite is the plan of the task: what an agent writes there are its steps."""

from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.domain.llm.messages import Request, Response, ToolResult
from remit.domain.task.task import State, Step, Task
from tests.agents.stage import Stage, calls, says, stage, texts

LONG = "Read every file below src/remit/adapters and list the functions that open a file"
READER = Agent(id="reader", description="Reads.", tools=("Read", "TodoWrite"), read_only=True)
CLERK = Agent(id="clerk", description="Keeps the list.", tools=("Read",), capabilities=("tasks",))


def todo(content: str, status: str = "pending") -> dict[str, str]:
    return {"content": content, "status": status, "activeForm": f"{content}…"}


def results_of(at: Stage) -> list[ToolResult]:
    """All results that the model was given last, in order."""
    parts = [part for message in at.script.asked[-1].messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


async def planned(url: str, folder: Path, *lists: list[dict[str, str]], **fields: Any) -> Task:
    """The task of an agent that writes lists one after the other and then ends."""
    answers = [
        *(calls(("TodoWrite", {"todos": todos})) for todos in lists),
        says("Done."),
        says("Done."),
    ]
    async with stage(url, folder, answers, agents=[READER]) as at:
        return await at_rest(at, await at.create(**{"owner": "reader", **fields}))


async def at_rest(at: Stage, task_id: str) -> Task:
    """A task once its agent has said its last words; with open steps it waits for its next run."""
    return await at.team.until(task_id, lambda task: task.state in (State.DONE, State.WAITING))


async def test_the_list_becomes_the_plan_and_the_block_shows_it(
    any_url: str, tmp_path: Path
) -> None:
    first = [todo("Look", "completed"), todo("Write", "in_progress"), todo("Rest")]
    last = [todo("Look", "completed"), todo("Write", "completed")]
    answers = [
        calls(("TodoWrite", {"todos": first})),
        calls(("TodoWrite", {"todos": last})),
        says("Done."),
    ]
    async with stage(any_url, tmp_path, answers, agents=[READER]) as at:
        task = await at.run(owner="reader")
        assert task.state is State.DONE
        assert task.steps == (Step(title="Look", done=True), Step(title="Write", done=True))
        assert [result.text for result in results_of(at)] == ['{"success":true}'] * 2
        blocks = [request.messages[-1].text for request in at.script.asked]
        assert "Steps:\n[x] 0. Look\n[ ] 1. Write\n[ ] 2. Rest\n" in blocks[1]
        assert "Steps:\n[x] 0. Look\n[x] 1. Write\nLeft: " in blocks[2]
        events = (await at.call("get_events", task_id=task.id))["events"]
        replaced = [event for event in events if event["type"] == "StepsReplaced"]
        assert [event["actor"] for event in replaced] == ["agent:reader"] * 2
        assert {count.tool: count.count for count in task.tool_summary} == {"TodoWrite": 2}


async def test_a_long_item_is_cut_into_title_and_details(any_url: str, tmp_path: Path) -> None:
    task = await planned(any_url, tmp_path, [todo(LONG), todo("One\ntwo"), todo("x" * 61)])
    assert [step.details for step in task.steps] == [LONG, "One\ntwo", "x" * 61]
    titles = [step.title for step in task.steps]
    assert titles == [
        "Read every file below src/remit/adapters and list the…",
        "One…",
        "x" * 59 + "…",
    ]


async def test_an_item_named_by_its_title_keeps_its_details(any_url: str, tmp_path: Path) -> None:
    title = "Read every file below src/remit/adapters and list the…"
    task = await planned(any_url, tmp_path, [todo("First"), todo(LONG)], [todo(title, "completed")])
    assert task.steps == (Step(title=title, details=LONG, done=True),)


async def test_items_with_the_same_beginning_keep_their_own_details(
    any_url: str, tmp_path: Path
) -> None:
    longs = [f"{LONG} in part {number}" for number in (1, 2)]
    title = "Read every file below src/remit/adapters and list the…"
    again = [todo(title, "completed"), todo(title)]
    task = await planned(any_url, tmp_path, [todo(text) for text in longs], again)
    assert [(step.details, step.done) for step in task.steps] == [
        (longs[0], True),
        (longs[1], False),
    ]


async def test_spaces_around_an_item_change_nothing(any_url: str, tmp_path: Path) -> None:
    steps = [{"title": "Look", "details": "Below src."}]
    task = await planned(any_url, tmp_path, [todo(" Look\n"), todo(" Rest ")], steps=steps)
    expected = (Step(title="Look", details="Below src."), Step(title="Rest"))
    assert task.steps == expected


async def test_fields_of_other_programs_are_ignored(any_url: str, tmp_path: Path) -> None:
    items = [{**todo("Look"), "id": "1", "priority": "high"}, todo("Tell")]
    task = await planned(any_url, tmp_path, items)
    assert [step.title for step in task.steps] == ["Look", "Tell"]


async def test_an_empty_list_takes_the_plan_away(any_url: str, tmp_path: Path) -> None:
    assert (await planned(any_url, tmp_path, [todo("First")], [])).steps == ()


async def test_a_step_with_a_subtask_keeps_its_place(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says("Found.")
        turn = sum(message.role == "assistant" for message in request.messages)
        link = {
            "task_id": "1",
            "title": "Find it",
            "owner": "explore",
            "step_index": 0,
            "wait": "block",
        }
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("TodoWrite", {"todos": [todo("Find it"), todo("Use it")]}),
            ("create_subtask", link),
            ("TodoWrite", {"todos": [todo("Use it"), todo("Find it")]}),
            ("TodoWrite", {"todos": [todo("Find it", "completed"), todo("Use it", "completed")]}),
        ]
        return calls(wanted[turn]) if turn < len(wanted) else says("Done.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        _, _, refused, taken = results_of(at)
        assert refused.is_error
        assert (
            refused.text
            == "todos[0]: was removed or renamed, but it is linked to a subtask; expected item 0"
            " with the content 'Find it'."
        )
        assert not taken.is_error
        assert task.steps == (
            Step(title="Find it", done=True, task_id="2"),
            Step(title="Use it", done=True),
        )


@pytest.mark.parametrize(
    ("todos", "said"),
    [
        (
            [{"content": "a", "status": "soon"}],
            "todos[0].status: is 'soon'; expected one of pending",
        ),
        ([{"content": "", "status": "pending"}], "todos[0].content: is blank"),
        ([todo(str(number)) for number in range(101)], "todos: has 101 entries"),
    ],
)
async def test_a_list_that_cannot_be_read_changes_nothing(
    any_url: str, tmp_path: Path, todos: list[dict[str, str]], said: str
) -> None:
    answers = [calls(("TodoWrite", {"todos": todos})), says("Done."), says("Done.")]
    async with stage(any_url, tmp_path, answers, agents=[READER]) as at:
        task = await at_rest(at, await at.create(owner="reader", steps=["Given"]))
        assert [step.title for step in task.steps] == ["Given"]
        (refused,) = results_of(at)
        assert refused.is_error
        assert said in refused.text


async def test_the_reminder_of_open_steps_names_the_tool_that_the_agent_has(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), agents=[READER, CLERK]) as at:
        for owner in ("reader", "clerk"):
            await at.waiting(await at.create(owner=owner, steps=["One"]))
        told = {
            request.agent: texts(request)
            for request in at.script.asked
            if "still open" in texts(request)
        }
        assert (
            'call TodoWrite with the whole list, with "status": "completed" for each step'
            in told["reader"]
        )
        assert "update_step" not in told["reader"].partition("still open")[2]
        assert 'call update_step with {"index": 0, "done": true}' in told["clerk"]


async def test_a_continued_run_is_told_to_plan_with_its_own_tool(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), agents=[READER]) as at:
        task_id = await at.create(owner="reader", steps=["One"])
        await at.waiting(task_id)
        await at.call("run_task", task_id=task_id)
        await at.team.until(
            task_id, lambda task: task.counts.runs > 1 and task.state is State.WAITING
        )
        told = texts(at.script.asked[-1])
        assert "Continue your task." in told
        assert "make one with TodoWrite" in told
        assert "update_step" not in told.partition("Continue your task.")[2]
