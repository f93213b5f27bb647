"""A proxy between a process and PostgreSQL that can go silent: it transmits nothing, and the
connection stays open.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

SOCKET = ".s.PGSQL.5432"


class Wire:
    """Forwards bytes both ways on a port of this machine.

    While it is cut it holds them, and every connection stays open.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = Path(parse_qs(parts.query)["host"][0]) / SOCKET
        self._database = parts.path
        self._whole = _whole()
        self._forgotten: list[asyncio.Event] = []
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._lines: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        """The same database, at the other end of the wire."""
        assert self._server is not None
        return f"postgresql://postgres@127.0.0.1:{self._server.sockets[0].getsockname()[1]}{self._database}"

    def cut(self) -> None:
        """Let nothing through."""
        self._whole.clear()

    def heal(self) -> None:
        """Let through what was held, and all that follows."""
        self._whole.set()

    def forget(self) -> None:
        """Let nothing through on the connections that there are, ever.

        New ones are as good as any.
        """
        self._whole.clear()
        self._forgotten.append(self._whole)
        self._whole = _whole()

    async def open(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        """End them all."""
        assert self._server is not None
        for whole in (self._whole, *self._forgotten):
            whole.set()
        self._server.close()
        while self._lines:
            for end in list(self._ends):
                end.close()
            await asyncio.wait(self._lines, timeout=0.1)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)
        whole = self._whole
        await whole.wait()
        there, away = await asyncio.open_unix_connection(str(self._socket))
        ends = {writer, away}
        self._ends |= ends
        try:
            await asyncio.gather(_carry(reader, away, whole), _carry(there, writer, whole))
        finally:
            self._ends -= ends


def _whole() -> asyncio.Event:
    whole = asyncio.Event()
    whole.set()
    return whole


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whole: asyncio.Event
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            await whole.wait()
            writer.write(data)
            await writer.drain()
    await whole.wait()
    writer.close()


@asynccontextmanager
async def wire(url: str) -> AsyncIterator[Wire]:
    """A wire to the database that a URL names."""
    line = Wire(url)
    await line.open()
    try:
        yield line
    finally:
        await line.close()
