"""Opens the store that a URL names, and the application on it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from remit.adapters.clock import SystemClock
from remit.adapters.process_identity import is_dead
from remit.adapters.stores.high_water_mark import OnRollback
from remit.app.agents.registry import AgentRegistry
from remit.app.context import AppContext, CoreOptions
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
    """Open the store of a database URL, upgrade its schema, and close it at the end of the block.

    A store that went back in time is refused (RolledBack), unless told otherwise. So is a SQLite
    file that does not exist if `create` is False. A process that works on tasks opens it
    `to_write`: opening then waits for locks of other processes, so that not every write has to.
    """
    kind, _, _ = url.partition(":")
    if kind in ("postgresql", "postgres"):
        from remit.adapters.stores.postgres.store import open_postgres

        async with open_postgres(url, on_rollback, to_write=to_write) as store:
            yield store
    elif path := sqlite_path(url):
        from remit.adapters.stores.sqlite.store import open_sqlite

        embedded = await open_sqlite(path, on_rollback, create=create, to_write=to_write)
        try:
            yield embedded
        finally:
            await embedded.close()
    elif url == "memory:":
        from remit.adapters.stores.memory import MemoryEventStore

        yield MemoryEventStore()
    else:
        raise invalid("database_url", f"has the scheme {kind!r}", EXPECTED)


def sqlite_path(url: str) -> Path | None:
    """Return the SQLite file of a URL, or None."""
    rest = url.removeprefix("sqlite:///")
    return Path(rest) if rest and rest != url else None


LOCAL = CoreOptions(is_dead=is_dead)
"""Options for a process that can see other processes of its machine."""


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
    options: CoreOptions = LOCAL,
) -> AsyncGenerator[AppContext, None]:
    """Open the application on the store of a database URL, with the built-in agents by default."""
    async with open_store(url, on_rollback, create=create, to_write=to_write) as store:
        clock = SystemClock(timezone, store.now)
        yield AppContext(store, clock, agents or AgentRegistry(), folder, options)


@asynccontextmanager
async def open_service(url: str) -> AsyncGenerator[Service, None]:
    """Open the single writer on the store of a database URL."""
    async with open_core(url) as core:
        yield core.service
