"""Tasks with a calendar run at each slot: once with many workers, once for slots that were
missed, never two at a time.
"""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from remit.app.maintenance.verify import verify
from remit.app.runs.run_handle import RunHandle
from remit.catalog import Caller, call
from remit.domain.task import commands as cmd
from remit.domain.task.task import State, Task
from remit.errors import Conflict
from remit.store_queries.task_queries import SUCCESSOR
from tests.engine.fast_clock import fast
from tests.engine.fleet import ANN, Fleet, fleet
from tests.patience import patient
from tests.torture.worker import NEVER

EACH_SLOT = {"schedule": {"cron": "* * * * *"}}


async def series(team: Fleet, first: str) -> list[Task]:
    """The tasks of a series in their order."""
    chain = [await team.task(first)]
    while rows := await team.core.store.select(SUCCESSOR, {"id": int(chain[-1].id)}):
        chain.append(await team.task(str(rows[0].first)))
    return chain


async def until_so_many(team: Fleet, first: str, count: int) -> list[Task]:
    """The series once so many of its tasks have ended."""
    async with asyncio.timeout(patient(30)), team.core.store.watch() as bell:
        chain = await series(team, first)
        while sum(task.state.terminal for task in chain) < count:
            await bell.wait()
            chain = await series(team, first)
    return chain


async def test_a_task_with_a_calendar_runs_at_each_slot_once_with_many_workers(
    any_url: str,
) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        for _ in range(3):
            await team.hire(cron=NEVER)
        first = await team.create(["finish", "ok"], **EACH_SLOT)
        await until_so_many(team, first, 6)
        await team.do("CancelTask", task_id=first)
        chain = await series(team, first)
        assert [task.state for task in chain] == [*[State.DONE] * (len(chain) - 1), State.CANCELED]
        assert [task.series_id for task in chain] == [None, *[first] * (len(chain) - 1)]
        assert [later.rerun_of for later in chain[1:]] == [task.id for task in chain[:-1]]
        assert [task.counts.runs for task in chain[:6]] == [1] * 6
        slots = [
            task.schedule.not_before
            for task in chain[1:]
            if task.schedule and task.schedule.not_before
        ]
        assert all(earlier < later for earlier, later in pairwise(slots))
        assert all(
            task.started_at is None or task.started_at >= slot
            for task, slot in zip(chain[1:], slots, strict=True)
        )
        assert (await verify(team.core.store)).faults == ()


