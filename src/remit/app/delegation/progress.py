"""Progress of the tasks that a call waits for, for every surface."""

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from typing import Any

from remit.app.context import AppContext
from remit.codec import task_of
from remit.domain.records.pick import pick
from remit.domain.task.task import TERMINAL, Interaction, State, Task
from remit.store_queries.query import NO_LIMIT
from remit.store_queries.run_queries import MESSAGES, PULSE, Pulse
from remit.store_queries.task_queries import TASKS

Item = dict[str, Any]

_ENDED = frozenset(state.value for state in TERMINAL)
_LISTED = 3
_ASK_SECONDS = 4.0
"""How often to check whether runnable and running tasks have a live worker."""
_FREE_WORKER = "a free worker"
_STEADY = ("state", "questions", "title", "owner")


async def with_heartbeats(
    items: AsyncGenerator[Item, None], silence_seconds: float
) -> AsyncGenerator[Item, None]:
    """Pass items on; after each silence, repeat the last known progress until the items end.

    Silence is measured from the last item that was sent, whatever the source waits for: news, a
    slow store, or the creation of the task.
    """
    last_report = _LastReport()
    pending = asyncio.ensure_future(_next(items))
    try:
        while True:
            await asyncio.wait({pending}, timeout=silence_seconds)
            if not pending.done():
                yield last_report.repeat()
                continue
            item = pending.result()
            if item is None:
                return
            last_report.take(item)
            yield item
            pending = asyncio.ensure_future(_next(items))
    finally:
        await _cancel(pending)
        await items.aclose()


async def _next(items: AsyncGenerator[Item, None]) -> Item | None:
    return await anext(items, None)


async def _cancel(pending: asyncio.Future[Item | None]) -> None:
    """Cancel the pending item and ignore its outcome."""
    pending.cancel()
    await asyncio.wait({pending})
    if not pending.cancelled():
        pending.exception()  # retrieved, so that asyncio does not log it


