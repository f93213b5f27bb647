"""A description stands for the instructions where only it was given: changing it changes them."""

from pathlib import Path
from typing import Any

import pytest

from tests.agents.stage import Gate, says, stage
from tests.agents.test_interruption import reached
from tests.agents.test_titles import current, looking

OLD, NEW = "List the new features of v2.", "List the fixes of v3."
MODIFIED = f"[Task Update: Instructions Modified]\n{NEW}"


async def test_a_new_description_that_stands_for_the_instructions_reaches_the_agent(any_url: str, tmp_path: Path) -> None:
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
        assert (update["type"], update["content"], update["status"]) == ("instructions", NEW, "delivered")


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


@pytest.mark.parametrize(
    ("given", "changes", "instructions"),
    [
        ({"instructions": OLD}, [{"description": NEW}], OLD),
        ({"description": OLD}, [{"instructions": "Count."}, {"description": NEW}], "Count."),
        ({"description": OLD}, [{"instructions": NEW, "description": NEW}, {"description": "Why."}], NEW),
        ({"description": OLD}, [{"description": "Notes"}, {"title": "Other"}], "Notes"),
        ({"description": OLD}, [{"title": NEW}], OLD),
    ],
)
async def test_which_text_stands_for_the_instructions(
    any_url: str, tmp_path: Path, given: dict[str, Any], changes: list[dict[str, Any]], instructions: str
) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(**{"title": "Notes", "instructions": None, **given})
        for change in changes:
            await at.call("update_task", task_id=task_id, **change)
        assert (await at.team.task(task_id)).instructions == instructions


async def test_a_task_done_again_keeps_what_its_description_stands_for(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(title="Notes", instructions=None, description=OLD)
        await at.call("cancel_task", task_id=task_id)
        again = (await at.call("rerun_task", task_id=task_id))["task_id"]
        await at.call("update_task", task_id=again, description=NEW)
        assert (await at.team.task(again)).instructions == NEW


async def test_a_session_is_told_a_new_description_as_new_instructions(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        task_id = await at.create(title="Notes", instructions=None, description=OLD, session_id="s1")
        assert f"Instructions: {OLD}\n" in (await at.call("pre_request", session_id="s1"))["context"]
        await at.call("update_task", task_id=task_id, description=NEW)
        told = (await at.call("pre_request", session_id="s1"))["context"]
        assert told.startswith("[Task Update: Instructions Modified]\n")
        assert told.endswith(NEW)
