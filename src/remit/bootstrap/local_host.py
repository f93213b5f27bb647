"""The host of the command line: a workspace, its store or a server.

Slow modules are imported where they are needed.
"""

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from remit import config
from remit.errors import RemitError
from remit.surfaces.cli.command import WrongUse
from remit.surfaces.text.last_line import stopped_line

if TYPE_CHECKING:
    from remit.app.context import AppContext
    from remit.client import RemitClient
    from remit.ports import WorkerRow

T = TypeVar("T")
Result = dict[str, Any]

_ANSWER_SECONDS, _LAST_ANSWER_SECONDS = 60.0, 2.0
"""How long a server may take to answer a call, and how long once the command was told to stop."""


class Workspace:
    """The settings of a workspace, which a command may create."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.settings = config.load(options.get("workspace"), options)
        config.hide_workspace_from_git(self.settings)

    def create(self) -> None:
        """Create the workspace if there is none."""
        named = self.settings.workspace
        # A named folder that does not exist is an error.
        if named is None or not self.settings.folder.is_dir():
            config.make_workspace(named or Path.cwd())
            self.settings = config.load(self.options.get("workspace"), self.options)

    def for_database(self) -> config.Settings:
        """Return the settings of a command that opens the database itself; refuse a server, so that
        it does not use another store by mistake.
        """
        url = self.settings.get("url")
        if url and self.settings.values["database_url"].origin == "default":
            raise WrongUse(
                f"This command opens the database itself, but a server is set ({url}).",
                hint="Unset --url and REMIT_URL, or also set REMIT_DATABASE_URL.",
            )
        return self.settings


class Waits:
    """The waits of a command; each may have a worker in this process."""

    def __init__(self) -> None:
        self._open = 0
        self._has_waited = False

    def counted(self, items: Generator[Result]) -> Generator[Result]:
        """Yield the items of a wait, and count it as open."""
        self._open, self._has_waited = self._open + 1, True
        try:
            yield from items
        finally:
            self._open -= 1

    @property
    def is_open(self) -> bool:
        """True while a wait is open."""
        return self._open > 0

    @property
    def is_over(self) -> bool:
        """True if there was a wait and none is open."""
        return self._has_waited and not self._open


class StoreCalls:
    """Runs operations in this process, on the store of the workspace."""

    def __init__(self, workspace: Workspace, waits: Waits) -> None:
        self._workspace, self._waits = workspace, waits
        self.was_used = False
        """True once the store was used: if it disappears afterwards, no new one is created."""

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Run an operation; a read of a SQLite file takes a fast path."""
        found = self._quick(operation, fields)
        if found is None:
            found = _run(self._call(operation, fields))
        self.was_used = True
        return found

    def unattended(self, task_id: str) -> bool:
        """Return True if no live worker works on a task."""
        return _run(self._unattended(task_id))

    def _quick(self, operation: str, fields: Mapping[str, Any]) -> Result | None:
        """Answer a read from a SQLite file without asyncio; None if that is not possible."""
        from datetime import UTC, datetime

        from remit.app.reading.fast import answer

        path = self._database_file()
        if path is None:
            return None
        from remit.adapters.stores.sqlite.reader import SqliteReader

        try:
            reader = SqliteReader(path)
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            return answer(operation, fields, now, reader.select, self._agents)
        except RemitError:
            return None

    def _database_file(self) -> Path | None:
        """Return the file of a SQLite store; None if there is none."""
        url = self._workspace.settings.database_url
        if not url.startswith("sqlite:///"):
            return None
        path = Path(url.removeprefix("sqlite:///"))
        if not path.is_file():
            return None
        return path

    def _agents(self) -> Any:
        # Most answers do not need them, and loading them takes longer than the answer.
        from remit.bootstrap.agent_loading import open_agents

        return open_agents(self._workspace.settings)

    async def _unattended(self, task_id: str) -> bool:
        """Ask the store whether no live worker works on a task."""
        from remit.bootstrap.store_opening import LOCAL, open_core

        settings = self._workspace.settings
        options = LOCAL._replace(lease_seconds=settings.get("heartbeat_seconds"))
        url = settings.database_url
        async with open_core(url, create=not self.was_used, options=options) as core:
            if self._waits.is_open and await _is_served_here(core, task_id):
                return False
            is_over = _is_over if self._waits.is_over else None
            return bool(await core.unattended([task_id], is_dead=is_over))

    async def _call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Run an operation of the catalog."""
        from remit.bootstrap.library import operator
        from remit.bootstrap.workspace import open_workspace
        from remit.catalog import Caller, call

        settings = self._workspace.settings
        async with open_workspace(settings, create=not self.was_used) as core:
            return await call(core, operation, _given(fields), Caller(actor=operator()))


class ServerCalls:
    """Runs operations on a server."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.answer_seconds = _ANSWER_SECONDS

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Run an operation."""
        return _run(self._call(operation, fields))

    def unattended(self, task_id: str) -> bool:
        """Return True if no live worker works on a task."""
        return _run(self._unattended(task_id))

    async def _call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Run an operation of the catalog."""
        async with self._client() as client:
            return await client.call(operation, **_given(fields))

    async def _unattended(self, task_id: str) -> bool:
        """Ask the server for the task and its workers."""
        from remit.app.runs.live_workers import is_attended_by

        async with self._client() as client:
            task = await client.call("get_task", task_id=task_id)
            return not is_attended_by((await client.ready()).to_dict()["workers"], task)

    def _client(self) -> "RemitClient":
        """Return a client of the server."""
        from remit.client import RemitClient

        settings = self._workspace.settings
        token = config.server_token(settings)
        return RemitClient(settings.get("url"), token, timeout_seconds=self.answer_seconds)


