"""Each wake of a task leads to one run, for any number of repetitions and workers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remit.domain.projection.follow_up_jobs import TIMER, Job
from remit.domain.task.task import State
from remit.errors import Conflict
from tests.engine.fleet import Fleet, fleet
from tests.torture.worker import NEVER

AT_ONCE = 8
TURNS: dict[str, Any] = {"completion": "explicit", "metadata": {"script": [["wait"]] * 9}}
"""A task that never ends by itself: each run of it ends with waiting for its turn, so that one
too many would be seen.
"""

Wake = Callable[[Fleet], Awaitable[str]]


async def insist(team: Fleet, command: str, **fields: Any) -> None:
    """Say the same many times at once; it is done, or refused because it was."""
    said = await asyncio.gather(
        *(team.do(command, **fields) for _ in range(AT_ONCE)), return_exceptions=True
    )
    assert [
        one for one in said if isinstance(one, BaseException) and not isinstance(one, Conflict)
    ] == []
    assert any(isinstance(one, str) for one in said)


async def rests(team: Fleet, task_id: str, runs: int) -> None:
    """Wait until a task has had this many runs and waits, and the queue is idle."""
    await team.until(task_id, lambda task: task.counts.runs >= runs and task.state is State.WAITING)
    await team.idle()
    assert (await team.task(task_id)).counts.runs == runs


async def created(team: Fleet) -> str:
    same = {**TURNS, "title": "Work", "owner": "general", "idempotency_key": "once"}
    made = await asyncio.gather(*(team.do("CreateTask", **same) for _ in range(AT_ONCE)))
    assert len(set(made)) == 1
    return made[0]


async def activated(team: Fleet) -> str:
    task_id = await team.create(**TURNS, status="draft")
    await insist(team, "UpdateTask", task_id=task_id, status="active")
    return task_id


async def dependency_done(team: Fleet) -> str:
    needed = [await team.create(owner=None) for _ in range(3)]
    task_id = await team.create(**TURNS, depends_on=needed)
    await asyncio.gather(*(team.do("CompleteTask", task_id=one) for one in needed))
    return task_id


async def resumed(team: Fleet) -> str:
    held = await team.create(owner=None)
    task_id = await team.create(**TURNS, depends_on=[held])
    await team.do("PauseTask", task_id=task_id)
    await team.do("CompleteTask", task_id=held)
    await team.idle()
    assert (await team.task(task_id)).counts.runs == 0
    await insist(team, "ResumeTask", task_id=task_id)
    return task_id


@pytest.mark.parametrize("wake", [created, activated, dependency_done, resumed])
async def test_each_start_condition_starts_one_run(any_url: str, wake: Wake) -> None:
    async with fleet(any_url) as team:
        for _ in range(3):
            await team.hire(agents=("general",), cron=NEVER)
        await rests(team, await wake(team), runs=1)


async def subtask_settled(team: Fleet, task_id: str) -> None:
    child = (await team.task(task_id)).children[0].id
    await insist(team, "CompleteTask", task_id=child)


async def answered(team: Fleet, task_id: str) -> None:
    question = (await team.task(task_id)).questions[0].id
    await insist(team, "Respond", interaction_id=question, answer="Yes")


async def updated(team: Fleet, task_id: str) -> None:
    await team.do("UpdateTask", task_id=task_id, instructions="Otherwise", acceptance=["Well done"])


async def told(team: Fleet, task_id: str) -> None:
    await team.do("SendMessage", task_id=task_id, message="Go on")


async def run_now(team: Fleet, task_id: str) -> None:
    await insist(team, "RunTask", task_id=task_id)


async def time_came(team: Fleet, task_id: str) -> None:
    """The time of its timer, which is far away, is now: the same job, due at once."""
    wait = (await team.task(task_id)).wait
    assert wait is not None
    await asyncio.gather(
        *(team.core.service.put(Job(key=TIMER + wait.on[0].ref)) for _ in range(AT_ONCE))
    )


FOR_NOBODY = {"title": "Below", "owner": "plan"}
"""A subtask that no worker here works on: it ends when a person says so."""
GOES_ON: dict[str, tuple[list[Any], Callable[[Fleet, str], Awaitable[None]], str]] = {
    "a subtask settled that was blocked on": (
        ["block", FOR_NOBODY],
        subtask_settled,
        "SubtaskSettled",
    ),
    "a subtask settled that wakes": (["children", [FOR_NOBODY]], subtask_settled, "SubtaskSettled"),
    "an answer": (["ask", "Shall I?"], answered, "UserInteractionResponded"),
    "an update": (["wait"], updated, "TaskWoken"),
    "a message": (["wait"], told, "TaskWoken"),
    "a word to run": (["wait"], run_now, "TaskWoken"),
    "a timer": (["timer", 3600], time_came, "TimerFired"),
}


@pytest.mark.parametrize("kind", GOES_ON)
async def test_each_awaited_event_starts_one_more_run(any_url: str, kind: str) -> None:
    first, wake, event = GOES_ON[kind]
    async with fleet(any_url) as team:
        begins = await team.hire(agents=("general",), cron=NEVER)
        task_id = await team.create(first, *[["wait"]] * 9, completion="explicit")
        await team.until(
            task_id, lambda task: task.counts.runs == 1 and task.state is State.WAITING
        )
        begins.stop()
        await team.staff(0)
        # Without a worker: a message after the resulting run would be another wake.
        await wake(team, task_id)
        for _ in range(3):
            await team.hire(agents=("general",), cron=NEVER)
        await rests(team, task_id, runs=2)
        assert (await team.events(task_id)).count(event) == 1
