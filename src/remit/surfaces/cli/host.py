"""What the command line needs from whoever starts it."""

from collections.abc import Iterator, Mapping
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

    def init(self) -> Result:
        """Make the workspace: `{workspace, created}`."""
        ...

    def serve(self, *, insecure: bool) -> None:
        """Serve REST and MCP until stopped, on the host and port in force."""
        ...

    def mcp(self) -> None:
        """Speak MCP on standard input and output until it ends."""
        ...

    def doctor(self, *, verify: bool) -> Result:
        """`{version, workspace, settings: [{name, value, origin}], unknown, store: {kind, sqlite?, tasks: {state: n}}, verified?}`.

        With verify, `verified` is `{streams, events, rows, faults: [{place, problem}]}`.
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
