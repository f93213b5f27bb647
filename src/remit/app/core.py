"""What every operation works with: the writer, the reader, the registry and the clock, on one store."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from remit.app.agents import AgentRegistry
from remit.app.query import Asking, ask, get_task
from remit.app.service import Held, Outcome, Service
from remit.app.wait import Waits
from remit.domain.command import Command
from remit.domain.output import Files, Sought
from remit.domain.project import Change
from remit.domain.record import record
from remit.domain.wire import instant
from remit.ports import Clock, Equipment, Store

T = TypeVar("T")


@record
class Caller:
    """Who calls: the actor that its events will carry and, for a worker, its run."""

    actor: str
    run_id: str | None = None
    held: Held | None = None
    beside: tuple[Change, ...] = ()
    """Rows that land with what its command does."""


class Core:
    """One store with everything that works on it."""

    def __init__(self, store: Store, clock: Clock, agents: AgentRegistry, folder: str = "") -> None:
        self.store, self.agents, self.folder = store, agents, folder
        self.service = Service(store, clock, agents, self.look_for)
        self.clock, self.waits = clock, Waits()
        self.equipment: Callable[[], AbstractAsyncContextManager[Equipment]] | None = None
        """What agents would work with here, where that is known."""
        self.lease_seconds = 10.0
        """After how long a silence a worker is not called alive; each goes by the setting of its own process, as with limits."""

    async def do(self, command: Command, caller: Caller) -> Outcome:
        """Carry out a command."""
        return await self.service.execute(command, caller.actor, caller.run_id, caller.held, caller.beside)

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
