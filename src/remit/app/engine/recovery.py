"""Safety net: finds and repairs mismatches between tasks and the job queue, from the events."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from remit.app.agent_loop.budget import used
from remit.app.maintenance.verify import UNREPLAYABLE, chain_faults, stream_rows
from remit.app.reading.stored_events import events_of
from remit.app.runs.worker_scope import Scope
from remit.app.service import Service
from remit.domain.projection.document import document_of
from remit.domain.projection.follow_up_jobs import CHECK, RELEASE, TELL, TIMER, Job, signal_job
from remit.domain.records.pick import among
from remit.domain.records.serialize import instant
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Task
from remit.errors import Conflict, Corrupt, UnknownEvent
from remit.ports import Append, Stale, Store, Unit
from remit.store_queries.event_queries import EVENTS_OF
from remit.store_queries.query import Query, TaskNumber, task_ids
from remit.store_queries.queue_queries import QUEUED
from remit.store_queries.recovery_queries import (
    ALARMED,
    DOCUMENTS,
    RUNLESS,
    UNCHECKED,
    UNHEARD,
    UNRELEASED,
    UNTOLD,
    RunWithoutJob,
    TaskAndDocument,
)
from remit.store_queries.task_queries import JOBLESS
from remit.store_queries.tree_queries import BUDGETS, ENDED_CHILDREN, ROOTS, RootBudget

AboutTask = TypeVar("AboutTask", TaskNumber, TaskAndDocument, RunWithoutJob, RootBudget)

SYSTEM = "system:recovery"
PAGE = 500
CENTS_FRACTION = 1e-6
"""How far sums of money may be apart that were added up in different orders."""


class Findings(NamedTuple):
    """Ids of tasks, by what is wrong with them."""

    runnable_without_job: tuple[str, ...] = ()
    stale_runs: tuple[RunWithoutJob, ...] = ()
    """The runs that no worker has: a later run of the same task may be live."""
    parents_not_told: tuple[str, ...] = ()
    dependents_not_told: tuple[str, ...] = ()
    undelivered_updates: tuple[str, ...] = ()
    waiting_without_alarm: tuple[str, ...] = ()
    claims_without_check: tuple[str, ...] = ()
    unreadable_rows: tuple[str, ...] = ()
    """Tasks whose row cannot be read.

    Only the doctor looks for them, since that takes reading every one.
    """
    budgets_below_use: tuple[str, ...] = ()
    """Trees whose ledger says less than their tasks have used, which cannot be repaired.

    A ledger may say more: calls that were lost keep their reservations.
    """

    @property
    def total(self) -> int:
        """Return the number of findings of all kinds."""
        return sum(map(len, self))

    @property
    def beyond_repair(self) -> tuple[str, ...]:
        """Return the kinds among them that cannot be repaired."""
        return ("budgets_below_use",) if self.budgets_below_use else ()

    @property
    def repairable(self) -> int:
        """Return the number of findings that can be repaired."""
        return self.total - sum(len(getattr(self, kind)) for kind in self.beyond_repair)

    def view(self, lost: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the findings as callers see them.

        If rows could not be rebuilt (`lost`), only these are listed as unreadable.
        """
        ids = {kind: list(found) for kind, found in self._asdict().items()}
        ids["stale_runs"] = [str(run.id) for run in self.stale_runs]
        beyond_repair = list(self.beyond_repair)
        if lost:
            ids["unreadable_rows"] = list(lost)
            beyond_repair.insert(0, "unreadable_rows")
        return {
            "left_behind": ids,
            "beyond_repair": beyond_repair,
        }


