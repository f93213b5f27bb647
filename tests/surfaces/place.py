"""A workspace over a real database, and commands that are typed there."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remit.bootstrap.local_host import WorkspaceHost
from remit.surfaces.cli.main import main
from tests.engine.fleet import Fleet, fleet
from tests.surfaces.cli_host import Said

Change = Callable[[Fleet], Awaitable[Any]]


class Place:
    """A workspace, what was done to it, and commands that are typed there."""

    def __init__(self, url: str, folder: Path, printed: pytest.CaptureFixture[str]) -> None:
        self.url, self._folder, self._printed = url, folder, printed

    def after(self, change: Change) -> Any:
        """Do something to the store."""

        async def done() -> Any:
            async with fleet(self.url) as team:
                return await change(team)

        return asyncio.run(done())

    def remit(self, *argv: str) -> Said:
        """Type a command."""
        self._printed.readouterr()
        where = {"workspace": str(self._folder), "database_url": self.url}
        code = main(argv, lambda options: WorkspaceHost({**options, **where}))
        return Said(code, *self._printed.readouterr())

    def configure(self, text: str) -> Path:
        """Write the settings of the workspace."""
        path = self._folder / ".remit" / "config.toml"
        path.write_text(text)
        return path

    def left(self, *argv: str) -> tuple[int, dict[str, list[str]]]:
        """How the doctor leaves, and what he has found."""
        said = self.remit("doctor", "--json", *argv)
        return said.code, {name: ids for name, ids in said.json["left_behind"].items() if ids}
