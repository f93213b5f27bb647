"""The only writer: every change of a task goes through `Service.execute`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, cast

from remit.app.writing.drafting import Drafter
from remit.app.writing.job_plans import JobPlans
from remit.app.writing.plan_lookups import LookFor, PlanLookups
from remit.app.writing.task_cache import LoadedTask, Seen, TaskCache, seen_task
from remit.app.writing.unit_draft import UnitDraft
from remit.domain.decisions.context import Context
from remit.domain.decisions.runs import check_fence
from remit.domain.planning.lookups import Plan
from remit.domain.planning.plan import plan
from remit.domain.projection.follow_up_jobs import (
    Job,
)
from remit.domain.projection.rows import Change
from remit.domain.records.record import replace
from remit.domain.records.validate import check, parse
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Actor, Task
from remit.errors import NotFound, RemitError, StaleRun, Unacknowledged, Unavailable
from remit.ports import Agents, Append, Clock, Debit, EventStore, Lease, LeaseLost, Stale, Unit
from remit.store_queries.queue_queries import HELD

RACES = 200
"""How often a command is decided again after a concurrent write."""
ENGINE = "system:"
"""How the actors of the engine begin."""
KNOWN_ACTORS = 1000
RESENDS = 6
"""How often a commit is sent if its acknowledgment gets lost."""
RESEND_SECONDS = 10.0
"""For how long such a commit is sent again; a store that retries by itself may take this long."""

UPDATES = (ev.InstructionsUpdated, ev.AcceptanceUpdated, ev.OutputsUpdated, ev.MessageSent)
"""Events that queue an update for the agent."""


class Outcome(NamedTuple):
    """The outcome of a command: its task, all appended entries, and the task before."""

    task_id: str
    task: Task | None
    entries: tuple[ev.Entry, ...]
    refused: RemitError | None = None
    """Why the command was refused, if the refusal itself was recorded."""
    before: Task | None = None

    @property
    def update_ids(self) -> tuple[str, ...]:
        """Ids of the updates that the command made for the agent of the task.

        The first instructions of a successor include all changes; no update tells of them.
        """
        own = [entry.event for entry in self.entries if entry.stream == self.task_id]
        if any(isinstance(event, ev.TaskCreated) for event in own):
            return ()
        return tuple(event.update_id for event in own if isinstance(event, UPDATES))

    @property
    def canceled(self) -> tuple[str, ...]:
        """Ids of the tasks that were canceled."""
        return tuple(
            entry.stream for entry in self.entries if isinstance(entry.event, ev.TaskCanceled)
        )


Observer = Callable[[Sequence[ev.Entry], Mapping[str, Task], Mapping[str, Task]], None]
"""Called with the entries of a commit, the tasks before it, and the tasks after it."""


class HeldJob:
    """The job that a worker carries out, with its task as of the worker's last write.

    The cached task saves reading it again.
    """

    def __init__(
        self, lease: Lease, task_id: str = "", *, ack: bool = False, seen: LoadedTask | None = None
    ) -> None:
        self.lease, self.task_id, self.ack = lease, task_id, ack
        self.last_seen_at: datetime | None = None
        """The last heartbeat of the worker that held the job before."""
        self.seen: Seen = {} if seen is None else {task_id: seen}

    def remember(self, *known: Seen) -> None:
        """Keep only the task of the job, from the first of these that has it."""
        for tasks in known:
            if self.task_id in tasks:
                self.seen = {self.task_id: tasks[self.task_id]}
                return


class ExtraWrites(NamedTuple):
    """Rows and a debit that are committed with the events of a command."""

    rows: Sequence[Change] = ()
    debit: Debit | None = None


class Service:
    """Loads tasks, decides commands and appends events; retries after concurrent writes."""

    def __init__(
        self, store: EventStore, clock: Clock, agents: Agents, files: LookFor | None = None
    ) -> None:
        self._store, self._clock = store, clock
        self._actors: set[str] = set()
        self._cache = TaskCache(store)
        self.jobs = JobPlans(clock, agents)
        """Plans the jobs that tasks need."""
        self._drafter = Drafter(clock, self._cache, self.jobs)
        self.lookups = PlanLookups(store, clock, agents, self._cache, files)
        """Answers the lookups of plans."""
        self.observer: Observer | None = None
        """Called after every commit under a job that this process holds, and after those of its
        engine without one, such as a repair.
        """

    async def do(
        self, kind: type[Any], fields: Mapping[str, Any], actor: str, run_id: str | None = None
    ) -> Outcome:
        """Validate fields and execute the command."""
        return await self.execute(parse(kind, fields), actor, run_id)

    async def execute(
        self,
        command: cmd.Command,
        actor: str,
        run_id: str | None = None,
        held: HeldJob | None = None,
        beside: Sequence[Change] = (),
        *,
        debit: Debit | None = None,
        via: str | None = None,
    ) -> Outcome:
        """Execute a command for an actor.

        A worker names its run and the job it holds; a stale run changes nothing. `beside` rows and
        a debit of the tree's budget are committed with the events.
        """
        self._must_be_actor(actor)
        context = Context(actor=actor, now=self._clock.now(), run_id=run_id, via=via)
        outcome = await self._carry_out(command, context, held, ExtraWrites(beside, debit))
        if outcome.refused is not None:
            raise outcome.refused
        return outcome

    async def keep(
        self, held: HeldJob, run_id: str, changes: Sequence[Change], debit: Debit | None = None
    ) -> None:
        """Write rows under a run's fence and debit the tree's budget.

        Raise `OverBudget` if the budget does not cover the debit.
        """
        seen = held.seen.copy()
        for _ in range(RACES):
            task = await self._cache.load_one(held.task_id, seen)
            assert task is not None
            check_fence(task, run_id)
            guard = Append(task.id, task.version, ())
            try:
                await self._commit(Unit((guard,), tuple(changes), lease=held.lease, debit=debit))
            except Stale:
                seen = {}
            except LeaseLost as error:
                raise _lease_lost() from error
            else:
                return held.remember(seen)
        raise Unavailable(
            f"Rows of task {held.task_id} conflicted with {RACES} concurrent writes in a row.",
            hint="Try again.",
        )

    async def fresh(self, held: HeldJob, run_id: str) -> Task:
        """Return the current task of a run.

        Raise `StaleRun` if the run, or its job, no longer belongs to its worker.
        """
        (now,) = await self._store.select(HELD, {"id": int(held.task_id), "job": held.lease.job})
        if now.worker != held.lease.worker:
            raise _lease_lost()
        known = held.seen.get(held.task_id)
        if known is None or known.head != now.hash:
            known = self.loaded(held.task_id, now.hash, now.doc)
            held.seen = {held.task_id: known}
        check_fence(known.task, run_id)
        return known.task

    async def load(self, task_id: str) -> Task:
        """Return a task; raise `NotFound` if it does not exist."""
        task = await self._cache.load_one(task_id, {})
        if task is None:
            raise NotFound(f"There is no task {task_id}.")
        return task

    async def tasks(self, ids: Iterable[str]) -> list[Task]:
        """Return tasks; missing ones are left out."""
        found = await self._cache.load(ids, {})
        return list(filter(None, found.values()))

    def loaded(self, task_id: str, head: bytes, document: str) -> LoadedTask:
        """Return the task of a row, from the cache if it has not changed."""
        return self._cache.parse(task_id, head, document)

    async def acknowledge(self, lease: Lease) -> None:
        """Remove a finished job from the queue."""
        with suppress(LeaseLost):
            await self._commit(Unit((), (), lease=lease, ack=True))

    async def put(self, *jobs: Job, done: Lease | None = None) -> None:
        """Add jobs to the queue that no command causes, and remove the job that causes them."""
        try:
            await self._commit(Unit((), (), jobs=jobs, lease=done, ack=done is not None))
        except LeaseLost as error:
            raise _lease_lost() from error

    def _must_be_actor(self, actor: str) -> None:
        """Refuse a malformed actor; remember the ones that were checked."""
        if actor in self._actors:
            return
        check(Actor, actor, "actor")
        if len(self._actors) < KNOWN_ACTORS:
            self._actors.add(actor)

    async def _carry_out(
        self, command: cmd.Command, context: Context, held: HeldJob | None, beside: ExtraWrites
    ) -> Outcome:
        """Decide and commit a command, again after each concurrent write."""
        if held is not None and held.seen:
            outcome = await self._attempt_from_memory(command, context, held, beside)
            if outcome is not None:
                return outcome
        for _ in range(RACES):
            current = replace(context, now=self._clock.now())
            try:
                return await self._attempt(command, current, {}, held, beside)
            except Stale:
                continue
            except LeaseLost as error:
                raise _lease_lost() from error
        raise Unavailable(
            f"{type(command).__name__} conflicted with {RACES} concurrent writes in a row.",
            hint="Try again.",
        )

    async def _attempt_from_memory(
        self, command: cmd.Command, context: Context, held: HeldJob, beside: ExtraWrites
    ) -> Outcome | None:
        """Decide on the task as of this worker's last write.

        Return None if that task is outdated or the decision produces no events.
        """
        try:
            outcome = await self._attempt(command, context, held.seen.copy(), held, beside)
        except LeaseLost as error:
            raise _lease_lost() from error
        except (Unavailable, Unacknowledged):
            raise
        except (Stale, RemitError):
            return None
        return outcome if outcome.entries else None

    async def _attempt(
        self,
        command: cmd.Command,
        context: Context,
        seen: Seen,
        held: HeldJob | None,
        beside: ExtraWrites,
    ) -> Outcome:
        """Decide a command on the tasks that it needs, and commit its effects."""
        decided = await self._decide(command, context, seen)
        if not _has_effects(decided, held, beside):
            task = await self._cache.load_one(decided.task_id, seen)
            return Outcome(decided.task_id, task, ())
        draft = await self._drafter.draft(command, decided, context, seen)
        draft.changes += beside.rows
        unit = draft.unit(decided.dependents)
        if held is not None:
            is_done = held.ack or draft.ends_run(held.task_id)
            unit = unit._replace(lease=held.lease, ack=is_done)
        await self._commit(unit._replace(debit=beside.debit))
        for loaded in draft.tasks.values():
            self._cache.remember(loaded)
        if held is not None or context.actor.startswith(ENGINE):
            self._observe(draft, seen)
        if held is not None:
            held.remember(draft.tasks, seen)
        after = seen_task(draft.tasks, decided.task_id)
        if after is None:
            after = await self._cache.load_one(decided.task_id, seen)
        before = seen_task(seen, decided.task_id)
        return Outcome(decided.task_id, after, tuple(draft.entries), decided.refused, before)

    async def _decide(self, command: cmd.Command, context: Context, seen: Seen) -> Plan:
        """Return the plan of a command; answer its lookups."""
        deciding = plan(command, context)
        answer: Any = None
        while True:
            try:
                need = deciding.send(answer)
            except StopIteration as decided:
                return cast("Plan", decided.value)
            answer = await self.lookups.answer(need, seen)

    def _observe(self, draft: UnitDraft, seen: Seen) -> None:
        """Tell the observer about a commit of the worker of this process."""
        if self.observer is None:
            return
        self.observer(draft.entries, _tasks_in(seen), _tasks_in(draft.tasks))

    async def _commit(self, unit: Unit) -> None:
        """Send a unit until its outcome is known; a store never commits the same unit twice."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for resend in range(RESENDS):
            try:
                return await self._store.commit(unit)
            except Unacknowledged:
                if resend == RESENDS - 1 or loop.time() - began > RESEND_SECONDS:
                    raise
                await asyncio.sleep(0.02 * 2**resend)
        return None


def _tasks_in(seen: Seen) -> dict[str, Task]:
    return {stream: loaded.task for stream, loaded in seen.items()}


def _has_effects(decided: Plan, held: HeldJob | None, beside: ExtraWrites) -> bool:
    """Return whether there is anything to commit: events, jobs, rows, or a finished job."""
    is_done = held is not None and held.ack
    return is_done or bool(decided.events or decided.wakes) or any(beside)


def _lease_lost() -> StaleRun:
    """Return the error for a run whose job another worker has."""
    return StaleRun(
        "The job of this run belongs to another worker.",
        hint="Stop: further writes of this run are discarded.",
    )
