"""The product told as stories through public operations, on every store.

The best place to start reading.
"""

import asyncio

import pytest

from remit.app.reading.query_handlers import (
    counts,
    get_events,
    get_guide,
    in_flight,
    list_guides,
    list_history,
    list_interactions,
    list_notifications,
    list_ready,
    list_tasks,
    list_updates,
)
from remit.errors import Conflict, Forbidden, InvalidParam, NotFound, StaleRun
from tests.people import ANN, desk

LATER = "2999-01-01T00:00:00.000000Z"


async def test_an_update_of_outputs_names_what_it_changed(any_url: str) -> None:
    async with desk(any_url) as at:
        log = {"name": "log", "kind": "file", "required": False}
        task = await at.create(outputs=["report", log])
        data = {"name": "data", "kind": "json"}
        for outputs in (["report", data], [data, log | {"required": True}], [data, log], [log], []):
            await at.do("UpdateTask", task_id=task, outputs=outputs)
        await at.do("SendMessage", task_id=task, message="Required: all")
        told = [update["content"] for update in (await at.ask(list_updates(task)))["updates"]]
        assert told == [
            "Required: report, data (json)\nAdded: data\nRemoved: log",
            "Required: data (json), log (file)\nAdded: log\nRemoved: report",
            "Required: data (json)\nOptional: log (file)\nChanged: log",
            "Required: none\nOptional: log (file)\nRemoved: data",
            "Required: none\nRemoved: log",
            "Required: all",
        ]
        assert (await at.ask(list_updates(task, after=4)))["updates"][0]["content"] == told[4]
        await at.must_hold_together()


async def test_a_task_is_planned_worked_on_changed_and_completed(any_url: str) -> None:
    async with desk(any_url) as at:
        task = await at.create(
            instructions="Write it.",
            owner="general",
            acceptance=["It is short."],
            outputs=["report"],
        )
        await at.do(
            "UpdateSteps", task_id=task, steps=["Read", {"title": "Write", "details": "two pages"}]
        )
        run = await at.start(task)
        changed = await at.do(
            "UpdateTask", task_id=task, instructions="Write it in English.", priority="high"
        )
        assert changed.update_ids == (f"{task}-u1",)
        await at.do("DeliverUpdates", "agent:general", run, task_id=task, turn=2)
        await at.do("UpdateStep", "agent:general", run, task_id=task, index=0, done=True)
        with pytest.raises(InvalidParam, match="outputs: missing required output: report"):
            await at.do("CompleteTask", "agent:general", run, task_id=task)
        done = await at.do(
            "CompleteTask",
            "agent:general",
            run,
            task_id=task,
            outputs={"report": "..."},
            summary="Written.",
        )
        assert done.task is not None

        shown = await at.get(task)
        assert (shown["status"], shown["state"], shown["verification"]) == (
            "done",
            "done",
            "unverified",
        )
        assert shown["acceptance"][0]["status"] == "attested"
        assert shown["completion_outputs"] == {"report": "..."}
        assert [step["done"] for step in shown["steps"]] == [True, False]
        (update,) = (await at.ask(list_updates(task)))["updates"]
        assert (update["status"], update["run_id"], update["turn"]) == ("delivered", run, 2)
        assert "CompletionClaimed" in await at.events(task)
        assert [item["id"] for item in (await at.ask(list_history()))["tasks"]] == [task]
        assert (await at.ask(list_tasks()))["tasks"] == []
        await at.must_hold_together()


async def test_a_question_reaches_a_person_and_its_answer_wakes_the_task_once(any_url: str) -> None:
    async with desk(any_url) as at:
        parent = await at.create(owner="build")
        task = (
            await at.do("CreateSubtask", task_id=parent, title="Deploy", owner="general")
        ).task_id
        run = await at.start(task)
        await at.do(
            "AskUser",
            "agent:general",
            run,
            task_id=task,
            question="Which region?",
            options=["eu", "us"],
            call_id="call-1",
        )
        await at.do("YieldRun", "agent:general", run, task_id=task)
        (question,) = (await at.ask(list_interactions()))["interactions"]
        assert (question["question"], question["options"], question["path"]) == (
            "Which region?",
            ["eu", "us"],
            [parent, task],
        )
        assert (await at.get(task))["wait"]["on"] == [
            {"kind": "user", "ref": question["id"], "call_id": "call-1"}
        ]

        with pytest.raises(Forbidden, match="Only a person"):
            await at.do("Respond", "agent:general", interaction_id=question["id"], answer="eu")
        await at.do("Respond", interaction_id=question["id"], answer="eu")
        with pytest.raises(Conflict, match="answered by user:ann") as second:
            await at.do("Respond", "user:bob", interaction_id=question["id"], answer="us")
        assert second.value.details["answer"] == "eu"
        assert (await at.get(task))["state"] == "pending"
        assert (await at.ask(list_interactions()))["interactions"] == []
        assert (await at.ask(list_interactions(status="answered")))["interactions"][0][
            "answer"
        ] == "eu"
        with pytest.raises(NotFound, match="no interaction 99-q1"):
            await at.do("Respond", interaction_id="99-q1", answer="eu")
        await at.must_hold_together()


