"""The clock of the server, which all machines share."""

import asyncio
import time
from contextlib import suppress
from datetime import datetime, timedelta

import asyncpg

from remit.adapters.stores.postgres.connections import Connections
from remit.adapters.stores.postgres.driver_errors import LOST
from remit.adapters.stores.postgres.preparation import read_zero
from remit.errors import RolledBack

CLOCK_SECONDS = 10.0
"""How often the clock of the server is read."""


class ServerClock:
    """Tells the time of the server by our monotonic clock."""

    def __init__(self, connections: Connections, zero: datetime) -> None:
        self._connections = connections
        self._zero = zero
        """The server time at which our monotonic clock was zero."""

    def now(self) -> datetime:
        """Return the current time of the server."""
        return self._zero + timedelta(seconds=time.monotonic())

    async def keep(self) -> None:
        """Look at the server's clock now and then: it may be set, and ours stands still while
        this machine sleeps.
        """
        await asyncio.sleep(CLOCK_SECONDS)
        with suppress(*LOST, asyncpg.PostgresError, RolledBack):
            self._zero = await self._connections.use(read_zero)