class _LastReport:
    """The last progress item of each live task."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live: dict[str, Item] = {}
        self._reported_at: dict[str, float] = {}
        self._repeated_at: dict[str, float] = {}

    def take(self, item: Item) -> None:
        """Remember an item that was sent."""
        if "state" not in item:
            return
        task_id = item["task_id"]
        if item["state"] in _ENDED:
            self._live.pop(task_id, None)
            return
        self._live[task_id] = item
        self._reported_at[task_id] = self._repeated_at[task_id] = time.monotonic()

    def repeat(self) -> Item:
        """Return the progress of one task, preferring tasks that run or have a question.

        Several tasks take turns.
        """
        now = time.monotonic()
        if not self._live:
            return {"type": "waiting", "seconds": round(now - self._began, 1)}
        busy = [name for name, item in self._live.items() if _is_busy(item)]
        task_id = min(busy or self._live, key=self._repeated_at.__getitem__)
        self._repeated_at[task_id] = now
        item = self._live[task_id]
        seconds = item["seconds"] + now - self._reported_at[task_id]
        return item | {"type": "task_progress", "seconds": round(seconds, 1)}


def _is_busy(item: Item) -> bool:
    """True for the progress of a task that runs or has a question."""
    return bool(item["questions"]) or item["state"] == "running"


async def watch_tasks(
    core: AppContext, indexes: Mapping[str, int], *, until: float = math.inf
) -> AsyncGenerator[Item, None]:
    """Yield the progress of tasks and their subtasks until they end or a time is reached.

    The store is read again after every notification, so no end is missed. If changes follow each
    other too quickly for the listener, only the latest is reported.
    """
    view = _TreeView(core, indexes)
    await core.adopt(indexes)
    async with core.store.watch() as notifier:
        while True:
            for item in await core.waits.read(view.look(), view.awaited):
                yield item
            now = asyncio.get_running_loop().time()
            if not view.awaited or now >= until:
                return
            await core.waits.wait(notifier, until, view.awaited)


class _TaskView:
    """What is known of a task: its version, and the messages of its current run."""

    def __init__(self, index: int) -> None:
        self.index, self.version, self.number = index, 0, 0
        self.at: datetime | None = None
        self.tokens: int = 0
        self.cost: float = 0.0
        self.calls: int = 0
        self.denied: int = 0
        """Denied calls, which do not count as tool uses."""
        self.tool: str | None = None
        self.reported: Item | None = None

    def add_message(self, number: int, at: str, document: str) -> None:
        """Count the usage and the tool calls of a message."""
        message: dict[str, Any] = json.loads(document)
        self.number = number
        self.at = datetime.fromisoformat(at)
        self.tokens += int(_number(message, "input") + _number(message, "output"))
        self.cost += float(_number(message, "cost"))
        for part in message["parts"]:
            if part["type"] == "tool_call":
                self.calls += 1
                self.tool = part["name"]


class _TreeView:
    """The awaited tasks, all tasks below them, and the last report on each."""

    def __init__(self, core: AppContext, indexes: Mapping[str, int]) -> None:
        self._core, self._roots = core, frozenset(indexes)
        self._seen: dict[str, _TaskView] = {}
        self._live: set[str] = set()
        self._add(indexes)
        self._need_worker: dict[str, Task] = {}
        """Running and runnable tasks: no event reports that their worker is gone."""
        self._unattended: frozenset[str] = frozenset()
        """Those of them without a live worker."""
        self._asked_at = -math.inf

    def _add(self, indexes: Mapping[str, int]) -> None:
        """Watch more tasks, given with the index of their item."""
        for task_id, index in indexes.items():
            self._seen[task_id] = _TaskView(index)
            self._live.add(task_id)

    @property
    def awaited(self) -> set[str]:
        """The awaited tasks that have not ended."""
        return self._live & self._roots

    async def look(self) -> list[Item]:
        """Return the news since the last look; subtasks are found through their parents."""
        items: list[Item] = []
        edge = set(self._live)
        while edge:
            tasks = await self._changed(edge)
            below: dict[str, int] = {}
            for task in tasks:
                below |= self._new_children(task)
            below |= await self._successors(tasks)
            self._add(below)
            self._live -= {task.id for task in tasks if task.state.terminal}
            items += await self._all_news(tasks)
            edge = set(below)
        return items + await self._unattended_news()

    def _new_children(self, task: Task) -> dict[str, int]:
        """Return the subtasks of a task that were not seen before, with their index."""
        index = self._seen[task.id].index
        return {child.id: index for child in task.children if child.id not in self._seen}

    async def _all_news(self, tasks: Iterable[Task]) -> list[Item]:
        """Return the news of some tasks, in their order."""
        items = [await self._news(task) for task in tasks]
        return list(filter(None, items))

    async def _successors(self, tasks: Iterable[Task]) -> dict[str, int]:
        """Return the successors of awaited tasks after a handoff; they are awaited instead."""
        found = {
            task.superseded_by: self._seen[task.id].index
            for task in tasks
            if task.superseded_by and task.id in self._roots
        }
        if found:
            self._roots |= found.keys()
            await self._core.adopt(found)
        return found

    async def _unattended_news(self) -> list[Item]:
        """Return news of tasks that have lost their worker, or have one again.

        Workers are checked every few seconds.
        """
        if not self._need_worker or time.monotonic() - self._asked_at < _ASK_SECONDS:
            return []
        self._asked_at = time.monotonic()
        unattended = frozenset(await self._core.unattended(self._need_worker))
        changed, self._unattended = unattended ^ self._unattended, unattended
        task_ids = sorted(changed & self._need_worker.keys(), key=int)
        return await self._all_news([self._need_worker[task_id] for task_id in task_ids])

    async def _changed(self, task_ids: Iterable[str]) -> list[Task]:
        """Return the tasks that have changed since the last look, and read their new messages."""
        ids = list(map(int, task_ids))
        pulses = await self._core.store.select(PULSE, {"ids": ids})
        changed_ids = [pulse.id for pulse in pulses if await self._note_pulse(pulse)]
        rows = await TASKS.among(self._core.store.select, ids=changed_ids)
        return [task_of(row.doc, row.id) for row in rows]

    async def _note_pulse(self, pulse: Pulse) -> bool:
        """Read the new messages of a task; return whether anything about it has changed."""
        seen = self._seen[str(pulse.id)]
        has_changed = pulse != (pulse.id, seen.version, seen.number, seen.denied)
        seen.denied = pulse.denied
        if pulse.number > seen.number:
            await self._read_messages(pulse.id, seen)
        return has_changed

    async def _read_messages(self, task_id: int, seen: _TaskView) -> None:
        """Count the messages of a task that were not seen before."""
        params = {"id": task_id, "after": seen.number, "limit": NO_LIMIT}
        for row in await self._core.store.select(MESSAGES, params):
            seen.add_message(row.number, row.at, row.doc)

    async def _news(self, task: Task) -> Item | None:
        """Return the progress of a task; None if nothing about it has changed."""
        seen = self._seen[task.id]
        waits_for = await self._waits_for(task)
        self._note_need(task, waits_for)
        now = self._shown(task) | {"waits_for": waits_for}
        if task.id in self._unattended:
            now |= {"waits_for": _NO_WORKER[task.state], "unattended": True}
        before, seen.reported, seen.version = seen.reported, now, task.version
        if now == before:
            return None
        item = {"type": _kind_of_news(before, now), **now}
        if task.superseded_by:
            item["superseded_by"] = task.superseded_by
        return item | {"seconds": self._seconds(task)}

    def _note_need(self, task: Task, waits_for: str | None) -> None:
        """Note whether a task needs a worker."""
        if self._needs_worker(task, waits_for):
            self._need_worker[task.id] = task
        else:
            self._need_worker.pop(task.id, None)
            self._unattended -= {task.id}

    def _seconds(self, task: Task) -> float:
        """Return how many seconds ago the last event or message of a task was."""
        since = task.updated_at
        spoke_at = self._seen[task.id].at
        if spoke_at is not None:
            since = max(since, spoke_at)
        silence = self._core.clock.now() - since
        return round(max(0.0, silence.total_seconds()), 1)

    async def _waits_for(self, task: Task) -> str | None:
        """Return what a task waits for, as text; None while it runs or after its end."""
        if task.state in _HELD_BY_PEOPLE:
            return _HELD_BY_PEOPLE[task.state].format(id=task.id)
        if task.state is State.PENDING:
            return await self._waits_to_start(task)
        if task.state is not State.WAITING or task.wait is None:
            return None
        return _listed(_KINDS[item.kind].format(ref=item.ref) for item in task.wait.on)

    def _needs_worker(self, task: Task, waits_for: str | None) -> bool:
        """True for a running task, or a runnable one that needs a worker of another process."""
        if task.state is State.RUNNING:
            return task.session_id is None
        is_startable = task.state is State.PENDING and waits_for == _FREE_WORKER
        return is_startable and self._core.start_worker is None

    async def _waits_to_start(self, task: Task) -> str:
        """Return what a pending task waits for."""
        if task.session_id is not None:
            return f"session {task.session_id}, to which it is assigned"
        if task.owner is None:
            return "an agent (it has no owner)"
        if not _may_start_later(task):
            return _FREE_WORKER
        view = await self._core.task(task.id)
        if view["blocked_by"]:
            return _listed(f"task {other}" for other in view["blocked_by"])
        return _start_time(view) or _FREE_WORKER

    def _shown(self, task: Task) -> Item:
        """Return the state of a task as the caller sees it."""
        seen = self._seen[task.id]
        return {
            "index": seen.index,
            "task_id": task.id,
            "parent_id": task.parent_id,
            "title": task.title,
            "owner": task.owner,
            "state": task.state.value,
            "tool": seen.tool,
            "tool_calls": max(task.usage.tool_calls, seen.calls - seen.denied),
            "tokens": max(task.usage.input_tokens + task.usage.output_tokens, seen.tokens),
            "cost": max(task.usage.cost, seen.cost),
            "questions": list(map(_question, task.questions)),
        }


def _number(message: Mapping[str, Any], name: str) -> float:
    """Return a stored number of a message; 0 if it is missing or unknown."""
    return message.get(name) or 0


def _may_start_later(task: Task) -> bool:
    """True for a task that has not started and may have to wait for other tasks or a time."""
    if task.started_at is not None:
        return False
    return bool(task.depends_on) or task.schedule is not None


def _start_time(view: Mapping[str, Any]) -> str:
    """Return the time that a task waits for, as text; empty if it waits for none."""
    schedule: dict[str, str] = view["schedule"] or {}
    not_before = schedule.get("not_before")
    if not_before is None or view["ready"]:
        return ""
    return f"its start time, {not_before}"


def _kind_of_news(before: Item | None, now: Item) -> str:
    """Return the type of a progress item; without one before, the task is new to the caller."""
    if before is None:
        return "task_started"
    if pick(now, _STEADY) == pick(before, _STEADY):
        return "task_progress"
    return "task_updated"


_HELD_BY_PEOPLE = {
    State.PAUSED: "someone to resume it (`remit task resume {id}`)",
    State.DRAFT: "its activation",
}
_NO_WORKER = {
    State.RUNNING: "a worker: the one that ran it is gone",
    State.PENDING: "a worker: none is running for it",
}
_KINDS = {
    "user": "your answer (`remit inbox`)",
    "subtask": "task {ref}",
    "timer": "a timer",
    "tick": "the next tick (`remit schedule show`)",
}


def _question(item: Interaction) -> Item:
    """Return an open question for the waiting caller."""
    return {
        "id": item.id,
        "question": item.question,
        "options": list(item.options),
        "allow_other": item.allow_other or not item.options,
    }


def _listed(things: Iterable[str]) -> str:
    """Join distinct texts with commas; of many, list only the first."""
    every = list(dict.fromkeys(things))
    text = ", ".join(every[:_LISTED])
    if len(every) <= _LISTED:
        return text
    return f"{text} and {len(every) - _LISTED} more"
