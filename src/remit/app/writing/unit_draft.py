"""The draft of a commit: sealed events of several streams, their rows and the jobs that follow."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from remit.app.writing.task_cache import LoadedTask
from remit.codec import GENESIS, encode_event
from remit.domain.decisions.context import Context
from remit.domain.decisions.evolve import evolve
from remit.domain.projection.follow_up_jobs import Job
from remit.domain.projection.rows import Change, Rows, guide_row
from remit.domain.task import events as ev
from remit.domain.task.stored_event import Stored
from remit.domain.task.task import Task
from remit.ports import Append, Clock, Unit


class SealedEvents(NamedTuple):
    """The events of one stream, chained by hash, and the rows and the task after them."""

    append: Append
    changes: list[Change]
    entries: list[ev.Entry]
    task: Task | None
    head: bytes


def seal_events(
    stream: str, events: Iterable[Any], loaded: LoadedTask | None, context: Context, clock: Clock
) -> SealedEvents:
    """Seal the events of a stream and build the rows that follow from them."""
    before, head = loaded or (None, GENESIS)
    first = before.version if before else 0
    is_task = stream.isdigit()
    task, rows = before, Rows(before)
    entries: list[ev.Entry] = []
    sealed: list[Stored] = []
    happened = list(events)
    signers = ev.signers(happened, context.actor, None if before is None else before.owner)
    for version, (event, actor) in enumerate(zip(happened, signers, strict=True), first + 1):
        entry = ev.Entry(
            id=clock.uid(), stream=stream, version=version, at=context.now, actor=actor, event=event
        )
        stored = encode_event(entry, head)
        head = stored.hash
        entries.append(entry)
        sealed.append(stored)
        if is_task:
            task = evolve(task, entry)
            rows.add(entry, task)
    changes = rows.changes(head) if is_task else _guide_rows(entries)
    return SealedEvents(Append(stream, first, tuple(sealed)), changes, entries, task, head)


def _guide_rows(entries: Iterable[ev.Entry]) -> list[Change]:
    """Return the rows of new guides."""
    return [guide_row(entry) for entry in entries if isinstance(entry.event, ev.GuideCreated)]


class UnitDraft:
    """The parts of a commit, collected stream by stream."""

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self.changes: list[Change] = []
        self.entries: list[ev.Entry] = []
        self.tasks: dict[str, LoadedTask] = {}
        self.jobs: list[Job] = []
        self.drops: list[str] = []

    def guard(self, tasks: Iterable[Task]) -> None:
        """Make the commit fail if one of these tasks changes before it."""
        self.appends += [Append(task.id, task.version, ()) for task in tasks]

    def add(self, sealed: SealedEvents) -> None:
        """Add the events of one stream."""
        self.appends.append(sealed.append)
        self.changes += sealed.changes
        self.entries += sealed.entries
        if sealed.task is not None:
            self.tasks[sealed.append.stream] = LoadedTask(sealed.task, sealed.head)

    def ends_run(self, task_id: str) -> bool:
        """Return whether the commit changes a task that has no live run after it."""
        changed = self.tasks.get(task_id)
        return changed is not None and changed.task.run is None

    def unit(self, dependents: Sequence[tuple[str, int]]) -> Unit:
        """Return the unit to commit, without a lease."""
        return Unit(
            self._unique_appends(),
            tuple(self.changes),
            tuple((int(task_id), count) for task_id, count in dependents),
            tuple(self.jobs),
            tuple(self.drops),
        )

    def _unique_appends(self) -> tuple[Append, ...]:
        """Return one append per stream; events take precedence over a guard."""
        guards_first = sorted(self.appends, key=lambda append: bool(append.events))
        return tuple({append.stream: append for append in guards_first}.values())
