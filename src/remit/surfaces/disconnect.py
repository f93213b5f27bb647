"""Noticing that an HTTP client has closed its connection."""

from starlette.types import Receive


async def client_disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
