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


class WorkspaceHost:
    """Opens the store directly, or uses a server if `REMIT_URL` is set."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._settings = config.load(options.get("workspace"), options)
        config.hide_workspace_from_git(self._settings)
        self._has_store = False
        """True once the store was used: if it disappears afterwards, no new one is created."""
        self._waits = 0
        """The number of open waits; each may have a worker in this process."""
        self._has_waited = False
        self._answer_seconds = _ANSWER_SECONDS

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Run an operation; a read of a SQLite file takes a fast path."""
        if self._settings.get("url"):
            return self._run(self._remote(operation, fields))
        found = self._quick(operation, fields)
        if found is None:
            found = self._run(self._local(operation, fields))
        self._has_store = True
        return found

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
        return follow_now(self._settings, task_id, after, ending, create=not self._has_store)

    @property
    def server(self) -> str | None:
        """The URL of the server that commands use; None if they open the store themselves."""
        return self._settings.get("url") or None

    def hurry(self) -> None:
        """From now on, give a server only a moment to answer a call: the command must end."""
        self._answer_seconds = _LAST_ANSWER_SECONDS

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
        self._has_store = True
        ending = Ending(stopping, quit_line)
        given = _given(fields)
        items = delegate_now(self._settings, operation, given, ending, everything=everything)
        return self._waiting(items)

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
        return self._waiting(attend_now(self._settings, task_id, ending, everything=everything))

    def _waiting(self, items: Generator[Result]) -> Generator[Result]:
        """Yield the items of a wait, and count it as open."""
        self._waits, self._has_waited = self._waits + 1, True
        try:
            yield from items
        finally:
            self._waits -= 1

    def unattended(self, task_id: str) -> bool:
        """Return True if no live worker works on a task."""
        if self.server is not None:
            return self._run(self._unattended_there(task_id))
        return self._run(self._unattended(task_id))

    def init(self, allow_edits: bool | None = None) -> Result:
        """Create the workspace in the named or current folder.

        Record whether its agents may change files, if that is given.
        """
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
        from remit.bootstrap.agent_loading import editing_tools

        return editing_tools(settings)

    def make_workspace(self) -> None:
        """Create the workspace if there is none and no server is used."""
        if self.server is None:
            self._make_workspace()

    def _make_workspace(self) -> None:
        named = self._settings.workspace
        # A named folder that does not exist is an error.
        if named is None or not self._settings.folder.is_dir():
            config.make_workspace(named or Path.cwd())
            self._settings = config.load(self._options.get("workspace"), self._options)

    def serve(self, *, insecure: bool, worker: bool, detail: str) -> None:
        """Serve REST and MCP until stopped, and work on tasks.

        Creates a workspace if there is none.
        """
        from remit.bootstrap.server import serve

        self._for_database()
        self._make_workspace()
        serve(self._settings, insecure=insecure, worker=worker, detail=detail)

    def worker(self, agents: Sequence[str] | None, *, detail: str) -> None:
        """Work on tasks until stopped."""
        from remit.bootstrap.server import serve_worker

        self._for_database()
        self._make_workspace()
        serve_worker(self._settings, agents, detail)

    def schedule(self) -> Result:
        """Return the schedule and the tasks that wait for it."""
        from remit.bootstrap.administration import schedule

        return schedule(self._for_database())

    def tick(self) -> Result:
        """Run every task that waits for the schedule now."""
        from remit.bootstrap.administration import tick

        return tick(self._for_database())

    def migrate(self) -> Result:
        """Upgrade the store to this version's schema."""
        from remit.bootstrap.administration import migrate

        return migrate(self._for_database())

    def mcp(self) -> None:
        """Serve MCP on standard input and output."""
        from remit.bootstrap.server import serve_stdio

        self.make_workspace()
        serve_stdio(self._settings)

    def doctor(self, *, verify: bool, fix: bool, accept_rollback: bool = False) -> Result:
        """Return the settings and their origins, the workers, and whether the store is
        consistent.
        """
        from remit.bootstrap.administration import examine

        return examine(self._settings, verify=verify, fix=fix, accept_rollback=accept_rollback)

    def export(self, what: Literal["events", "tasks"], target: Path) -> Result:
        """Write all events, or all tasks, to files."""
        from remit.bootstrap.administration import export

        return export(self._for_database(), what, target)

    def import_(self, source: Path) -> Result:
        """Import an export."""
        from remit.bootstrap.administration import import_

        return import_(self._for_database(), source)

    def token(self) -> str:
        """Return the operator's token."""
        return config.token(self._settings)

    def check_agents(self) -> Result:
        """Return how each field of the agent files is used."""
        from remit.bootstrap.agent_loading import check_agents

        return check_agents(self._settings)

    def new_agent(self, fields: Mapping[str, Any]) -> Result:
        """Write a commented file for a new agent."""
        from remit.bootstrap.agent_loading import new_agent

        return new_agent(self._settings, dict(fields))

    def _for_database(self) -> config.Settings:
        """Return the settings of a command that opens the database itself; refuse a server, so that
        it does not use another store by mistake.
        """
        if (url := self._settings.get("url")) and self._settings.values[
            "database_url"
        ].origin == "default":
            raise WrongUse(
                f"This command opens the database itself, but a server is set ({url}).",
                hint="Unset --url and REMIT_URL, or also set REMIT_DATABASE_URL.",
            )
        return self._settings

    def _quick(self, operation: str, fields: Mapping[str, Any]) -> Result | None:
        from datetime import UTC, datetime

        from remit.app.reading.fast import answer

        url = self._settings.database_url
        path = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
        if path is None or not path.is_file():
            return None
        from remit.adapters.stores.sqlite.reader import SqliteReader

        try:
            reader = SqliteReader(path)
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            return answer(operation, fields, now, reader.select, self._agents)
        except RemitError:
            return None

    def _agents(self) -> Any:
        # Most answers do not need them, and loading them takes longer than the answer.
        from remit.bootstrap.agent_loading import open_agents

        return open_agents(self._settings)

    async def _unattended(self, task_id: str) -> bool:
        from remit.bootstrap.store_opening import LOCAL, open_core

        options = LOCAL._replace(lease_seconds=self._settings.get("heartbeat_seconds"))
        url = self._settings.database_url
        async with open_core(url, create=not self._has_store, options=options) as core:
            if self._waits and await _is_served_here(core, task_id):
                return False
            is_over = _is_over if self._has_waited and not self._waits else None
            return bool(await core.unattended([task_id], is_dead=is_over))

    async def _unattended_there(self, task_id: str) -> bool:
        from remit.app.runs.live_workers import is_attended_by

        async with self._client() as client:
            task = await client.call("get_task", task_id=task_id)
            return not is_attended_by((await client.ready()).to_dict()["workers"], task)

    async def _local(self, operation: str, fields: Mapping[str, Any]) -> Result:
        from remit.bootstrap.library import operator
        from remit.bootstrap.workspace import open_workspace
        from remit.catalog import Caller, call

        async with open_workspace(self._settings, create=not self._has_store) as core:
            return await call(core, operation, _given(fields), Caller(actor=operator()))

    async def _remote(self, operation: str, fields: Mapping[str, Any]) -> Result:
        async with self._client() as client:
            return await client.call(operation, **_given(fields))

    def _client(self) -> "RemitClient":
        from remit.client import RemitClient

        token = config.server_token(self._settings)
        return RemitClient(self._settings.get("url"), token, timeout_seconds=self._answer_seconds)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        import asyncio

        return asyncio.run(work)


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
