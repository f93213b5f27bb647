"""Puts the parts together: which store a URL means, and a service on it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from remit.adapters.clock import SystemClock
from remit.app.agents import AgentRegistry
from remit.app.service import Service
from remit.errors import invalid
from remit.ports import EventStore

EXPECTED = "sqlite:///path/to/remit.db, postgresql://user@host/name, or memory:"


@asynccontextmanager
async def open_store(url: str) -> AsyncGenerator[EventStore, None]:
    """The store that a database URL names, brought to the newest schema; closed at the end of the block."""
    kind, _, rest = url.partition(":")
    if kind in ("postgresql", "postgres"):
        from remit.adapters.postgres.store import open_postgres

        async with open_postgres(url) as store:
            yield store
    elif kind == "sqlite" and rest.startswith("///") and len(rest) > 3:
        from remit.adapters.sqlite.store import SqliteEventStore

        embedded = SqliteEventStore(Path(rest[3:]))
        try:
            yield embedded
        finally:
            await embedded.close()
    elif url == "memory:":
        from remit.adapters.memory import MemoryEventStore

        yield MemoryEventStore()
    else:
        raise invalid("database_url", f"has the scheme {kind!r}", EXPECTED)


@asynccontextmanager
async def open_service(url: str) -> AsyncGenerator[Service, None]:
    """A service on the store that a database URL names."""
    async with open_store(url) as store:
        yield Service(store, SystemClock(), AgentRegistry())
