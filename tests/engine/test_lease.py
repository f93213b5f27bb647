"""Leases: which worker may run a task, and what happens to workers that lost a lease."""

import asyncio
import os
import socket

import pytest

from remit.app.runs.run_handle import RunHandle
from remit.app.service import HeldJob
from remit.domain.records.serialize import instant
from remit.domain.task import commands as cmd
from remit.domain.task.task import State
from remit.errors import StaleRun
from remit.ports import Claim, ClaimedJob, Lease, Store, WorkerRow
from remit.store_queries.event_queries import EVENTS
from remit.store_queries.queue_queries import JOBS
from remit.testing import Scripted
from tests.crash.process import until
from tests.engine.fleet import Fleet, fleet
from tests.patience import patient

GENERAL = {"agent/general": 0}


class Patient:
    """A runner that works until it is told to stop, and remembers how that was."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, handle: RunHandle) -> None:
        self.begun.set()
        try:
            await handle.stopping.wait()
        except asyncio.CancelledError:
            self.ended.set()
            raise
        await handle.release()


async def dead_run(team: Fleet, worker: str = "dead") -> tuple[str, RunHandle]:
    """A task whose worker claimed it, started it, and is never heard of again."""
    task_id = await team.create(["finish", "by another"])
    (job,) = (await team.core.store.claim(Claim(worker, GENERAL, 1, 0, patient(60)))).jobs
    held = HeldJob(Lease(job.id, worker), task_id)
    started = await team.core.service.execute(
        cmd.StartRun(task_id=task_id, worker=worker), "system:engine", held=held
    )
    assert started.task is not None
    return task_id, RunHandle(
        team.core.service, team.core.store, team.core.clock, held, started.task, asyncio.Event()
    )


async def stolen(store: Store) -> list[ClaimedJob]:
    """A job that its worker still renews; another claim retries after the heartbeat."""
    async with asyncio.timeout(patient(20)):
        while not (jobs := (await store.claim(Claim("thief", GENERAL, 1, 0, 0.0))).jobs):
            pass
        return jobs


async def test_the_run_of_a_dead_worker_is_taken_over(any_url: str) -> None:
    async with fleet(any_url) as team:
        task_id, dead = await dead_run(team)
        await team.hire(heartbeat_seconds=patient(0.5))
        task = await team.ended(task_id)
        assert (task.state, task.summary) == (State.DONE, "by another")
        rows = await team.core.store.select(EVENTS, {"stream": task_id, "after": 0, "limit": 100})
        assert sum(row.type == "RunLost" and dead.run_id in row.data for row in rows) == 1


async def test_a_worker_that_lost_its_lease_cannot_write_and_is_stopped_before_any_effect(
    any_url: str,
) -> None:
    async with fleet(any_url) as team:
        task_id, zombie = await dead_run(team)
        await team.hire(heartbeat_seconds=patient(0.2))
        await team.ended(task_id)
        done: list[str] = []

        async def effect() -> str:
            done.append("done")
            return "done"

        before = await team.events(task_id)
        for write in (
            zombie.look(),
            zombie.call("c1", "write", None, effect, repeatable=True),
            zombie.do(cmd.NotifyUser(task_id=task_id, message="Hello?")),
            zombie.do(cmd.FinishRun(task_id=task_id, final_message="Mine")),
        ):
            with pytest.raises(StaleRun):
                await write
        assert done == []
        assert await team.events(task_id) == before


async def test_a_lease_that_another_has_is_enough_to_stop_a_run_that_still_looks_live(
    any_url: str,
) -> None:
    async with fleet(any_url) as team:
        task_id, zombie = await dead_run(team)
        assert (await team.core.store.claim(Claim("thief", GENERAL, 1, 0, 0.0))).jobs
        with pytest.raises(StaleRun):
            await zombie.look()
        with pytest.raises(StaleRun):
            await zombie.do(cmd.NotifyUser(task_id=task_id, message="Hello?"))
        assert "UserNotified" not in await team.events(task_id)


async def test_a_worker_that_lost_its_job_stops_the_run(any_url: str) -> None:
    async with fleet(any_url) as team:
        runner = Patient()
        worker = await team.hire(runner, heartbeat_seconds=patient(0.4))
        task_id = await team.create()
        await runner.begun.wait()
        ((job, *_),) = [
            row
            for row in await team.core.store.select(JOBS, {"limit": 10})
            if row.key == f"run/{task_id}"
        ]
        assert [taken.id for taken in await stolen(team.core.store)] == [job]
        await runner.ended.wait()
        await team.until(task_id, lambda _: worker.running == 0)


async def test_cancel_stops_the_live_run_at_once(any_url: str) -> None:
    async with fleet(any_url) as team:
        runner = Patient()
        await team.hire(runner)
        task_id = await team.create()
        await runner.begun.wait()
        await team.do("CancelTask", task_id=task_id)
        await runner.ended.wait()
        await team.idle()
        assert (await team.task(task_id)).state is State.CANCELED


async def test_a_stopped_worker_releases_its_runs_at_the_next_boundary(any_url: str) -> None:
    async with fleet(any_url) as team:
        runner = Patient()
        first = await team.hire(runner)
        task_id = await team.create(["finish", "by the next"])
        await runner.begun.wait()
        first.stop()
        released = await team.until(task_id, lambda task: task.run is None)
        assert (released.state, released.attempts, await team.jobs()) == (
            State.PENDING,
            0,
            [f"run/{task_id}"],
        )
        await team.hire()
        assert (await team.ended(task_id)).summary == "by the next"


async def test_a_pause_ends_the_run_at_its_next_boundary_and_resume_continues(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        task_id = await team.create(*([["sleep", 0.02]] * 50), ["finish", "at last"])
        await team.until(task_id, lambda task: task.run is not None)
        await team.do("PauseTask", task_id=task_id)
        paused = await team.until(task_id, lambda task: task.run is None)
        assert (paused.state, await team.jobs()) == (State.PAUSED, [])
        await team.do("ResumeTask", task_id=task_id)
        assert (await team.ended(task_id)).summary == "at last"


async def test_a_task_that_kills_its_workers_ends_as_lost(any_url: str) -> None:
    async with fleet(any_url) as team:
        task_id = await team.create(["finish", "never"], limits={"max_attempts": 2})
        for worker in ("w1", "w2"):
            (job,) = (await team.core.store.claim(Claim(worker, GENERAL, 1, 0, 0.0))).jobs
            held = HeldJob(Lease(job.id, worker), task_id)
            if left := (await team.task(task_id)).run:
                await team.core.service.execute(
                    cmd.LoseRun(task_id=task_id, run_id=left.id),
                    "system:engine",
                    held=HeldJob(held.lease),
                )
            await team.core.service.execute(
                cmd.StartRun(task_id=task_id, worker=worker), "system:engine", held=held
            )
        await team.hire(heartbeat_seconds=patient(0.2))
        task = await team.ended(task_id)
        assert (task.state, task.reason) == (State.FAILED, "lost")
        assert await team.until(task_id, lambda _: True)
        await team.idle()


async def test_an_effect_without_an_end_is_unknown_and_not_repeated_unless_that_is_harmless(
    any_url: str,
) -> None:
    async with fleet(any_url) as team:
        task_id, first = await dead_run(team)
        made: list[str] = []

        async def effect() -> str:
            made.append("made")
            return "fine"

        async def paid() -> str:
            known = await first.known_call("done")
            assert known is not None, "it is recorded before it is made"
            assert (known.status, known.tool, known.arguments, known.ended_at) == (
                "started",
                "pay",
                '{"sum":1}',
                None,
            )
            return await effect()

        assert (
            await first.call("done", "pay", {"sum": 1}, paid, repeatable=False)
        ).status == "done"
        ended = await first.known_call("done")
        assert ended is not None
        assert (ended.status, ended.result, ended.ended_at is not None) == ("done", "fine", True)
        for name in ("pay", "look"):
            await first._service.keep(
                first.held,
                first.run_id,
                [first.begun(name, name, None, repeatable=name == "look").row()],
            )
        await team.do("LoseRun", "system:engine", task_id=task_id, run_id=first.run_id)
        (job,) = (await team.core.store.claim(Claim("w2", GENERAL, 1, 0, 0.0))).jobs
        held = HeldJob(Lease(job.id, "w2"), task_id)
        started = await team.core.service.execute(
            cmd.StartRun(task_id=task_id, worker="w2"), "system:engine", held=held
        )
        assert started.task is not None
        second = RunHandle(
            team.core.service, team.core.store, team.core.clock, held, started.task, asyncio.Event()
        )
        assert (
            await second.call("done", "pay", {"sum": 1}, effect, repeatable=False)
        ).result == "fine"
        assert (await second.call("pay", "pay", None, effect, repeatable=False)).status == "unknown"
        assert (await second.call("pay", "pay", None, effect, repeatable=False)).status == "unknown"
        assert made == ["made"]
        assert (await second.call("look", "look", None, effect, repeatable=True)).result == "fine"
        assert made == ["made", "made"]


async def test_workers_are_seen_while_they_work(any_url: str) -> None:
    async with fleet(any_url) as team:
        began = instant(team.core.clock.now())
        worker = await team.hire(
            Patient(), agents=("general", "plan"), concurrency=3, heartbeat_seconds=patient(0.8)
        )
        (row,) = await team.staff(1)
        assert isinstance(row, WorkerRow)
        assert (row.worker, row.agents, row.concurrency, row.running) == (
            worker.name,
            "general,plan",
            3,
            0,
        )
        assert (row.host, row.pid) == (socket.gethostname(), os.getpid())
        assert began <= row.since <= instant(team.core.clock.now())
        for _ in range(2):
            await team.create()
        async with asyncio.timeout(patient(20)):
            heard = list[float]()
            # Until it is heard of again: then the time since goes down.
            while row.running != 2 or heard == sorted(heard):
                await asyncio.sleep(0.02)
                (row,) = await team.core.store.workers()
                heard.append(row.age_seconds)
        worker.stop()
        await team.staff(0)


async def test_a_worker_leaves_alone_what_is_for_other_agents(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire(agents=("plan",))
        other = await team.create(["finish", "no"])
        mine = await team.create(["finish", "yes"], owner="plan")
        assert (await team.ended(mine)).state is State.DONE
        assert (await team.task(other)).state is State.PENDING


async def test_limits_are_reached_and_never_passed(any_url: str) -> None:
    async with fleet(any_url) as team:
        counter = Counting()
        for _ in range(3):
            await team.hire(counter, concurrency=8, agent_limits={"general": 3}, fleet_limit=5)
        tasks = [await team.create(owner=owner) for owner in ("general", "plan") for _ in range(15)]
        await until(lambda: counter.now == {"general": 3, "plan": 2})
        counter.full.set()
        for task_id in tasks:
            assert (await team.ended(task_id)).state is State.DONE
        assert (counter.most["general"], counter.most["all"]) == (3, 5)


class Counting(Scripted):
    """Knows how many runs there were at once, at most.

    None ends before it was told that there are enough.
    """

    def __init__(self) -> None:
        self.now = {"general": 0, "plan": 0}
        self.most = {"general": 0, "plan": 0, "all": 0}
        self.full = asyncio.Event()

    async def run(self, handle: RunHandle) -> None:
        owner = str(handle.task.owner)
        self.now[owner] += 1
        for name, count in (*self.now.items(), ("all", sum(self.now.values()))):
            self.most[name] = max(self.most[name], count)
        await self.full.wait()
        await asyncio.sleep(0.05)
        self.now[owner] -= 1
        await handle.do(cmd.FinishRun(task_id=handle.task.id, final_message="ok"))
