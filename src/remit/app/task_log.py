"""The log of a worker: one line for each event that matters of the tasks that this process works on."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from remit.codec import opened
from remit.domain import event as ev
from remit.domain.project import OUTCOMES
from remit.domain.value import Task, Usage
from remit.ports import EventStore

FIELDS = "fields"
"""Under what name a log record carries its structured fields."""
KNOWN_TASKS = 1000
"""Of how many tasks it is remembered up to which event they were logged."""
LOOK_BACK = 100
"""How many events are read at most to find what happened to a task between two of its runs."""
ERROR_LENGTH = 300

log = logging.getLogger("remit.task")

Fields = dict[str, Any]
Line = tuple[int, str, Fields]


class _Begun(NamedTuple):
    """A run that began here."""

    at: datetime
    usage: Usage


class TaskLog:
    """Logs what happens to tasks that a worker works on; never a prompt, a question or an answer."""

    def __init__(self, store: EventStore, worker: str) -> None:
        self._store, self._worker = store, worker
        self._logged: dict[str, int] = {}
        self._begun: dict[str, _Begun] = {}
        self._lost: set[str] = set()
        self._missed: dict[str, range] = {}
        """The versions that others wrote while a run was under way here, from the first to the last of them."""

    def write(self, entries: Sequence[ev.Entry], tasks: Mapping[str, Task]) -> None:
        """Log what one commit of this worker has added to tasks."""
        for entry in entries:
            task = tasks.get(entry.stream)
            if task is not None:
                self._write(entry, task)

    async def catch_up(self, task: Task) -> None:
        """Log what people did to a task since its last run began or ended, and how a run of this worker was ended by others.

        Workers log what they do themselves: a run of another worker is not logged again.
        """
        known = self._logged.get(task.id)
        after = max(task.version - LOOK_BACK, 0) if known is None else known
        rows = await self._store.select("events", {"stream": task.id, "after": after, "limit": LOOK_BACK})
        entries = [opened(ev.Stored(*row[: len(ev.Stored._fields)])) for row in rows]
        ends = [entry for entry in entries if type(entry.event) in OUTCOMES]
        if ends and isinstance(ends[-1].event, ev.RunLost):
            self._lost.add(task.id)
        turns = [number for number, entry in enumerate(entries) if _is_turn(entry)]
        unseen = turns[-1] + 1 if turns else len(entries) if known is None else 0
        for number, entry in enumerate(entries):
            self._remember(entry, task)
            if isinstance(entry.event, ev.RunStarted | ev.RunLost):
                self._begun.pop(task.id, None)
                continue
            news = [] if number < unseen or _by_worker(entry) else _lines(entry)
            self._log(task, [*self._run_lines(entry, task), *news])

    async def log_missed(self, task: Task) -> None:
        """Log what people did to a task during its last run here, such as the pause that ended it."""
        missed = self._missed.pop(task.id, None)
        if missed is None:
            return
        asked = {"stream": task.id, "after": missed.start - 1, "limit": min(len(missed), LOOK_BACK)}
        for row in await self._store.select("events", asked):
            entry = opened(ev.Stored(*row[: len(ev.Stored._fields)]))
            if not _by_worker(entry):
                self._log(task, _lines(entry))

    def _write(self, entry: ev.Entry, task: Task) -> None:
        known = self._logged.get(task.id)
        if known is not None and task.id in self._begun and entry.version > known + 1:
            first = self._missed[task.id].start if task.id in self._missed else known + 1
            self._missed[task.id] = range(first, entry.version)
        self._remember(entry, task)
        self._log(task, [*self._run_lines(entry, task), *_lines(entry)])

    def _remember(self, entry: ev.Entry, task: Task) -> None:
        self._logged.pop(task.id, None)
        self._logged[task.id] = entry.version
        if len(self._logged) > KNOWN_TASKS:
            del self._logged[next(iter(self._logged))]

    def _log(self, task: Task, lines: Sequence[Line]) -> None:
        common = {"task": task.id, "title": task.title, "agent": task.owner, "worker": self._worker}
        for level, message, fields in lines:
            told = {name: value for name, value in fields.items() if value is not None}
            log.log(level, message, extra={FIELDS: common | told})

    def _run_lines(self, entry: ev.Entry, task: Task) -> list[Line]:
        """Lines on the run that an event begins or ends."""
        event = entry.event
        if isinstance(event, ev.RunStarted):
            self._begun[task.id] = _Begun(entry.at, task.usage)
            message = "Run started, taken over" if task.id in self._lost else "Run started"
            self._lost.discard(task.id)
            return [(logging.INFO, message, {"run": event.run_id, "attempt": task.attempts + 1})]
        if isinstance(event, ev.RunLost):
            self._begun.pop(task.id, None)
            self._lost.add(task.id)
            return [(logging.WARNING, "Run lost", {"run": event.run_id})]
        begun = self._begun.pop(task.id, None) if type(event) in OUTCOMES and task.run is None else None
        if begun is None:
            return []
        outcome = OUTCOMES[type(event)]
        level = logging.WARNING if outcome in ("failed", "timeout") else logging.INFO
        return [(level, "Run ended", {"outcome": outcome} | _figures(begun, entry.at, task) | _error(event))]


def _by_worker(entry: ev.Entry) -> bool:
    """True for what a run or the engine did, which the worker that did it has logged."""
    return entry.actor.startswith(("agent:", "system:"))


def _is_turn(entry: ev.Entry) -> bool:
    """True if a worker began or ended a run here."""
    return _by_worker(entry) and (isinstance(entry.event, ev.RunStarted) or type(entry.event) in OUTCOMES)


def _figures(begun: _Begun, at: datetime, task: Task) -> Fields:
    """How long a run took and what it used."""
    used = task.usage.beyond(begun.usage)
    tokens = used.input_tokens + used.output_tokens
    return {"seconds": round((at - begun.at).total_seconds(), 3), "tokens": tokens, "cost": round(used.cost, 6)}


def _error(event: object) -> Fields:
    error = getattr(event, "error", None)
    return {"error": str(error)[:ERROR_LENGTH]} if error else {}


def _lines(entry: ev.Entry) -> list[Line]:
    """Lines on everything else."""
    make = _MAKERS.get(type(entry.event))
    return [] if make is None else [make(entry.event, entry)]


def _info(message: str, *names: str) -> Callable[[Any, ev.Entry], Line]:
    return _line(logging.INFO, message, *names)


def _line(level: int, message: str, *names: str) -> Callable[[Any, ev.Entry], Line]:
    """Makes a line with some fields of an event, and who caused it."""

    def make(event: Any, entry: ev.Entry) -> Line:
        return level, message, {name: _plain(getattr(event, name)) for name in names} | {"by": entry.actor}

    return make


def _plain(value: Any) -> Any:
    return ",".join(map(str, cast("Sequence[object]", value))) if isinstance(value, tuple) else value


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