async def test_fifty_answers_at_once_have_one_winner(any_url: str) -> None:
    async with desk(any_url) as at:
        task = await at.create(owner="general")
        run = await at.start(task)
        await at.do("AskUser", "agent:general", run, task_id=task, question="Go?", call_id="c")
        answers = (
            at.do("Respond", f"user:u{n}", interaction_id=f"{task}-q1", answer=str(n))
            for n in range(50)
        )
        results = await asyncio.gather(*answers, return_exceptions=True)
        losers = [result for result in results if isinstance(result, Conflict)]
        assert len(losers) == 49
        (winner,) = (await at.ask(list_interactions(status="answered")))["interactions"]
        assert {loser.details["answer"] for loser in losers} == {winner["answer"]}
        await at.must_hold_together()


async def test_a_subtask_wakes_its_parent_and_cancel_reaches_the_whole_tree(any_url: str) -> None:
    async with desk(any_url) as at:
        root = await at.create(owner="build", steps=["Look", "Write"])
        run = await at.start(root)
        child = (
            await at.do(
                "CreateSubtask",
                "agent:build",
                run,
                task_id=root,
                title="Look",
                owner="explore",
                step_index=0,
            )
        ).task_id
        await at.do(
            "FinishRun", "agent:build", run, task_id=root, final_message="Waiting for the look."
        )
        assert (await at.get(root))["wait"]["on"] == [{"kind": "subtask", "ref": child}]
        await at.do("CompleteTask", "agent:explore", task_id=child, summary="Looked.")
        await at.carry_news()
        assert (await at.get(root))["state"] == "pending"
        assert (await at.events(root))[-1] == "SubtaskSettled"

        below = (
            await at.do("CreateSubtask", task_id=root, title="Write", owner="general", step_index=1)
        ).task_id
        deeper = (
            await at.do("CreateSubtask", task_id=below, title="Proofread", owner="summary")
        ).task_id
        canceled = await at.do("CancelTask", task_id=root, message="Not needed.")
        assert set(canceled.canceled) == {root, below, deeper}
        states = {task: (await at.get(task))["state"] for task in (root, child, below, deeper)}
        assert states == {root: "canceled", child: "done", below: "canceled", deeper: "canceled"}
        assert (await at.get(deeper))["reason"] == "parent"
        await at.must_hold_together()


async def test_a_child_made_while_its_parent_is_canceled_never_survives(any_url: str) -> None:
    async with desk(any_url) as at:
        root = await at.create(owner="build", limits={"max_children": 100})
        making = [
            at.do("CreateSubtask", task_id=root, title=f"Part {n}", owner="general")
            for n in range(20)
        ]
        await asyncio.gather(*making, at.do("CancelTask", task_id=root), return_exceptions=True)
        assert (await at.ask(list_tasks()))["tasks"] == []
        await at.must_hold_together()


async def test_dependencies_hold_a_task_back_and_never_close_a_circle(any_url: str) -> None:
    async with desk(any_url) as at:
        first = await at.create("First", owner="general")
        second = await at.create("Second", owner="general", depends_on=[first])
        third = await at.create(
            "Third", owner="general", depends_on=[{"task_id": second, "on": "settled"}]
        )
        assert [item["id"] for item in (await at.ask(list_ready(now=LATER)))["tasks"]] == [first]
        assert (await at.get(third))["blocked_by"] == [second]
        with pytest.raises(Conflict, match=f"waits for task {first}"):
            await at.start(second)
        with pytest.raises(InvalidParam, match="wait for itself"):
            await at.do("UpdateTask", task_id=first, depends_on=[third])
        await at.do("CompleteTask", task_id=first)
        assert (await at.get(second))["ready"] is True
        await at.do("FailTask", task_id=second, message="No.")
        assert [item["id"] for item in (await at.ask(list_ready(now=LATER)))["tasks"]] == [third]
        await at.must_hold_together()


async def test_two_requests_at_once_cannot_close_a_circle_together(any_url: str) -> None:
    async with desk(any_url) as at:
        for _ in range(10):
            a, b, c = [await at.create(name, owner="general") for name in "abc"]
            ring = [
                at.do("UpdateTask", task_id=x, depends_on=[y]) for x, y in ((a, b), (b, c), (c, a))
            ]
            results = await asyncio.gather(*ring, return_exceptions=True)
            assert sum(isinstance(result, InvalidParam) for result in results) == 1, results
        await at.must_hold_together()


