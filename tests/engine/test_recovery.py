"""Inconsistencies are found, named, and repaired from the events."""

import asyncio
import logging

import pytest

from remit.app.engine.recovery import Recovery
from remit.bootstrap import embedded_worker
from remit.codec import encode_event
from remit.domain.decisions.evolve import evolve
from remit.domain.projection.rows import Rows
from remit.domain.task import events as ev
from remit.domain.task.task import State
from remit.ports import Append, Claim, Lease, Unit
from remit.store_queries.queue_queries import JOBS
from remit.store_queries.table_queries import TABLE_ROWS
from tests.engine.fleet import ANN, Fleet, fleet
from tests.patience import patient
from tests.torture.worker import NEVER


async def without_jobs(team: Fleet) -> Recovery:
    """A store whose queue was lost."""
    await team.core.store.commit(Unit((), (), drops=tuple(await team.jobs())))
    assert await team.jobs() == []
    return Recovery(team.core.store, team.core.service)


async def test_a_lost_queue_is_rebuilt(any_url: str) -> None:
    async with fleet(any_url) as team:
        later = await team.create(schedule={"not_before": "2999-01-01T00:00:00Z"})
        now = await team.create(["finish", "found"])
        blocked = await team.create(depends_on=[now])
        recovery = await without_jobs(team)
        found = await recovery.examine()
        assert found.runnable_without_job == (later, now)
        await recovery.repair(found)
        rows = {row.key: row.at for row in await team.core.store.select(JOBS, {"limit": 10})}
        assert rows == {f"run/{later}": "2999-01-01T00:00:00.000000Z", f"run/{now}": None}
        assert (await recovery.examine()).total == 0
        await team.hire()
        assert (await team.ended(blocked)).state is State.DONE


async def test_timers_and_turns_are_set_again(any_url: str) -> None:
    async with fleet(any_url) as team:
        sleeper = await team.create(["timer", 3600], ["finish", "late"])
        turning = await team.create(["wait"], completion="explicit", schedule={"cron": "0 0 1 1 *"})
        await team.do("RunTask", task_id=turning)
        embedded_worker = await team.hire(cron="0 0 1 1 *")
        for task_id in (sleeper, turning):
            await team.until(task_id, lambda task: task.state is State.WAITING)
        embedded_worker.stop()
        await team.staff(0)
        recovery = await without_jobs(team)
        assert (await recovery.examine()).waiting_without_alarm == (sleeper, turning)
        await recovery.repair()
        assert sorted(await team.jobs()) == [f"cron/{turning}", f"timer/{sleeper}-t1"]


async def start_run(team: Fleet, task_id: str) -> None:
    """Claim the only job and start its run."""
    await team.core.store.claim(Claim("w1", {"agent/general": 0}, 1, 0, patient(60)))
    await team.do("StartRun", "system:engine", task_id=task_id, worker="w1")


async def run_without_job(team: Fleet) -> str:
    """A task with a run that no worker has."""
    task_id = await team.create(["finish", "again"])
    await start_run(team, task_id)
    ((number, *_),) = await team.core.store.select(JOBS, {"limit": 10})
    await team.core.service.put(done=Lease(number, "w1"))
    return task_id


async def test_a_run_that_no_worker_has_is_lost_and_queued_again(any_url: str) -> None:
    async with fleet(any_url) as team:
        task_id = await run_without_job(team)
        recovery = Recovery(team.core.store, team.core.service)
        (run,) = (await recovery.repair()).stale_runs
        assert (run.id, run.run_id) == (int(task_id), f"{task_id}-r000001")
        await team.hire()
        assert (await team.ended(task_id)).summary == "again"


async def test_a_run_that_starts_before_the_repair_is_not_lost(any_url: str) -> None:
    async with fleet(any_url) as team:
        task_id = await run_without_job(team)
        recovery = Recovery(team.core.store, team.core.service)
        found = await recovery.examine()
        await recovery.repair(found)
        await start_run(team, task_id)
        live = (await team.task(task_id)).run
        await recovery.repair(found)
        assert live is not None
        assert (await team.task(task_id)).run == live


async def test_a_run_that_the_repair_loses_is_logged(
    any_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "remit.task")
    async with fleet(any_url) as team:
        task_id = await run_without_job(team)
        await team.hire(log_tasks=True)
        await team.ended(task_id)
    lost = [record for record in caplog.records if record.getMessage() == "Run lost"]
    assert [vars(record)["fields"]["run"] for record in lost] == [f"{task_id}-r000001"]
    assert vars(lost[0])["fields"]["worker"] == "w1"


