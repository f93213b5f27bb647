"""The two files of other task tools: read with their ids, written back, and refused with a place
when they are wrong.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.clock import SystemClock
from remit.app.maintenance.task_exchange import Change, export_tasks, import_tasks
from remit.bootstrap import open_store
from remit.domain.task.task import State
from remit.errors import Conflict, InvalidParam
from tests.agents.stage import says, stage
from tests.engine.fleet import fleet
from tests.people import Desk, desk

BOARD: dict[str, Any] = {
    "tasks": [
        {
            "id": "5",
            "title": "Parent",
            "description": "Why.",
            "owner": "main-agent",
            "createdBy": "main-agent",
            "status": "active",
            "steps": [
                {"title": "one", "done": True, "taskId": "3"},
                {"title": "two", "details": "d", "done": False, "taskId": "6"},
            ],
            "resources": [{"type": "url", "value": "https://example.org/x", "label": "spec"}],
            "threadId": "thread-5",
            "createdAt": "2026-01-01T00:00:00Z",
            "updatedAt": "2026-01-02T00:00:00Z",
            "color": "red",
        },
        {"id": 6, "title": "Child", "status": "draft"},
    ],
    "nextId": 42,
}
HISTORY = (
    json.dumps(
        {
            "id": "3",
            "title": "Old",
            "status": "done",
            "createdAt": "2026-01-01T00:00:00Z",
            "archivedAt": "2026-01-02T00:00:00Z",
        }
    )
    + "\n"
)


async def test_imported_tasks_keep_ids_links_threads_and_times(any_url: str) -> None:
    async with desk(any_url) as at:
        found = await import_tasks(at.store, SystemClock(), json.dumps(BOARD), HISTORY)
        assert (found.count, found.changes) == (
            3,
            (
                Change("5", "color", "dropped", "task files do not have this field"),
                Change("5", "createdBy", "changed", 'from "main-agent" to "agent:main-agent"'),
            ),
        )
        parent, child, old = [await at.get(task_id) for task_id in ("5", "6", "3")]
        assert (parent["thread_id"], parent["created_by"], parent["created_at"]) == (
            "thread-5",
            "agent:main-agent",
            "2026-01-01T00:00:00.000000Z",
        )
        assert [step["task_id"] for step in parent["steps"]] == ["3", "6"]
        assert (child["state"], child["parent_id"], child["step_index"], child["root_id"]) == (
            "draft",
            "5",
            1,
            "5",
        )
        assert child["thread_id"], "one that came without has one before its first run"
        assert (old["state"], old["archived_at"]) == ("done", "2026-01-02T00:00:00.000000Z")
        assert await at.create("Next") == "42"
        await at.must_hold_together()


async def test_an_import_reports_what_it_dropped_or_changed(any_url: str) -> None:
    tasks: list[dict[str, Any]] = [
        {
            "id": 1,
            "title": "A",
            "owner": "Code Reviewer",
            "labels": ["x", "x"],
            "state": "running",
            "acceptance": ["Good"],
            "summary": "Half",
        },
        {
            "id": 2,
            "title": "B",
            "steps": [{"title": "s", "taskId": 9}],
            "failureReason": "No",
            "archivedAt": "2026-01-02T00:00:00Z",
        },
        {
            "id": 3,
            "title": "C",
            "status": "canceled",
            "failureReason": "Not needed",
            "state": "canceled",
        },
    ]
    async with desk(any_url) as at:
        found = await import_tasks(
            at.store, SystemClock(), json.dumps({"tasks": tasks}), HISTORY.replace('"3"', '"4"')
        )
        assert (await at.get("1"))["owner"] == "code-reviewer"
    assert found.changes == (
        Change("1", "acceptance", "dropped", "task files do not have this field"),
        Change("1", "summary", "dropped", "only a task that is done has one"),
        Change("1", "owner", "changed", 'from "Code Reviewer" to "code-reviewer"'),
        Change("1", "labels", "changed", 'from ["x", "x"] to ["x"]'),
        Change("1", "state", "changed", 'from "running" to "pending"'),
        Change("2", "steps[0].taskId", "dropped", "task 9 is not in the files"),
        Change("2", "failureReason", "dropped", "the task has not failed and was not canceled"),
        Change("2", "archivedAt", "dropped", "the task is active"),
    )


OLD = "2024-03-02T00:00:00.000000Z"
OLDER = "2024-02-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("entry", "times"),
    [
        ({"status": "done", "updatedAt": OLD, "archivedAt": OLD}, (OLD, OLD, OLD)),
        ({"status": "canceled", "archivedAt": OLD}, (OLD, OLD, OLD)),
        (
            {"status": "done", "createdAt": OLDER, "updatedAt": OLD, "archivedAt": OLDER},
            (OLDER, OLD, OLDER),
        ),
        ({"createdAt": OLDER, "updatedAt": OLD}, (OLDER, OLD, None)),
        ({"status": "draft", "updatedAt": OLD}, (OLD, OLD, None)),
    ],
)
async def test_an_import_keeps_every_time(
    any_url: str, entry: dict[str, Any], times: tuple[str | None, ...]
) -> None:
    board = json.dumps({"tasks": [{"id": 1, "title": "A", **entry}]})
    async with desk(any_url) as at:
        found = await import_tasks(at.store, SystemClock(), board, "")
        made = await at.get("1")
        assert (made["created_at"], made["updated_at"], made.get("archived_at")) == times
        assert found.changes == ()
        await at.must_hold_together()


async def test_an_import_reports_times_and_creators_that_it_cannot_keep() -> None:
    tasks: list[dict[str, Any]] = [
        {
            "id": 1,
            "title": "A",
            "status": "done",
            "createdAt": OLD,
            "archivedAt": OLDER,
            "createdBy": "bot",
        },
        {
            "id": 2,
            "title": "B",
            "status": "done",
            "updatedAt": OLDER,
            "archivedAt": OLD,
            "createdBy": "user:ann",
        },
    ]
    async with desk("memory:") as at:
        found = await import_tasks(at.store, SystemClock(), json.dumps({"tasks": tasks}), "")
    assert found.changes == (
        Change("1", "createdBy", "changed", 'from "bot" to "agent:bot"'),
        Change("1", "archivedAt", "changed", f'from "{OLDER}" to "{OLD}"'),
        Change("2", "updatedAt", "changed", f'from "{OLDER}" to "{OLD}"'),
    )


async def test_an_import_drops_unknown_fields_of_steps_and_resolves_relative_paths() -> None:
    step = {"title": "s", "color": "red", "done": True}
    resources = [
        {"type": "file", "value": "notes/../a.txt", "size": 3},
        {"type": "file", "value": "/b.txt"},
    ]
    task = {"id": 1, "title": "A", "steps": [step], "resources": resources}
    async with desk("memory:") as at:
        found = await import_tasks(
            at.store, SystemClock(), json.dumps({"tasks": [task]}), "", "/old"
        )
        made = await at.get("1")
        assert [item["value"] for item in made["resources"]] == ["/old/a.txt", "/b.txt"]
        assert made["steps"][0]["done"]
    assert [(change.field, change.change) for change in found.changes] == [
        ("steps[0].color", "dropped"),
        ("resources[0].size", "dropped"),
        ("resources[0].value", "changed"),
    ]


async def test_the_creator_of_an_exported_task_comes_back_without_a_report() -> None:
    board = {"tasks": [{"id": 1, "title": "A", "createdBy": "bot"}]}
    async with open_store("memory:") as store:
        await import_tasks(store, SystemClock(), json.dumps(board), "")
        exported = await export_tasks(store)
    async with desk("memory:") as at:
        found = await import_tasks(at.store, SystemClock(), exported.board, exported.history)
        assert ((await at.get("1"))["created_by"], found.changes) == ("agent:bot", ())


async def test_waits_and_creators_are_exchanged_too(any_url: str) -> None:
    async with desk(any_url) as at:
        await at.create("Plain")
        await at.do("CreateDelegated", title="Delegated", owner="general")
        board, history, _, _ = await export_tasks(at.store)
    found = json.loads(board)
    assert [(task["awaited"], task["creatorTaskId"]) for task in found["tasks"]] == [
        (False, None),
        (True, None),
    ]
    found["tasks"][0]["creatorTaskId"] = "2"
    async with fleet("memory:") as team:
        await import_tasks(team.core.store, SystemClock(), json.dumps(found), history)
        plain, delegated = await team.task("1"), await team.task("2")
        assert (plain.awaited, plain.creator_task_id) == (False, "2")
        assert (delegated.awaited, delegated.creator_task_id) == (True, None)


async def test_an_export_can_be_imported_again(any_url: str) -> None:
    async with desk(any_url) as at:
        done = await at.create("Done", labels=["x"], priority=1, steps=["a"])
        failed = await at.create("Failed")
        await at.create("Open", instructions="Do it.", owner="general")
        await at.do("CompleteTask", task_id=done, summary="All of it.")
        await at.do("FailTask", task_id=failed, message="No.")
        first = await export_tasks(at.store)
    async with open_store("memory:") as other:
        reread = await import_tasks(other, SystemClock(), first[0], first[1])
        assert (reread.count, reread.changes) == (3, ()), "what was exported comes back whole"
        again = Desk(other)
        assert {task: (await again.get(task))["state"] for task in ("1", "2", "3")} == {
            "1": "done",
            "2": "failed",
            "3": "pending",
        }
        assert (await again.get("1"))["summary"] == "All of it."
        assert (await export_tasks(other))[1].count("\n") == 2
        await again.must_hold_together()


COUNT, WHY, NEW = "Count the fixes.", "The report needs it.", "List the fixes."
CHANGE: dict[str, Any] = {"instructions": NEW}


@pytest.mark.parametrize(
    ("given", "change", "about", "first", "texts"),
    [
        ({"instructions": COUNT}, {}, "Notes", COUNT, ("Notes", COUNT, COUNT)),
        ({"instructions": COUNT}, CHANGE, "Notes", NEW, ("Notes", NEW, NEW)),
        ({"instructions": COUNT, "description": WHY}, CHANGE, WHY, NEW, ("Notes", WHY, NEW)),
        ({"instructions": WHY, "description": WHY}, {}, "Notes", WHY, ("Notes", WHY, WHY)),
        ({"instructions": WHY, "description": WHY}, CHANGE, WHY, NEW, ("Notes", WHY, NEW)),
        ({"description": COUNT}, {"description": NEW}, "Notes", NEW, ("Notes", NEW, NEW)),
        (
            {"instructions": "Notes"},
            {"title": "Other"},
            "Other",
            "Notes",
            ("Other", "Notes", "Notes"),
        ),
        ({}, {"title": NEW}, NEW, NEW, (NEW, NEW, NEW)),
        ({"update": COUNT}, {"priority": 0}, "Notes", COUNT, ("Notes", COUNT, COUNT)),
    ],
)
async def test_an_imported_task_keeps_which_of_its_texts_were_given(
    durable_url: str,
    tmp_path: Path,
    given: dict[str, Any],
    change: dict[str, Any],
    about: str,
    first: str,
    texts: tuple[str, str, str],
) -> None:
    async with desk(f"sqlite:///{tmp_path / 'source.db'}") as source:
        words = {name: text for name, text in given.items() if name != "update"}
        task_id = await source.create("Notes", owner="general", status="draft", **words)
        if "update" in given:
            await source.do("UpdateTask", task_id=task_id, instructions=given["update"])
        exported = await export_tasks(source.store)
    async with stage(durable_url, tmp_path, [says("Done.")]) as at:
        store = at.team.core.store
        found = await import_tasks(store, SystemClock(), exported.board, exported.history)
        assert (found.count, found.changes) == (1, ())
        await at.call("update_task", task_id=task_id, status="active", **change)
        task = await at.team.ended(task_id)
        assert (task.title, task.description, task.instructions) == texts
        (request,) = at.script.asked
        assert f"\n\n# Task\n{about}\n\n" in request.system
        assert request.messages[0].text == first


async def test_a_file_of_another_tool_with_a_description_alone_has_it_for_instructions(
    durable_url: str,
) -> None:
    async with desk(durable_url) as at:
        board = json.dumps({"tasks": [{"id": 1, "title": "Notes", "description": COUNT}]})
        await import_tasks(at.store, SystemClock(), board, "")
        await at.do("UpdateTask", task_id="1", description=NEW)
        task = await at.get("1")
        assert (task["description"], task["instructions"]) == (NEW, NEW)


async def test_an_import_reports_a_mark_of_a_description_that_is_not_there(
    durable_url: str,
) -> None:
    async with desk(durable_url) as at:
        marks = {"hasDescription": True, "descriptionOnly": True}
        board = json.dumps({"tasks": [{"id": 1, "title": "Notes", "instructions": COUNT, **marks}]})
        found = await import_tasks(at.store, SystemClock(), board, "")
    assert found.changes == (
        Change("1", "hasDescription", "changed", "from true to false"),
        Change("1", "descriptionOnly", "changed", "from true to false"),
    )


@pytest.mark.parametrize(
    ("board", "history", "place"),
    [
        ("[]", "", "tasks.json"),
        ("{", "", "tasks.json"),
        ("{}", "", "tasks.json: tasks"),
        ('{"tasks": [], "nextId": "x"}', "", "nextId"),
        ('{"tasks": [{"id": 1, "title": "a"}], "nextId": "x"}', "", "nextId"),
        ('{"tasks": [{"id": "x", "title": ""}]}', "", r"task 1: id.*task 1: title"),
        ('{"tasks": [7]}', "", "task 1"),
        (
            '{"tasks": [{"id": 1, "title": "a"}, {"id": 1, "title": "b"}]}',
            "",
            "task 2: has the id 1",
        ),
        (
            '{"tasks": [{"id": 1, "title": "a"}]}',
            '{"id": 1, "title": "b"}',
            "history.jsonl task 1: has the id 1",
        ),
        ('{"tasks": []}', "nonsense", "history.jsonl line 1"),
        (
            '{"tasks": [{"id": 1, "title": "a", "steps": [{"title": "s", "taskId": 1}]}]}',
            "",
            "task 1, step 0",
        ),
        (
            '{"tasks": [{"id": 1, "title": "a", "resources": [{"type": "file", "value": "x"}]}]}',
            "",
            "task 1: resources",
        ),
    ],
)
async def test_a_bad_file_is_refused_with_its_place_and_nothing_is_stored(
    board: str, history: str, place: str
) -> None:
    async with open_store("memory:") as store:
        with pytest.raises(InvalidParam, match=place):
            await import_tasks(store, SystemClock(), board, history)
        assert await store.tail() == "0"


async def test_only_an_empty_store_is_imported_into(any_url: str) -> None:
    async with desk(any_url) as at:
        await at.create()
        with pytest.raises(Conflict, match="already has events"):
            await import_tasks(at.store, SystemClock(), json.dumps(BOARD), HISTORY)


@pytest.mark.parametrize("thread", [None, "thread-7"])
async def test_an_imported_task_is_run_on_its_own_thread_or_on_one_that_it_gets(
    any_url: str, thread: str | None
) -> None:
    task = {
        "id": "7",
        "title": "Imported",
        "owner": "general",
        "status": "active",
        **({"threadId": thread} if thread else {}),
    }
    async with fleet(any_url) as team:
        await import_tasks(team.core.store, SystemClock(), json.dumps({"tasks": [task]}), "")
        before = (await team.task("7")).thread_id
        await team.hire()
        ended = await team.ended("7")
        assert (ended.state, ended.counts.runs) == (State.DONE, 1)
        assert ended.thread_id == before
        assert before == thread if thread else before


async def test_an_export_names_the_terms_that_the_files_cannot_hold(any_url: str) -> None:
    async with desk(any_url) as at:
        terms = {"acceptance": ["Good"], "limits": {"max_turns": 5}, "outputs": ["report"]}
        first = await at.create("Recurring", schedule={"cron": "0 7 * * *"}, **terms)
        await at.create("Plain", steps=["a"], labels=["x"])
        await at.create("Later", depends_on=[first])
        found = await export_tasks(at.store)
    left_out = [(change.task_id, change.field) for change in found.changes]
    assert left_out == [
        *((first, name) for name in ("acceptance", "outputs", "schedule", "limits")),
        ("3", "depends_on"),
    ]


async def test_an_export_names_a_channel_and_what_ended_tasks_lose(any_url: str) -> None:
    async with desk(any_url) as at:
        await at.create("Elsewhere", channel="chan")
        ended = await at.create("Ended", outputs=["report"], acceptance=["Good"])
        await at.do("CompleteTask", task_id=ended, outputs={"report": "All."})
        found = await export_tasks(at.store)
    left_out = [(change.task_id, change.field) for change in found.changes]
    assert left_out == [
        ("1", "channel"),
        *((ended, name) for name in ("acceptance", "outputs", "completion_outputs")),
    ]


async def test_an_unknown_owner_is_dropped_and_reported(any_url: str) -> None:
    tasks = [
        {"id": 1, "title": "A", "owner": "ghost"},
        {"id": 2, "title": "B", "owner": "ghost", "status": "done"},
        {"id": 3, "title": "C", "owner": "general"},
    ]
    board = json.dumps({"tasks": tasks})
    async with desk(any_url) as at:
        found = await import_tasks(at.store, SystemClock(), board, "", agents=["general"])
        owners = [(await at.get(task_id)).get("owner") for task_id in "123"]
    assert owners == [None, "ghost", "general"], "an ended task keeps who worked on it"
    (change,) = [change for change in found.changes if change.field == "owner"]
    assert change == Change("1", "owner", "dropped", "unknown agent ghost; the task has no owner")


async def test_an_import_reports_unknown_fields_of_the_file(any_url: str) -> None:
    board = {"tasks": [], "nextId": 1, "groups": [], "nextID": 9}
    async with desk(any_url) as at:
        found = await import_tasks(at.store, SystemClock(), json.dumps(board), "")
    assert found.changes == (
        Change("", "groups", "dropped", "task files do not have this field"),
        Change("", "nextID", "dropped", "task files do not have this field"),
    )
