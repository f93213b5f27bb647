"""Runs of tasks by the engine, through public operations, on every store."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from remit.adapters import job_engine
from remit.adapters.stores.postgres import watches as postgres
from remit.adapters.stores.sqlite import watches as sqlite
from remit.app.runs.run_handle import RunHandle
from remit.app.service import HeldJob
from remit.domain.task import commands as cmd
from remit.domain.task.task import State
from remit.ports import Claim, Lease
from remit.store_queries.tree_queries import COUNTS
from remit.testing import Scripted
from tests.engine.fleet import fleet
from tests.patience import patient


async def test_a_created_task_is_run_to_its_end(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        task = await team.ended(await team.create(["say", "Hello"], ["finish", "All good"]))
        assert (task.state, task.summary) == (State.DONE, "All good")
        assert await team.events(task.id) == [
            "TaskCreated",
            "TaskStarted",
            "RunStarted",
            "UserNotified",
            "CompletionClaimed",
            "TaskCompleted",
        ]
        assert await team.jobs() == []


@pytest.fixture
def collected() -> Iterator[Callable[[int], None]]:
    """How often Python looks for cyclic garbage, as a test sets it."""
    before = gc.get_threshold()
    yield lambda objects: gc.set_threshold(objects, *before[1:])
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("before", "meanwhile"), [(700, 10_000), (2000, 10_000), (1234, 1234), (0, 0)]
)
async def test_python_collects_cycles_rarely_while_a_worker_is_open_unless_configured(
    collected: Callable[[int], None], before: int, meanwhile: int
) -> None:
    collected(before)
    async with fleet("memory:") as team:
        await team.hire()
        await team.hire()
        assert gc.get_threshold()[0] == meanwhile
    assert gc.get_threshold()[0] == before


async def test_a_question_holds_no_job_and_its_answer_resumes_the_task(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        task_id = await team.create(["ask", "Which one?"], ["finish", "That one"])
        waiting = await team.until(task_id, lambda task: task.state is State.WAITING)
        assert await team.jobs() == []
        await team.do("Respond", interaction_id=waiting.questions[0].id, answer="The red one")
        task = await team.ended(task_id)
        assert (task.state, task.counts.runs) == (State.DONE, 2)


@pytest.mark.parametrize(
    "limit",
    [{"concurrency": 1}, {"fleet_limit": 1}, {"agent_limits": {"general": 1}}],
    ids=["worker", "fleet", "agent"],
)
async def test_a_parent_that_blocks_on_a_child_cannot_starve_it(
    any_url: str, limit: dict[str, Any]
) -> None:
    async with fleet(any_url) as team:
        await team.hire(**limit)
        inner = {"title": "Inner", "metadata": {"script": [["finish", "inner done"]]}}
        middle = {
            "title": "Middle",
            "metadata": {"script": [["block", inner], ["finish", "middle done"]]},
        }
        task = await team.ended(await team.create(["block", middle], ["finish", "outer done"]))
        assert (task.state, task.summary) == (State.DONE, "outer done")
        assert [child.settled for child in task.children] == ["done"]


async def test_children_wake_their_parent_once_each(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        children = [
            {"title": f"Child {n}", "metadata": {"script": [["finish", f"{n}"]]}} for n in range(20)
        ]
        task = await team.ended(await team.create(["children", children], ["finish", "all told"]))
        assert task.state is State.DONE
        assert (await team.events(task.id)).count("SubtaskSettled") == 20
        assert await team.jobs() == []


@pytest.mark.parametrize("concurrency", [3, 100])
async def test_no_slot_stays_empty_while_there_is_work(
    any_url: str, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    # So that it is told, or waits for ever.
    monkeypatch.setattr(job_engine, "DEQUEUE_SECONDS", 3600.0)
    for store in (sqlite, postgres):
        monkeypatch.setattr(store, "SAFETY_SECONDS", 3600.0)
    async with fleet(any_url) as team:
        await asyncio.gather(
            *(team.create(["sleep", 0.001 * (number % 3)]) for number in range(100))
        )
        await team.hire(concurrency=concurrency, heartbeat_seconds=3600.0)
        await team.idle()
        assert await team.core.store.select(COUNTS, {}) == [("done", 100)]


async def test_a_timer_wakes_its_task(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        task = await team.ended(await team.create(["timer", 0.05], ["finish", "later"]))
        assert (await team.events(task.id)).count("TimerFired") == 1


async def test_a_run_that_fails_is_tried_again_and_a_poison_task_ends(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        task = await team.ended(
            await team.create(["raise", "Out of luck"], limits={"max_attempts": 2})
        )
        assert (task.state, task.reason, task.failure_reason) == (
            State.FAILED,
            "error",
            "RuntimeError: Out of luck",
        )
        assert (await team.events(task.id)).count("RunFailed") == 2


async def test_a_runner_that_forgets_to_end_its_run_has_failed(any_url: str) -> None:
    class Forgetful(Scripted):
        async def run(self, handle: RunHandle) -> None:
            pass

    async with fleet(any_url) as team:
        await team.hire(Forgetful())
        task = await team.ended(await team.create(limits={"max_attempts": 1}))
        assert (task.reason, task.failure_reason) == (
            "error",
            "The runner returned without ending its run.",
        )
        assert await team.jobs() == []


async def test_the_most_urgent_task_runs_first_and_a_raised_priority_overtakes(
    any_url: str,
) -> None:
    order: list[str] = []

    class Noting(Scripted):
        async def run(self, handle: RunHandle) -> None:
            order.append(handle.task.title)
            await super().run(handle)

    async with fleet(any_url) as team:
        for number, priority in enumerate((3, "urgent", 4, 1, 2, 1)):
            await team.create(title=f"{priority} {number}", priority=priority)
        late = await team.create(title="pushed", priority=4)
        await team.do("UpdateTask", task_id=late, priority="urgent")
        await team.hire(Noting(), concurrency=1)
        await team.idle()
        assert order == ["urgent 1", "pushed", "1 3", "1 5", "2 4", "3 0", "4 2"]


async def test_dependencies_dispatch_themselves(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        first = await team.create(["sleep", 0.05], ["finish", "one"])
        second = await team.create(["finish", "two"])
        third = await team.create(["finish", "three"], depends_on=[first, second])
        fourth = await team.create(["finish", "four"], depends_on=[third])
        assert (await team.ended(fourth)).state is State.DONE
        seen = [await team.task(task_id) for task_id in (first, third, fourth)]
        assert [task.started_at > before.archived_at for before, task in pairwise(seen)] == [  # type: ignore[operator]
            True,
            True,
        ]


async def test_a_failed_dependency_fails_or_releases_by_its_rule(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        broken = await team.create(["raise", "No"], limits={"max_attempts": 1}, status="draft")
        strict = await team.create(depends_on=[broken])
        behind = await team.create(depends_on=[strict])
        lenient = await team.create(depends_on=[{"task_id": broken, "on": "settled"}])
        await team.do("UpdateTask", task_id=broken, status="active")
        assert (await team.ended(strict)).reason == "dependency"
        assert (await team.ended(behind)).reason == "dependency"
        assert (await team.ended(lenient)).state is State.DONE


async def test_a_run_that_the_dead_have_left_is_taken_over_once(any_url: str) -> None:
    async with fleet(any_url) as team:
        task_id = await team.create(["sleep", 0.3], ["finish", "after all"])
        (left,) = (
            await team.core.store.claim(
                Claim("dead", {"agent/general": 0}, room=1, signals=0, lease_seconds=patient(60))
            )
        ).jobs
        await team.core.service.execute(
            cmd.StartRun(task_id=task_id, worker="dead"),
            "system:engine",
            held=HeldJob(Lease(left.id, "dead"), task_id),
        )
        await team.core.store.leave("dead")  # its lease has run out, and those of the living last
        for _ in range(2):
            await team.hire(heartbeat_seconds=patient(60))
        assert (await team.ended(task_id)).state is State.DONE
        assert [name for name in await team.events(task_id) if name.startswith("Run")] == [
            "RunStarted",
            "RunLost",
            "RunStarted",
        ]


async def test_a_task_that_is_pushed_while_it_is_about_to_start_runs_once(any_url: str) -> None:
    async with fleet(any_url) as team:
        task_id = await team.create(["sleep", 0.3], ["finish", "once"])
        (job,) = (
            await team.core.store.claim(
                Claim("slow", {"agent/general": 0}, room=1, signals=0, lease_seconds=patient(60))
            )
        ).jobs
        await team.do("UpdateTask", task_id=task_id, priority=0)
        await team.core.service.execute(
            cmd.StartRun(task_id=task_id, worker="slow"),
            "system:engine",
            held=HeldJob(Lease(job.id, "slow"), task_id),
        )
        assert (
            await team.core.store.claim(
                Claim("other", {"agent/general": 0}, room=1, signals=1, lease_seconds=patient(60))
            )
        ).jobs == []
        assert (await team.events(task_id))[-1] == "RunStarted"
