"""What goes on below tasks that a call waits for: the one source of progress for every surface."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from typing import Any

from remit.app.conversation import EVERYTHING
from remit.app.core import Core
from remit.codec import task_of
from remit.domain.value import TERMINAL, Interaction, State, Task

Item = dict[str, Any]

_ENDED = frozenset(state.value for state in TERMINAL)
_LISTED = 3
_ASK_SECONDS = 4.0
"""How often to ask whether running tasks still have a live worker."""
_STEADY = ("state", "questions", "title", "owner")


async def spoken(items: AsyncGenerator[Item, None], silence_seconds: float) -> AsyncGenerator[Item, None]:
    """Pass items on; after each silence, repeat how things stand, until the items end.

    Silence is measured from the last item that was said, whatever the items themselves wait for:
    news, a slow store, or the creation of the task.
    """
    standing = _Standing()
    coming: asyncio.Future[Item | None] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.ensure_future(_next(items))
            await asyncio.wait({coming}, timeout=silence_seconds)
            if not coming.done():
                yield standing.repeat()
                continue
            item = coming.result()
            coming = None
            if item is None:
                return
            standing.take(item)
            yield item
    finally:
        await _stopped(coming)
        await items.aclose()


async def _next(items: AsyncGenerator[Item, None]) -> Item | None:
    return await anext(items, None)


async def _stopped(coming: asyncio.Future[Item | None] | None) -> None:
    """Cancel the pending item and ignore its outcome."""
    if coming is not None:
        coming.cancel()
        await asyncio.wait({coming})
        if not coming.cancelled():
            coming.exception()  # read, so that it is not logged as forgotten


class _Standing:
    """What was said last of each task that has not ended."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live: dict[str, Item] = {}
        self._told_at: dict[str, float] = {}
        self._said_at: dict[str, float] = {}

    def take(self, item: Item) -> None:
        """Remember an item that was said."""
        if "state" not in item:
            return
        task_id = item["task_id"]
        if item["state"] in _ENDED:
            self._live.pop(task_id, None)
            return
        self._live[task_id] = item
        self._told_at[task_id] = self._said_at[task_id] = time.monotonic()

    def repeat(self) -> Item:
        """How one of the tasks stands: one that works or asks a person, and in turn if there are several."""
        now = time.monotonic()
        if not self._live:
            return {"type": "waiting", "seconds": round(now - self._began, 1)}
        busy = [name for name, item in self._live.items() if item["questions"] or item["state"] == "running"]
        task_id = min(busy or self._live, key=self._said_at.__getitem__)
        self._said_at[task_id] = now
        item = self._live[task_id]
        seconds = item["seconds"] + now - self._told_at[task_id]
        return item | {"type": "task_progress", "seconds": round(seconds, 1)}


async def watched(core: Core, indexes: Mapping[str, int], *, until: float | None = None) -> AsyncGenerator[Item, None]:
    """How tasks and all below them stand, whenever that changes, until they end or a point of the loop's time.

    The store is read again after every ring, so no end is missed. If changes follow each other too
    quickly for the listener, only the latest is told.
    """
    sight = _Sight(core, indexes)
    await core.adopt(indexes)
    async with core.store.watch() as bell:
        while True:
            for item in await sight.look():
                yield item
            now = asyncio.get_running_loop().time()
            if not sight.awaited or (until is not None and now >= until):
                return
            await core.waits.ring(bell, until, sight.awaited)


class _Seen:
    """What is known of a task: its version, and what its conversation tells before its run has ended."""

    def __init__(self, index: int) -> None:
        self.index, self.version, self.number = index, 0, 0
        self.at: datetime | None = None
        self.tokens: int = 0
        self.cost: float = 0.0
        self.calls: int = 0
        self.denied: int = 0
        """Calls that were not allowed: they are not uses of a tool, neither here nor in a result."""
        self.tool: str | None = None
        self.told: Item | None = None

    def hear(self, number: int, at: str, document: str) -> None:
        """Take in a message."""
        said: dict[str, Any] = json.loads(document)
        self.number = number
        self.at = datetime.fromisoformat(at)
        self.tokens += int(said.get("input") or 0) + int(said.get("output") or 0)
        self.cost += float(said.get("cost") or 0.0)
        tools: list[str] = [part["name"] for part in said["parts"] if part["type"] == "tool_call"]
        self.calls += len(tools)
        self.tool = tools[-1] if tools else self.tool


