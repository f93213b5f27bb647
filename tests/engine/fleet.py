"""Workers in this process, and ways to wait for what they do."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import BUILT_IN, Agent, AgentRegistry
from remit.app.context import AppContext
from remit.bootstrap import open_store
from remit.bootstrap.embedded_worker import RunningWorker, WorkerOptions, working
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task.task import Task
from remit.ports import Runner, WorkerRow
from remit.store_queries.event_queries import EVENTS
from remit.store_queries.queue_queries import JOBS
from remit.testing import Scripted
from tests.patience import patient

ANN = "user:ann"


class Fleet:
    """A store, and as many workers on it as a test wants."""

    def __init__(self, core: AppContext, stack: AsyncExitStack) -> None:
        self.core, self._stack = core, stack

    async def hire(self, runner: Runner | None = None, **options: Any) -> RunningWorker:
        """One more worker; it leaves at the end of the test."""
        chosen = WorkerOptions(**{"heartbeat_seconds": patient(5), **options})
        return await self._stack.enter_async_context(
            working(self.core, runner or Scripted(), chosen)
        )

    async def do(self, command: str, actor: str = ANN, **fields: Any) -> str:
        """Carry out a command; the id of its task."""
        return (
            await self.core.service.execute(parse(getattr(cmd, command), fields), actor)
        ).task_id

    async def create(self, *script: list[Any], **fields: Any) -> str:
        """A new task for the scripted runner."""
        return await self.do(
            "CreateTask",
            **{"title": "Work", "owner": "general", "metadata": {"script": list(script)}, **fields},
        )

    async def task(self, task_id: str) -> Task:
        """A task as it is now."""
        return await self.core.service.load(task_id)

    async def until(self, task_id: str, what: Callable[[Task], bool]) -> Task:
        """Wait, without polling, until a task is as it should be."""
        async with asyncio.timeout(patient(20)), self.core.store.watch() as bell:
            while not what(task := await self.task(task_id)):
                await bell.wait()
            return task

    async def ended(self, task_id: str) -> Task:
        """Wait for the end of a task."""
        return await self.until(task_id, lambda task: task.state.terminal)

    async def idle(self) -> None:
        """Wait until no job is left but the tick."""
        async with asyncio.timeout(patient(20)), self.core.store.watch() as bell:
            while await self.jobs():
                await bell.wait()

    async def staff(self, count: int) -> list[WorkerRow]:
        """Wait until so many workers are known."""
        async with asyncio.timeout(patient(20)):
            rows = await self.core.store.workers()
            while len(rows) != count:  # a heartbeat rings no bell
                await asyncio.sleep(0.01)
                rows = await self.core.store.workers()
            return rows

    async def events(self, task_id: str) -> list[str]:
        """The names of a task's events."""
        return [
            row.type
            for row in await self.core.store.select(
                EVENTS, {"stream": task_id, "after": 0, "limit": 10_000}
            )
        ]

    async def history(self) -> list[tuple[str, str]]:
        """The stream and the name of every event, in the order of all."""
        return [(event.stream, event.type) for _, event in await self.core.store.feed("", 10_000)]

    async def jobs(self) -> list[str]:
        """The keys of all jobs but the tick."""
        return [
            row.key
            for row in await self.core.store.select(JOBS, {"limit": 100_000})
            if not row.key.startswith("tick")
        ]


@asynccontextmanager
async def fleet(url: str, agents: Sequence[Agent] = ()) -> AsyncIterator[Fleet]:
    """A fleet without workers on the store that a URL names.

    Agents beside the built-in ones can be named.
    """
    async with open_store(url) as store, AsyncExitStack() as stack:
        yield Fleet(
            AppContext(store, SystemClock("UTC", store.now), AgentRegistry((*BUILT_IN, *agents))),
            stack,
        )
