"""The library: each operation of the catalog is a method of `Remit`."""

import getpass
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from remit import config
from remit.api.blocking import SyncRemit
from remit.api.closable import closed_error
from remit.api.methods import Operations
from remit.api.streaming import Streams
from remit.bootstrap.closing import closing_in_time
from remit.bootstrap.workspace import open_workspace
from remit.catalog import OPERATIONS, AppContext, Caller, attend, call, fleet, follow_events
from remit.domain.agents.agent import TOOLS
from remit.errors import invalid
from remit.results import Readiness

Result = dict[str, Any]


class Remit(Operations, Streams):
    """A workspace: `async with Remit.open() as remit: await remit.task("…",
    subagent_type="explore")`.
    """

    def __init__(self, core: AppContext, caller: Caller) -> None:
        self._core, self._caller = core, caller
        self._is_closed = False

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
        """Open a workspace, or a database by its URL.

        Creates a workspace in the current folder if there is none. A named folder must exist
        (NotFound); `.remit/` is created in it.

        Starts a worker in this process if no worker for all tasks is alive: with `worker=True` for
        the tasks that this program creates or waits for (and their subtasks), with `"all"` for all
        tasks, with `False` none. `tools` are functions that can be granted to agents by name.
        """
        if worker not in (True, False, "all"):
            raise invalid("worker", f"is {worker!r}", "True, False or 'all'")
        if tools:
            from remit.adapters.tools.functions import check_functions

            check_functions(tools, {*TOOLS, *OPERATIONS})
        settings = config.load(workspace, {"database_url": database_url})
        settings.check_workspace()
        if settings.get("database_url") is None and not settings.has_workspace:
            config.make_workspace(settings.root)
            settings = config.load(workspace, {"database_url": database_url})
        async with (
            closing_in_time() as closing,
            open_workspace(settings, tools, to_write=bool(worker)) as core,
            _worker(core, settings, tools, worker),
        ):
            remit = cls(core, Caller(actor=actor or operator()))
            try:
                yield remit
            finally:
                remit._is_closed = True
                closing.begin(core.store)

    @classmethod
    def open_sync(
        cls,
        workspace: Path | str | None = None,
        database_url: str | None = None,
        *,
        actor: str | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        worker: bool | Literal["all"] = True,
    ) -> SyncRemit:
        """Open a workspace for blocking calls, with the parameters of `open`: `with
        Remit.open_sync() as remit: …`.

        Also works inside a running event loop; without `with`, call `close()` at the end.
        """
        return SyncRemit(
            lambda: cls.open(workspace, database_url, actor=actor, tools=tools, worker=worker)
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise closed_error()

    async def call(self, operation: str, /, **fields: Any) -> Result:
        """Call an operation by name; return plain JSON."""
        self._require_open()
        return await call(self._core, operation, fields, self._caller)

    async def ready(self) -> Readiness:
        """Check that the store responds; return the workers and the queues."""
        self._require_open()
        return Readiness.from_dict({"status": "ok", **await fleet(self._core)})

    async def attend(self, operation: str, /, **fields: Any) -> AsyncGenerator[Result, None]:
        """Call an operation that waits; yield items as plain JSON, as REST streams them."""
        self._require_open()
        async with aclosing(attend(self._core, operation, fields, self._caller)) as items:
            async for item in items:
                yield item

    async def follow(
        self, after: str | None = None, task_id: str | None = None
    ) -> AsyncGenerator[Result, None]:
        """Follow events like `events`; yield each as plain JSON."""
        self._require_open()
        async with aclosing(follow_events(self._core, after, task_id)) as pages:
            async for page in pages:
                for event in page:
                    yield event


@asynccontextmanager
async def _worker(
    core: AppContext,
    settings: config.Settings,
    tools: Sequence[Callable[..., Any]],
    wanted: bool | Literal["all"],
) -> AsyncGenerator[None, None]:
    if not wanted:
        yield
        return
    from remit.bootstrap.embedded_worker import embedded_worker

    async with embedded_worker(core, settings, tools, everything=wanted == "all"):
        yield


def operator() -> str:
    """Return the actor for the current user."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "operator"
    return f"user:{re.sub(r'[^A-Za-z0-9._@-]+', '-', name)[:128] or 'operator'}"
