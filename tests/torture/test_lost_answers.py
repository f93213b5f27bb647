"""Commits whose answer is lost while a fleet works: whatever is sent again, no run, effect, wake
or job is doubled.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.context import AppContext
from remit.bootstrap import open_store
from remit.bootstrap.embedded_worker import WorkerOptions, working
from remit.domain.task import commands as cmd
from remit.errors import Conflict, Unacknowledged
from remit.ports import Claim, ClaimResult, Lease, Store, Topic, Watch, WorkerRow
from remit.store_queries.queue_queries import JOBS
from remit.store_queries.record_queries import INTERACTIONS
from remit.testing import Scripted
from tests.crash.around import LosesAnswers
from tests.patience import patient
from tests.torture import checker
from tests.torture.checker import Faults, History, Limits
from tests.torture.client import Mix
from tests.torture.worker import NEVER

TASKS = 200


class Unreliable(LosesAnswers):
    """A whole store of which many commits are not heard of again, before or after they happened.

    The queue answers.
    """

    def __init__(self, store: Store, random: Random) -> None:
        super().__init__(store, random, before=0.05, after=0.15)
        self._queue = store

    def now(self) -> datetime:
        return self._queue.now()

    async def claim(self, claim: Claim) -> ClaimResult:
        return await self._queue.claim(claim)

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        return await self._queue.beat(row, jobs)

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        await self._queue.give_back(lease, delay_seconds)

    async def leave(self, worker: str) -> None:
        await self._queue.leave(worker)

    async def workers(self) -> list[WorkerRow]:
        return await self._queue.workers()

    def watch(self, topic: Topic = "events") -> AbstractAsyncContextManager[Watch]:
        return self._queue.watch(topic)


def written(folder: Path) -> list[str]:
    """The lines of the effects."""
    return [line for path in folder.glob("effects-*") for line in path.read_text().splitlines()]


class Caller:
    """A caller that repeats a call until there is an answer, and records it."""

    def __init__(self, core: AppContext) -> None:
        self._core = core
        self.log: list[dict[str, Any]] = []

    async def do(self, command: str, fields: dict[str, Any]) -> None:
        """Carry out a command; one that was carried out before its answer was lost is refused
        the second time.
        """
        line = {"call": "ann/1", "command": command, "fields": fields}
        while True:
            self.log.append({"asked": line})
            try:
                outcome = await self._core.service.do(getattr(cmd, command), fields, "user:ann")
            except Unacknowledged:
                continue
            except Conflict:
                return
            self.log.append(
                {
                    "acked": line,
                    "task": outcome.task_id,
                    "updates": outcome.update_ids,
                    "canceled": outcome.canceled,
                }
            )
            return

    async def answer_until_quiet(self) -> None:
        """Answer every question until nothing is left to do."""
        asked = {"statuses": ["open"], "task": None, "after": 0, "number": 0, "limit": 1000}
        async with asyncio.timeout(patient(60)), self._core.store.watch() as bell:
            while True:
                questions = await self._core.store.select(INTERACTIONS, asked)
                for row in questions:
                    await self.do(
                        "Respond", {"interaction_id": row.interaction_id, "answer": "So be it"}
                    )
                jobs = [
                    row.key
                    for row in await self._core.store.select(JOBS, {"limit": 1000})
                    if not row.key.startswith("tick")
                ]
                if not jobs and not questions:
                    return
                await bell.wait()


async def test_answers_that_are_lost_under_load_double_nothing(
    durable_url: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("REMIT_TORTURE_SEED") or SystemRandom().randrange(10**6))
    print(f"seed {seed}")
    began = datetime.now(UTC)
    random = Random(seed)
    async with open_store(durable_url) as store, AsyncExitStack() as stack:
        stores = [Unreliable(store, random) for _ in range(3)]
        cores = [AppContext(each, SystemClock("UTC", each.now), AgentRegistry()) for each in stores]
        for core in cores[1:]:
            await stack.enter_async_context(
                working(core, Scripted(), WorkerOptions(heartbeat_seconds=patient(20), cron=NEVER))
            )
        caller, mix = Caller(cores[0]), Mix(random, tmp_path, "ann", TASKS)
        async with asyncio.TaskGroup() as group:
            while mix.made < TASKS:
                fields = mix.tree(2) if random.random() < 0.3 else mix.small()
                group.create_task(
                    caller.do("CreateTask", {"idempotency_key": fields["title"], **fields})
                )
        await caller.answer_until_quiet()
        assert sum(each.lost_after for each in stores) > 100, f"seed {seed}"
    raw = await asyncio.to_thread(checker.read, durable_url)
    effects = written(tmp_path)
    # A worker that hears of nothing six times in a row gives its run up, and says so.
    history = History(
        raw, caller.log, effects, Faults(spans=((began, datetime.now(UTC)),)), Limits()
    )
    assert checker.violations(history) == [], f"seed {seed}"
