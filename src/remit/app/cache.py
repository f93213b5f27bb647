"""Results that answer again: an identical read-only task that was done before, found by what it was made of."""

from typing import NamedTuple

from remit.app.agents import AgentRegistry, role_prompt
from remit.app.core import Core
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.create import NewIds, created
from remit.domain.evolve import evolve
from remit.domain.identity import changing, identity
from remit.domain.record import replace
from remit.domain.value import Task
from remit.errors import RemitError, invalid
from remit.ports import Models, ToolHost

TOO_MANY = "the workspace has more files than can be looked at"
NOT_HERE = "nothing is known here of the workspace and the models"


def key_of(task: Task, agents: AgentRegistry, models: Models, host: ToolHost, files: str) -> str:
    """What a task is known by as it is now, by what this process knows of its agent, its model and its tools."""
    agent = agents.get(task.owner or "")
    assert agent is not None, "looked up by whoever asks"
    granted = agents.grant(agent.id, task.tools)
    if others := changing(agent, granted, host.specs()):
        raise invalid("cache", f"is asked for, but the task could change something with {', '.join(others)}", "a grant of tools that only read")
    chosen = models.resolve(task.model or agent.model)
    return identity(task, agent, role_prompt(agent), f"{chosen.model} ({chosen.shown})", granted, files)


class Lookup(NamedTuple):
    """What came of looking for a result: the task that has it, or the key that a new one will be known by, or why there is none."""

    key: str | None = None
    task_id: str | None = None
    why_not: str = ""


class ResultCache:
    """Looks for results; the workspace is looked at once, for all that one call asks for."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._files: str | None = None

    async def look(self, command: cmd.CreateTask, actor: str) -> Lookup:
        """Find a result for what a command asks; refused where it asks for more than reading."""
        core = self._core
        agent = core.agents.find(command.owner or "")
        if agent is None or core.equipment is None:
            return Lookup(why_not=NOT_HERE)
        task = _made(replace(command, owner=agent.id), core, actor)
        async with core.equipment() as (models, tools):
            host = tools()
            try:
                self._files = self._files or await host.fingerprint()
                if self._files is None:
                    return Lookup(why_not=TOO_MANY)
                key = key_of(task, core.agents, models, host, self._files)
            finally:
                await host.close()
        return Lookup(key, await self.find(key))

    async def find(self, key: str) -> str | None:
        """The newest task that was done and is known by a key."""
        rows = await self._core.store.select("result", {"key": key})
        return str(rows[0][0]) if rows else None


def _made(command: cmd.CreateTask, core: Core, actor: str) -> Task:
    """The task that a command would make."""
    event = created(command, NewIds(id="0", uid="", thread_id=""), actor, None)
    return evolve(None, ev.Entry(id="", stream="0", version=1, at=core.clock.now(), actor=actor, event=event))


async def vouched(task: Task, agents: AgentRegistry, models: Models, host: ToolHost) -> bool:
    """Whether the result of a task that is about to end is that of what it was made of: nothing of it has changed meanwhile."""
    if task.cache_key is None or (files := await host.fingerprint()) is None:
        return False
    try:
        return key_of(task, agents, models, host, files) == task.cache_key
    except RemitError:
        return False
