"""A title stands for the instructions where none were given, and a blank description counts as
not given.
"""

from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import Task
from remit.errors import InvalidParam
from tests.agents.shown import current, looking
from tests.agents.stage import Gate, Stage, calls, reached, says, stage

OLD, NEW = "Count the lines", "Count the words"
HEADING = "[Task Update: Instructions Modified]"
MODIFIED = f"{HEADING}\n{NEW}"


async def renamed(at: Stage, gate: Gate, **fields: Any) -> Task:
    """A task that a person renames while its agent works; its end."""
    task_id = await at.create(**{"title": OLD, "instructions": None, **fields})
    await reached(gate)
    await at.call("update_task", task_id=task_id, title=NEW)
    gate.open.set()
    return await at.team.ended(task_id)


async def test_a_new_title_used_as_the_instructions_reaches_the_agent(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task = await renamed(at, gate)
        assert (task.title, task.instructions, task.description) == (NEW, NEW, NEW)
        first, second = at.script.asked
        assert first.messages[0].text == OLD
        assert second.messages[-2].text == MODIFIED
        assert f"# Task\n{NEW}\n" in second.system
        assert f"\nInstructions: {NEW}\n" in second.messages[-1].text
        assert OLD not in current(second)
        (update,) = (await at.call("list_updates", task_id=task.id))["updates"]
        assert (update["type"], update["content"], update["status"]) == (
            "instructions",
            NEW,
            "delivered",
        )


async def test_a_title_can_change_twice(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task_id = await at.create(title=OLD, instructions=None)
        await reached(gate)
        await at.call("update_task", task_id=task_id, title="Count the letters")
        await at.call("update_task", task_id=task_id, title=NEW)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.instructions, task.description) == (NEW, NEW)
        assert at.script.asked[1].messages[-2].text.endswith(MODIFIED)
        assert "letters" not in current(at.script.asked[1])


async def test_a_new_title_leaves_instructions_alone_that_were_given(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task = await renamed(at, gate, instructions=OLD)
        assert (task.title, task.instructions) == (NEW, OLD)
        assert (await at.call("list_updates", task_id=task.id))["updates"] == []
        assert f"\nInstructions: {OLD}\n" in at.script.asked[1].messages[-1].text


async def test_a_new_title_leaves_instructions_alone_that_were_given_later(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task_id = await at.create(title=OLD, instructions=None)
        await reached(gate)
        for change in ({"instructions": "Count twice"}, {"title": "Count twice"}, {"title": NEW}):
            await at.call("update_task", task_id=task_id, **change)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.title, task.instructions) == (NEW, "Count twice")
        assert len((await at.call("list_updates", task_id=task_id))["updates"]) == 1


async def test_a_title_that_changes_before_the_first_request_is_part_of_it(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        task_id = await at.create(title=OLD, instructions=None)
        await at.call("update_task", task_id=task_id, title=NEW)
        await at.hire()
        await at.team.ended(task_id)
        (first,) = at.script.asked
        assert [message.text for message in first.messages[:-1]] == [NEW]
        assert OLD not in current(first)


def part(name: str, fields: dict[str, Any], gate: Gate) -> Any:
    """A lead gives out one part, whose model stands at the gate."""
    answers: list[Any] = [None, says("Done.")]

    def rule(request: Request) -> Any:
        if request.agent == "build":
            is_first = len(request.messages) == 2
            return calls((name, fields)) if is_first else says("Done.")
        return answers.pop(0) or gate.then(calls(("LS", {"path": "."})))

    return rule


@pytest.mark.parametrize(
    ("name", "fields", "is_title_only"),
    [
        ("create_subtask_explore", {"title": OLD}, True),
        (
            "create_subtask",
            {"task_id": "1", "title": OLD, "owner": "explore", "wait": "block"},
            True,
        ),
        ("create_subtask_explore", {"title": OLD, "intent": OLD}, False),
        ("task", {"objective": OLD, "subagent_type": "explore"}, False),
        ("Task", {"description": OLD, "prompt": OLD, "subagent_type": "explore"}, False),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_delegation_gives_instructions_unless_it_has_only_a_title(
    any_url: str, tmp_path: Path, name: str, fields: dict[str, Any], is_title_only: bool
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, part(name, fields, gate)) as at:
        await at.create(owner="build")
        await reached(gate)
        await at.call("update_task", task_id="2", title=NEW)
        gate.open.set()
        await at.team.ended("1")
        child = await at.team.task("2")
        assert (child.title, child.instructions) == (NEW, NEW if is_title_only else OLD)
        last = [request for request in at.script.asked if request.agent == "explore"][-1]
        assert (MODIFIED in [message.text for message in last.messages]) is is_title_only


async def test_a_session_gets_a_new_title_as_new_instructions(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(title="Count", instructions=None, session_id="s1")
        await at.call("update_task", task_id=task_id, title=OLD)
        first = (await at.call("pre_request", session_id="s1"))["context"]
        assert first.startswith(f"[Task Assignment: {OLD}]\nInstructions: {OLD}\n")
        assert "[Task Update" not in first
        await at.call("update_task", task_id=task_id, title=NEW)
        later = (await at.call("pre_request", session_id="s1"))["context"]
        finish = f'Task {task_id}. Finish with complete_task(task_id="{task_id}").'
        assert later == f'{HEADING}\nTask {task_id} "{NEW}"\n{NEW}\n\n{finish}'


WHAT = "Name the file that reads the lines."


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": WHAT},
        {"title": OLD, "instructions": WHAT},
        {"title": OLD, "instructions": WHAT, "status": "active"},
    ],
    ids=["instructions", "with title", "with status"],
)
@pytest.mark.parametrize("is_subtask", [False, True])
async def test_a_title_stays_when_a_draft_gets_its_instructions(
    any_url: str, tmp_path: Path, change: dict[str, Any], is_subtask: bool
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        draft: dict[str, Any] = {"title": OLD, "instructions": None, "status": "draft"}
        if is_subtask:
            parent = await at.create(status="draft")
            fields = {"task_id": parent, "title": OLD, "owner": "explore", "status": "draft"}
            task_id = (await at.call("create_subtask", **fields))["task_id"]
        else:
            task_id = await at.create(**draft)
        await at.call("update_task", task_id=task_id, **change)
        await at.call("update_task", task_id=task_id, status="active")
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.title, task.instructions) == (OLD, WHAT)
        (first,) = at.script.asked
        assert first.messages[0].text == WHAT
        assert f"\n\n# Task\n{OLD}\n\n# Who" in first.system
        assert f"\nTitle: {OLD}\n" in first.messages[-1].text


@pytest.mark.parametrize(
    "changes",
    [
        [{"title": OLD, "instructions": NEW}],
        [{"instructions": NEW}, {"title": OLD}],
        [{"instructions": NEW}, {"title": OLD}, {"instructions": WHAT}],
    ],
)
async def test_a_title_that_is_given_again_stays(
    any_url: str, tmp_path: Path, changes: list[dict[str, Any]]
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task_id = await at.create(title=OLD, instructions=None)
        await reached(gate)
        for change in changes:
            await at.call("update_task", task_id=task_id, **change)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert task.title == OLD
        assert (
            task.instructions
            == [item for item in changes if "instructions" in item][-1]["instructions"]
        )
        second = at.script.asked[1]
        assert f"\nTitle: {OLD}\n" in second.messages[-1].text
        assert f"\n\n# Task\n{OLD}\n\n# Who" in second.system


async def test_a_session_reads_one_name_of_a_task(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(title=OLD, instructions=None, session_id="s1")
        first = (await at.call("pre_request", session_id="s1"))["context"]
        assert first.startswith(f"[Task Assignment: {OLD}]\nInstructions: {OLD}\n")
        await at.call("update_task", task_id=task_id, instructions=NEW)
        later = (await at.call("pre_request", session_id="s1"))["context"]
        assert later.startswith(f'{HEADING}\nTask {task_id} "{OLD}"\n{NEW}\n')


@pytest.mark.parametrize("operation", ["rerun_task", "update_task"])
async def test_a_successor_keeps_a_title_whose_instructions_have_changed(
    any_url: str, tmp_path: Path, operation: str
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task_id = await at.create(title=OLD, instructions=None)
        await reached(gate)
        await at.call("update_task", task_id=task_id, instructions=NEW)
        if operation == "rerun_task":
            await at.call("cancel_task", task_id=task_id)
            made = await at.call("rerun_task", task_id=task_id)
        else:
            made = await at.call("update_task", task_id=task_id, owner="explore")
        gate.open.set()
        assert (made["task"]["title"], made["task"]["instructions"]) == (OLD, NEW)
        successor = await at.team.ended(made["task"]["id"])
        assert successor.title == OLD
        assert OLD not in current(at.script.asked[-1]), (
            "the agent reads the instructions in force alone"
        )


async def test_a_rerun_keeps_the_role_of_the_title(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        for instructions in (None, OLD):
            task_id = await at.create(title=OLD, instructions=instructions)
            await at.call("cancel_task", task_id=task_id)
            again = (await at.call("rerun_task", task_id=task_id))["task_id"]
            await at.call("update_task", task_id=again, title=NEW)
            assert (await at.team.task(again)).instructions == (instructions or NEW)


# A blank description.

BLANK = ["", " \n\t"]


@pytest.mark.parametrize("blank", BLANK, ids=repr)
@pytest.mark.parametrize("instructions", [None, "Count with wc."])
async def test_a_blank_description_counts_as_not_given(
    any_url: str, tmp_path: Path, blank: str, instructions: str | None
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        task = await at.run(title=OLD, instructions=instructions, description=blank)
        expected = instructions or OLD
        assert (task.instructions, task.description) == (expected, expected)
        (request,) = at.script.asked
        assert f"\n\n# Task\n{OLD}\n\n# Who" in request.system
        assert request.messages[0].text == expected


@pytest.mark.parametrize("blank", BLANK, ids=repr)
async def test_a_blank_new_description_is_refused(any_url: str, tmp_path: Path, blank: str) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        task_id = await at.create(title=OLD, description="The report needs it.")
        version = (await at.team.task(task_id)).version
        with pytest.raises(InvalidParam, match="description"):
            await at.call("update_task", task_id=task_id, description=blank)
        task = await at.team.task(task_id)
        assert (task.description, task.version) == ("The report needs it.", version)
        await at.hire()
        await at.team.ended(task_id)
        assert "\n\n# Task\nThe report needs it.\n\n# Who" in at.script.asked[0].system


@pytest.mark.parametrize("blank", BLANK, ids=repr)
@pytest.mark.parametrize("name", ["task", "Task", "task_parallel"])
async def test_a_delegation_with_a_blank_description(
    any_url: str, tmp_path: Path, name: str, blank: str
) -> None:
    text = "prompt" if name == "Task" else "objective"
    work = {"description": blank, text: "Look around.", "subagent_type": "explore"}
    fields = {"tasks": [work]} if name == "task_parallel" else work

    def rule(request: Request) -> Response:
        if request.agent == "explore" or len(request.messages) > 2:
            return says("Done.")
        return calls((name, fields))

    async with stage(any_url, tmp_path, rule) as at:
        await at.run(owner="build")
        (request,) = [request for request in at.script.asked if request.agent == "explore"]
        assert "\n\n# Task\nLook around.\n\n# Who" in request.system
        made = await at.call(
            "task", objective="Look again.", description=blank, subagent_type="explore", wait=False
        )
        assert (await at.team.task(made["data"]["task_id"])).title == "Look again."