class _Sight:
    """Tasks at the top, all below them, and what was told of each."""

    def __init__(self, core: Core, indexes: Mapping[str, int]) -> None:
        self._core, self._roots = core, frozenset(indexes)
        self._seen: dict[str, _Seen] = {task_id: _Seen(index) for task_id, index in indexes.items()}
        self._live = set(indexes)
        self._running: dict[str, Task] = {}
        """Tasks that run, and so would not be looked at again if their worker died."""
        self._alone: frozenset[str] = frozenset()
        """Those of them that no live worker works on."""
        self._asked_at = time.monotonic()

    @property
    def awaited(self) -> set[str]:
        """The tasks at the top that have not ended."""
        return self._live & self._roots

    async def look(self) -> list[Item]:
        """What there is to tell since the last look; those below are found by those above them."""
        items: list[Item] = []
        edge = set(self._live)
        while edge:
            tasks = await self._moved(edge)
            below = {child.id: self._seen[task.id].index for task in tasks for child in task.children if child.id not in self._seen}
            below |= await self._successors(tasks)
            self._seen.update((task_id, _Seen(index)) for task_id, index in below.items())
            self._live |= below.keys()
            self._live -= {task.id for task in tasks if task.state.terminal}
            items += [item for task in tasks if (item := await self._news(task)) is not None]
            edge = set(below)
        return items + await self._left_alone()

    async def _successors(self, tasks: Iterable[Task]) -> dict[str, int]:
        """The successors of awaited tasks that were handed to another agent: they are awaited in their place."""
        moved = [task for task in tasks if task.id in self._roots]
        found = {task.superseded_by: self._seen[task.id].index for task in moved if task.superseded_by}
        if found:
            self._roots |= found.keys()
            await self._core.adopt(found)
        return found

    async def _left_alone(self) -> list[Item]:
        """News of running tasks whose worker is gone, or is there again; asked for now and then."""
        if not self._running or time.monotonic() - self._asked_at < _ASK_SECONDS:
            return []
        self._asked_at = time.monotonic()
        alone = frozenset(await self._core.unattended(self._running))
        changed, self._alone = alone ^ self._alone, alone
        items = [await self._news(self._running[task_id]) for task_id in sorted(changed & self._running.keys(), key=int)]
        return [item for item in items if item is not None]

    async def _moved(self, task_ids: Iterable[str]) -> list[Task]:
        """Those of some tasks to which something has happened; what was said meanwhile is taken in."""
        moved: list[int] = []
        for task_id, version, number, denied in await self._core.store.select("pulse", {"ids": [int(task_id) for task_id in task_ids]}):
            seen = self._seen[str(task_id)]
            if (version, number, denied) != (seen.version, seen.number, seen.denied):
                moved.append(task_id)
            seen.denied = denied
            if number > seen.number:
                for row in await self._core.store.select("messages", {"id": task_id, "after": seen.number, "limit": EVERYTHING}):
                    seen.hear(row[1], row[4], row[-1])
        rows = await self._core.store.select("tasks", {"ids": moved}) if moved else []
        return [task_of(document, task_id) for task_id, _, document in rows]

    async def _news(self, task: Task) -> Item | None:
        seen = self._seen[task.id]
        if task.state is State.RUNNING and task.session_id is None:
            self._running[task.id] = task
        else:
            self._running.pop(task.id, None)
            self._alone -= {task.id}
        now = self._shown(task) | {"waits_for": await self._waits_for(task)}
        before, seen.told, seen.version = seen.told, now, task.version
        if now == before:
            return None
        steady = before is not None and all(now[name] == before[name] for name in _STEADY)
        kind = "task_started" if before is None else "task_progress" if steady else "task_updated"
        handed = {"superseded_by": task.superseded_by} if task.superseded_by else {}
        return {"type": kind, **now, **handed, "seconds": self._seconds(task)}

    def _seconds(self, task: Task) -> float:
        """How long nothing has happened to a task: no event, and no message of its conversation."""
        spoke_at = self._seen[task.id].at
        since = task.updated_at if spoke_at is None else max(task.updated_at, spoke_at)
        return round(max(0.0, (self._core.clock.now() - since).total_seconds()), 1)

    async def _waits_for(self, task: Task) -> str | None:
        """What must happen before a task goes on, in words for people; None while it works or has ended."""
        if task.state is State.PAUSED:
            return f"someone to resume it (remit task resume {task.id})"
        if task.state is State.DRAFT:
            return "its activation"
        if task.state is State.WAITING and task.wait is not None:
            return _listed(_KINDS[item.kind].format(ref=item.ref) for item in task.wait.on)
        if task.state is State.PENDING:
            return await self._start_of(task)
        if task.id in self._alone:
            return "a worker: the one that ran it is gone"
        return None

    async def _start_of(self, task: Task) -> str:
        """What a task that could run waits for."""
        if task.session_id is not None:
            return f"session {task.session_id}, to which it is assigned"
        if task.owner is None:
            return "an agent (it has no owner)"
        if task.started_at is None and (task.depends_on or task.schedule is not None):
            view = await self._core.task(task.id)
            schedule: dict[str, str] = view["schedule"] or {}
            not_before = schedule.get("not_before")
            if view["blocked_by"]:
                return _listed(f"task {other}" for other in view["blocked_by"])
            if not_before is not None and not view["ready"]:
                return f"its start time, {not_before}"
        return "a free worker"

    def _shown(self, task: Task) -> Item:
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
            "questions": [_question(item) for item in task.questions],
        }


_KINDS = {
    "user": "your answer (remit inbox)",
    "subtask": "task {ref}",
    "timer": "a timer",
    "tick": "its turn at the next tick (remit schedule)",
    "external": "an event outside of remit",
}


def _question(item: Interaction) -> Item:
    """An open question as the waiting caller sees it."""
    return {
        "id": item.id,
        "question": item.question,
        "options": list(item.options),
        "allow_other": item.allow_other or not item.options,
    }


def _listed(things: Iterable[str]) -> str:
    """Several things in a line, each once; only the first of many."""
    every = list(dict.fromkeys(things))
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return ", ".join(every[:_LISTED]) + more
