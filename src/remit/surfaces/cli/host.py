"""What the command line needs from whoever starts it."""

from collections.abc import Generator, Iterator, Mapping, Sequence
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

    def delegate(self, operation: str, fields: Mapping[str, Any]) -> Generator[Result]:
        """Hand out work and wait: items as `attend` of the catalogue gives them; a worker is started where none is alive.

        Whoever stops listening closes it, which hands over what was under way.
        """
        ...

    def attend(self, task_id: str) -> Generator[Result]:
        """Work on a task until it rests, where no worker is alive that would: how it and those below stand, whenever that changes."""
        ...

    def unattended(self) -> bool:
        """True if there is nobody who would work on tasks: no server is named, and no worker is alive."""
        ...

    def init(self) -> Result:
        """Make the workspace: `{workspace, created}`."""
        ...

    def make_workspace(self) -> None:
        """Make the workspace where there is none, as handing out work does."""
        ...

    def serve(self, *, insecure: bool, worker: bool) -> None:
        """Serve REST and MCP until stopped, on the host and port in force, and work on tasks unless told otherwise."""
        ...

    def worker(self, agents: Sequence[str] | None) -> None:
        """Work on tasks until stopped: of these agents, or of all."""
        ...

    def schedule(self) -> Result:
        """`{cron, timezone, next: [instants], due, waiting: [{id, title, cron}], workers}`."""
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

    def doctor(self, *, verify: bool, fix: bool) -> Result:
        """What is in force, who works, and what was left behind.

        `{version, workspace, settings: [{name, value, origin}], unknown, faults: [what is wrong with settings], store: {kind,
        sqlite?, tasks: {state: n}}, workers, queues, left_behind: {kind: [task ids]}, beyond_repair: [kinds], orphans: [process ids],
        verified?, fixed?}`. With verify, `verified` is `{streams, events, rows, faults: [{place, problem}]}`; with fix, what was left behind
        is put right but for what is beyond repair, and `fixed` says how much.
        """
        ...

    def export(self, what: Literal["events", "tasks"], target: Path) -> Result:
        """Write the full event dump to a file, or `tasks.json` and `history.jsonl` to a folder: `{what, target, count}`."""
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
