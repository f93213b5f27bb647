"""What is left behind when something went wrong that cannot go wrong: found, and put right from the events."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from remit.app.purse import used
from remit.app.scope import Scope
from remit.app.service import Service
from remit.app.verify import UNREPLAYABLE, chain_faults, stream_rows
from remit.codec import opened
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.document import document_of
from remit.domain.due import CHECK, RELEASE, TELL, TIMER, Job, signal_job
from remit.domain.value import Task
from remit.domain.wire import instant
from remit.errors import Conflict, Corrupt, UnknownEvent
from remit.ports import Append, Stale, Store, Unit

SYSTEM = "system:recovery"
PAGE = 500
CENTS_FRACTION = 1e-6
"""How far sums of money may be apart that were added up in different orders."""


class Findings(NamedTuple):
    """Ids of tasks, by what is wrong with them."""

    runnable_without_job: tuple[str, ...] = ()
    stale_runs: tuple[str, ...] = ()
    parents_not_told: tuple[str, ...] = ()
    dependents_not_told: tuple[str, ...] = ()
    undelivered_updates: tuple[str, ...] = ()
    waiting_without_alarm: tuple[str, ...] = ()
    claims_without_check: tuple[str, ...] = ()
    unreadable_rows: tuple[str, ...] = ()
    """Tasks whose row cannot be read. Only the doctor looks for them, since that takes reading every one."""
    budgets_below_use: tuple[str, ...] = ()
    """Trees whose ledger says less than their tasks have used. Nothing puts that right; more is what lost calls were given."""

    @property
    def total(self) -> int:
        """How many there are of all kinds."""
        return sum(len(found) for found in self)

    @property
    def beyond_repair(self) -> tuple[str, ...]:
        """The kinds among them that nothing puts right."""
        return ("budgets_below_use",) if self.budgets_below_use else ()

    @property
    def repairable(self) -> int:
        """How many of them can be put right."""
        return self.total - sum(len(getattr(self, kind)) for kind in self.beyond_repair)

    def view(self, lost: tuple[str, ...] = ()) -> dict[str, Any]:
        """What was found, as callers see it; the rows that could not be made anew are named alone."""
        seen, beyond = (self._replace(unreadable_rows=lost), ("unreadable_rows",)) if lost else (self, ())
        return {"left_behind": {kind: list(ids) for kind, ids in seen._asdict().items()}, "beyond_repair": [*beyond, *self.beyond_repair]}


class Recovery:
    """Compares the queue with the tasks; the queue follows from the events and can always be made anew."""

    def __init__(self, store: Store, service: Service, scope: Scope | None = None) -> None:
        self._store, self._service = store, service
        self._scope = scope
        """The trees to look at; without it, all."""

    async def examine(self) -> Findings:
        """What is wrong; looked at twice, since a healthy store changes while one looks."""
        first, second = await self._look(), await self._look()
        return Findings(*(tuple(item for item in now if item in before) for before, now in zip(first, second, strict=True)))

    async def unreadable(self) -> tuple[str, ...]:
        """The tasks whose row cannot be read; what a newer remit wrote can be, by it."""
        found: list[str] = []
        async for task_id, document in self._rows("documents"):
            try:
                document_of(document, task_id)
            except Corrupt:
                found.append(str(task_id))
        return tuple(found)

    async def rebuild(self, task_id: str) -> bool:
        """Make the rows of a task anew from its events, if these are as they were written; whether they were."""
        chain = [ev.Stored(*row) for row in await self._store.select("events_of", {"streams": [task_id]})]
        if any(chain_faults(task_id, chain)):
            return False
        try:
            await self._store.commit(Unit((Append(task_id, len(chain), ()),), tuple(stream_rows(chain))))
        except (Stale, *UNREPLAYABLE):
            return False
        return True

    async def repair(self, findings: Findings | None = None) -> Findings:
        """Put right what is wrong; all of it is safe to do twice."""
        found = findings or await self.examine()
        for task_id in found.runnable_without_job:
            await self._service.put(self._service.ready_job(await self._service.load(task_id)))
        for task_id in found.stale_runs:
            task = await self._service.load(task_id)
            if task.run is not None:
                await self._service.execute(cmd.LoseRun(task_id=task_id, run_id=task.run.id), SYSTEM)
        for kind, ids in (
            (TELL, found.parents_not_told),
            (RELEASE, found.dependents_not_told),
            (CHECK, found.claims_without_check),
        ):
            await self._service.put(*[signal_job(kind, task) for task in await self._service.tasks(ids)])
        for task_id in found.undelivered_updates:
            await self._wake(task_id)
        for task_id in found.waiting_without_alarm:
            await self._service.put(*(await self._alarms(task_id)).values())
        return found

    async def _wake(self, task_id: str) -> None:
        try:
            await self._service.execute(cmd.RunTask(task_id=task_id), SYSTEM)
        except Conflict:
            return

    async def _look(self) -> Findings:
        return Findings(
            runnable_without_job=await self._such("jobless", self._known),
            stale_runs=await self._such("runless", self._known),
            parents_not_told=await self._such("untold", self._has_news),
            dependents_not_told=tuple([str(row[0]) async for row in self._rows("unreleased")]),
            undelivered_updates=await self._such("unheard", self._could_hear),
            waiting_without_alarm=await self._such("alarmed", self._alarms),
            claims_without_check=tuple([str(row[0]) async for row in self._rows("unchecked")]),
            budgets_below_use=await self._such("budgets", self._is_below_use),
        )

    async def _such(self, query: str, wanted: Callable[..., Awaitable[Any]]) -> tuple[str, ...]:
        """The tasks of a query of which something is true; those that a newer remit wrote, or that nobody can read, are left alone."""
        found: list[str] = []
        async for row in self._rows(query):
            with suppress(UnknownEvent, Corrupt):
                if await wanted(str(row[0]), *row[1:]):
                    found.append(str(row[0]))
        return tuple(found)

    async def _known(self, task_id: str, *_: str) -> Task:
        return await self._service.load(task_id)

    async def _is_below_use(self, root: str, tokens: int, cost: float) -> bool:
        usage = await used(self._store, root)
        return tokens < usage.input_tokens + usage.output_tokens or cost < usage.cost - CENTS_FRACTION

    async def _alarms(self, task_id: str) -> dict[str, Job]:
        """The timers, turns and ends of time that a task waits for and that no job stands for."""
        task = await self._service.load(task_id)
        timers = [item.ref for item in (task.wait.on if task.wait else ()) if item.kind == "timer"]
        wanted = await self._timers(task, timers) if timers else {}
        if (turn := self._service.slot_job(task)) is not None:
            wanted[turn.key] = turn
        if (limit := self._service.limit_job(task)) is not None:
            wanted[limit.key] = limit
        there = {row[0] for row in await self._store.select("queued", {"names": list(wanted)})}
        return {key: job for key, job in wanted.items() if key not in there}

    async def _timers(self, task: Task, refs: list[str]) -> dict[str, Job]:
        rows = await self._store.select("events", {"stream": task.id, "after": 0, "limit": 1_000_000})
        events = [opened(ev.Stored(*row[:8])).event for row in rows if row[3] == "TimerSet"]
        timers = [event for event in events if isinstance(event, ev.TimerSet) and event.timer_id in refs]
        root = int(task.root_id)
        jobs = [Job(key=TIMER + event.timer_id, at=instant(event.due_at), root=root) for event in timers]
        return {job.key: job for job in jobs}

    async def _has_news(self, task_id: str) -> bool:
        ended = {str(row[0]) for row in await self._store.select("ended_children", {"id": int(task_id)})}
        children = (await self._service.load(task_id)).children
        return any(child.id in ended and child.settled is None and child.wait != "none" for child in children)

    async def _could_hear(self, task_id: str) -> bool:
        """Whether a task waits for nothing that an update has to wait for too."""
        task = await self._service.load(task_id)
        return task.wait is not None and not task.wait.holds

    async def _rows(self, query: str) -> AsyncIterator[tuple[Any, ...]]:
        after = 0
        while rows := await self._store.select(query, {"after": after, "limit": PAGE}):
            for row in await self._in_scope(rows):
                yield row
            after = rows[-1][0]
            if len(rows) < PAGE:
                return

    async def _in_scope(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Those of some rows that are about trees to look at; the first column is the id of a task."""
        if self._scope is None:
            return rows
        roots: dict[int, int] = dict(await self._store.select("roots", {"ids": [row[0] for row in rows]}))
        return [row for row in rows if roots.get(row[0]) in self._scope]
