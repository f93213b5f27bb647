"""The one writer: every change of a task goes through `Service.execute`."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, assert_never

from remit.codec import GENESIS, opened, seal, task_of
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain import plan as ask
from remit.domain.create import NewIds
from remit.domain.decide import Context
from remit.domain.evolve import evolve
from remit.domain.project import Change, guide_row, rows
from remit.domain.shape import check, parse
from remit.domain.value import TASK_ID, Actor, Task
from remit.errors import Unacknowledged, Unavailable
from remit.ports import Agents, Append, Clock, EventStore, Stale, Unit

RACES = 200
"""How often a command is decided anew because somebody else was faster."""
RESENDS = 6
"""How often a commit whose answer got lost is sent again."""


class Outcome(NamedTuple):
    """What a command did: the task it was about, and every entry it appended."""

    task_id: str
    task: Task | None
    entries: tuple[ev.Entry, ...]

    @property
    def update_ids(self) -> tuple[str, ...]:
        """Ids of the updates that the agent will be told of."""
        told = (ev.InstructionsUpdated, ev.AcceptanceUpdated, ev.OutputsUpdated, ev.MessageSent)
        return tuple(entry.event.update_id for entry in self.entries if isinstance(entry.event, told))

    @property
    def canceled(self) -> tuple[str, ...]:
        """Ids of the tasks that were canceled."""
        return tuple(entry.stream for entry in self.entries if isinstance(entry.event, ev.TaskCanceled))


class _Loaded(NamedTuple):
    task: Task
    head: bytes


class Service:
    """Loads, decides and appends, and tries again when it lost a race."""

    def __init__(self, store: EventStore, clock: Clock, agents: Agents) -> None:
        self._store, self._clock, self._agents = store, clock, agents

    async def do(self, kind: type[Any], fields: Mapping[str, Any], actor: str, run_id: str | None = None) -> Outcome:
        """Check what a caller sent and carry it out."""
        return await self.execute(parse(kind, fields), actor, run_id)

    async def execute(self, command: cmd.Command, actor: str, run_id: str | None = None) -> Outcome:
        """Carry out a command for somebody; a worker names its run, and a stale one changes nothing."""
        check(Actor, actor, "actor")
        for _ in range(RACES):
            try:
                return await self._attempt(command, Context(actor=actor, now=self._clock.now(), run_id=run_id))
            except Stale:
                continue
        raise Unavailable(f"{type(command).__name__} lost {RACES} races in a row.", hint="Try again.")

    async def _attempt(self, command: cmd.Command, context: Context) -> Outcome:
        seen: dict[str, _Loaded] = {}
        decided = await self._decide(command, context, seen)
        if not decided.events:
            return Outcome(decided.task_id, await self._task(decided.task_id, seen), ())
        appends: list[Append] = [Append(stream, seen[stream].task.version, ()) for stream in sorted(decided.guards - decided.events.keys())]
        changes: list[Change] = []
        entries: list[ev.Entry] = []
        tasks: dict[str, Task] = {}
        for stream, events in decided.events.items():
            written = _written(stream, events, seen.get(stream), context, self._clock)
            appends.append(written.append)
            changes += written.changes
            entries += written.entries
            if written.task is not None:
                tasks[stream] = written.task
        dependents = tuple((int(task_id), count) for task_id, count in decided.dependents)
        await self._commit(Unit(tuple(appends), tuple(changes), dependents))
        task = tasks.get(decided.task_id) or await self._task(decided.task_id, seen)
        return Outcome(decided.task_id, task, tuple(entries))

    async def _decide(self, command: cmd.Command, context: Context, seen: dict[str, _Loaded]) -> ask.Plan:
        deciding = ask.plan(command, context)
        answer: Any = None
        while True:
            try:
                need = deciding.send(answer)
            except StopIteration as decided:
                plan: ask.Plan = decided.value
                return plan
            answer = await self._answer(need, seen)

    async def _answer(self, need: ask.Need, seen: dict[str, _Loaded]) -> Any:
        match need:
            case ask.Load(refs=refs):
                return await self._load(refs, seen)
            case ask.Dependents(task_id=task_id):
                return await self._dependents(task_id, seen)
            case ask.KnownGuides(ids=ids):
                return frozenset(row[0] for row in await self._store.select("guide", {"names": list(ids)}))
            case ask.KnownAgents():
                return self._agents.ids()
            case ask.ClaimedKey(stream=stream):
                return await self._claim(stream)
            case ask.Answer(interaction_id=interaction_id):
                return await self._interaction(interaction_id)
            case ask.Fresh():
                (number,) = await self._store.new_ids(1)
                return NewIds(id=str(number), uid=self._clock.uid(), thread_id=self._clock.uid())
            case _:
                assert_never(need)

    async def _load(self, refs: Iterable[str], seen: dict[str, _Loaded]) -> dict[str, Task | None]:
        """Tasks by id or uid, each read once per attempt."""
        refs = tuple(refs)
        known: dict[str, str] = {ref: ref for ref in refs if re.fullmatch(TASK_ID, ref)}
        if ids := [int(ref) for ref in known if ref not in seen]:
            for task_id, head, document in await self._store.select("tasks", {"ids": ids}):
                seen[str(task_id)] = _Loaded(task_of(document), head)
        if uids := [ref for ref in refs if ref not in known]:
            for task_id, uid, head, document in await self._store.select("tasks_by_uid", {"uids": uids}):
                seen[str(task_id)] = _Loaded(task_of(document), head)
                known[uid] = str(task_id)
        return {ref: seen[known[ref]].task if known.get(ref) in seen else None for ref in refs}

    async def _dependents(self, task_id: str, seen: dict[str, _Loaded]) -> tuple[Task, ...]:
        found = await self._load([str(row[0]) for row in await self._store.select("dependents", {"id": int(task_id)})], seen)
        return tuple(task for task in found.values() if task is not None)

    async def _task(self, task_id: str, seen: dict[str, _Loaded]) -> Task | None:
        return (await self._load([task_id], seen))[task_id] if task_id else None

    async def _claim(self, stream: str) -> Any:
        rows = await self._store.select("events", {"stream": stream, "after": 0, "limit": 1})
        return opened(ev.Stored(*rows[0][:8])).event if rows else None

    async def _interaction(self, interaction_id: str) -> dict[str, Any] | None:
        rows = await self._store.select("interaction", {"interaction": interaction_id})
        return {"status": rows[0][7], "answer": rows[0][8], "answered_by": rows[0][9], "answered_at": rows[0][10]} if rows else None

    async def _commit(self, unit: Unit) -> None:
        """Send a unit until its fate is known; a store never takes the same one twice."""
        for resend in range(RESENDS):
            try:
                return await self._store.commit(unit)
            except Unacknowledged:
                if resend == RESENDS - 1:
                    raise
                await asyncio.sleep(0.02 * 2**resend)
        return None


class _Written(NamedTuple):
    append: Append
    changes: list[Change]
    entries: list[ev.Entry]
    task: Task | None


def _written(stream: str, events: Iterable[Any], loaded: _Loaded | None, context: Context, clock: Clock) -> _Written:
    """What a stream's events mean for the store: sealed events, and the rows that follow from them."""
    before, head = loaded or (None, GENESIS)
    first = before.version if before else 0
    task, entries, sealed, steps = before, list[ev.Entry](), list[ev.Stored](), list[tuple[ev.Entry, Task]]()
    for version, event in enumerate(events, first + 1):
        entry = ev.Entry(id=clock.uid(), stream=stream, version=version, at=context.now, actor=context.actor, event=event)
        stored = seal(entry, head)
        head = stored.hash
        entries.append(entry)
        sealed.append(stored)
        if stream.isdigit():
            task = evolve(task, entry)
            steps.append((entry, task))
    changes = rows(before, steps, head) if stream.isdigit() else [guide_row(entry) for entry in entries if isinstance(entry.event, ev.GuideCreated)]
    return _Written(Append(stream, first, tuple(sealed)), changes, entries, task)
