"""remit as a library: each operation of the catalogue is a method."""

import getpass
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from remit import config
from remit.bootstrap.workspace import open_workspace
from remit.catalog import FOR_EVERYONE, Caller, Core, attend, call, follow_events, method_of
from remit.domain.envelope import TaskResult
from remit.errors import invalid

Result = dict[str, Any]


class Remit:
    """A workspace's tasks: `async with Remit.open() as remit: await remit.task("…", subagent_type="explore")`."""

    def __init__(self, core: Core, caller: Caller) -> None:
        self._core, self._caller = core, caller

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        workspace: Path | str | None = None,
        database_url: str | None = None,
        *,
        actor: str | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        worker: bool | Literal["all"] = True,
    ) -> AsyncGenerator["Remit", None]:
        """Open a workspace, or a database by its URL; where there is no workspace, one is made in the current folder.

        A folder that is named must exist (NotFound); `.remit/` is made in it.

        Where no worker for everything is alive, one works in this process meanwhile: with `worker=True` on the tasks that this
        program creates or waits for (and all below them), with `"all"` on everything that is there, with `False` none. `tools`
        are functions that can be granted to agents by name.
        """
        if worker not in (True, False, "all"):
            raise invalid("worker", f"is {worker!r}", "True, False or 'all'")
        settings = config.load(workspace, {"database_url": database_url})
        settings.check_workspace()
        if settings.get("database_url") is None and not settings.has_workspace:
            config.make_workspace(settings.workspace or Path.cwd())
            settings = config.load(workspace, {"database_url": database_url})
        async with open_workspace(settings, tools, to_write=bool(worker)) as core, _worker(core, settings, tools, worker):
            yield cls(core, Caller(actor=actor or operator()))

    async def call(self, operation: str, **values: Any) -> Result:
        """Carry out an operation by its name."""
        return await call(self._core, operation, values, self._caller)

    async def stream(self, operation: str, **fields: Any) -> AsyncGenerator[Result, None]:
        """Carry out an operation that waits: what goes on meanwhile, each result as it comes, and last `end` with its answer.

        Who stops listening ends the wait and nothing else.
        """
        async with aclosing(attend(self._core, operation, fields, self._caller)) as items:
            async for item in items:
                yield item

    async def stream_parallel(self, tasks: Sequence[Any], **values: Any) -> AsyncGenerator[Result, None]:
        """Hand out several pieces of work; each result as it comes, as `{index, task_id, result}`, the result a `TaskResult`."""
        async with aclosing(self.stream("task_parallel", tasks=list(tasks), **values)) as items:
            async for item in items:
                if item["type"] == "result":
                    yield item

    async def events(self, after: str | None = None, task_id: str | None = None) -> AsyncGenerator[Result, None]:
        """Events of all tasks, or of one, after a position ("" is the beginning); without one, from now on."""
        async with aclosing(follow_events(self._core, after, task_id)) as pages:
            async for page in pages:
                for event in page:
                    yield event

    if TYPE_CHECKING:
        task: Callable[..., Awaitable[TaskResult]]
        Task: Callable[..., Awaitable[TaskResult]]
        task_output: Callable[..., Awaitable[TaskResult]]

        def __getattr__(self, name: str) -> Callable[..., Awaitable[Result]]: ...


@asynccontextmanager
async def _worker(
    core: Core, settings: config.Settings, tools: Sequence[Callable[..., Any]], wanted: bool | Literal["all"]
) -> AsyncGenerator[None, None]:
    if not wanted:
        yield
        return
    from remit.bootstrap.worker import embedded_worker

    async with embedded_worker(core, settings, tools, everything=wanted == "all"):
        yield


def operator() -> str:
    """Who acts when somebody at this machine does."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "operator"
    return f"user:{re.sub(r'[^A-Za-z0-9._@-]+', '-', name)[:128] or 'operator'}"


for _operation in FOR_EVERYONE.values():
    setattr(Remit, _operation.name, method_of("Remit", _operation, lambda remit, name, values: remit.call(name, **values)))
