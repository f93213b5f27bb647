"""A wait for tasks that cannot end is reported to the caller.

It gets the results so far, and the work continues.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from remit.bootstrap.server import stopping
from remit.catalog import Caller, attend, call
from remit.errors import Unavailable
from tests.engine.fleet import ANN, Fleet, fleet
from tests.patience import patient

ME = Caller(actor=ANN)


@pytest.fixture
async def team(durable_url: str) -> AsyncIterator[Fleet]:
    """A worker whose runs take as long as callers wait."""
    async with fleet(durable_url) as found:
        yield found


async def streamed(team: Fleet, operation: str, **fields: Any) -> list[Any]:
    return [item async for item in attend(team.core, operation, fields, ME)]


async def test_every_wait_ends_and_none_begins(team: Fleet) -> None:
    first, second, done = [await team.create() for _ in range(3)]
    await team.do("CompleteTask", task_id=done, summary="There.")
    waiting = [
        asyncio.create_task(
            call(team.core, "task_output", {"task_id": first, "wait_seconds": 600}, ME)
        ),
        asyncio.create_task(streamed(team, "task_output", task_id=second, wait_seconds=600)),
    ]
    async with asyncio.timeout(patient(20)):
        while len(team.core.waits) < 2:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    team.core.waits.end(stopping)
    team.core.waits.end(partial(Unavailable, "Another reason."))
    ended = [*await asyncio.gather(*waiting, return_exceptions=True)]
    ended += await asyncio.gather(
        call(team.core, "task_output", {"task_id": first, "wait_seconds": 600}, ME),
        return_exceptions=True,
    )
    assert [(str(error), error.details) for error in ended if isinstance(error, Unavailable)] == [
        (str(stopping({"task_id": task_id})), {"task_id": task_id})
        for task_id in (first, second, first)
    ]
    known = await call(team.core, "task_output", {"task_id": done, "wait_seconds": 600}, ME)
    assert known["data"]["result"] == "There.", "what is there is told"
    assert (await call(team.core, "task_output", {"task_id": first}, ME))["data"][
        "status"
    ] == "running"
    assert len(team.core.waits) == 0


async def test_a_wait_ends_although_the_store_is_silent(
    team: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"task_id": await team.create(), "wait_seconds": 600}
    is_asked = asyncio.Event()

    async def say_nothing(*_: object) -> None:
        is_asked.set()
        await asyncio.Event().wait()

    waiting = asyncio.create_task(call(team.core, "task_output", fields, ME))
    async with asyncio.timeout(patient(20)):
        while not team.core.waits:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        monkeypatch.setattr(team.core.store, "select", say_nothing)
        await is_asked.wait()
        team.core.waits.end(stopping)
        with pytest.raises(Unavailable, match=r"stopping"):
            await waiting


async def test_a_wait_that_is_over_in_the_same_moment_is_let_be(team: Fleet) -> None:
    task_id = await team.create()
    loop = asyncio.get_running_loop()
    async with team.core.store.watch() as bell:
        await bell.wait()
        until = loop.time() + 0.05
        waiting = asyncio.create_task(team.core.waits.wait(bell, until, [task_id]))
        loop.call_at(until, team.core.waits.end, stopping)
        with pytest.raises(Unavailable):
            await waiting