async def test_another_owner_after_the_start_is_a_handoff(any_url: str) -> None:
    async with desk(any_url) as at:
        parent = await at.create("Parent", owner="build", steps=["Do it"])
        task = (
            await at.do(
                "CreateSubtask", task_id=parent, title="Do it", owner="general", step_index=0
            )
        ).task_id
        child = (await at.do("CreateSubtask", task_id=task, title="Part", owner="explore")).task_id
        waiting = await at.create("Waiting", owner="general", depends_on=[task])
        run = await at.start(task)
        moved = await at.do("UpdateTask", task_id=task, owner="plan", instructions="Do it well.")
        new = moved.task_id
        assert new != task

        old, successor = await at.get(task), await at.get(new)
        assert (old["state"], old["reason"], old["superseded_by"]) == (
            "canceled",
            "superseded",
            new,
        )
        assert (successor["owner"], successor["instructions"], successor["rerun_of"]) == (
            "plan",
            "Do it well.",
            task,
        )
        assert (successor["parent_id"], successor["step_index"], successor["child_ids"]) == (
            parent,
            0,
            [child],
        )
        above = await at.get(parent)
        assert (above["child_ids"], above["steps"][0]["task_id"]) == ([new], new)
        assert (await at.get(child))["parent_id"] == new
        assert (await at.get(child))["state"] == "pending"
        assert (await at.get(waiting))["depends_on"] == [{"task_id": new, "on": "done"}]
        with pytest.raises(StaleRun):
            await at.do("UpdateStep", "agent:general", run, task_id=task, index=0, done=True)
        await at.must_hold_together()


async def test_an_ended_task_is_run_again_as_its_successor(any_url: str) -> None:
    async with desk(any_url) as at:
        task = await at.create(owner="general")
        with pytest.raises(Conflict, match="not ended"):
            await at.do("RerunTask", task_id=task)
        await at.do("FailTask", task_id=task, message="The disk was full.")
        again = (await at.do("RerunTask", task_id=task)).task_id
        assert (await at.get(again))["rerun_of"] == task
        assert (await at.get(task))["superseded_by"] == again
        assert (await at.get(task))["failure_reason"] == "The disk was full."
        await at.must_hold_together()


async def test_the_same_key_gives_the_same_task_for_ever(any_url: str) -> None:
    async with desk(any_url) as at:
        body = {"title": "Once", "owner": "general", "idempotency_key": "k1"}
        tries = await asyncio.gather(*(at.do("CreateTask", **body) for _ in range(20)))
        assert len({made.task_id for made in tries}) == 1
        assert (await at.do("CreateTask", "user:bob", **body)).task_id != tries[0].task_id
        with pytest.raises(Conflict, match="a different body"):
            await at.do("CreateTask", **{**body, "title": "Twice"})
        assert sum((await at.ask(counts())).values()) == 2
        await at.must_hold_together()


async def test_changes_say_which_version_they_were_made_for(any_url: str) -> None:
    async with desk(any_url) as at:
        task = await at.create()
        version = (await at.get(task))["version"]
        changes = (
            at.do("UpdateTask", task_id=task, labels=[f"n{n}"], expected_version=version)
            for n in range(8)
        )
        results = await asyncio.gather(*changes, return_exceptions=True)
        assert sum(isinstance(result, Conflict) for result in results) == 7
        assert (await at.get(task))["version"] == version + 1
        await at.must_hold_together()


