"""The trees that the worker of this process serves: those that the process created or waits for, and what they depend on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from remit.app.attendance import IsDead, is_attended
from remit.domain.wire import dumps
from remit.ports import Store

Prepare = Callable[[Sequence[int]], Awaitable[None]]


class Scope:
    """A growing set of roots; trees that have ended leave it."""

    def __init__(self, store: Store, lease_seconds: float, is_dead: IsDead, via: str | None = None) -> None:
        self._store, self._lease_seconds, self._is_dead = store, lease_seconds, is_dead
        self._via = via
        """Live trees that were created through this surface are served when nobody else does."""
        self._roots: frozenset[int] = frozenset()
        self._adopted = asyncio.Event()
        self._asked_for: set[int] = set()
        """What was asked for since the last look at which trees have ended."""
        self.prepare: Prepare | None = None
        """Called with the roots of trees before they are served."""
        self.on_adopt: Callable[[], None] = lambda: None
        """Called when there may be jobs to claim that were not wanted before."""

    def __contains__(self, root_id: object) -> bool:
        """True for the root of a tree that is served."""
        return root_id in self._roots

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of all trees that are served."""
        return tuple(sorted(self._roots))

    @property
    def shown(self) -> str:
        """The same as other processes read it."""
        return dumps(list(self.roots))

    async def adopt(self, roots: Iterable[int]) -> None:
        """Serve these trees from now on, and the trees that they depend on."""
        asked = frozenset(roots)
        self._asked_for |= asked
        new = asked - self._roots
        if not new:
            return
        wanted = await self._with_needed(new)
        await self._add(wanted - self._roots)

    async def wait_for_adoption(self, seconds: float) -> None:
        """Return when a tree was adopted that others may have left in any state, or after some time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._adopted.wait()
        self._adopted.clear()

    def add_new(self, root_id: int) -> None:
        """Serve a tree that was created just now and depends on nothing."""
        self._roots |= {root_id}
        self.on_adopt()

    async def adopt_created(self) -> None:
        """Serve every live tree that was created through the surface of this process."""
        await self.adopt(await self._created())

    async def refresh(self) -> None:
        """Forget the trees that have ended; serve what the others have come to depend on, and what the dead have left."""
        looked_at = self._roots
        if looked_at:
            self._asked_for.clear()
            in_use = await self._select("roots_in_use", looked_at)
            self._roots -= looked_at - in_use - self._asked_for
            needed = await self._with_needed(self._roots)
            await self._add(needed - self._roots)
        left = await self._created() - self._roots
        if left:
            rows = await self._store.workers()
            await self.adopt(root for root in left if not is_attended(rows, self._lease_seconds, self._is_dead, root))

    async def _created(self) -> frozenset[int]:
        if self._via is None:
            return frozenset()
        return frozenset(row[0] for row in await self._store.select("roots_via", {"via": self._via}))

    async def _add(self, new: frozenset[int]) -> None:
        if not new:
            return
        if self.prepare is not None:
            await self.prepare(sorted(new))
        self._roots |= new
        self._adopted.set()
        self.on_adopt()

    async def _with_needed(self, roots: frozenset[int]) -> frozenset[int]:
        """These roots, and those of unfinished tasks that their trees depend on, however many steps away."""
        found = edge = roots
        while edge:
            edge = await self._select("roots_needed", edge) - found
            found |= edge
        return found

    async def _select(self, query: str, roots: Iterable[int]) -> frozenset[int]:
        return frozenset(row[0] for row in await self._store.select(query, {"ids": sorted(roots)}))