class Recovery:
    """Compares the queue with the tasks.

    The queue follows from the events, so it can always be rebuilt.
    """

    def __init__(self, store: Store, service: Service, scope: Scope | None = None) -> None:
        self._store, self._service = store, service
        self._scope = scope
        """The trees to look at; without it, all."""

    async def examine(self) -> Findings:
        """Return the mismatches that two looks find: a healthy store changes between reads."""
        first, second = await self._look(), await self._look()
        return Findings(*map(_in_both, first, second))

    async def unreadable(self) -> tuple[str, ...]:
        """Return the tasks whose row cannot be read; rows of a newer remit are readable by it."""
        found: list[str] = []
        async for row in self._rows(DOCUMENTS):
            try:
                document_of(row.doc, row.id)
            except Corrupt:
                found.append(str(row.id))
        return tuple(found)

    async def rebuild(self, task_id: str) -> bool:
        """Rebuild the rows of a task from its events; return False if the events were changed."""
        chain = await self._store.select(EVENTS_OF, {"streams": [task_id]})
        if any(chain_faults(task_id, chain)):
            return False
        guard = Append(task_id, len(chain), ())
        try:
            await self._store.commit(Unit((guard,), tuple(stream_rows(chain))))
        except (Stale, *UNREPLAYABLE):
            return False
        return True

    async def repair(self, findings: Findings | None = None) -> Findings:
        """Repair what is wrong; every repair is safe to repeat."""
        found = findings or await self.examine()
        for task_id in found.runnable_without_job:
            task = await self._service.load(task_id)
            await self._service.put(self._service.jobs.ready_job(task))
        for run in found.stale_runs:
            lost = cmd.LoseRun(task_id=str(run.id), run_id=run.run_id)
            await self._service.execute(lost, SYSTEM)
        await self._signal(TELL, found.parents_not_told)
        await self._signal(RELEASE, found.dependents_not_told)
        await self._signal(CHECK, found.claims_without_check)
        for task_id in found.undelivered_updates:
            await self._wake(task_id)
        for task_id in found.waiting_without_alarm:
            await self._service.put(*(await self._alarms(task_id)).values())
        return found

    async def _signal(self, kind: str, task_ids: tuple[str, ...]) -> None:
        """Queue a missing signal for each of these tasks."""
        tasks = await self._service.tasks(task_ids)
        await self._service.put(*map(partial(signal_job, kind), tasks))

    async def _wake(self, task_id: str) -> None:
        """Queue a run of a task, unless it can no longer run."""
        with suppress(Conflict):
            await self._service.execute(cmd.RunTask(task_id=task_id), SYSTEM)

    async def _look(self) -> Findings:
        """Return what looks wrong at the moment."""
        return Findings(
            runnable_without_job=await self._select_tasks(JOBLESS, self._service.load),
            stale_runs=await self._stale_runs(),
            parents_not_told=await self._select_tasks(UNTOLD, self._has_news),
            dependents_not_told=await self._all_ids(UNRELEASED),
            undelivered_updates=await self._select_tasks(UNHEARD, self._can_wake),
            waiting_without_alarm=await self._select_tasks(ALARMED, self._alarms),
            claims_without_check=await self._all_ids(UNCHECKED),
            budgets_below_use=await self._budgets_below_use(),
        )

    async def _all_ids(self, query: Query[AboutTask]) -> tuple[str, ...]:
        """Return all tasks of a query."""
        return tuple([str(row.id) async for row in self._rows(query)])

    async def _select_tasks(
        self, query: Query[AboutTask], is_wanted: Callable[[str], Awaitable[Any]]
    ) -> tuple[str, ...]:
        """Return the tasks of a query that fulfill a condition."""
        return _ids(await self._select(query, lambda row: is_wanted(str(row.id))))

    async def _select(
        self, query: Query[AboutTask], is_wanted: Callable[[AboutTask], Awaitable[Any]]
    ) -> list[AboutTask]:
        """Return the rows that fulfill a condition.

        Skip tasks that a newer remit wrote, or that cannot be read.
        """
        found: list[AboutTask] = []
        async for row in self._rows(query):
            with suppress(UnknownEvent, Corrupt):
                if await is_wanted(row):
                    found.append(row)
        return found

    async def _stale_runs(self) -> tuple[RunWithoutJob, ...]:
        """Return the runs that have not ended and that no worker has."""
        readable = await self._select(RUNLESS, lambda run: self._service.load(str(run.id)))
        return tuple(readable)

    async def _budgets_below_use(self) -> tuple[str, ...]:
        """Return the roots of trees whose ledger has less than their tasks have used."""
        return _ids(await self._select(BUDGETS, self._is_below_use))

    async def _is_below_use(self, budget: RootBudget) -> bool:
        """Return whether the ledger of a tree has less than its tasks have used."""
        usage = await used(self._store, str(budget.id))
        if budget.tokens < usage.input_tokens + usage.output_tokens:
            return True
        return budget.cost < usage.cost - CENTS_FRACTION

    async def _alarms(self, task_id: str) -> dict[str, Job]:
        """Return the missing jobs for the timers, cron slots and time limit of a task."""
        task = await self._service.load(task_id)
        wanted = await self._timers(task)
        timed = [self._service.jobs.slot_job(task), self._service.jobs.limit_job(task)]
        for job in filter(None, timed):
            wanted[job.key] = job
        queued = await self._store.select(QUEUED, {"names": list(wanted)})
        present = {row.key for row in queued}
        return {key: job for key, job in wanted.items() if key not in present}

    async def _timers(self, task: Task) -> dict[str, Job]:
        """Return the jobs of all timers that a task waits for, by key."""
        refs = _timers_awaited(task)
        if not refs:
            return {}
        jobs = [
            Job(
                key=TIMER + timer.timer_id,
                at=instant(timer.due_at),
                root=int(task.root_id),
            )
            for timer in await events_of(self._store, task.id, ev.TimerSet)
            if timer.timer_id in refs
        ]
        return {job.key: job for job in jobs}

    async def _has_news(self, task_id: str) -> bool:
        """Return whether a task has not been told of the end of a subtask."""
        rows = await self._store.select(ENDED_CHILDREN, {"id": int(task_id)})
        ended = set(task_ids(rows))
        task = await self._service.load(task_id)
        return any(child.holds and child.id in ended for child in task.children)

    async def _can_wake(self, task_id: str) -> bool:
        """Return whether a task waits without need of an answer, so that an update wakes it."""
        task = await self._service.load(task_id)
        return task.wait is not None and not task.wait.holds

    async def _rows(self, query: Query[AboutTask]) -> AsyncIterator[AboutTask]:
        """Yield the rows of a query about the trees that this process looks at."""
        after = 0
        while rows := await self._store.select(query, {"after": after, "limit": PAGE}):
            for row in await self._in_scope(rows):
                yield row
            after = rows[-1].id
            if len(rows) < PAGE:
                return

    async def _in_scope(self, rows: list[AboutTask]) -> list[AboutTask]:
        """Return the rows about trees that this process looks at."""
        if self._scope is None:
            return rows
        found = await self._store.select(ROOTS, {"ids": [row.id for row in rows]})
        roots = {row.id: row.root_id for row in found}
        return [row for row in rows if roots.get(row.id) in self._scope]


def _timers_awaited(task: Task) -> list[str]:
    """Return the ids of the timers that a task waits for."""
    return [item.ref for item in task.waits_on if item.kind == "timer"]


def _ids(rows: Sequence[AboutTask]) -> tuple[str, ...]:
    """Return the ids of the tasks that rows are about."""
    return tuple(str(row.id) for row in rows)


def _in_both(before: Sequence[Any], now: Sequence[Any]) -> tuple[Any, ...]:
    """Return what both looks found."""
    return tuple(among(now, before))
