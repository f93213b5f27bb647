"""Puts the parts together: which store a URL means, and a service on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from remit.adapters.clock import SystemClock
from remit.app.agents import BuiltInAgents
from remit.app.service import Service
from remit.errors import invalid
from remit.ports import EventStore

EXPECTED = "sqlite:///path/to/remit.db, postgresql://user@host/name, or memory:"


async def open_store(url: str) -> EventStore:
    """The store that a database URL names, brought to the newest schema."""
    kind, _, rest = url.partition(":")
    if kind == "memory":
        from remit.adapters.memory import MemoryEventStore

        return MemoryEventStore()
    if kind == "sqlite" and rest.startswith("///") and len(rest) > 3:
        from remit.adapters.sqlite.store import SqliteEventStore

        return SqliteEventStore(Path(rest[3:]))
    if kind in ("postgresql", "postgres"):
        from remit.adapters.postgres.store import PostgresEventStore

        return await PostgresEventStore.open(url)
    raise invalid("database_url", f"is {url.partition('@')[2] or url!r}", EXPECTED)


@asynccontextmanager
async def open_service(url: str) -> AsyncIterator[Service]:
    """A service on the store that a database URL names, closed at the end."""
    store = await open_store(url)
    try:
        yield Service(store, SystemClock(), BuiltInAgents())
    finally:
        await store.close()
