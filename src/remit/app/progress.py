"""What goes on below tasks that somebody waits for: the one source of progress for every surface."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from remit.app.conversation import EVERYTHING
from remit.app.core import Core
from remit.codec import task_of
from remit.domain.value import Task

Item = dict[str, Any]

STILL_SECONDS = 15.0
"""After how long a silence it is said again how things stand: callers give up on what seems dead."""


async def watched(
    core: Core, indexes: Mapping[str, int], *, until: float | None = None, still_seconds: float = STILL_SECONDS
) -> AsyncGenerator[Item, None]:
    """How tasks and all below them stand, whenever that changes, until they have ended or a point of the loop's time is reached.

    Looked at again after every ring, so that no end is missed; of what follows too quickly for the listener only the last is told.
    """
    sight = _Sight(core, indexes)
    async with core.store.watch() as bell:
        while True:
            for item in await sight.look():
                yield item
            if not sight.awaited or (until is not None and asyncio.get_running_loop().time() >= until):
                return
            silence = asyncio.get_running_loop().time() + still_seconds
            if not await core.waits.ring(bell, silence if until is None else min(silence, until), sight.awaited):
                yield sight.again()


class _Seen:
    """What is known of a task: its version, and what its conversation tells before its run has ended."""

    def __init__(self, index: int) -> None:
        self.index, self.version, self.number = index, 0, 0
        self.tokens: int = 0
        self.cost: float = 0.0
        self.calls: int = 0
        self.tool: str | None = None
        self.told: Item | None = None

    def hear(self, number: int, document: str) -> None:
        """Take in a message."""
        said: dict[str, Any] = json.loads(document)
        self.number = number
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
        self._last: Item = {}

    @property
    def awaited(self) -> set[str]:
        """The tasks at the top that have not ended."""
        return self._live & self._roots

    def again(self) -> Item:
        """What was said last."""
        return self._last | {"type": "task_progress"}

    async def look(self) -> list[Item]:
        """What there is to tell since the last look; those below are found by those above them."""
        items: list[Item] = []
        edge = set(self._live)
        while edge:
            tasks = await self._moved(edge)
            below = {child.id: self._seen[task.id].index for task in tasks for child in task.children if child.id not in self._seen}
            self._seen.update((task_id, _Seen(index)) for task_id, index in below.items())
            self._live |= below.keys()
            self._live -= {task.id for task in tasks if task.state.terminal}
            items += [item for task in tasks if (item := self._news(task)) is not None]
            edge = set(below)
        return items

    async def _moved(self, task_ids: Iterable[str]) -> list[Task]:
        """Those of some tasks to which something has happened; what was said meanwhile is taken in."""
        moved: list[int] = []
        for task_id, version, number in await self._core.store.select("pulse", {"ids": [int(task_id) for task_id in task_ids]}):
            seen = self._seen[str(task_id)]
            if (version, number) != (seen.version, seen.number):
                moved.append(task_id)
            if number > seen.number:
                for row in await self._core.store.select("messages", {"id": task_id, "after": seen.number, "limit": EVERYTHING}):
                    seen.hear(row[1], row[-1])
        rows = await self._core.store.select("tasks", {"ids": moved}) if moved else []
        return [task_of(document, task_id) for task_id, _, document in rows]

    def _news(self, task: Task) -> Item | None:
        seen, now = self._seen[task.id], self._shown(task)
        before, seen.told, seen.version = seen.told, now, task.version
        if now == before:
            return None
        steady = before is not None and all(now[name] == before[name] for name in ("state", "questions", "title", "owner"))
        self._last = {"type": "task_started" if before is None else "task_progress" if steady else "task_updated", **now}
        return self._last

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
            "tool_calls": max(task.usage.tool_calls, seen.calls),
            "tokens": max(task.usage.input_tokens + task.usage.output_tokens, seen.tokens),
            "cost": max(task.usage.cost, seen.cost),
            "questions": [{"id": item.id, "question": item.question, "options": list(item.options)} for item in task.questions],
        }
