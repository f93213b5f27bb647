"""Opening a PostgreSQL database: its pool of connections, and its newest schema."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from remit.adapters.stores.opening import OTHERS_OR_START, OpeningWait
from remit.adapters.stores.postgres import statements
from remit.adapters.stores.postgres.completeness import must_be_complete
from remit.adapters.stores.postgres.connections import SILENCE_SECONDS
from remit.adapters.stores.postgres.driver_errors import HELD_UP
from remit.adapters.stores.postgres.rollback_check import History
from remit.adapters.stores.postgres.schema import SCHEMA, migrate, must_follow_own_clock

POOL = 8
GOODBYE_SECONDS = 2.0

SETTINGS = {
    "search_path": SCHEMA,
    "application_name": "remit",
    "tcp_user_timeout": "5000",
    # A client that goes silent in a transaction must not keep its locks.
    "idle_in_transaction_session_timeout": "10000",
    # A lock on a table that another program holds is requested repeatedly, so that the wait can be
    # announced and ended.
    "lock_timeout": "2000",
    "plan_cache_mode": "force_generic_plan",
    # Every statement here is meant to use an index. Without statistics, as after a large import or
    # in a new database, the planner would sort or scan.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


@asynccontextmanager
async def open_pool(url: str, history: History) -> AsyncGenerator[Any, None]:
    """Open a pool of connections for the block."""
    # Opening has its own, shorter limit for a response.
    pool = await asyncpg.create_pool(
        url,
        min_size=0,
        max_size=POOL,
        reset=_keep_session,
        init=history.check_new,
        server_settings=SETTINGS,
        timeout=SILENCE_SECONDS,
    )
    try:
        yield pool
    finally:
        await _close(pool)


async def connect(url: str) -> Any:
    """Return a separate connection."""
    return await asyncpg.connect(url, server_settings=SETTINGS, timeout=SILENCE_SECONDS)


async def prepare(pool: Any, history: History, *, to_write: bool) -> datetime:
    """Bring the database to the newest schema.

    Waits while the server is silent, starts or is full, or is upgraded by another process.
    """
    with OpeningWait(history.marks.place, OTHERS_OR_START) as wait:
        while True:
            try:
                async with _first_connection(pool, wait) as connection:
                    await migrate(connection, wait=wait)
                    await wait.answer(must_be_complete(connection, history.marks.place))
                    await wait.answer(must_follow_own_clock(connection))
                    await wait.answer(history.begin(connection))
                    if to_write:
                        await wait.answer(_try_to_write(connection))
                    return await wait.answer(read_zero(connection))
            except HELD_UP:
                await asyncio.sleep(wait.again())
            except TimeoutError:
                wait.must_go_on()


@asynccontextmanager
async def _first_connection(pool: Any, wait: OpeningWait) -> AsyncGenerator[Any, None]:
    """Open a connection for the block.

    It is dropped if the server does not respond; the driver would wait.
    """
    connection = await wait.answer(pool.acquire())
    try:
        yield connection
    except (asyncio.CancelledError, TimeoutError):
        connection.terminate()
        raise
    finally:
        await pool.release(connection)


async def _try_to_write(connection: Any) -> None:
    """Raise LockNotAvailableError if another program keeps a table locked against writes."""
    async with connection.transaction():
        await connection.execute(statements.EVENTS["lock_for_writes"])


async def _close(pool: Any) -> None:
    """Take leave of the server, but do not wait for one that does not answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await pool.close()


async def read_zero(connection: Any) -> datetime:
    """Return the server time at which our monotonic clock was zero.

    The server reads its clock about halfway through the round trip.
    """
    asked = time.monotonic()
    there: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return there - timedelta(seconds=(asked + time.monotonic()) / 2)


async def _keep_session(_connection: Any) -> None:
    """Do nothing: our statements do not change the session, and skipping the reset saves a round
    trip.
    """
