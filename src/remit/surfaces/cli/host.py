"""What the command line needs from whoever starts it."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

Result = dict[str, Any]


class Host(Protocol):
    """A workspace, its store or a server, and what can be done with them. Errors are RemitError."""

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        """Carry out an operation of the catalogue."""
        ...

    def follow(self, task_id: str | None, after: str | None) -> Iterator[list[Result]]:
        """Events as they happen, page by page, until the caller stops; from now on without a position."""
        ...

    @property
    def server(self) -> str | None:
        """The address of the server that commands go through; None if they open the store themselves."""
        ...

    def delegate(
        self,
        operation: str,
        fields: Mapping[str, Any],
        stopping: Callable[[], None],
        *,
        everything: bool = False,
    ) -> Generator[Result]:
        """Delegate work and wait: items as `attend` of the catalogue yields them.

        If no worker for everything is alive, one is started for this work, or for everything. An item `left_alone` then has
        the `task_ids` of unfinished tasks that no worker works on. Closing it hands over the runs of that worker. At the
        first Ctrl-C it calls `stopping` from the signal handler, hands over and raises KeyboardInterrupt; the second Ctrl-C
        ends the process.
        """
        ...

    def attend(self, task_id: str, stopping: Callable[[], None], *, everything: bool = False) -> Generator[Result]:
        """Wait until a task rests: how it and its subtasks stand, whenever that changes.

        A worker is started as by `delegate`; an item `left_alone` and Ctrl-C are as there.
        """
        ...

    def unattended(self, task_id: str) -> bool:
        """True if no server is named and no live worker works on a task."""
        ...

    def init(self, allow_edits: bool | None = None) -> Result:
        """Make the workspace: `{workspace, created, allow_edits, granted}`; null for what was never decided."""
        ...

    def make_workspace(self) -> None:
        """Make the workspace where there is none, as handing out work does."""
        ...

    def serve(self, *, insecure: bool, worker: bool, detail: str) -> None:
        """Serve REST and MCP until stopped, on the host and port in force, and work on tasks unless told otherwise.

        `detail` is how much is logged: `quiet`, `normal` or `verbose`.
        """
        ...

    def worker(self, agents: Sequence[str] | None, *, detail: str) -> None:
        """Work on tasks until stopped: of these agents, or of all; `detail` as for `serve`."""
        ...

    def schedule(self) -> Result:
        """`{cron, timezone, next: [instants], due, waiting: [{id, title, cron, at}], workers}`.

        `at` is the next slot of a task with a calendar of its own.
        """
        ...

    def tick(self) -> Result:
        """Let the next tick be now: `{waiting, workers}`."""
        ...

    def migrate(self) -> Result:
        """Bring the store to this version's schema: `{store, schema}`."""
        ...

    def mcp(self) -> None:
        """Speak MCP on standard input and output until it ends."""
        ...

    def doctor(self, *, verify: bool, fix: bool, accept_rollback: bool = False) -> Result:
        """What is in force, who works, and what was left behind.

        `{version, workspace, settings: [{name, value, origin}], unknown, faults: [what is wrong with settings],
        unknown_agents: [{agent_id, task_id, tasks}], store: {kind,
        sqlite?, tasks: {state: n}}, workers, queues, left_behind: {kind: [task ids]}, beyond_repair: [kinds], orphans: [process ids],
        verified?, fixed?}`. With verify, `verified` is `{streams, events, rows, faults: [{place, problem}]}`; with fix, what was left behind
        is put right but for what is beyond repair, and `fixed` says how much. `rollback` is null, or `{message, accepted, hint}` if the
        store went back in time; with accept_rollback it goes on from there.
        """
        ...

    def export(self, what: Literal["events", "tasks"], target: Path) -> Result:
        """Write the full event dump to a file, or `tasks.json` and `history.jsonl` to a folder: `{what, target, count, changes?}`."""
        ...

    def import_(self, source: Path) -> Result:
        """Read what `export` wrote, into an empty store: `{what, source, count}`."""
        ...

    def check_agents(self) -> Result:
        """What became of each file that defines an agent: `{files, settings, agents, problems}`.

        A file is `{path, agent_id, status: used|shadowed|disabled|refused, by, fields: [{field, verdict, text}]}`; a verdict is honoured,
        mapped, ignored or problem; `settings` has such fields with their agent_id.
        """
        ...

    def new_agent(self, fields: Mapping[str, Any]) -> Result:
        """Write a file for a new agent, of `agent_id` and maybe description, tools and model: `{agent_id, path, replaces}`."""
        ...

    def token(self) -> str:
        """The operator's token."""
        ...