class WorkspaceHost:
    """Opens the store directly, or uses a server if `REMIT_URL` is set."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._workspace = Workspace(options)
        self._waits = Waits()
        self._store = StoreCalls(self._workspace, self._waits)
        self._server = ServerCalls(self._workspace)

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Run an operation; a read of a SQLite file takes a fast path."""
        if self.server is not None:
            return self._server.call(operation, fields)
        return self._store.call(operation, fields)

    def follow(
        self,
        task_id: str | None,
        after: str | None,
        stopping: Callable[[int], None],
        *,
        quit_line: Callable[[], str] = stopped_line,
    ) -> Generator[list[Result]]:
        """Yield pages of events as they happen."""
        from remit.bootstrap.sync_delegation import Ending
        from remit.bootstrap.sync_events import follow_now

        ending = Ending(stopping, quit_line)
        create = not self._store.was_used
        return follow_now(self._workspace.settings, task_id, after, ending, create=create)

    @property
    def server(self) -> str | None:
        """The URL of the server that commands use; None if they open the store themselves."""
        return self._workspace.settings.get("url") or None

    def hurry(self) -> None:
        """From now on, give a server only a moment to answer a call: the command must end."""
        self._server.answer_seconds = _LAST_ANSWER_SECONDS

    def delegate(
        self,
        operation: str,
        fields: Mapping[str, Any],
        stopping: Callable[[int], None],
        *,
        everything: bool = False,
        quit_line: Callable[[], str] = stopped_line,
    ) -> Generator[Result]:
        """Delegate work and wait; without a server, create a workspace if there is none."""
        from remit.bootstrap.sync_delegation import Ending, delegate_now

        self.make_workspace()
        self._store.was_used = True
        ending = Ending(stopping, quit_line)
        settings, given = self._workspace.settings, _given(fields)
        items = delegate_now(settings, operation, given, ending, everything=everything)
        return self._waits.counted(items)

    def attend(
        self,
        task_id: str,
        stopping: Callable[[int], None],
        *,
        everything: bool = False,
        quit_line: Callable[[], str] = stopped_line,
    ) -> Generator[Result]:
        """Run a task until it ends or waits for a person; in this process if no worker does."""
        from remit.bootstrap.sync_delegation import Ending, attend_now

        ending = Ending(stopping, quit_line)
        items = attend_now(self._workspace.settings, task_id, ending, everything=everything)
        return self._waits.counted(items)

    def unattended(self, task_id: str) -> bool:
        """Return True if no live worker works on a task."""
        if self.server is not None:
            return self._server.unattended(task_id)
        return self._store.unattended(task_id)

    def init(self, allow_edits: bool | None = None) -> Result:
        """Create the workspace in the named or current folder.

        Record whether its agents may change files, if that is given.
        """
        options = self._workspace.options
        root = Path(options.get("workspace") or Path.cwd()).absolute()
        created = config.make_workspace(root)
        if allow_edits is not None:
            config.set_edits(root, allowed=allow_edits)
        settings = config.load(root, options)
        granted = _editing(settings) if settings.get("allow_edits") else ()
        decided = settings.values["allow_edits"].origin != "default"
        return {
            "workspace": str(root),
            "created": created,
            "allow_edits": settings.get("allow_edits") if decided else None,
            "granted": list(granted),
        }

    def make_workspace(self) -> None:
        """Create the workspace if there is none and no server is used."""
        if self.server is None:
            self._workspace.create()

    def serve(self, *, insecure: bool, worker: bool, detail: str) -> None:
        """Serve REST and MCP until stopped, and work on tasks.

        Creates a workspace if there is none.
        """
        from remit.bootstrap.server import serve

        self._workspace.for_database()
        self._workspace.create()
        serve(self._workspace.settings, insecure=insecure, worker=worker, detail=detail)

    def worker(self, agents: Sequence[str] | None, *, detail: str) -> None:
        """Work on tasks until stopped."""
        from remit.bootstrap.server import serve_worker

        self._workspace.for_database()
        self._workspace.create()
        serve_worker(self._workspace.settings, agents, detail)

    def schedule(self) -> Result:
        """Return the schedule and the tasks that wait for it."""
        from remit.bootstrap.administration import schedule

        return schedule(self._workspace.for_database())

    def tick(self) -> Result:
        """Run every task that waits for the schedule now."""
        from remit.bootstrap.administration import tick

        return tick(self._workspace.for_database())

    def migrate(self) -> Result:
        """Upgrade the store to this version's schema."""
        from remit.bootstrap.administration import migrate

        return migrate(self._workspace.for_database())

    def mcp(self) -> None:
        """Serve MCP on standard input and output."""
        from remit.bootstrap.server import serve_stdio

        self.make_workspace()
        serve_stdio(self._workspace.settings)

    def doctor(self, *, verify: bool, fix: bool, accept_rollback: bool = False) -> Result:
        """Return the settings and their origins, the workers, and whether the store is
        consistent.
        """
        from remit.bootstrap.administration import examine

        return examine(
            self._workspace.settings, verify=verify, fix=fix, accept_rollback=accept_rollback
        )

    def export(self, what: Literal["events", "tasks"], target: Path) -> Result:
        """Write all events, or all tasks, to files."""
        from remit.bootstrap.administration import export

        return export(self._workspace.for_database(), what, target)

    def import_(self, source: Path) -> Result:
        """Import an export."""
        from remit.bootstrap.administration import import_

        return import_(self._workspace.for_database(), source)

    def token(self) -> str:
        """Return the operator's token."""
        return config.token(self._workspace.settings)

    def check_agents(self) -> Result:
        """Return how each field of the agent files is used."""
        from remit.bootstrap.agent_loading import check_agents

        return check_agents(self._workspace.settings)

    def new_agent(self, fields: Mapping[str, Any]) -> Result:
        """Write a commented file for a new agent."""
        from remit.bootstrap.agent_loading import new_agent

        return new_agent(self._workspace.settings, dict(fields))


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own."""
    import asyncio

    return asyncio.run(work)


def _editing(settings: config.Settings) -> tuple[str, ...]:
    """Return the tools with which agents may change files."""
    from remit.bootstrap.agent_loading import editing_tools

    return editing_tools(settings)


async def _is_served_here(core: "AppContext", task_id: str) -> bool:
    """Return True if a worker of this process serves a task, which the store may not know yet."""
    from remit.adapters.process_identity import process_identity
    from remit.app.runs.live_workers import serves

    root, here = int((await core.task(task_id))["root_id"]), process_identity()
    return bool(here) and any(
        row.place == here and serves(row, root) for row in await core.store.workers()
    )


def _is_over(row: "WorkerRow") -> bool:
    """Return True for a dead worker, and for one of this process whose wait is over, which the
    store may not know yet.
    """
    from remit.adapters.process_identity import is_dead, process_identity

    return is_dead(row) or (bool(row.place) and row.place == process_identity())


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
