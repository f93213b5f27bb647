"""The trees that the worker of a process serves.

These are the trees that the process created or waits for, and the trees that they depend on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from remit.app.runs.live_workers import IsDead, is_attended, unserved_roots
from remit.domain.records.serialize import dumps, instant
from remit.ports import Clock, Store
from remit.store_queries.query import Query
from remit.store_queries.tree_queries import ROOTS_IN_USE, ROOTS_NEEDED, ROOTS_VIA, TaskRoot

Prepare = Callable[[Sequence[int]], Awaitable[None]]


async def _need_no_preparation(_roots: Sequence[int]) -> None:
    """Let trees be served at once."""


class AllTrees:
    """The scope of a worker that serves every tree, so that it has none to adopt."""

    def __init__(self) -> None:
        self.prepare: Prepare = _need_no_preparation
        self.on_adopt: Callable[[], None] = lambda: None

    @property
    def roots(self) -> None:
        """None: the worker serves all roots."""
        return

    @property
    def shown(self) -> str:
        """Empty: the worker serves all roots."""
        return ""

    async def adopt(self, roots: Iterable[int]) -> None:
        """Do nothing: these trees are served."""

    async def adopt_created(self) -> None:
        """Do nothing: every tree is served."""

    async def refresh(self) -> None:
        """Do nothing: no tree is added or removed."""

    async def wait_for_adoption(self, seconds: float) -> None:
        """Wait until a timeout: no tree is adopted."""
        await asyncio.sleep(seconds)


class Scope:
    """A set of roots that grows as trees are adopted; ended trees are removed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease_seconds: float,
        is_dead: IsDead,
        via: str | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self._lease_seconds, self._is_dead = lease_seconds, is_dead
        self._via = via
        """Live trees created through this surface are served if no other worker does."""
        self._roots: frozenset[int] = frozenset()
        self._adopted = asyncio.Event()
        self._asked_for: set[int] = set()
        """Roots that were requested since the last check for ended trees."""
        self.prepare: Prepare = _need_no_preparation
        """Called with new roots before their trees are served."""
        self.on_adopt: Callable[[], None] = lambda: None
        """Called when there may be new jobs to claim."""

    def __contains__(self, root_id: object) -> bool:
        """True for the root of a tree that is served."""
        return root_id in self._roots

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of all trees that are served."""
        return tuple(sorted(self._roots))

    @property
    def shown(self) -> str:
        """The roots as JSON, for other processes."""
        return dumps(list(self.roots))

    async def adopt(self, roots: Iterable[int]) -> None:
        """Serve these trees, and the trees that they depend on."""
        asked = frozenset(roots)
        self._asked_for |= asked
        new = asked - self._roots
        if not new:
            return
        wanted = await self._with_needed(new)
        await self._add(wanted - self._roots)

    async def wait_for_adoption(self, seconds: float) -> None:
        """Wait until a tree of unknown state was adopted, or until a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._adopted.wait()
        self._adopted.clear()

    def add_new(self, root_id: int) -> None:
        """Serve a tree that was just created and depends on no other."""
        self._roots |= {root_id}
        self.on_adopt()

    async def adopt_created(self) -> None:
        """Serve every live tree that was created through the surface of this process."""
        await self.adopt(await self._created())

    async def refresh(self) -> None:
        """Drop ended trees, and adopt new dependencies and trees whose worker has died."""
        looked_at = self._roots
        if looked_at:
            self._asked_for.clear()
            in_use = await self._select(ROOTS_IN_USE, ids=sorted(looked_at))
            self._roots -= looked_at - in_use - self._asked_for
            needed = await self._with_needed(self._roots)
            await self._add(needed - self._roots)
        left = await self._created() - self._roots
        if left:
            await self.adopt(await self._abandoned(left))

    async def _abandoned(self, roots: frozenset[int]) -> frozenset[int]:
        """Return the roots whose tree, or a due job of it, no live worker serves."""
        rows = await self._store.workers()
        lease, is_dead = self._lease_seconds, self._is_dead
        now = instant(self._clock.now())
        unserved = await unserved_roots(self._store, rows, lease, is_dead, now)
        return frozenset(
            root
            for root in roots
            if root in unserved or not is_attended(rows, lease, is_dead, root)
        )

    async def _created(self) -> frozenset[int]:
        """Return the roots of the trees that were created through the surface of this process."""
        if self._via is None:
            return frozenset()
        return await self._select(ROOTS_VIA, via=self._via)

    async def _add(self, new: frozenset[int]) -> None:
        """Serve more trees; they are prepared first."""
        if not new:
            return
        await self.prepare(sorted(new))
        self._roots |= new
        self._adopted.set()
        self.on_adopt()

    async def _with_needed(self, roots: frozenset[int]) -> frozenset[int]:
        """Return these roots and those of unfinished tasks they depend on, transitively."""
        found = edge = roots
        while edge:
            edge = await self._select(ROOTS_NEEDED, ids=sorted(edge)) - found
            found |= edge
        return found

    async def _select(self, query: Query[TaskRoot], **params: Any) -> frozenset[int]:
        """Return the roots that a query finds."""
        rows = await self._store.select(query, params)
        return frozenset(row.root_id for row in rows)
