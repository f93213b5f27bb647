"""The log of a worker: one line for each event that matters of the tasks that this process works
on.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from remit.codec import decode_event
from remit.domain.projection.rows import OUTCOMES
from remit.domain.records.pick import omit_none
from remit.domain.records.serialize import instant
from remit.domain.task import events as ev
from remit.domain.task.task import Task, Usage
from remit.ports import Clock, EventStore
from remit.store_queries.event_queries import EVENTS

FIELDS = "fields"
"""The attribute of a log record with its structured fields."""
KNOWN_TASKS = 1000
"""How many tasks the log remembers, each with its last logged event."""
LOOK_BACK = 100
"""The most events that are read to find what happened to a task between two of its runs."""
ERROR_LENGTH = 300
LATE = timedelta(seconds=1)
"""The delay after which a line also says when its event happened."""

log = logging.getLogger("remit.task")

Fields = dict[str, Any]
Line = tuple[int, str, Fields]


class _Begun(NamedTuple):
    """A run that began here."""

    worked_seconds: float
    """The seconds on the clock of the task at its beginning."""
    usage: Usage


class TaskLog:
    """Logs what happens to tasks that a worker works on.

    Never a prompt, a question or an answer.
    """

    def __init__(self, store: EventStore, clock: Clock, worker: str) -> None:
        self._store, self._clock, self._worker = store, clock, worker
        self._logged: dict[str, int] = {}
        self._begun: dict[str, _Begun] = {}
        self._lost: set[str] = set()
        self._missed: dict[str, range] = {}
        """The versions that others wrote while a run was under way here, from the first to the
        last of them.
        """

    def write(
        self,
        entries: Sequence[ev.Entry],
        before: Mapping[str, Task],
        after: Mapping[str, Task],
    ) -> None:
        """Log what one commit of this worker has added to tasks, given the tasks before and
        after it.
        """
        for entry in entries:
            task = after.get(entry.stream)
            if task is not None:
                self._write(entry, before.get(entry.stream), task)

    async def catch_up(self, task: Task) -> None:
        """Log what people did to a task since its last run began or ended, and how others ended
        a run of this worker.

        Workers log what they do themselves: a run of another worker is not logged again.
        """
        known = self._logged.get(task.id)
        after = max(task.version - LOOK_BACK, 0) if known is None else known
        entries = await self._entries(task, after)
        if _ends_with_lost_run(entries):
            self._lost.add(task.id)
        unseen = _first_unseen(entries, is_known=known is not None)
        for number, entry in enumerate(entries):
            self._remember(entry, task)
            self._log(task, entry, self._missed_lines(entry, task, is_unseen=number >= unseen))

    def _missed_lines(self, entry: ev.Entry, task: Task, *, is_unseen: bool) -> list[Line]:
        """Return lines on an event of others, or on how they ended a run of this worker."""
        if isinstance(entry.event, ev.RunStarted | ev.RunLost):
            self._begun.pop(task.id, None)
            return []
        lines = self._run_lines(entry, task)
        if is_unseen and not _by_worker(entry):
            lines += _lines(entry)
        return lines

    async def _entries(self, task: Task, after: int, limit: int = LOOK_BACK) -> list[ev.Entry]:
        """Return the events of a task after a version."""
        rows = await self._store.select(EVENTS, {"stream": task.id, "after": after, "limit": limit})
        return [decode_event(row.stored) for row in rows]

    async def log_missed(self, task: Task) -> None:
        """Log what people did to a task during its last run here, such as the pause that ended
        it.
        """
        missed = self._missed.pop(task.id, None)
        if missed is None:
            return
        limit = min(len(missed), LOOK_BACK)
        for entry in await self._entries(task, missed.start - 1, limit):
            if not _by_worker(entry):
                self._log(task, entry, _lines(entry))

    async def log_news(self, task: Task) -> None:
        """Log what people have just done to a task whose run goes on, such as a pause that it
        will notice at its next boundary.
        """
        known = self._logged.get(task.id)
        if known is None:
            return
        for entry in await self._entries(task, known):
            if _by_worker(entry):  # the commit that wrote it is about to be logged
                return
            if entry.version > self._logged.get(task.id, known):
                self._remember(entry, task)
                self._log(task, entry, _lines(entry))

    def _write(self, entry: ev.Entry, before: Task | None, task: Task) -> None:
        """Log one event of a commit of this worker."""
        self._note_missed(entry, task)
        self._remember(entry, task)
        if isinstance(entry.event, ev.RunLost):
            self._log(task, entry, [self._lost_line(entry.event, before, task)])
            return
        self._log(task, entry, [*self._run_lines(entry, task), *_lines(entry)])

    def _note_missed(self, entry: ev.Entry, task: Task) -> None:
        """Note the versions that others wrote since the last logged event of a run here."""
        known = self._logged.get(task.id)
        if known is None or task.id not in self._begun:
            return
        if entry.version > known + 1:
            noted = self._missed.get(task.id, range(known + 1, known + 1))
            self._missed[task.id] = range(noted.start, entry.version)

    def _remember(self, entry: ev.Entry, task: Task) -> None:
        """Remember up to which event a task was logged."""
        self._logged.pop(task.id, None)
        self._logged[task.id] = entry.version
        if len(self._logged) > KNOWN_TASKS:
            del self._logged[next(iter(self._logged))]

    def _log(self, task: Task, entry: ev.Entry, lines: Sequence[Line]) -> None:
        """Write lines on an event, with the fields that every line on a task has."""
        common = {"task": task.id, "title": task.title, "agent": task.owner, "worker": self._worker}
        if self._clock.now() - entry.at > LATE:
            common["at"] = instant(entry.at)
        for level, message, fields in lines:
            log.log(level, message, extra={FIELDS: common | omit_none(fields)})

    def _lost_line(self, event: ev.RunLost, before: Task | None, task: Task) -> Line:
        """Return the line on a run whose worker is gone; it names that worker and this one."""
        self._begun.pop(task.id, None)
        self._lost.add(task.id)
        run = None if before is None else before.run
        workers = {"worker": "unknown" if run is None else run.worker, "found_by": self._worker}
        return logging.WARNING, "Run lost", {"run": event.run_id, **workers}

    def _run_lines(self, entry: ev.Entry, task: Task) -> list[Line]:
        """Return lines on the run that an event begins or ends; `_lost_line` has the one on a
        lost run.
        """
        event = entry.event
        if isinstance(event, ev.RunStarted):
            return [self._start_line(event, entry, task)]
        if task.run is not None or type(event) not in OUTCOMES:
            return []
        begun = self._begun.pop(task.id, None)
        if begun is None:
            return []
        outcome = OUTCOMES[type(event)]
        level = logging.WARNING if outcome in ("failed", "timeout") else logging.INFO
        fields = {"outcome": outcome} | _figures(begun, entry.at, task) | _error(event)
        return [(level, "Run ended", fields)]

    def _start_line(self, event: ev.RunStarted, entry: ev.Entry, task: Task) -> Line:
        """Return the line on a run that begins here, and remember what it begins with."""
        self._begun[task.id] = _Begun(_worked(task, entry.at), task.usage)
        message = "Run started, taken over" if task.id in self._lost else "Run started"
        self._lost.discard(task.id)
        return logging.INFO, message, {"run": event.run_id, "attempt": task.attempts + 1}


def _by_worker(entry: ev.Entry) -> bool:
    """Return whether a run or the engine caused an event, which its worker has logged."""
    return entry.actor.startswith(("agent:", "system:"))


def _ends_with_lost_run(entries: Sequence[ev.Entry]) -> bool:
    """Return whether the last run that ended was lost."""
    for entry in reversed(entries):
        if type(entry.event) in OUTCOMES:
            return isinstance(entry.event, ev.RunLost)
    return False


def _is_turn(entry: ev.Entry) -> bool:
    """Return whether a worker began or ended a run with an event."""
    if not _by_worker(entry):
        return False
    return isinstance(entry.event, ev.RunStarted) or type(entry.event) in OUTCOMES


def _first_unseen(entries: Sequence[ev.Entry], *, is_known: bool) -> int:
    """Return the index of the first event that was not logged with the last run of the task.

    Without any run among the events, this is the first event of a known task, and none of an
    unknown one.
    """
    for number in reversed(range(len(entries))):
        if _is_turn(entries[number]):
            return number + 1
    if is_known:
        return 0
    return len(entries)


def _worked(task: Task, at: datetime) -> float:
    """Return the seconds on the clock of a task, without downtime."""
    since = at if task.clock_since is None else task.clock_since
    return task.duration + (at - since).total_seconds()


def _figures(begun: _Begun, at: datetime, task: Task) -> Fields:
    """Return how long a run worked and what it used."""
    used = task.usage.beyond(begun.usage)
    tokens = used.input_tokens + used.output_tokens
    return {
        "seconds": round(_worked(task, at) - begun.worked_seconds, 3),
        "tokens": tokens,
        "cost": round(used.cost, 6) or None,
    }


def _error(event: object) -> Fields:
    """Return the beginning of the error of an event; empty if it has none."""
    error = getattr(event, "error", None)
    if not error:
        return {}
    return {"error": str(error)[:ERROR_LENGTH]}


def _lines(entry: ev.Entry) -> list[Line]:
    """Return the line on any event that is not about a run."""
    make = _MAKERS.get(type(entry.event))
    if make is None:
        return []
    return [make(entry.event, entry)]


def _info(message: str, *names: str) -> Callable[[Any, ev.Entry], Line]:
    return _line(logging.INFO, message, *names)


def _line(level: int, message: str, *names: str) -> Callable[[Any, ev.Entry], Line]:
    """Return a function that makes a line with some fields of an event, and who caused it."""

    def make(event: Any, entry: ev.Entry) -> Line:
        fields = {name: _plain(getattr(event, name)) for name in names}
        return level, message, fields | {"by": entry.actor}

    return make


def _plain(value: Any) -> Any:
    """Return a value as one field of a log line; a tuple is joined with commas."""
    if not isinstance(value, tuple):
        return value
    return ",".join(map(str, cast("Sequence[object]", value)))


_MAKERS: dict[type[Any], Callable[[Any, ev.Entry], Line]] = {
    ev.TaskStarted: _info("Task started"),
    ev.UserInteractionRequested: _info("Question asked", "interaction_id"),
    ev.UserInteractionResponded: _info("Question answered", "interaction_id"),
    ev.SubtaskLinked: _info("Delegated", "child_id"),
    ev.SubtaskSettled: _line(logging.DEBUG, "Subtask settled", "child_id", "state"),
    ev.UpdateDelivered: _line(logging.DEBUG, "Update delivered", "update_ids"),
    ev.TaskPaused: _info("Task paused"),
    ev.TaskResumed: _info("Task resumed"),
    ev.AcceptanceRejected: _info("Acceptance rejected"),
    ev.TaskCompleted: _info("Task done", "verification"),
    ev.TaskFailed: _line(logging.WARNING, "Task failed", "reason"),
    ev.TaskCanceled: _info("Task canceled", "reason"),
}
