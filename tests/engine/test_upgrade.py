"""Workers of different versions on one store."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from remit.app.engine import worker
from remit.app.engine.recovery import Recovery
from remit.app.service import Service
from remit.codec import chain_hash
from remit.domain.projection.rows import Change
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.stored_event import Stored
from remit.domain.task.task import State
from remit.ports import Append, Store, Unit
from remit.store_queries.run_queries import MESSAGES
from remit.store_queries.table_queries import TABLE_ROWS
from remit.store_queries.tree_queries import STATES
from tests.agents.stage import calls, says, stage
from tests.crash.process import until
from tests.engine.fast_clock import WAITING, fast
from tests.engine.fleet import ANN, fleet
from tests.torture.worker import NEVER


async def written_by_a_newer_remit(store: Store, task_id: str, **left: Any) -> None:
    """Give a task an event that this version does not know, and its row what came of it: at
    least the language of the event.
    """
    ((*columns, head, document),) = await store.select(TABLE_ROWS["task"], {"ids": [int(task_id)]})
    known = json.loads(document)
    fields = (
        f"newer-{task_id}",
        task_id,
        known["version"] + 1,
        "TaskBlessed",
        known["updated_at"],
        "user:ann",
        '{"by":"ann"}',
    )
    event = Stored(*fields, chain_hash(head, *fields))
    row: tuple[Any, ...] = (
        *columns,
        event.hash,
        json.dumps({**known, "version": event.version, **(left or {"language": ev.LANGUAGE + 1})}),
    )
    await store.commit(
        Unit(
            (Append(task_id, known["version"], (event,)),), (Change("task", (int(task_id),), row),)
        )
    )


@pytest.mark.parametrize("left", [{}, {"blessed_by": "ann"}], ids=["nothing else", "a field"])
async def test_a_worker_leaves_alone_what_a_newer_one_wrote(
    any_url: str, left: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "remit.engine")
    async with fleet(any_url) as team:
        newer = await team.create(["finish", "no"])
        await written_by_a_newer_remit(team.core.store, newer, **left)
        await team.hire()
        assert (await team.ended(await team.create(["finish", "yes"]))).state is State.DONE
        await until(
            lambda: (
                f"run/{newer} is postponed: run/{newer} was written by a newer version of remit"
                in caplog.text
            )
        )
        (found,) = await team.core.store.select(STATES, {"ids": [int(newer)]})
        assert found.state == "pending"
        assert await team.events(newer) == ["TaskCreated", "TaskBlessed"]
        assert [key for key in await team.jobs() if key == f"run/{newer}"] == [f"run/{newer}"]
        assert "Traceback" not in caplog.text


async def test_a_task_waits_for_a_worker_that_knows_what_happened_to_it(
    any_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions of which the newer one has another shape of one event.

    Nothing else in the task tells of it.
    """
    monkeypatch.setattr(worker, "NEWER_SECONDS", 0.2)
    caplog.set_level(logging.INFO, "remit.engine")
    child = {"title": "Child", "metadata": {"script": [["ask", "Which?"], ["finish", "this one"]]}}
    async with fleet(any_url) as old:
        await old.hire(cron=NEVER)
        idle = await old.create(**WAITING)
        await old.until(idle, lambda task: task.state is State.WAITING)
        parent = await old.create(["block", child], ["finish", "all of it"])
        below = (await old.until(parent, lambda task: task.state is State.WAITING)).children[0].id
        question = (
            (await old.until(below, lambda task: bool(task.questions) and task.run is None))
            .questions[0]
            .id
        )
        newer = ev.LANGUAGE + 1
        monkeypatch.setitem(ev.SINCE, ev.MessageSent, newer)
        monkeypatch.delitem(ev.ADDED, ev.MessageSent)
        new = Service(old.core.store, old.core.clock, old.core.agents)
        for task_id in (idle, parent):
            await new.execute(cmd.SendMessage(task_id=task_id, message="Hurry up."), ANN)
        before = [await old.events(task_id) for task_id in (idle, parent)]
        await old.do("Respond", interaction_id=question, answer="This")
        assert (await old.ended(below)).summary == "this one"
        await until(
            lambda: (
                f"run/{idle} was written by a newer version of remit: Task {idle} has events of"
                f" language {newer}" in caplog.text
            )
        )
        await until(
            lambda: (
                f"tell/{parent} was written by a newer version of remit: Task {parent} has events"
                f" of language {newer}" in caplog.text
            )
        )
        assert [await old.events(task_id) for task_id in (idle, parent)] == before
        monkeypatch.setattr(ev, "LANGUAGE", newer)
        assert ((await old.ended(idle)).summary, (await old.ended(parent)).summary) == (
            "second turn",
            "all of it",
        )
        assert (await old.events(parent)).count("SubtaskSettled") == 1


async def test_a_worker_leaves_alone_a_conversation_that_a_newer_one_wrote(
    any_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "NEWER_SECONDS", 0.2)
    caplog.set_level(logging.INFO, "remit.worker")
    async with stage(
        any_url, tmp_path, [calls(("ask_user", {"question": "Which?"})), says("Done.")]
    ) as at:
        task_id = await at.create(limits={"max_attempts": 1})
        asking = await at.waiting(task_id)
        store = at.team.core.store
        first, *_ = await store.select(MESSAGES, {"id": int(task_id), "after": 0, "limit": 1})

        async def keep(document: str) -> None:
            task = await at.team.task(task_id)
            await store.commit(
                Unit(
                    (Append(task_id, task.version, ()),),
                    (Change("message", first[:2], (*first[:-1], document)),),
                )
            )

        await keep(json.dumps({"role": "oracle", "parts": [{"hologram": 1}]}))
        await at.call("respond", interaction_id=asking.questions[0].id, answer="This")
        await until(lambda: caplog.text.count("needs a newer version of remit") >= 2)
        task = await at.team.until(task_id, lambda task: task.run is None)
        assert (task.state, task.attempts) == (State.PENDING, 0)
        await keep(first[-1])
        assert (await at.team.ended(task_id)).state is State.DONE


async def test_a_tick_passes_over_what_a_newer_one_wrote(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        first = await team.hire(cron=NEVER)
        newer, known = [await team.create(**WAITING) for _ in range(2)]
        for task_id in (newer, known):
            await team.until(task_id, lambda task: task.state is State.WAITING)
        first.stop()
        await written_by_a_newer_remit(team.core.store, newer)
        before = await team.events(newer)
        await team.hire(cron="* * * * *")
        assert (await team.ended(known)).summary == "second turn"
        assert await team.events(newer) == before


async def test_tasks_of_a_newer_version_do_not_block_the_repair_of_others(any_url: str) -> None:
    async with fleet(any_url) as team:
        newer = [await team.create(**WAITING), await team.create(["timer", 3600])]
        first = await team.hire(cron=NEVER)
        for task_id in newer:
            await team.until(task_id, lambda task: task.state is State.WAITING)
        first.stop()
        await team.staff(0)
        newer.append(await team.create(["finish", "no"]))
        for task_id in newer:
            await written_by_a_newer_remit(team.core.store, task_id)
        lost = await team.create(["finish", "found"])
        await team.core.store.commit(Unit((), (), drops=tuple(await team.jobs())))
        found = await Recovery(team.core.store, team.core.service).examine()
        assert (found.runnable_without_job, found.total) == ((lost,), 1)
        await team.hire(cron=NEVER)
        assert (await team.ended(lost)).summary == "found"
        assert [(await team.events(task_id))[-1] for task_id in newer] == ["TaskBlessed"] * 3
