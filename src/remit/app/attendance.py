"""Which workers are alive, and whether one of them works on a tree: the one definition of it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from remit.ports import WorkerRow

if TYPE_CHECKING:
    from remit.app.core import Core

IsDead = Callable[[WorkerRow], bool]
"""True for a worker that is known to be dead, whatever its last heartbeat says."""


def never_dead(_row: WorkerRow) -> bool:
    """False: where processes cannot be looked at, only heartbeats tell."""
    return False


def is_alive(row: WorkerRow, lease_seconds: float, is_dead: IsDead) -> bool:
    """True for a worker that was heard of within a lease and is not known to be dead."""
    return row.age_seconds < lease_seconds and not is_dead(row)


def serves(row: WorkerRow, root_id: int | None, agent: str | None = None) -> bool:
    """True for a worker that works on the tree with this root, for an agent; without a root, on every tree."""
    agents = row.agents.split(",") if row.agents else []
    works_for = bool(agents) if agent is None else agent in agents
    return works_for and (row.roots is None or (root_id is not None and root_id in row.roots))


def is_attended(
    rows: Iterable[WorkerRow],
    lease_seconds: float,
    is_dead: IsDead,
    root_id: int | None = None,
    agent: str | None = None,
) -> bool:
    """True if a live worker works on the tree with this root, for an agent; without a root, on every tree."""
    return any(serves(row, root_id, agent) and is_alive(row, lease_seconds, is_dead) for row in rows)


async def served_agents(core: "Core") -> frozenset[str]:
    """The agents that live workers work for, whether or not they are known here."""
    alive = [row for row in await core.store.workers() if is_alive(row, core.lease_seconds, core.is_dead)]
    return frozenset(agent for row in alive for agent in row.agents.split(",") if agent)


async def unknown_agents(core: "Core", agents: Iterable[str]) -> frozenset[str]:
    """Those of some agents that neither this process nor a live worker knows."""
    unknown = frozenset(agents) - core.agents.ids()
    return unknown - await served_agents(core) if unknown else unknown


async def left_alone(core: "Core") -> list[str]:
    """The roots of trees that a worker for everything would work on now, and that no live worker serves."""
    rows = await core.store.workers()
    due = [root for (root,) in await core.store.select("roots_due", {"now": core.now()})]
    over = {row[0] for row in await core.store.select("ended", {"ids": due})}
    others = [root for root in due if root not in over and (core.scope is None or root not in core.scope)]
    unserved = [root for root in others if not is_attended(rows, core.lease_seconds, core.is_dead, root)]
    return [str(root) for root in unserved]