async def test_slots_without_a_worker_are_made_up_for_once(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        first = await team.create(["finish", "ok"], **EACH_SLOT)
        await asyncio.sleep(0.5)  # five slots without a worker
        came_at = team.core.clock.now()
        await team.hire(cron=NEVER)
        chain = await until_so_many(team, first, 2)
        assert chain[0].started_at is not None
        assert chain[0].started_at >= came_at
        later = chain[1].schedule
        assert later is not None
        assert later.not_before is not None
        assert later.not_before > chain[0].started_at, "the other missed slots are left out"
        await team.do("CancelTask", task_id=first)


async def test_a_long_run_skips_the_slots_that_pass_during_it(any_url: str) -> None:
    going_on = asyncio.Event()

    class Slow:
        async def run(self, handle: RunHandle) -> None:
            await going_on.wait()
            await handle.do(cmd.FinishRun(task_id=handle.task.id, final_message="ok"))

    async with fleet(any_url) as quiet:
        team = fast(quiet)
        await team.hire(Slow(), cron=NEVER)
        first = await team.create(**EACH_SLOT)
        began = await team.until(first, lambda task: task.run is not None)
        await asyncio.sleep(0.5)  # five slots
        assert [task.id for task in await series(team, first)] == [first]
        going_on.set()
        chain = await until_so_many(team, first, 1)
        later = chain[1].schedule
        assert later is not None
        assert later.not_before is not None
        assert began.started_at is not None
        assert later.not_before >= began.started_at + timedelta(seconds=0.5)
        await team.do("CancelTask", task_id=first)


async def test_canceling_the_first_task_stops_the_series_and_leaves_no_job(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        await team.hire(cron=NEVER)
        first = await team.create(["finish", "ok"], **EACH_SLOT)
        await until_so_many(team, first, 2)
        answer = await call(team.core, "cancel_task", {"task_id": first}, Caller(actor=ANN))
        chain = await series(team, first)
        assert answer["canceled"] == [chain[-1].id]
        assert chain[-1].state is State.CANCELED
        await team.idle()
        assert await series(team, first) == chain
        with pytest.raises(Conflict, match="an ended task cannot change"):
            await call(team.core, "cancel_task", {"task_id": first}, Caller(actor=ANN))


async def test_a_lost_job_of_a_series_is_found_again_and_its_slot_made_up(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        first = await team.create(["finish", "ok"], **EACH_SLOT)
        await team.do("CompleteTask", task_id=first)
        (later,) = (await series(team, first))[1:]
        await asyncio.sleep(0.2)  # its slot passes
        job = team.core.service.jobs.ready_job(later)
        assert job.at is None, "it can run at once"


async def test_people_see_the_next_slot_and_the_links(any_url: str) -> None:
    async with fleet(any_url) as team:
        first = await team.create(["finish", "ok"], schedule={"cron": "0 0 1 1 *"})
        shown = await call(team.core, "get_task", {"task_id": first}, Caller(actor=ANN))
        (slot,) = shown["held_by"]
        await team.do("CompleteTask", task_id=first)
        ended = await call(team.core, "get_task", {"task_id": first}, Caller(actor=ANN))
        later = await call(
            team.core, "get_task", {"task_id": ended["superseded_by"]}, Caller(actor=ANN)
        )
        assert (ended["state"], later["series_id"], later["rerun_of"]) == ("done", first, first)
        assert (slot["kind"], later["held_by"]) == ("slot", [slot])
        assert later["schedule"] == {"cron": "0 0 1 1 *", "not_before": slot["ref"]}


YEARLY = {"schedule": {"cron": "0 0 1 1 *"}}


async def ended_once(team: Fleet, **fields: Any) -> tuple[str, str]:
    """The first task of a series, which has ended, and the next one."""
    first = await team.create(["finish", "ok"], **YEARLY, **fields)
    await team.do("CompleteTask", task_id=first)
    ended = await call(team.core, "get_task", {"task_id": first}, Caller(actor=ANN))
    return first, ended["superseded_by"]


async def test_text_that_looks_like_a_series_is_left_alone(any_url: str) -> None:
    async with fleet(any_url) as team:
        first, later = await ended_once(team)
        looks_alike = {"series_id": first, "cron": "0 0 1 1 *"}
        other = await team.create(["finish", "ok"], metadata=looks_alike)
        canceled = await call(team.core, "cancel_task", {"task_id": first}, Caller(actor=ANN))
        assert canceled["canceled"] == [later]
        with pytest.raises(Conflict, match="an ended task cannot change"):
            await call(team.core, "cancel_task", {"task_id": first}, Caller(actor=ANN))
        assert (await team.task(other)).state is State.PENDING
        again = await call(team.core, "rerun_task", {"task_id": first}, Caller(actor=ANN))
        assert again["task"]["schedule"] == {"cron": "0 0 1 1 *"}, "no task of the series was live"


async def test_a_slot_of_a_session_does_not_end_the_series(any_url: str) -> None:
    async with fleet(any_url) as team:
        _, later = await ended_once(team)
        session = {"task_id": later, "subagent_session_id": "s1"}
        await call(team.core, "assign_task", session, Caller(actor=ANN))
        await team.do("CompleteTask", task_id=later)
        done = await call(team.core, "get_task", {"task_id": later}, Caller(actor=ANN))
        third = await team.task(done["superseded_by"])
        assert (third.owner, third.session_id, third.state) == ("general", None, State.PENDING)


async def test_an_update_to_canceled_stops_a_series_like_cancel(any_url: str) -> None:
    async with fleet(any_url) as team:
        first, later = await ended_once(team)
        update = {"task_id": first, "status": "canceled"}
        answer = await call(team.core, "update_task", update, Caller(actor=ANN))
        assert (answer["task"]["id"], answer["task"]["state"]) == (later, "canceled")
        with pytest.raises(Conflict, match="an ended task cannot change"):
            await call(team.core, "update_task", {**update, "title": "New"}, Caller(actor=ANN))


async def test_a_rerun_does_not_hide_the_next_task_of_a_series(any_url: str) -> None:
    async with fleet(any_url) as team:
        first, later = await ended_once(team)
        await call(team.core, "rerun_task", {"task_id": first}, Caller(actor=ANN))
        shown = await call(team.core, "get_task", {"task_id": first}, Caller(actor=ANN))
        assert shown["superseded_by"] == later
