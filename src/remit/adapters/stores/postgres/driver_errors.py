"""Errors of the PostgreSQL driver: which ones are temporary, and their messages for users."""

import asyncpg

from remit.errors import Busy, Internal, RemitError, Unavailable

PATIENCE_SECONDS = 30.0
"""The time to wait for a restart of the server, or for a lock of another program, before the call
fails.
"""

LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    TimeoutError,
)
"""Errors that end when the server is back or other transactions are done."""


EXPECTED = (*LOST, asyncpg.IntegrityConstraintViolationError)
"""Errors of the server that a complete store has too."""
_CAUSES: dict[tuple[type[Exception], ...], str] = {
    (TimeoutError,): "no answer came in time",
    (asyncpg.LockNotAvailableError,): "another program has locked a table",
    (FileNotFoundError, ConnectionError): "no server listens at this address",
    (asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError): "the connection was lost",
    (asyncpg.InvalidCatalogNameError,): "the database does not exist",
}

HELD_UP = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
)
"""Errors that opening waits out: the server starts or is full, or the database is locked or being
upgraded.
"""


def translate(error: Exception) -> RemitError:
    """Return an error of the driver in remit's own terms; connection strings never show."""
    if isinstance(error, asyncpg.LockNotAvailableError):
        message = (
            f"A table of PostgreSQL has been locked by another program for {PATIENCE_SECONDS:.0f}"
            " seconds."
        )
        return Busy(message, hint="Find the program that holds the lock, or try again.")
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return Internal(f"PostgreSQL refused a write: {explain(error)}.")
    return Unavailable(
        f"PostgreSQL cannot be used: {explain(error)}.",
        hint="Check the database URL and that the server runs.",
    )


def explain(error: Exception) -> str:
    """Return why the driver failed, in a few words."""
    for kinds, cause in _CAUSES.items():
        if isinstance(error, kinds):
            return cause
    said = str(error).partition("\n")[0].rstrip(".: ")  # DETAIL and HINT are on separate lines
    name = type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        return said or name
    if isinstance(error, OSError):
        return f"{name}: {said}".rstrip(": ")
    return name