async def test_pages_of_a_list_show_every_task_once(any_url: str) -> None:
    async with desk(any_url) as at:
        made = [
            await at.create(
                f"Task {n}", owner=["general", "plan"][n % 2], labels=["odd"] if n % 2 else []
            )
            for n in range(7)
        ]
        seen: list[str] = []
        cursor = None
        while True:
            page = await at.ask(list_tasks(limit=3, cursor=cursor))
            seen += [item["id"] for item in page["tasks"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert seen == made[::-1]
        assert [item["id"] for item in (await at.ask(list_tasks(owner="plan")))["tasks"]] == made[
            1::2
        ][::-1]
        assert [
            item["id"]
            for item in (await at.ask(list_tasks(label="odd", owner="plan", state="pending")))[
                "tasks"
            ]
        ] == made[1::2][::-1]
        assert (await at.ask(list_tasks(label="odd", owner="general")))["tasks"] == []
        for task in made:
            await at.do("CompleteTask", task_id=task)
        assert [
            item["id"] for item in (await at.ask(list_tasks(status="done", owner="plan")))["tasks"]
        ] == made[1::2][::-1]
        first = await at.ask(list_history(limit=4))
        rest = await at.ask(list_history(limit=4, cursor=first["next_cursor"]))
        assert [item["id"] for item in first["tasks"] + rest["tasks"]] == made[::-1]
        for bad in (
            {"cursor": "nonsense"},
            {"cursor": first["next_cursor"]},
            {"limit": 0},
            {"status": "doing"},
        ):
            with pytest.raises(InvalidParam, match=next(iter(bad))):
                await at.ask(list_tasks(**bad))


async def test_lists_by_tree_parent_and_session(any_url: str) -> None:
    async with desk(any_url) as at:
        root = await at.create(owner="build", parent_session="s1")
        child = (await at.do("CreateSubtask", task_id=root, title="c", owner="general")).task_id
        below = (await at.do("CreateSubtask", task_id=child, title="g", owner="general")).task_id
        await at.create("Other")

        async def ids(**filters: str) -> list[str]:
            return [item["id"] for item in (await at.ask(list_tasks(**filters)))["tasks"]]  # type: ignore[arg-type]

        assert await ids(tree=below) == [below, child, root]
        assert await ids(parent=root) == [child]
        assert await ids(parent_session="s1") == [root]
        run = await at.start(below)
        assert await at.ask(in_flight()) == [below]
        assert (await at.get(below))["run_id"] == run


async def test_guides_are_linked_and_notices_are_kept(any_url: str) -> None:
    async with desk(any_url) as at:
        await at.do("CreateGuide", title="Disk is full!", body="Delete the caches.")
        with pytest.raises(Conflict, match="disk-is-full"):
            await at.do("CreateGuide", title="Disk is full", body="Buy another.")
        task = await at.create(tsgs=["disk-is-full"], owner="general")
        with pytest.raises(NotFound, match="no guide nope"):
            await at.do("AttachTsg", task_id=task, tsg_id="nope")
        assert (await at.ask(get_guide("disk-is-full")))["body"] == "Delete the caches."
        assert [item["id"] for item in (await at.ask(list_guides()))["guides"]] == ["disk-is-full"]
        await at.do("NotifyUser", "agent:general", task_id=task, message="Half way.")
        (notice,) = (await at.ask(list_notifications()))["notifications"]
        assert (notice["task_id"], notice["message"], notice["actor"]) == (
            task,
            "Half way.",
            "agent:general",
        )
        await at.must_hold_together()


async def test_every_task_is_found_by_number_hash_and_uid(any_url: str) -> None:
    async with desk(any_url) as at:
        task = await at.create()
        uid = (await at.get(task))["uid"]
        for ref in (task, f"#{task}", uid, uid.upper()):
            assert (await at.get(ref))["id"] == task
            await at.do("SendMessage", task_id=ref, message="Hello.")
        assert len((await at.ask(list_updates(uid)))["updates"]) == 4
        page = await at.ask(get_events(task, after=1, limit=2))
        assert [(event["version"], event["type"]) for event in page["events"]] == [
            (2, "MessageSent"),
            (3, "MessageSent"),
        ]
        assert (page["next"], page["events"][0]["actor"]) == (3, ANN)
        with pytest.raises(NotFound, match="no task 999"):
            await at.get("999")


async def test_an_unknown_owner_is_refused_with_the_known_agents(any_url: str) -> None:
    async with desk(any_url) as at:
        with pytest.raises(
            InvalidParam,
            match=(
                r"owner: unknown agent 'nobody'. Available: build, explore, general, plan, summary"
            ),
        ):
            await at.create(owner="nobody")
        assert await at.create() == "1", "a refused request uses no id up"


async def test_work_continues_in_another_process_where_it_stopped(durable_url: str) -> None:
    async with desk(durable_url) as at:
        task = await at.create(owner="general")
        before = await at.get(task)
    async with desk(durable_url) as again:
        assert await again.get(task) == before
        await again.do("CompleteTask", task_id=task)
        assert await again.create("Next") == str(int(task) + 1)
        await again.must_hold_together()


async def test_three_runs_without_progress_go_to_a_person_and_the_answer_reaches_the_agent(
    any_url: str,
) -> None:
    async with desk(any_url) as at:
        task = await at.create(owner="general", completion="explicit")
        for _ in range(3):
            run = await at.start(task)
            await at.do("FinishRun", "agent:general", run, task_id=task, final_message="Hm.")
            await at.do("Tick", "system:scheduler", task_id=task)
        (question,) = (await at.ask(list_interactions()))["interactions"]
        assert "no progress" in question["question"]
        assert (await at.get(task))["wait"]["on"] == [{"kind": "user", "ref": question["id"]}]
        await at.do("Respond", interaction_id=question["id"], answer="Look in the attic.")
        (told,) = (await at.ask(list_updates(task)))["updates"]
        assert (told["type"], told["status"]) == ("message", "queued")
        assert "Look in the attic." in told["content"]
        assert (await at.get(task))["state"] == "pending"
        await at.must_hold_together()
