"""What the command line stands on: a workspace, its store or a server. Everything slow is imported where it is needed."""

from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from remit import config
from remit.errors import RemitError, invalid

if TYPE_CHECKING:
    from remit.app.core import Core
    from remit.ports import WorkerRow

T = TypeVar("T")
Result = dict[str, Any]


class WorkspaceHost:
    """Opens the store directly, or goes through a server if one is named (`REMIT_URL`)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._settings = config.load(options.get("workspace"), options)
        config.keep_workspace(self._settings)
        self._has_store = False
        """True once the store was used: if it is gone afterwards, no new one is created."""
        self._waits = 0
        """How many waits are under way, each of which may have a worker in this process."""
        self._has_waited = False

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Carry out an operation; one that only reads a SQLite file is answered at once."""
        if self._settings.get("url"):
            return self._run(self._remote(operation, fields))
        found = self._quick(operation, fields)
        if found is None:
            found = self._run(self._local(operation, fields))
        self._has_store = True
        return found

    def follow(self, task_id: str | None, after: str | None) -> Iterator[list[Result]]:
        """Events as they happen, page by page."""
        from remit.bootstrap.stream import follow_now

        return follow_now(self._settings, task_id, after, create=not self._has_store)

    @property
    def server(self) -> str | None:
        """The address of the server that commands go through; None if they open the store themselves."""
        return self._settings.get("url") or None

    def delegate(
        self,
        operation: str,
        fields: Mapping[str, Any],
        stopping: Callable[[], None],
        *,
        everything: bool = False,
    ) -> Generator[Result]:
        """Delegate work and wait; makes a workspace if there is none."""
        from remit.bootstrap.delegation import delegate_now

        self.make_workspace()
        self._has_store = True
        return self._waiting(delegate_now(self._settings, operation, _given(fields), stopping, everything=everything))

    def attend(self, task_id: str, stopping: Callable[[], None], *, everything: bool = False) -> Generator[Result]:
        """Run a task and wait until it rests; works on it here if no worker does."""
        from remit.bootstrap.delegation import attend_now

        return self._waiting(attend_now(self._settings, task_id, stopping, everything=everything))

    def _waiting(self, items: Generator[Result]) -> Generator[Result]:
        self._waits, self._has_waited = self._waits + 1, True
        try:
            yield from items
        finally:
            self._waits -= 1

    def unattended(self, task_id: str) -> bool:
        """True if no server is named and no live worker works on a task."""
        return self.server is None and self._run(self._unattended(task_id))

    def init(self, allow_edits: bool | None = None) -> Result:
        """Make the workspace in the named folder, or in this one; say whether its agents may change files, if that is given."""
        root = Path(self._options.get("workspace") or Path.cwd()).absolute()
        created = config.make_workspace(root)
        if allow_edits is not None:
            config.set_edits(root, allowed=allow_edits)
        settings = config.load(root, self._options)
        granted = self._editing(settings) if settings.get("allow_edits") else ()
        decided = settings.values["allow_edits"].origin != "default"
        return {
            "workspace": str(root),
            "created": created,
            "allow_edits": settings.get("allow_edits") if decided else None,
            "granted": list(granted),
        }

    def _editing(self, settings: config.Settings) -> tuple[str, ...]:
        from remit.bootstrap.agents import editing_tools

        return editing_tools(settings)

    def make_workspace(self) -> None:
        """Make the workspace where there is none."""
        named = self._settings.workspace
        if named is None or not self._settings.folder.is_dir():  # a named folder that does not exist is an error
            config.make_workspace(named or Path.cwd())
            self._settings = config.load(self._options.get("workspace"), self._options)

    def serve(self, *, insecure: bool, worker: bool, detail: str) -> None:
        """Serve REST and MCP until stopped, and work on tasks; a workspace is made where there is none."""
        from remit.bootstrap.server import serve

        self.make_workspace()
        serve(self._settings, insecure=insecure, worker=worker, detail=detail)

    def worker(self, agents: Sequence[str] | None, *, detail: str) -> None:
        """Work on tasks until stopped."""
        from remit.bootstrap.server import serve_worker

        self._for_database()
        self.make_workspace()
        serve_worker(self._settings, agents, detail)

    def schedule(self) -> Result:
        """When tasks that wait for their turn get it."""
        from remit.bootstrap.care import schedule

        return schedule(self._for_database())

    def tick(self) -> Result:
        """Give every task that waits for its turn one now."""
        from remit.bootstrap.care import tick

        return tick(self._for_database())

    def migrate(self) -> Result:
        """Bring the store to this version's schema."""
        from remit.bootstrap.care import migrate

        return migrate(self._for_database())

    def mcp(self) -> None:
        """Speak MCP on standard input and output."""
        from remit.bootstrap.server import serve_stdio

        self.make_workspace()
        serve_stdio(self._settings)

    def doctor(self, *, verify: bool, fix: bool, accept_rollback: bool = False) -> Result:
        """What is in force and where it comes from, who works, and whether the store holds together."""
        from remit.bootstrap.care import examine

        return examine(self._settings, verify=verify, fix=fix, accept_rollback=accept_rollback)

    def export(self, what: Literal["events", "tasks"], target: Path) -> Result:
        """Write all events, or all tasks, to files."""
        from remit.bootstrap.care import export

        return export(self._for_database(), what, target)

    def import_(self, source: Path) -> Result:
        """Read what `export` wrote."""
        from remit.bootstrap.care import import_

        return import_(self._for_database(), source)

    def token(self) -> str:
        """The operator's token."""
        return config.token(self._settings)

    def check_agents(self) -> Result:
        """What became of every file that defines an agent, field by field."""
        from remit.bootstrap.agents import check_agents

        return check_agents(self._settings)

    def new_agent(self, fields: Mapping[str, Any]) -> Result:
        """Write a commented file for a new agent."""
        from remit.bootstrap.agents import new_agent

        return new_agent(self._settings, dict(fields))

    def _for_database(self) -> config.Settings:
        """The settings of a command that opens the database itself: whoever means a server by them must not get another store instead."""
        if (url := self._settings.get("url")) and self._settings.values["database_url"].origin == "default":
            raise invalid("url", f"is {url}, and this is not done through a server", "none, or the database as well (REMIT_DATABASE_URL)")
        return self._settings

    def _quick(self, operation: str, fields: Mapping[str, Any]) -> Result | None:
        from datetime import UTC, datetime

        from remit.app.quick import answer

        url = self._settings.database_url
        path = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
        if path is None or not path.is_file():
            return None
        from remit.adapters.sqlite.read import SqliteReader

        try:
            reader = SqliteReader(path)
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            return answer(operation, fields, now, reader.select, self._agents)
        except RemitError:
            return None

    def _agents(self) -> Any:
        from remit.bootstrap.agents import open_agents  # most answers do without, and it takes longer than they do

        return open_agents(self._settings)

    async def _unattended(self, task_id: str) -> bool:
        from remit.bootstrap.store import open_core

        async with open_core(self._settings.database_url, create=not self._has_store) as core:
            core.lease_seconds = self._settings.get("heartbeat_seconds")
            if self._waits and await _is_served_here(core, task_id):
                return False
            if self._has_waited and not self._waits:
                core.is_dead = _is_over
            return bool(await core.unattended([task_id]))

    async def _local(self, operation: str, fields: Mapping[str, Any]) -> Result:
        from remit.bootstrap.api import operator
        from remit.bootstrap.workspace import open_workspace
        from remit.catalog import Caller, call

        async with open_workspace(self._settings, create=not self._has_store) as core:
            return await call(core, operation, _given(fields), Caller(actor=operator()))

    async def _remote(self, operation: str, fields: Mapping[str, Any]) -> Result:
        from remit.client import RemitClient

        async with RemitClient(self._settings.get("url"), self.token()) as client:
            return await client.call(operation, _given(fields))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        import asyncio

        return asyncio.run(work)


async def _is_served_here(core: "Core", task_id: str) -> bool:
    """True if a worker of this process serves a task, although the store may not have heard of it for a while."""
    from remit.adapters.place import place
    from remit.app.attendance import serves

    root, here = int((await core.task(task_id))["root_id"]), place()
    return bool(here) and any(row.place == here and serves(row, root) for row in await core.store.workers())


def _is_over(row: "WorkerRow") -> bool:
    """True for a worker that is known to be dead, and for one of this process, whose wait is over: the store may not know that yet."""
    from remit.adapters.place import is_dead, place

    return is_dead(row) or (bool(row.place) and row.place == place())


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
