"""Commits whose answer is lost, before or after they happened: sent again, they are stored once,
on every store.
"""

import asyncio
from random import Random
from typing import Any

import pytest

from remit.bootstrap import open_store
from remit.errors import Unacknowledged
from remit.ports import EventStore
from remit.store_queries.task_queries import TASKS
from tests.crash.around import LosesAnswers
from tests.crash.history import Event, Raw, must_be_one_history
from tests.people import ANN, Desk

CALLERS = 30
TURNS = 10


class Caller:
    """Somebody who does a bit of everything to tasks that others change too, and writes down
    what came of it.
    """

    def __init__(self, at: Desk, random: Random, shared: list[str]) -> None:
        self.at, self.random, self.shared = at, random, shared
        self.acknowledged: list[tuple[str, str, int]] = []
        self.unsure = 0

    async def work(self) -> None:
        """Many changes; each is acknowledged, or its caller reads that the outcome is unknown."""
        for turn in range(TURNS):
            try:
                await self._turn(turn)
            except Unacknowledged:
                self.unsure += 1

    async def _turn(self, turn: int) -> None:
        task = self.random.choice(self.shared)
        match self.random.randrange(6):
            case 0:
                made = await self._do(
                    "CreateTask",
                    title="New",
                    owner="general",
                    labels=["a", f"n{turn}"],
                    idempotency_key=f"{id(self)}-{turn}",
                )
                await self._do("UpdateTask", task_id=made, owner="plan", labels=["b"])
            case 1:
                child = await self._do("CreateSubtask", task_id=task, title="Part", owner="explore")
                await self._do("CompleteTask", task_id=child, summary="Done.")
            case 2:
                await self._do(
                    "UpdateTask",
                    task_id=task,
                    instructions=f"Version {turn} of {id(self)}.",
                    priority=turn % 5,
                )
            case 3:
                first = await self._do("CreateTask", title="First", owner="general")
                await self._do("CreateTask", title="Second", owner="general", depends_on=[first])
                await self._do("CancelTask", task_id=first)
            case _:
                await self._do(
                    "SendMessage", task_id=task, message=f"Message {turn} of {id(self)}."
                )

    async def _do(self, command: str, **fields: Any) -> str:
        outcome = await self.at.do(command, ANN, **fields)
        self.acknowledged += [(entry.id, entry.stream, entry.version) for entry in outcome.entries]
        return outcome.task_id


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.3), (0.25, 0.1)], ids=["after", "around"])
async def test_whatever_answers_are_lost_every_command_is_stored_once(
    any_url: str, before: float, after: float
) -> None:
    seed = 7
    async with open_store(any_url) as store:
        unreliable = LosesAnswers(store, Random(seed), before=before, after=after)
        shared = [
            await Desk(store).create(f"Shared {n}", owner="build", limits={"max_children": 10_000})
            for n in range(3)
        ]
        callers = [
            Caller(Desk(unreliable), Random(seed + number), shared) for number in range(CALLERS)
        ]
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(caller.work())

        raw = await raw_of(store)
        must_be_one_history(raw)
        there = [(event.id, event.stream, event.version) for event in raw.events]
        acknowledged = [place for caller in callers for place in caller.acknowledged]
        assert len(set(acknowledged)) == len(acknowledged), f"seed {seed}"
        assert set(acknowledged) <= set(there), f"seed {seed}"
        assert sum(caller.unsure for caller in callers) < 0.2 * CALLERS * TURNS, (
            "most of it succeeded"
        )
        assert unreliable.lost_before + unreliable.lost_after > 100, "many answers were lost"
        await Desk(store).must_hold_together()


async def raw_of(store: EventStore) -> Raw:
    """The events of any store; each task has a row if its number is listed."""
    events = [Event(*recorded.event) for recorded in await store.feed("", 100_000)]
    streams = [int(event.stream) for event in events if event.type == "TaskCreated"]
    return Raw(events, [row.id for row in await store.select(TASKS, {"ids": sorted(streams)})])


async def test_a_key_whose_answer_was_lost_returns_the_created_task(
    any_url: str,
) -> None:
    async with open_store(any_url) as store:
        with pytest.raises(Unacknowledged):
            await Desk(LosesAnswers(store, Random(0), before=0.0, after=1.0)).create(
                "Once", idempotency_key="k"
            )
        at = Desk(store)
        assert await at.create("Once", idempotency_key="k") == "1"
        assert [recorded.event.type for recorded in await store.feed("", 10)] == [
            "TaskCreated",
            "KeyClaimed",
        ]
        await at.must_hold_together()
