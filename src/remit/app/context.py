"""The application context: store, writer, reader, agent registry and clock."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, TypeVar

from remit.app.agents.registry import AgentRegistry
from remit.app.reading.query_handlers import Asking, ask, get_task, show_task
from remit.app.reading.waits import Waits
from remit.app.runs.live_workers import IsDead, is_attended, never_dead
from remit.app.runs.worker_scope import Scope
from remit.app.service import HeldJob, Outcome, Service
from remit.app.writing.plan_lookups import LEASE_SECONDS
from remit.domain.outputs.required_outputs import FileQuery, Files
from remit.domain.projection.rows import Change
from remit.domain.records.record import record
from remit.domain.records.serialize import instant, plain
from remit.domain.task import commands as cmd
from remit.domain.task.commands import Command
from remit.domain.task.task import Task
from remit.ports import AgentEquipment, Clock, Store
from remit.store_queries.tree_queries import NEEDED_WORKERS, ROOTS

T = TypeVar("T")

PROGRESS_SECONDS = 5.0
"""Half of the documented 10 seconds, as a margin for busy machines."""


@record
class Caller:
    """The caller of an operation: its actor and, for a worker, its run."""

    actor: str
    run_id: str | None = None
    held: HeldJob | None = None
    beside: tuple[Change, ...] = ()
    """Rows that are committed with the command."""
    via: str | None = None
    """The surface of the call, if it is recorded with the trees that it creates (`mcp`)."""


VIA_MCP = "mcp"
"""The recorded surface of trees that MCP clients create."""
ADOPTING = (cmd.CreateTask, cmd.RunTask, cmd.RerunTask)
"""Commands after which the worker of this process serves the tree of the task."""


class CoreOptions(NamedTuple):
    """Options of an `AppContext`."""

    lease_seconds: float = LEASE_SECONDS
    """The time without a heartbeat after which a worker counts as dead."""
    progress_seconds: float = PROGRESS_SECONDS
    """How long a waiting call may be silent before it repeats its progress."""
    is_dead: IsDead = never_dead
    """Returns True for a worker whose process is known to be dead."""
    equipment: Callable[[], AbstractAsyncContextManager[AgentEquipment]] | None = None
    """Opens the models and tools of this process; None if they are unknown."""


DEFAULTS = CoreOptions()


class AppContext:
    """One store with the services that work on it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        agents: AgentRegistry,
        folder: str = "",
        options: CoreOptions = DEFAULTS,
    ) -> None:
        self.store, self.agents, self.folder = store, agents, folder
        self.service = Service(store, clock, agents, self.look_for)
        self.service.lookups.served_roots = self.served_roots
        self.clock, self.waits = clock, Waits()
        self.equipment = options.equipment
        self.progress_seconds = options.progress_seconds
        self.is_dead = options.is_dead
        self.lease_seconds = options.lease_seconds
        self.scope: Scope | None = None
        """The trees that the worker of this process serves; None if it serves all."""
        self.worker = ""
        """The name of the worker in this process; empty without one."""
        self.serves_everything = False
        """True while a worker in this process serves all trees."""
        self.start_worker: Callable[[], Awaitable[None]] | None = None
        """Starts the standby worker of this process if no other worker is alive."""
        self.how_to_start_worker = "Start one with: `remit worker`"
        """Advice for callers whose task no worker works on."""
        self.wanted: set[int] = set()
        """Roots of trees that this process created or waits for while its worker is on standby."""

    @property
    def lease_seconds(self) -> float:
        """The time without a heartbeat after which a worker counts as dead.

        Each process uses its own setting.
        """
        return self.service.lookups.lease_seconds

    @lease_seconds.setter
    def lease_seconds(self, seconds: float) -> None:
        self.service.lookups.lease_seconds = seconds

    async def do(self, command: Command, caller: Caller) -> Outcome:
        """Execute a command.

        The worker of this process serves a tree that the command creates or starts.
        """
        outcome = await self.service.execute(
            command, caller.actor, caller.run_id, caller.held, caller.beside, via=caller.via
        )
        if isinstance(command, ADOPTING) and outcome.task is not None:
            is_created = isinstance(command, cmd.CreateTask) and bool(outcome.entries)
            await self._adopt_tree(outcome.task, is_created=is_created)
        return outcome

    async def _adopt_tree(self, task: Task, *, is_created: bool) -> None:
        """Make the worker of this process serve the tree of a task."""
        root = int(task.root_id)
        if self.scope is not None and is_created and not task.depends_on:
            self.scope.add_new(root)
        else:
            await self._want([root])

    async def adopt(self, task_ids: Iterable[str]) -> None:
        """Make the worker of this process, if any, serve the trees of tasks a caller waits for."""
        if self.scope is not None or self.start_worker is not None:
            await self._want((await self._roots(task_ids)).values())

    async def _want(self, roots: Iterable[int]) -> None:
        """Serve more trees, or note them until the worker of this process starts."""
        if self.scope is not None:
            await self.scope.adopt(roots)
        elif self.start_worker is not None:
            self.wanted.update(roots)

    async def is_attended(self) -> bool:
        """True if live workers serve every tree, for every agent."""
        if self.serves_everything:
            return True
        rows = await self.store.workers()
        return all(
            is_attended(rows, self.lease_seconds, self.is_dead, None, agent)
            for agent in self.agents.ids()
        )

    async def served_roots(self, roots: Collection[int]) -> frozenset[int]:
        """Return the roots whose trees are served by a live worker."""
        rows = await self.store.workers()
        return frozenset(
            root for root in roots if is_attended(rows, self.lease_seconds, self.is_dead, root)
        )

    async def unattended(
        self,
        task_ids: Iterable[str],
        silent_seconds: float = 0.0,
        is_dead: IsDead | None = None,
    ) -> list[str]:
        """Return the tasks that no live worker works on.

        No worker serves their tree, or none works for their agent. A worker may be silent for a
        lease, or for `silent_seconds` if that is longer; `is_dead` replaces this process's test for
        dead workers.
        """
        if self.serves_everything:
            return []
        ids = list(map(int, task_ids))
        needs = await self.store.select(NEEDED_WORKERS, {"ids": ids})
        others = [need for need in needs if not self._serves_here(need.root_id)]
        if not others:
            return []
        rows = await self.store.workers()
        lease, test = max(self.lease_seconds, silent_seconds), is_dead or self.is_dead
        return [
            str(need.id)
            for need in others
            if not is_attended(rows, lease, test, need.root_id, need.agent)
        ]

    def _serves_here(self, root_id: int) -> bool:
        """True if a worker of this process serves the tree with this root."""
        return self.scope is not None and root_id in self.scope

    async def _roots(self, task_ids: Iterable[str]) -> dict[int, int]:
        """Return the roots of the trees of tasks, by task."""
        ids = list(map(int, task_ids))
        return {row.id: row.root_id for row in await self.store.select(ROOTS, {"ids": ids})}

    async def ask(self, question: Asking[T]) -> T:
        """Run a query."""
        return await ask(question, self.store.select)

    async def task(self, ref: str) -> dict[str, Any]:
        """Return a whole task as callers see it."""
        return await self.ask(get_task(ref, now=self.now()))

    async def task_after(self, outcome: Outcome) -> dict[str, Any]:
        """Return the whole task that a command created or changed, without reading it again."""
        assert outcome.task is not None, "the command is about a task"
        document = plain(outcome.task)
        return await self.ask(show_task(int(outcome.task.id), document, now=self.now()))

    async def look_for(self, files: Sequence[FileQuery]) -> Files:
        """Look up files of the workspace; empty if this process has no access to it."""
        if self.equipment is None:
            return {}
        try:
            async with self.equipment() as (_, tools):
                host = tools()
                try:
                    return await host.look_for(files)
                finally:
                    await host.close()
        except OSError:  # the workspace does not exist on this machine or is not readable
            return {}

    def now(self) -> str:
        """Return the current time in the stored format."""
        return instant(self.clock.now())
