"""A description stands for the instructions where only it was given: changing it changes them."""

from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request
from tests.agents.shown import current, looking
from tests.agents.stage import Gate, calls, reached, says, stage

OLD, NEW = "List the new features of v2.", "List the fixes of v3."
MODIFIED = f"[Task Update: Instructions Modified]\n{NEW}"


async def test_a_new_description_used_as_the_instructions_reaches_the_agent(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task_id = await at.create(title="Notes", instructions=None, description=OLD)
        await reached(gate)
        await at.call("update_task", task_id=task_id, description=NEW)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.title, task.instructions, task.description) == ("Notes", NEW, NEW)
        second = at.script.asked[1]
        assert second.messages[-2].text == MODIFIED
        assert f"\nInstructions: {NEW}\n" in second.messages[-1].text
        assert OLD not in current(second)
        (update,) = (await at.call("list_updates", task_id=task_id))["updates"]
        assert (update["type"], update["content"], update["status"]) == (
            "instructions",
            NEW,
            "delivered",
        )


async def test_a_draft_starts_with_its_new_description(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        task_id = await at.create(title="Notes", instructions=None, description=OLD, status="draft")
        await at.call("update_task", task_id=task_id, description="List everything.")
        await at.call("update_task", task_id=task_id, description=NEW)
        await at.call("update_task", task_id=task_id, status="active")
        await at.team.ended(task_id)
        (first,) = at.script.asked
        assert [message.text for message in first.messages[:-1]] == [NEW]
        assert OLD not in current(first)


async def test_a_description_added_to_a_title_becomes_the_instructions(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task_id = await at.create(title="Write the notes", instructions=None)
        await reached(gate)
        answer = await at.call("update_task", task_id=task_id, description=NEW)
        assert answer["update_ids"] == ["1-u1"]
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.title, task.instructions, task.description) == ("Write the notes", NEW, NEW)
        second = at.script.asked[1]
        assert second.messages[-2].text == MODIFIED
        assert "\n\n# Task\nWrite the notes\n\n# Who" in second.system
        block = second.messages[-1].text
        assert "\nTitle: Write the notes\n" in block
        assert f"\nInstructions: {NEW}\n" in block
        (update,) = (await at.call("list_updates", task_id=task_id))["updates"]
        assert (update["type"], update["status"]) == ("instructions", "delivered")


async def test_a_draft_with_a_title_starts_with_the_description_that_is_added(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        task_id = await at.create(title="Write the notes", instructions=None, status="draft")
        await at.call("update_task", task_id=task_id, description=OLD)
        await at.call("update_task", task_id=task_id, description=NEW, status="active")
        await at.team.ended(task_id)
        (first,) = at.script.asked
        assert [message.text for message in first.messages[:-1]] == [NEW]
        assert "\nTitle: Write the notes\n" in first.messages[-1].text
        assert OLD not in current(first)


async def test_a_description_added_to_the_title_of_a_subtask_leaves_the_title(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        await at.create(owner="build")
        made = await at.call("create_subtask", task_id="1", title="Write the notes", owner="plan")
        await at.call("update_task", task_id=made["task_id"], description=NEW)
        task = await at.team.task(made["task_id"])
        assert (task.title, task.instructions) == ("Write the notes", NEW)


@pytest.mark.parametrize(
    ("given", "changes", "instructions"),
    [
        ({"instructions": OLD}, [{"description": NEW}], OLD),
        ({"description": OLD}, [{"instructions": "Count."}, {"description": NEW}], "Count."),
        (
            {"description": OLD},
            [{"instructions": NEW, "description": NEW}, {"description": "Why."}],
            NEW,
        ),
        ({"description": OLD}, [{"description": "Notes"}, {"title": "Other"}], "Notes"),
        ({"description": OLD}, [{"title": NEW}], OLD),
        ({"description": OLD}, [{"title": OLD}, {"title": NEW}], OLD),
        ({"instructions": OLD}, [{"title": OLD}, {"title": NEW}], OLD),
        ({"instructions": OLD}, [{"title": OLD}, {"description": NEW}], OLD),
        ({}, [{"description": OLD}, {"description": NEW}], NEW),
        ({}, [{"description": OLD}, {"title": NEW}], OLD),
        ({}, [{"description": OLD}, {"title": OLD}, {"title": NEW}], OLD),
        ({}, [{"title": OLD, "description": NEW}], NEW),
        ({}, [{"instructions": OLD}, {"description": NEW}], OLD),
    ],
)
async def test_which_text_is_used_as_the_instructions(
    any_url: str,
    tmp_path: Path,
    given: dict[str, Any],
    changes: list[dict[str, Any]],
    instructions: str,
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(**{"title": "Notes", "instructions": None, **given})
        for change in changes:
            await at.call("update_task", task_id=task_id, **change)
        assert (await at.team.task(task_id)).instructions == instructions


async def test_a_rerun_keeps_the_role_of_the_description(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(title="Notes", instructions=None, description=OLD)
        await at.call("cancel_task", task_id=task_id)
        again = (await at.call("rerun_task", task_id=task_id))["task_id"]
        await at.call("update_task", task_id=again, description=NEW)
        assert (await at.team.task(again)).instructions == NEW


async def test_a_session_gets_a_new_description_as_new_instructions(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(
            title="Notes", instructions=None, description=OLD, session_id="s1"
        )
        assert (
            f"Instructions: {OLD}\n" in (await at.call("pre_request", session_id="s1"))["context"]
        )
        await at.call("update_task", task_id=task_id, description=NEW)
        told = (await at.call("pre_request", session_id="s1"))["context"]
        assert told.startswith("[Task Update: Instructions Modified]\n")
        assert f"\n{NEW}\n\nTask 1. Finish with" in told


WHY = "The report needs it."


@pytest.mark.parametrize(
    ("given", "changes", "description"),
    [
        ({"instructions": OLD, "description": WHY}, [{"instructions": WHY}], WHY),
        ({"instructions": WHY, "description": WHY}, [], WHY),
        ({"instructions": OLD}, [{"instructions": WHY, "description": WHY}], WHY),
        ({"instructions": OLD, "description": WHY}, [{"description": OLD}], OLD),
        ({"instructions": OLD, "description": OLD}, [{"description": WHY}], WHY),
        ({"instructions": WHY, "description": WHY}, [{"priority": 0}], WHY),
        ({"instructions": OLD}, [{"instructions": WHY}], NEW),
        ({}, [{"title": WHY}], NEW),
        ({}, [{"title": WHY, "description": WHY}], NEW),
        ({}, [{"instructions": OLD}, {"description": WHY}], WHY),
    ],
)
@pytest.mark.parametrize("is_rerun", [False, True])
async def test_a_description_that_was_given_outlives_instructions_that_read_the_same(
    any_url: str,
    tmp_path: Path,
    given: dict[str, Any],
    changes: list[dict[str, Any]],
    description: str,
    is_rerun: bool,
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(**{"title": "Notes", "instructions": None, **given})
        for change in changes:
            await at.call("update_task", task_id=task_id, **change)
        if is_rerun:
            await at.call("cancel_task", task_id=task_id)
            task_id = (await at.call("rerun_task", task_id=task_id))["task_id"]
        await at.call("update_task", task_id=task_id, instructions=NEW)
        task = await at.call("get_task", task_id=task_id)
        assert (task["instructions"], task["description"]) == (NEW, description)


# A client that sends back what it read.

WHICH: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"instructions": OLD}, {"instructions": NEW}),
    ({"description": OLD}, {"instructions": NEW}),
    ({"description": OLD}, {"description": NEW}),
    ({"title": OLD}, {"instructions": NEW}),
    ({"title": OLD}, {"title": NEW}),
]


@pytest.mark.parametrize(("given", "change"), WHICH)
@pytest.mark.parametrize("is_twice", [False, True])
async def test_a_text_that_is_sent_back_as_it_was_read_is_not_given(
    any_url: str,
    tmp_path: Path,
    given: dict[str, Any],
    change: dict[str, Any],
    is_twice: bool,
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        task_id = await at.create(**{"title": "Notes", "instructions": None, **given})
        await reached(gate)
        read = await at.call("get_task", task_id=task_id)
        echo = {name: read[name] for name in ("title", "description", "instructions")}
        changes = [{**echo, "priority": 0}, change] if is_twice else [{**echo, **change}]
        for fields in changes:
            await at.call("update_task", task_id=task_id, **fields)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.instructions, task.description) == (NEW, NEW)
        (update,) = (await at.call("list_updates", task_id=task_id))["updates"]
        assert update["content"] == NEW
        assert OLD not in current(at.script.asked[1])


@pytest.mark.parametrize("given", [{"instructions": WHY}, {"title": WHY}])
async def test_a_description_that_repeats_what_reads_return_is_not_given(
    any_url: str, tmp_path: Path, given: dict[str, Any]
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(**{"title": "Notes", "instructions": None, **given})
        await at.call("update_task", task_id=task_id, description=WHY)
        await at.call("update_task", task_id=task_id, instructions=NEW)
        assert (await at.team.task(task_id)).description == NEW


async def test_a_derived_title_that_is_sent_back_follows_new_instructions(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        made = await at.call("task", prompt=OLD, subagent_type="explore", wait=False)
        task_id = made["data"]["task_id"]
        read = await at.call("get_task", task_id=task_id)
        echo = {name: read[name] for name in ("title", "description")}
        await at.call("update_task", task_id=task_id, **echo, instructions=NEW)
        task = await at.team.task(task_id)
        assert (task.title, task.description, task.instructions) == (NEW, NEW, NEW)


@pytest.mark.parametrize(
    ("given", "changes", "description"),
    [
        ({"instructions": OLD}, [NEW, "Count."], "Count."),
        ({"instructions": OLD}, [NEW], NEW),
        ({"title": OLD}, [NEW, "Count."], "Count."),
        ({"instructions": OLD, "description": WHY}, [NEW, "Count."], OLD),
    ],
)
async def test_a_stale_description_that_is_sent_back_is_not_given(
    any_url: str, tmp_path: Path, given: dict[str, Any], changes: list[str], description: str
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        task_id = await at.create(**{"title": "Notes", "instructions": None, **given})
        for text in changes:
            await at.call("update_task", task_id=task_id, instructions=text)
        await at.call("update_task", task_id=task_id, description=OLD, priority=0)
        task = await at.team.task(task_id)
        assert (task.description, task.instructions) == (description, changes[-1])
        await at.hire()
        await at.team.ended(task_id)
        is_shown = description == OLD
        assert (f"\nDescription: {OLD}\n" in current(at.script.asked[0])) is is_shown


# A delegation without a description.

EMPTY = {"description": "", "prompt": OLD, "subagent_type": "explore"}
WORK = {"objective": OLD, "subagent_type": "explore"}


def delegating(name: str, fields: dict[str, Any], gate: Gate) -> Any:
    """Return a rule by which a lead makes one call, and the model of its subtask waits once."""
    answers: list[Any] = [None, says("Done.")]

    def rule(request: Request) -> Any:
        if request.agent == "build":
            is_first = len(request.messages) == 2
            return calls((name, fields)) if is_first else says("Done.")
        return answers.pop(0) or gate.then(calls(("LS", {"path": "."})))

    return rule


async def test_new_instructions_replace_the_objective_of_delegated_work(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, looking(gate)) as at:
        made = await at.call("task", objective=OLD, wait=False)
        task_id = made["data"]["task_id"]
        await reached(gate)
        await at.call("update_task", task_id=task_id, instructions=NEW)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.title, task.instructions, task.description) == (NEW, NEW, NEW)
        assert OLD not in current(at.script.asked[1])
        assert f"\n\n# Task\n{NEW}\n\n# Who" in at.script.asked[1].system


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("task", WORK),
        ("task_parallel", {"tasks": [WORK]}),
        ("Task", EMPTY),
        ("create_subtask_explore", {"title": "Notes", "intent": OLD}),
    ],
)
async def test_new_instructions_replace_the_objective_of_a_subtask(
    any_url: str, tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    gate = Gate()
    async with stage(any_url, tmp_path, delegating(name, fields, gate)) as at:
        await at.create(owner="build")
        await reached(gate)
        await at.call("update_task", task_id="2", instructions=NEW)
        gate.open.set()
        await at.team.ended("1")
        subtask = await at.team.task("2")
        assert (subtask.instructions, subtask.description) == (NEW, NEW)
        first, last = [request for request in at.script.asked if request.agent == "explore"]
        title = "Notes" if name == "create_subtask_explore" else OLD
        assert f"\n\n# Task\n{title}\n\n# Who" in first.system
        assert OLD not in current(last)


async def test_new_instructions_before_the_first_request_replace_the_objective(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        made = await at.call("task", objective=OLD, wait=False)
        task_id = made["data"]["task_id"]
        await at.call("update_task", task_id=task_id, instructions=NEW)
        await at.hire()
        await at.team.ended(task_id)
        (request,) = at.script.asked
        assert request.messages[0].text == NEW
        assert OLD not in current(request)


async def test_a_description_that_a_delegation_gives_stays(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        made = await at.call("task", objective=OLD, description=WHY, wait=False)
        task_id = made["data"]["task_id"]
        await at.call("update_task", task_id=task_id, instructions=NEW)
        task = await at.team.task(task_id)
        assert (task.instructions, task.description) == (NEW, WHY)
