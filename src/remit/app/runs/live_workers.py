"""Which workers are alive, and which trees they serve."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from remit.domain.projection.follow_up_jobs import AGENT
from remit.domain.records.serialize import instant
from remit.ports import Store, WorkerRow
from remit.store_queries.tree_queries import ROOTS_DUE, UNENDED

if TYPE_CHECKING:
    from remit.app.context import AppContext

IsDead = Callable[[WorkerRow], bool]
"""Returns True for a worker that is known to be dead despite its last heartbeat."""


HEARTBEAT_DELAY = 1.0
"""How many seconds a heartbeat may lag behind the creation of a tree."""


def never_dead(_row: WorkerRow) -> bool:
    """Return False: without access to processes, only heartbeats count."""
    return False


def is_alive(row: WorkerRow, lease_seconds: float, is_dead: IsDead) -> bool:
    """True for a worker with a heartbeat within the lease that is not known to be dead."""
    return row.age_seconds < lease_seconds and not is_dead(row)


def serves(row: WorkerRow, root_id: int | None, agent: str | None = None) -> bool:
    """True for a worker that serves the tree with this root, for an agent.

    Without a root: that serves every tree. Without an agent: for any agent.
    """
    return _works_on(_agents_of(row), row.roots, root_id, agent)


def _agents_of(row: WorkerRow) -> list[str]:
    """Return the agents that a worker works for."""
    return list(filter(None, row.agents.split(",")))


def _works_on(
    agents: Collection[str],
    roots: Collection[int] | None,
    root_id: int | None,
    agent: str | None,
) -> bool:
    """True if a worker with these agents and roots serves a tree for an agent."""
    works_for = bool(agents) if agent is None else agent in agents
    if roots is None or not works_for:
        return works_for
    return root_id in roots


def is_attended_by(workers: Iterable[Mapping[str, Any]], task: Mapping[str, Any]) -> bool:
    """True if a live worker works on a task; both are given as the API returns them."""
    agent = agent_needed(task["state"], task["owner"])
    root_id = int(task["root_id"])
    alive = [item for item in workers if item["alive"]]
    return any(
        _works_on(item["agents"], _roots_of(item["scope"]), root_id, agent) for item in alive
    )


def agent_needed(state: str, owner: str | None) -> str | None:
    """Return the agent that a worker must work for to continue a task.

    None for acceptance criteria, which every worker checks.
    """
    return None if state == "verifying" else owner


def _roots_of(scope: Iterable[str] | None) -> frozenset[int] | None:
    """Return the roots of a scope; None if it holds every tree."""
    if scope is None:
        return None
    return frozenset(map(int, scope))


def is_attended(
    rows: Iterable[WorkerRow],
    lease_seconds: float,
    is_dead: IsDead,
    root_id: int | None = None,
    agent: str | None = None,
) -> bool:
    """True if a live worker serves the tree with this root, for an agent.

    Without a root: that serves every tree.
    """
    return any(
        serves(row, root_id, agent) and is_alive(row, lease_seconds, is_dead) for row in rows
    )


async def served_agents(core: "AppContext") -> frozenset[str]:
    """Return the agents that live workers work for, known to this process or not."""
    rows = await core.store.workers()
    alive = (row for row in rows if is_alive(row, core.lease_seconds, core.is_dead))
    return frozenset(chain.from_iterable(map(_agents_of, alive)))


async def unknown_agents(core: "AppContext", agents: Iterable[str]) -> frozenset[str]:
    """Return those agents that neither this process nor a live worker knows."""
    unknown = frozenset(agents) - core.agents.ids()
    if not unknown:
        return unknown
    return unknown - await served_agents(core)


async def left_alone(core: "AppContext") -> list[str]:
    """Return the roots of unfinished trees that no live worker serves or is about to serve.

    Only trees with jobs that are due count.
    """
    rows = await core.store.workers()
    unserved = await unserved_roots(core.store, rows, core.lease_seconds, core.is_dead, core.now())
    unended = await core.store.select(UNENDED, {"ids": sorted(unserved)})
    settled_at = _settled_at(core, rows)
    # A worker that is starting here has a scope before it has adopted the wanted trees.
    own = core.wanted.union(() if core.scope is None else core.scope.roots)
    return [str(task.id) for task in unended if task.updated_at < settled_at and task.id not in own]


async def unserved_roots(
    store: Store, rows: Sequence[WorkerRow], lease_seconds: float, is_dead: IsDead, now: str
) -> frozenset[int]:
    """Return the roots of trees with due jobs that no live worker takes.

    Every worker takes jobs that are not for an agent.
    """

    def is_served(root_id: int, queue: str) -> bool:
        agent = queue.removeprefix(AGENT) if queue.startswith(AGENT) else None
        return is_attended(rows, lease_seconds, is_dead, root_id, agent)

    due = await store.select(ROOTS_DUE, {"now": now})
    return frozenset(job.root_id for job in due if not is_served(job.root_id, job.queue))


def _settled_at(core: "AppContext", rows: Iterable[WorkerRow]) -> str:
    """Return the time up to which the trees that other workers serve are known.

    A process creates a tree before its next heartbeat reports that it serves the tree.
    """
    silences = [
        row.age_seconds + HEARTBEAT_DELAY
        for row in rows
        if row.roots is not None
        and row.worker != core.worker
        and is_alive(row, core.lease_seconds, core.is_dead)
    ]
    silent = max(silences, default=0.0)
    return instant(core.clock.now() - timedelta(seconds=silent))
