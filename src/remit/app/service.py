"""The one writer: every change of a task goes through `Service.execute`."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, assert_never, cast

from remit.codec import GENESIS, opened, seal, task_of
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain import need as ask
from remit.domain.create import NewIds
from remit.domain.decide import Context
from remit.domain.depend import met
from remit.domain.downtime import unattended_since
from remit.domain.due import CRON, LIMIT, RUN, Job, backoff, can_run, changes_run, earliest, ends_at, others, run_job, silenced, waits_for_slot
from remit.domain.evolve import evolve
from remit.domain.output import Files, Sought
from remit.domain.plan import plan
from remit.domain.project import Change, Rows, guide_row
from remit.domain.record import replace
from remit.domain.run import fenced
from remit.domain.series import recurs, series_of
from remit.domain.shape import check, parse
from remit.domain.value import TASK_ID, Actor, State, Task
from remit.domain.wire import instant
from remit.errors import NotFound, RemitError, StaleRun, Unacknowledged, Unavailable
from remit.ports import Agents, Append, Clock, Debit, EventStore, Lease, LeaseLost, Stale, Unit

RACES = 200
"""How often a command is decided anew because somebody else was faster."""
KNOWN_ACTORS = 1000
RECENT = 256
"""How many tasks are remembered as they were last written or read here; a row whose hash is the same need not be taken apart again."""
AT_ONCE = 100
"""How many tasks are read at once of which little is kept."""
EVERYTHING = 0
"""Stands for the root of every tree where workers that serve all of them are recorded."""
RESENDS = 6
"""How often a commit whose answer got lost is sent again,"""
RESEND_SECONDS = 10.0
"""and for how long: a store that is patient itself has said by then all that it can."""


LookFor = Callable[[Sequence[Sought]], Awaitable[Files]]
"""Looks for files of the workspace."""


class Outcome(NamedTuple):
    """What a command did: the task it was about, every entry it appended, and the task as the decision found it."""

    task_id: str
    task: Task | None
    entries: tuple[ev.Entry, ...]
    refused: RemitError | None = None
    """Why whoever asked did not get it, although that was recorded."""
    before: Task | None = None

    @property
    def update_ids(self) -> tuple[str, ...]:
        """Ids of the updates that the agent will be told of."""
        told = (ev.InstructionsUpdated, ev.AcceptanceUpdated, ev.OutputsUpdated, ev.MessageSent)
        return tuple(entry.event.update_id for entry in self.entries if isinstance(entry.event, told))

    @property
    def canceled(self) -> tuple[str, ...]:
        """Ids of the tasks that were canceled."""
        return tuple(entry.stream for entry in self.entries if isinstance(entry.event, ev.TaskCanceled))


Observer = Callable[[Sequence[ev.Entry], Mapping[str, Task]], None]
"""Takes what a commit appended, and the tasks as it left them."""


class Loaded(NamedTuple):
    """A task and the hash that its next event is chained to."""

    task: Task
    head: bytes


class Held:
    """The job that a worker carries out, and the task as its own last write left it, which saves reading it again."""

    def __init__(self, lease: Lease, task_id: str = "", *, ack: bool = False, seen: Loaded | None = None) -> None:
        self.lease, self.task_id, self.ack = lease, task_id, ack
        self.last_seen_at: datetime | None = None
        """When the worker that held the job before was last heard of."""
        self.seen: dict[str, Loaded] = {} if seen is None else {task_id: seen}


class Service:
    """Loads, decides and appends, and tries again when it lost a race."""

    def __init__(self, store: EventStore, clock: Clock, agents: Agents, files: LookFor | None = None) -> None:
        self._store, self._clock, self._agents, self._files = store, clock, agents, files
        self._actors: set[str] = set()
        self._recent: dict[str, Loaded] = {}
        self.lease_seconds = 10.0
        """After how long without a heartbeat a worker does not count as alive."""
        self.observer: Observer | None = None
        """Told of every commit that is made under a job which this process holds."""

    async def do(self, kind: type[Any], fields: Mapping[str, Any], actor: str, run_id: str | None = None) -> Outcome:
        """Check what a caller sent and carry it out."""
        return await self.execute(parse(kind, fields), actor, run_id)

    async def execute(
        self,
        command: cmd.Command,
        actor: str,
        run_id: str | None = None,
        held: Held | None = None,
        beside: Sequence[Change] = (),
        *,
        via: str | None = None,
    ) -> Outcome:
        """Carry out a command for somebody; a worker names its run and the job it holds, and a stale one changes nothing.

        Rows that are kept beside the events land with them.
        """
        self._must_be_actor(actor)
        who = Context(actor=actor, now=self._clock.now(), run_id=run_id, via=via)
        outcome = await self._carry_out(command, who, held, beside)
        if outcome.refused is not None:
            raise outcome.refused
        return outcome

    async def _carry_out(self, command: cmd.Command, who: Context, held: Held | None, beside: Sequence[Change]) -> Outcome:
        if held is not None and held.seen:
            outcome = await self._from_memory(command, who, held, beside)
            if outcome is not None:
                return outcome
        for _ in range(RACES):
            try:
                return await self._attempt(command, replace(who, now=self._clock.now()), {}, held, beside)
            except Stale:
                continue
            except LeaseLost as error:
                raise _robbed() from error
        raise Unavailable(f"{type(command).__name__} lost {RACES} races in a row.", hint="Try again.")

    async def keep(self, held: Held, run_id: str, changes: Sequence[Change], debit: Debit | None = None) -> None:
        """Write rows that are kept beside the events, under a run's fence, and take from the tree's budget; OverBudget if it is not there."""
        seen = held.seen.copy()
        for _ in range(RACES):
            task = await self._task(held.task_id, seen)
            assert task is not None
            try:
                fenced(task, run_id)
                await self._commit(Unit((Append(task.id, task.version, ()),), tuple(changes), lease=held.lease, debit=debit))
                held.seen = {held.task_id: seen[held.task_id]}
                return
            except Stale:
                seen = {}
            except LeaseLost as error:
                raise _robbed() from error
        raise Unavailable(f"Rows of task {held.task_id} lost {RACES} races in a row.", hint="Try again.")

    async def fresh(self, held: Held, run_id: str) -> Task:
        """The task of a run as it is now; an error if the run, or the job it works on, is not its worker's any more."""
        ((head, document, worker),) = await self._store.select("held", {"id": int(held.task_id), "job": held.lease.job})
        if worker != held.lease.worker:
            raise _robbed()
        known = held.seen.get(held.task_id)
        if known is None or known.head != head:
            known = self.loaded(held.task_id, head, document)
            held.seen = {held.task_id: known}
        fenced(known.task, run_id)
        return known.task

    async def load(self, task_id: str) -> Task:
        """A task as it is now."""
        task = await self._task(task_id, {})
        if task is None:
            raise NotFound(f"There is no task {task_id}.")
        return task

    async def tasks(self, ids: Iterable[str]) -> list[Task]:
        """Tasks as they are now; those that are not there are left out."""
        return [task for task in (await self._load(ids, {})).values() if task is not None]

    def loaded(self, task_id: str, head: bytes, document: str) -> Loaded:
        """A task from its row."""
        known = self._recent.get(task_id)
        return known if known is not None and known.head == head else self._remember(Loaded(task_of(document, task_id), head))

    def _remember(self, loaded: Loaded) -> Loaded:
        self._recent.pop(loaded.task.id, None)
        self._recent[loaded.task.id] = loaded
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        return loaded

    async def acknowledge(self, lease: Lease) -> None:
        """Take a job off the queue that needs nothing more."""
        with suppress(LeaseLost):
            await self._commit(Unit((), (), lease=lease, ack=True))

    async def put(self, *jobs: Job, done: Lease | None = None) -> None:
        """Put jobs into the queue that follow from no command, and take off the one that they follow from."""
        try:
            await self._commit(Unit((), (), jobs=jobs, lease=done, ack=done is not None))
        except LeaseLost as error:
            raise _robbed() from error

    def _must_be_actor(self, actor: str) -> None:
        if actor not in self._actors:
            check(Actor, actor, "actor")
            if len(self._actors) < KNOWN_ACTORS:
                self._actors.add(actor)

    async def _from_memory(self, command: cmd.Command, context: Context, held: Held, beside: Sequence[Change]) -> Outcome | None:
        """Decide on the task as this worker's own last write left it; nothing if that turns out to be too old, or to lead nowhere."""
        try:
            outcome = await self._attempt(command, context, held.seen.copy(), held, beside)
        except LeaseLost as error:
            raise _robbed() from error
        except Stale:
            return None
        except (Unavailable, Unacknowledged):
            raise
        except RemitError:
            return None
        return outcome if outcome.entries else None

    async def _attempt(self, command: cmd.Command, context: Context, seen: dict[str, Loaded], held: Held | None, beside: Sequence[Change]) -> Outcome:
        decided = await self._decide(command, context, seen)
        if not decided.events and not decided.wakes and not beside and not (held and held.ack):
            return Outcome(decided.task_id, await self._task(decided.task_id, seen), ())
        draft = _Draft([Append(stream, seen[stream].task.version, ()) for stream in sorted(decided.guards - decided.events.keys())])
        for stream, events in decided.events.items():
            by = replace(context, actor=decided.actors[stream]) if stream in decided.actors else context
            draft.add(_written(stream, events, seen.get(stream), by, self._clock))
        for stream, loaded in draft.tasks.items():
            await self._follow_up(seen[stream].task if stream in seen else None, loaded.task, decided.events[stream], context, seen, draft)
        draft.jobs += [self._woken(command, seen[stream].task, context.now) for stream in sorted(decided.wakes)]
        draft.changes += beside
        dependents = tuple((int(task_id), count) for task_id, count in decided.dependents)
        await self._commit(draft.unit(dependents, held))
        for loaded in draft.tasks.values():
            self._remember(loaded)
        if held is not None and self.observer is not None:
            self.observer(draft.entries, {stream: loaded.task for stream, loaded in draft.tasks.items()})
        if held is not None and (known := draft.tasks.get(held.task_id) or seen.get(held.task_id)):
            held.seen = {held.task_id: known}
        done, found = draft.tasks.get(decided.task_id), seen.get(decided.task_id)
        after = done.task if done else await self._task(decided.task_id, seen)
        return Outcome(decided.task_id, after, tuple(draft.entries), decided.refused, found.task if found else None)

    async def _follow_up(
        self, before: Task | None, after: Task, events: Sequence[Any], context: Context, seen: dict[str, Loaded], draft: "_Draft"
    ) -> None:
        """The jobs that follow from what a task has become; what it depends on must not change meanwhile."""
        if before is None:
            self._earliest(after, context.now)  # a calendar that never comes is refused also where nobody could run by it yet
        draft.jobs += others(before, after, events)
        draft.drops += silenced(before, after)
        if waits_for_slot(before, after) is not None and (turn := self.slot_job(after)) is not None:
            draft.jobs.append(turn)
        if (limit := self.limit_job(after)) != (before and self.limit_job(before)):
            draft.jobs += [limit] if limit else []
            draft.drops += [] if limit else [LIMIT + after.id]
        if not changes_run(before, after, events):
            return
        ready = can_run(after)
        if ready and after.started_at is None and after.depends_on:
            needed = await self._load([item.task_id for item in after.depends_on], seen)
            draft.appends += [Append(other.id, other.version, ()) for other in needed.values() if other is not None and other.id not in draft.tasks]
            ready = all(met(item, needed[item.task_id]) for item in after.depends_on)
        if ready:
            draft.jobs.append(run_job(after, backoff(after, events, context.now) or self._earliest(after, context.now)))
        elif after.run is None:
            draft.drops.append(RUN + after.id)

    def ready_job(self, task: Task) -> Job:
        """The job of a task that can run, at the time that its schedule gives."""
        return run_job(task, self._earliest(task, self._clock.now()))

    def slot_job(self, task: Task) -> Job | None:
        """The turn of a task that waits for a calendar of its own."""
        cron = waits_for_slot(None, task)
        if cron is None:
            return None
        slot = self._clock.next_slot(cron, self._clock.now())
        return Job(key=CRON + task.id, at=instant(slot), root=int(task.root_id))

    def limit_job(self, task: Task) -> Job | None:
        """The end of the time of a task that waits for its subtasks, or to report."""
        if task.state is not State.WAITING and task.overdue is None:
            return None
        end = ends_at(task, self.seconds(task))
        return None if end is None else Job(key=LIMIT + task.id, at=instant(end), root=int(task.root_id))

    def seconds(self, task: Task) -> float | None:
        """How long a task may take: what it says itself, or else its agent."""
        return task.limits.timeout_seconds or self._agents.seconds(task.owner or "")

    def _woken(self, command: cmd.Command, task: Task, now: datetime) -> Job:
        """The job of a task that can run from now on; whoever says run_task does not wait for a schedule."""
        return run_job(task, None if isinstance(command, cmd.RunTask) else self._earliest(task, now))

    def _earliest(self, task: Task, now: datetime) -> datetime | None:
        """When a task may run: what its schedule says, and for one that has a calendar and was never run, its first slot."""
        if task.schedule is not None and task.schedule.cron is not None and task.started_at is None:
            if task.series_id is not None and task.schedule.not_before is not None:
                return earliest(task, now)  # the slot that it was made for; one that was missed is made up at once
            return self._clock.next_slot(task.schedule.cron, earliest(task, now) or now)
        return earliest(task, now)

    async def _decide(self, command: cmd.Command, context: Context, seen: dict[str, Loaded]) -> ask.Plan:
        deciding = plan(command, context)
        answer: Any = None
        while True:
            try:
                need = deciding.send(answer)
            except StopIteration as decided:
                return cast("ask.Plan", decided.value)
            answer = await self._answer(need, seen)

    async def _answer(self, need: ask.Need, seen: dict[str, Loaded]) -> Any:
        match need:
            case ask.Load(refs=refs):
                return await self._load(refs, seen)
            case ask.SeenFiles(files=files):
                return await self._files(files) if self._files else {}
            case ask.Dependents(task_id=task_id):
                return await self._dependents(task_id, seen)
            case ask.EndedChildren(task_id=task_id):
                return frozenset(str(row[0]) for row in await self._store.select("ended_children", {"id": int(task_id)}))
            case ask.Ends(ids=ids):
                return await self._ends(ids)
            case ask.KnownGuides(ids=ids):
                return frozenset(row[0] for row in await self._store.select("guide", {"names": list(ids)}))
            case ask.KnownAgents():
                return self._agents.ids()
            case ask.Granted(agent_id=agent_id, tools=tools):
                return self._agents.grant(agent_id, tools)
            case ask.ClaimedKey(stream=stream):
                return await self._claim(stream)
            case ask.Answer(interaction_id=interaction_id):
                return await self._interaction(interaction_id)
            case ask.NextSlot(cron=cron, after=after):
                return self._clock.next_slot(cron, after)
            case ask.AtStart(task_id=task_id):
                return await self._at_start(task_id)
            case ask.UnattendedSince(task_ids=ids):
                return await self._unattended_since(ids, seen)
            case ask.LiveOfSeries(series_id=series_id):
                return await self._live_of_series(series_id, seen)
            case ask.Fresh():
                return (await self._fresh(1))[0]
            case ask.FreshMany(count=count):
                return await self._fresh(count)
            case _:
                assert_never(need)

    async def _fresh(self, count: int) -> list[NewIds]:
        numbers = await self._store.new_ids(count)
        return [NewIds(id=str(number), uid=self._clock.uid(), thread_id=self._clock.uid()) for number in numbers]

    async def _load(self, refs: Iterable[str], seen: dict[str, Loaded]) -> dict[str, Task | None]:
        """Tasks by id or uid, each read once per attempt."""
        refs = tuple(refs)
        if all(ref in seen for ref in refs):
            return {ref: seen[ref].task for ref in refs}
        known: dict[str, str] = {ref: ref for ref in refs if re.fullmatch(TASK_ID, ref)}
        if ids := [int(ref) for ref in known if ref not in seen]:
            for task_id, head, document in await self._store.select("tasks", {"ids": ids}):
                seen[str(task_id)] = self.loaded(str(task_id), head, document)
        if uids := [ref for ref in refs if ref not in known]:
            for task_id, uid, head, document in await self._store.select("tasks_by_uid", {"uids": uids}):
                seen[str(task_id)] = self.loaded(str(task_id), head, document)
                known[uid] = str(task_id)
        return {ref: seen[known[ref]].task if known.get(ref) in seen else None for ref in refs}

    async def _at_start(self, task_id: str) -> Task | None:
        task: Task | None = None
        after = 0
        while rows := await self._store.select("events", {"stream": task_id, "after": after, "limit": AT_ONCE}):
            for row in rows:
                entry = opened(ev.Stored(*row[:8]))
                if isinstance(entry.event, ev.TaskStarted):
                    return task
                task, after = evolve(task, entry), entry.version
        return None

    async def _live_of_series(self, series_id: str, seen: dict[str, Loaded]) -> Task | None:
        pattern = f'%"series_id":"{series_id}"%'
        rows = await self._store.select("series", {"id": int(series_id), "pattern": pattern})
        found = await self._load([str(row[0]) for row in rows], seen)
        # Text that users wrote can match the pattern too.
        live = [task for task in found.values() if task and recurs(task)]
        return next((task for task in live if series_of(task) == series_id), None)

    async def _unattended_since(self, task_ids: Sequence[str], seen: dict[str, Loaded]) -> dict[str, datetime]:
        tasks = [seen[task_id].task for task_id in task_ids]
        roots = {int(task.root_id) for task in tasks}
        rows = await self._store.select("attended", {"ids": [EVERYTHING, *sorted(roots)]})
        attended = {root: datetime.fromisoformat(at) for root, at in rows}
        now, lease = self._clock.now(), timedelta(seconds=self.lease_seconds)
        found: dict[str, datetime] = {}
        for task in tasks:
            known = [attended[root] for root in (EVERYTHING, int(task.root_id)) if root in attended]
            since = unattended_since(task, max(known, default=None), now, lease)
            if since is not None:
                found[task.id] = since
        return found

    async def _ends(self, ids: Sequence[str]) -> dict[str, ask.End]:
        found: dict[str, ask.End] = {}
        for start in range(0, len(ids), AT_ONCE):
            wanted = [int(task_id) for task_id in ids[start : start + AT_ONCE]]
            for task_id, head, document in await self._store.select("tasks", {"ids": wanted}):
                task = self.loaded(str(task_id), head, document).task
                found[task.id] = ask.End.of(task)
        return found

    async def _dependents(self, task_id: str, seen: dict[str, Loaded]) -> tuple[Task, ...]:
        found = await self._load([str(row[0]) for row in await self._store.select("dependents", {"id": int(task_id)})], seen)
        return tuple(task for task in found.values() if task is not None)

    async def _task(self, task_id: str, seen: dict[str, Loaded]) -> Task | None:
        return (await self._load([task_id], seen))[task_id] if task_id else None

    async def _claim(self, stream: str) -> Any:
        rows = await self._store.select("events", {"stream": stream, "after": 0, "limit": 1})
        return opened(ev.Stored(*rows[0][:8])).event if rows else None

    async def _interaction(self, interaction_id: str) -> dict[str, Any] | None:
        rows = await self._store.select("interaction", {"interaction": interaction_id})
        return {"status": rows[0][7], "answer": rows[0][8], "answered_by": rows[0][9], "answered_at": rows[0][10]} if rows else None

    async def _commit(self, unit: Unit) -> None:
        """Send a unit until its fate is known; a store never takes the same one twice."""
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


