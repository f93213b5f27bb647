"""Which store a URL means, and everything that works on it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from remit.adapters.clock import SystemClock
from remit.adapters.mark import OnRollback
from remit.adapters.place import is_dead
from remit.app.agents import AgentRegistry
from remit.app.core import Core
from remit.app.service import Service
from remit.errors import invalid
from remit.ports import Store

EXPECTED = "sqlite:///path/to/remit.db, postgresql://user@host/name, or memory:"


@asynccontextmanager
async def open_store(
    url: str,
    on_rollback: OnRollback = "refuse",
    *,
    create: bool = True,
    to_write: bool = False,
) -> AsyncGenerator[Store, None]:
    """The store that a database URL names, brought to the newest schema; closed at the end of the block.

    A store that went back in time is refused (RolledBack), unless told otherwise. So is a SQLite
    file that does not exist if `create` is False. A process that works on tasks opens it `to_write`:
    then opening waits for locks of others, which each write would wait for on its own.
    """
    kind, _, _ = url.partition(":")
    if kind in ("postgresql", "postgres"):
        from remit.adapters.postgres.store import open_postgres

        async with open_postgres(url, on_rollback, to_write=to_write) as store:
            yield store
    elif path := sqlite_path(url):
        from remit.adapters.sqlite.store import open_sqlite

        embedded = await open_sqlite(path, on_rollback, create=create, to_write=to_write)
        try:
            yield embedded
        finally:
            await embedded.close()
    elif url == "memory:":
        from remit.adapters.memory import MemoryEventStore

        yield MemoryEventStore()
    else:
        raise invalid("database_url", f"has the scheme {kind!r}", EXPECTED)


def sqlite_path(url: str) -> Path | None:
    """The file that a URL names, if it means SQLite."""
    rest = url.removeprefix("sqlite:///")
    return Path(rest) if rest and rest != url else None


@asynccontextmanager
async def open_core(
    url: str,
    agents: AgentRegistry | None = None,
    timezone: str | None = None,
    folder: str = "",
    on_rollback: OnRollback = "refuse",
    *,
    create: bool = True,
    to_write: bool = False,
) -> AsyncGenerator[Core, None]:
    """Everything that works on the store that a database URL names, with the built-in agents unless told of others."""
    async with open_store(url, on_rollback, create=create, to_write=to_write) as store:
        core = Core(store, SystemClock(timezone, store.now), agents or AgentRegistry(), folder)
        core.is_dead = is_dead
        yield core


@asynccontextmanager
async def open_service(url: str) -> AsyncGenerator[Service, None]:
    """The one writer on the store that a database URL names."""
    async with open_core(url) as core:
        yield core.service
