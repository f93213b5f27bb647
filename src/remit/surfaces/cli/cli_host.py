"""The interface that the command line needs from the process that starts it."""

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from remit.surfaces.text.last_line import stopped_line

Result = dict[str, Any]


class Host(Protocol):
    """A workspace, its store or a server. Errors are RemitError."""

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Run an operation of the catalog."""
        ...

    def follow(
        self,
        task_id: str | None,
        after: str | None,
        stopping: Callable[[int], None],
        *,
        quit_line: Callable[[], str] = stopped_line,
    ) -> Generator[list[Result]]:
        """Yield pages of events until the caller stops.

        Without a position, they start now. Ctrl-C works as in `delegate`.
        """
        ...

    @property
    def server(self) -> str | None:
        """The URL of the server that commands use; None if they open the store themselves."""
        ...

    def hurry(self) -> None:
        """Shorten the time that a server has to answer a call, because the command is ending."""
        ...

    def delegate(
        self,
        operation: str,
        fields: Mapping[str, Any],
        stopping: Callable[[int], None],
        *,
        everything: bool = False,
        quit_line: Callable[[], str] = stopped_line,
    ) -> Generator[Result]:
        """Delegate work and wait: yield items like `attend` of the catalog, after an item `opened`
        once the store is open or the server is called.

        If no worker for all tasks is alive, one is started for this work, or for all tasks. An item
        `left_alone` then has the `task_ids` of unfinished tasks that no worker works on. Closing
        the iterator hands over the runs of that worker. The first Ctrl-C calls `stopping` from the
        signal handler with the number of the signal, hands over and raises KeyboardInterrupt; the
        second ends the process with the lines of `quit_line`.
        """
        ...

    def attend(
        self,
        task_id: str,
        stopping: Callable[[int], None],
        *,
        everything: bool = False,
        quit_line: Callable[[], str] = stopped_line,
    ) -> Generator[Result]:
        """Run a task until it ends or waits for a person: yield the state of the task and its
        subtasks after each change.

        Workers, `left_alone` and Ctrl-C are as for `delegate`.
        """
        ...

    def unattended(self, task_id: str) -> bool:
        """Return True if no live worker works on a task."""
        ...

    def init(self, allow_edits: bool | None = None) -> Result:
        """Create the workspace: `{workspace, created, allow_edits, granted}`.

        `allow_edits` is None if it was never decided.
        """
        ...

    def make_workspace(self) -> None:
        """Create the workspace if there is none and no server is used."""
        ...

    def serve(self, *, insecure: bool, worker: bool, detail: str) -> None:
        """Serve REST and MCP until stopped, on the host and port in force, and work on tasks if
        `worker` is True.

        `detail` is the log level: `quiet`, `normal` or `verbose`.
        """
        ...

    def worker(self, agents: Sequence[str] | None, *, detail: str) -> None:
        """Work on the tasks of these agents, or of all, until stopped; `detail` as for `serve`."""
        ...

    def schedule(self) -> Result:
        """Return `{cron, timezone, next: [instants], due, waiting: [{id, title, cron, at}],
        workers}`.

        `at` is the next slot of a task with its own schedule.
        """
        ...

    def tick(self) -> Result:
        """Run the next tick now: `{waiting, workers}`."""
        ...

    def migrate(self) -> Result:
        """Upgrade the store to this version's schema: `{store, schema}`."""
        ...

    def mcp(self) -> None:
        """Serve MCP on standard input and output until the input ends."""
        ...

    def doctor(self, *, verify: bool, fix: bool, accept_rollback: bool = False) -> Result:
        """Return the settings in force, the workers, and mismatches in the store.

        `{version, workspace, settings: [{name, value, origin}], unknown, faults: [problems of
        settings], unknown_agents: [{agent_id, task_id, tasks}], store: {kind, sqlite?, tasks:
        {state: n}}, workers, queues, left_behind: {kind: [task ids]}, beyond_repair: [kinds],
        orphans: [process ids], verified?, fixed?}`. With verify, `verified` is `{streams, events,
        rows, faults: [{place, problem}]}`. With fix, everything that is not beyond repair is
        repaired, and `fixed` has the counts. `rollback` is null, or `{message, accepted, hint}` if
        the store went back in time; accept_rollback accepts that.
        """
        ...

    def export(self, what: Literal["events", "tasks"], target: Path) -> Result:
        """Write the full event dump to a file, or `tasks.json` and `history.jsonl` to a folder:
        `{what, target, count, changes?}`.
        """
        ...

    def import_(self, source: Path) -> Result:
        """Import an export into an empty store: `{what, source, count}`."""
        ...

    def check_agents(self) -> Result:
        """Return how each agent file is used: `{files, settings, agents, problems}`.

        A file is `{path, agent_id, status: used|shadowed|disabled|refused, by, fields: [{field,
        verdict, text}]}`; a verdict is honored, mapped, ignored or problem; `settings` has such
        fields with their agent_id.
        """
        ...

    def new_agent(self, fields: Mapping[str, Any]) -> Result:
        """Write a file for a new agent with `agent_id` and optional description, tools and model:
        `{agent_id, path, replaces}`.
        """
        ...

    def token(self) -> str:
        """Return the operator's token."""
        ...