class _Written(NamedTuple):
    append: Append
    changes: list[Change]
    entries: list[ev.Entry]
    task: Task | None
    head: bytes


class _Draft:
    """What a plan adds up to, piece by piece."""

    def __init__(self, appends: list[Append]) -> None:
        self.appends = appends
        self.changes: list[Change] = []
        self.entries: list[ev.Entry] = []
        self.tasks: dict[str, Loaded] = {}
        self.jobs: list[Job] = []
        self.drops: list[str] = []

    def add(self, written: _Written) -> None:
        """Take what one stream's events mean."""
        self.appends.append(written.append)
        self.changes += written.changes
        self.entries += written.entries
        if written.task is not None:
            self.tasks[written.append.stream] = Loaded(written.task, written.head)

    def unit(self, dependents: tuple[tuple[int, int], ...], held: Held | None) -> Unit:
        """The whole, to be committed; a job is done when its run is over."""
        if held is None:
            return Unit(self._guarded(), tuple(self.changes), dependents, tuple(self.jobs), tuple(self.drops))
        over = held.task_id in self.tasks and self.tasks[held.task_id].task.run is None
        return Unit(self._guarded(), tuple(self.changes), dependents, tuple(self.jobs), tuple(self.drops), held.lease, held.ack or over)

    def _guarded(self) -> tuple[Append, ...]:
        """One append for each stream; a mere guard gives way to events."""
        return tuple({append.stream: append for append in sorted(self.appends, key=lambda append: bool(append.events))}.values())


def _robbed() -> StaleRun:
    return StaleRun("The job of this run belongs to another worker by now.", hint="Stop: whatever it did since is not kept.")


def _written(stream: str, events: Iterable[Any], loaded: Loaded | None, context: Context, clock: Clock) -> _Written:
    """What a stream's events mean for the store: sealed events, and the rows that follow from them."""
    before, head = loaded or (None, GENESIS)
    first = before.version if before else 0
    task, rows = before, Rows(before)
    entries: list[ev.Entry] = []
    sealed: list[ev.Stored] = []
    for version, event in enumerate(events, first + 1):
        entry = ev.Entry(id=clock.uid(), stream=stream, version=version, at=context.now, actor=context.actor, event=event)
        stored = seal(entry, head)
        head = stored.hash
        entries.append(entry)
        sealed.append(stored)
        if stream.isdigit():
            task = evolve(task, entry)
            rows.add(entry, task)
    changes = rows.changes(head) if stream.isdigit() else [guide_row(entry) for entry in entries if isinstance(entry.event, ev.GuideCreated)]
    return _Written(Append(stream, first, tuple(sealed)), changes, entries, task, head)