async def test_parents_that_were_not_informed_are_informed(any_url: str) -> None:
    async with fleet(any_url) as team:
        parent = await team.create(["wait"])
        child = await team.do("CreateSubtask", task_id=parent, title="Child", owner="plan")
        broken = await team.create(status="draft")
        waiting = await team.create(depends_on=[broken])
        await team.do("CompleteTask", task_id=child)
        await team.do("CancelTask", task_id=broken)
        recovery = await without_jobs(team)
        found = await recovery.repair()
        assert (found.parents_not_told, found.dependents_not_told) == ((parent,), (broken,))
        await team.hire()
        assert (await team.ended(waiting)).reason == "dependency"
        told = await team.until(parent, lambda task: task.children[0].settled is not None)
        assert told.children[0].settled == "done"


async def told_without_a_wake(team: Fleet, task_id: str) -> None:
    """Append a message to a waiting task, as if what should wake it had been forgotten."""
    task, head = (
        await team.task(task_id),
        (await team.core.store.select(TABLE_ROWS["task"], {"ids": [int(task_id)]}))[0][-2],
    )
    event = ev.MessageSent(update_id=f"{task_id}-u1", message="Look here.")
    entry = ev.Entry(
        id=f"forged-{task_id}",
        stream=task_id,
        version=task.version + 1,
        at=task.updated_at,
        actor=ANN,
        event=event,
    )
    stored, rows = encode_event(entry, head), Rows(task)
    rows.add(entry, evolve(task, entry))
    await team.core.store.commit(
        Unit((Append(task_id, task.version, (stored,)),), tuple(rows.changes(stored.hash)))
    )


async def test_updates_that_woke_no_run_are_delivered(any_url: str) -> None:
    async with fleet(any_url) as team:
        embedded_worker = await team.hire(cron=NEVER)
        turn = await team.create(["wait"], ["finish", "heard"], completion="explicit")
        child = {"title": "Child", "metadata": {"script": [["ask", "What?"]]}}
        parent = await team.create(
            ["children", [child]], ["wait"], ["finish", "heard"], completion="explicit"
        )
        asking = await team.create(["ask", "Which?"], ["finish", "heard"])
        tasks = (turn, parent, asking)
        for task_id in tasks:
            await team.until(task_id, lambda task: task.state is State.WAITING and task.run is None)
        embedded_worker.stop()
        await team.staff(0)
        recovery = Recovery(team.core.store, team.core.service)
        assert (await recovery.examine()).total == 0
        for task_id in tasks:
            await told_without_a_wake(team, task_id)
        found = await recovery.repair()
        assert (found.undelivered_updates, found.total) == ((turn, parent), 2)
        assert (await recovery.examine()).total == 0
        await team.hire(cron=NEVER)
        for task_id in (turn, parent):
            await team.until(task_id, lambda task: not task.queued)
        assert [(await team.task(task_id)).queued == () for task_id in tasks] == [True, True, False]


async def test_a_claim_whose_check_was_lost_is_checked(any_url: str) -> None:
    async with fleet(any_url) as team:
        check = {"output": "answer", "equals": 42}
        claimed = await team.create(owner=None, acceptance=[{"text": "Right", "check": check}])
        held = await team.create(owner=None, acceptance=[{"text": "Right", "check": check}])
        for task_id in (claimed, held):
            await team.do("CompleteTask", task_id=task_id, outputs={"answer": 42})
        await team.do("PauseTask", task_id=held)
        recovery = await without_jobs(team)
        assert (await recovery.examine()).claims_without_check == (claimed,)
        await recovery.repair()
        assert await team.jobs() == [f"check/{claimed}"]
        assert (await recovery.examine()).total == 0
        await team.hire()
        assert (await team.ended(claimed)).verification == "verified"


async def test_a_worker_that_starts_makes_a_lost_queue_anew(any_url: str) -> None:
    async with fleet(any_url) as team:
        tasks = [await team.create(["timer", 0.1], ["finish", "found"]) for _ in range(3)]
        blocked = await team.create(depends_on=tasks)
        await without_jobs(team)
        await team.hire()
        assert [(await team.ended(task_id)).summary for task_id in tasks] == ["found"] * 3
        assert (await team.ended(blocked)).state is State.DONE


async def test_an_invalid_schedule_is_reported_and_other_tasks_are_found(
    any_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(any_url) as team:
        task_id = await team.create(["finish", "found"])
        await without_jobs(team)
        await team.hire(cron="99 * * * *")
        assert (await team.ended(task_id)).summary == "found"
        assert "'99 * * * *' is not a cron expression: bad minute" in caplog.text


async def test_a_worker_looks_again_now_and_then(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_worker, "RECONCILE_SECONDS", 0.1)
    async with fleet(any_url) as team:
        await team.hire(agents=("plan",))
        # No worker here serves its agent, so its job stays in the queue.
        task_id = await team.create(["finish", "found"])
        for _ in range(2):
            await team.core.store.commit(Unit((), (), drops=(f"run/{task_id}",)))
            async with asyncio.timeout(patient(20)), team.core.store.watch("jobs") as bell:
                while not await team.jobs():
                    await bell.wait()
        await team.hire()
        assert (await team.ended(task_id)).counts.runs == 1
