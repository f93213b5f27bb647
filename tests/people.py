"""Short ways to say in tests what callers do all the time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.engine.scheduler import Scheduler
from remit.app.engine.worker import Worker
from remit.app.maintenance.verify import verify
from remit.app.reading.query_handlers import Asking, ask
from remit.app.service import Outcome, Service
from remit.bootstrap import open_store
from remit.domain.records.serialize import instant
from remit.domain.task import commands as cmd
from remit.ports import Claim, EventStore, Store
from remit.store_queries.event_queries import EVENTS
from remit.testing import Scripted
from tests.patience import patient

ANN = "user:ann"


class Desk:
    """A store with somebody at it: says commands by name and reads the answers."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.service = Service(store, SystemClock(), AgentRegistry())

    async def do(
        self, command: str, actor: str = ANN, run_id: str | None = None, **fields: Any
    ) -> Outcome:
        """Carry out a command by its name, such as CreateTask."""
        return await self.service.do(getattr(cmd, command), fields, actor, run_id)

    async def carry_news(self) -> None:
        """Do what a worker does soon after: tell parents and dependents. Runs are left alone."""
        clock, store = SystemClock(), cast("Store", self.store)
        clerk = Worker(
            store,
            self.service,
            clock,
            Scripted(),
            "clerk",
            Scheduler(store, self.service, clock, "0 6 * * *", 10.0),
        )
        while jobs := (
            await store.claim(Claim("clerk", {}, room=0, signals=100, lease_seconds=patient(60)))
        ).jobs:
            for job in jobs:
                await clerk.handle(job)

    async def create(self, title: str = "Write the report", **fields: Any) -> str:
        """The id of a new task."""
        return (await self.do("CreateTask", title=title, **fields)).task_id

    async def start(self, task_id: str) -> str:
        """The id of a new run."""
        started = await self.do("StartRun", "system:engine", task_id=task_id, worker="w1")
        assert started.task is not None
        assert started.task.run is not None
        return started.task.run.id

    async def ask(self, question: Asking[Any]) -> Any:
        """The answer to a question of app/query."""
        return await ask(question, self.store.select)

    async def get(self, task_id: str) -> dict[str, Any]:
        """A task as callers see it."""
        from remit.app.reading.query_handlers import get_task

        shown: dict[str, Any] = await self.ask(get_task(task_id, now=instant(SystemClock().now())))
        return shown

    async def events(self, task_id: str) -> list[str]:
        """The names of a task's events."""
        rows = await self.store.select(EVENTS, {"stream": task_id, "after": 0, "limit": 10_000})
        return [row.type for row in rows]

    async def must_hold_together(self) -> None:
        """Every chain, version and row is right."""
        report = await verify(self.store)
        assert report.faults == ()
        assert report.events > 0


@asynccontextmanager
async def desk(url: str) -> AsyncIterator[Desk]:
    """A desk on the store that a URL names."""
    async with open_store(url) as store:
        yield Desk(store)
