"""What every operation works with: the writer, the reader, the registry and the clock, on one store."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from remit.app.agents import AgentRegistry
from remit.app.attendance import IsDead, is_attended, never_dead
from remit.app.query import Asking, ask, get_task
from remit.app.scope import Scope
from remit.app.service import Held, Outcome, Service
from remit.app.wait import Waits
from remit.domain import command as cmd
from remit.domain.command import Command
from remit.domain.output import Files, Sought
from remit.domain.project import Change
from remit.domain.record import record
from remit.domain.wire import instant
from remit.ports import Clock, Equipment, Store, WorkerRow

T = TypeVar("T")

PROGRESS_SECONDS = 5.0
"""Half of the 10 seconds that are promised, so that a busy machine keeps the promise too."""


@record
class Caller:
    """Who calls: the actor that its events will carry and, for a worker, its run."""

    actor: str
    run_id: str | None = None
    held: Held | None = None
    beside: tuple[Change, ...] = ()
    """Rows that land with what its command does."""
    via: str | None = None
    """Through which surface it calls, where that is recorded of the trees that it creates (`mcp`)."""


VIA_MCP = "mcp"
"""What is recorded of trees that MCP clients create."""
ADOPTING = (cmd.CreateTask, cmd.RunTask, cmd.RerunTask)
"""Commands after which the worker of this process works on the tree of the task."""


class Core:
    """One store with everything that works on it."""

    def __init__(self, store: Store, clock: Clock, agents: AgentRegistry, folder: str = "") -> None:
        self.store, self.agents, self.folder = store, agents, folder
        self.service = Service(store, clock, agents, self.look_for)
        self.clock, self.waits = clock, Waits()
        self.equipment: Callable[[], AbstractAsyncContextManager[Equipment]] | None = None
        """What agents would work with here, where that is known."""
        self.progress_seconds = PROGRESS_SECONDS
        """How long a call that waits may be silent before it repeats how its tasks stand."""
        self.is_dead: IsDead = never_dead
        """Tells whether a worker is known to be dead, where processes can be looked at."""
        self.scope: Scope | None = None
        """The trees that the worker of this process serves, where it does not serve everything."""
        self.serves_everything = False
        """True while a worker in this process serves everything."""
        self.start_worker: Callable[[], Awaitable[None]] | None = None
        """Starts a worker in this process if no other one is alive, where one stands by."""
        self.wanted: set[int] = set()
        """The roots of trees that this process created or waits for while its worker stands by."""

    @property
    def lease_seconds(self) -> float:
        """After how long without a heartbeat a worker does not count as alive.

        Each process goes by its own setting, as with limits.
        """
        return self.service.lease_seconds

    @lease_seconds.setter
    def lease_seconds(self, seconds: float) -> None:
        self.service.lease_seconds = seconds

    async def do(self, command: Command, caller: Caller) -> Outcome:
        """Carry out a command; a tree that is created by it, or told to run, is worked on in this process."""
        outcome = await self.service.execute(command, caller.actor, caller.run_id, caller.held, caller.beside, via=caller.via)
        if isinstance(command, ADOPTING) and outcome.task is not None:
            root = int(outcome.task.root_id)
            is_new = bool(outcome.entries) and isinstance(command, cmd.CreateTask) and not outcome.task.depends_on
            if self.scope is not None and is_new:
                self.scope.add_new(root)
            else:
                await self._want([root])
        return outcome

    async def adopt(self, task_ids: Iterable[str]) -> None:
        """Have the worker of this process, if it has one, work on the trees of these tasks: a caller waits for them here."""
        if self.scope is not None or self.start_worker is not None:
            await self._want((await self._roots(task_ids)).values())

    async def _want(self, roots: Iterable[int]) -> None:
        if self.scope is not None:
            await self.scope.adopt(roots)
        elif self.start_worker is not None:
            self.wanted.update(roots)

    async def is_attended(self) -> bool:
        """True if live workers work on every tree, for every agent."""
        if self.serves_everything:
            return True
        rows = await self.store.workers()
        return all(self._is_attended(rows, None, agent) for agent in self.agents.ids())

    async def unattended(self, task_ids: Iterable[str], silent_seconds: float = 0.0) -> list[str]:
        """Those of some tasks that no live worker works on: none serves their tree, or none works for their agent.

        A worker may be silent for the time of a lease, or longer if the caller says so.
        """
        if self.serves_everything:
            return []
        needs = await self.store.select("needed_workers", {"ids": [int(task_id) for task_id in task_ids]})
        others = [need for need in needs if self.scope is None or need[1] not in self.scope]
        rows = await self.store.workers() if others else []
        return [str(task_id) for task_id, root, agent in others if not self._is_attended(rows, root, agent, silent_seconds)]

    def _is_attended(
        self,
        rows: Sequence[WorkerRow],
        root_id: int | None,
        agent: str | None = None,
        silent_seconds: float = 0.0,
    ) -> bool:
        return is_attended(rows, max(self.lease_seconds, silent_seconds), self.is_dead, root_id, agent)

    async def _roots(self, task_ids: Iterable[str]) -> dict[int, int]:
        ids = [int(task_id) for task_id in task_ids]
        return dict(await self.store.select("roots", {"ids": ids}))

    async def ask(self, question: Asking[T]) -> T:
        """Answer a question."""
        return await ask(question, self.store.select)

    async def task(self, ref: str) -> dict[str, Any]:
        """A whole task as callers see it."""
        return await self.ask(get_task(ref, now=self.now()))

    async def look_for(self, files: Sequence[Sought]) -> Files:
        """What is seen of files of the workspace; nothing where nobody can look."""
        if self.equipment is None:
            return {}
        try:
            async with self.equipment() as (_, tools):
                host = tools()
                try:
                    return await host.look_for(files)
                finally:
                    await host.close()
        except OSError:  # there is no such workspace on this machine, or nobody may open it
            return {}

    def now(self) -> str:
        """This instant as it is stored."""
        return instant(self.clock.now())
