"""What the command line stands on: a workspace, its store or a server. Everything slow is imported where it is needed."""

from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from remit import config
from remit.errors import RemitError, invalid

T = TypeVar("T")
Result = dict[str, Any]


class WorkspaceHost:
    """Opens the store directly, or goes through a server if one is named (`REMIT_URL`)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._settings = config.load(options.get("workspace"), options)

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Carry out an operation; one that only reads a SQLite file is answered at once."""
        if self._settings.get("url"):
            return self._run(self._remote(operation, fields))
        found = self._quick(operation, fields)
        return self._run(self._local(operation, fields)) if found is None else found

    def follow(self, task_id: str | None, after: str | None) -> Iterator[list[Result]]:
        """Events as they happen, page by page."""
        from remit.bootstrap.stream import follow_now

        return follow_now(self._settings, task_id, after)

    def delegate(self, operation: str, fields: Mapping[str, Any]) -> Generator[Result]:
        """Hand out work and wait; a workspace is made where there is none."""
        from remit.bootstrap.delegation import delegate_now

        self.make_workspace()
        return delegate_now(self._settings, operation, _given(fields))

    def attend(self, task_id: str) -> Generator[Result]:
        """Work on a task until it rests, where no worker is alive."""
        from remit.bootstrap.delegation import attend_now

        return attend_now(self._settings, task_id)

    def unattended(self) -> bool:
        """True if there is nobody who would work on tasks."""
        return not self._settings.get("url") and not self._run(self._attended())

    def init(self) -> Result:
        """Make the workspace in the named folder, or in this one."""
        root = Path(self._options.get("workspace") or Path.cwd()).absolute()
        return {"workspace": str(root), "created": config.make_workspace(root)}

    def make_workspace(self) -> None:
        """Make the workspace where there is none."""
        if self._settings.workspace is None or not self._settings.folder.is_dir():
            config.make_workspace(self._settings.workspace or Path.cwd())
            self._settings = config.load(self._options.get("workspace"), self._options)

    def serve(self, *, insecure: bool, worker: bool) -> None:
        """Serve REST and MCP until stopped, and work on tasks; a workspace is made where there is none."""
        from remit.bootstrap.server import serve

        self.make_workspace()
        serve(self._settings, insecure=insecure, worker=worker)

    def worker(self, agents: Sequence[str] | None) -> None:
        """Work on tasks until stopped."""
        from remit.bootstrap.server import serve_worker

        self._for_database()
        self.make_workspace()
        serve_worker(self._settings, agents)

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

    def doctor(self, *, verify: bool, fix: bool) -> Result:
        """What is in force and where it comes from, who works, and whether the store holds together."""
        from remit.bootstrap.care import examine

        return examine(self._settings, verify=verify, fix=fix)

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

    async def _attended(self) -> bool:
        from remit.adapters.place import attended
        from remit.bootstrap.store import open_store

        async with open_store(self._settings.database_url) as store:
            return attended(await store.workers(), self._settings.get("heartbeat_seconds"))

    async def _local(self, operation: str, fields: Mapping[str, Any]) -> Result:
        from remit.bootstrap.api import operator
        from remit.bootstrap.workspace import open_workspace
        from remit.catalog import Caller, call

        async with open_workspace(self._settings) as core:
            return await call(core, operation, _given(fields), Caller(actor=operator()))

    async def _remote(self, operation: str, fields: Mapping[str, Any]) -> Result:
        from remit.client import RemitClient

        async with RemitClient(self._settings.get("url"), self.token()) as client:
            return await client.call(operation, _given(fields))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        import asyncio

        return asyncio.run(work)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
