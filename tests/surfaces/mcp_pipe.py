"""MCP on standard input and output: a real process, and clients that talk to it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.crash.process import environment
from tests.patience import patient

SCRIPT = """
import asyncio, os, sys

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.bootstrap import open_store
from remit.app.context import AppContext
from remit.catalog import Caller
from remit.surfaces.mcp.server import mcp_server
from remit.surfaces.mcp.stdio import serve_stdio


class NoisyClock(SystemClock):
    def now(self):
        print("stray")
        os.system("echo stray; cat")
        return super().now()


async def main(url, noisy=False):
    async with open_store(url) as store:
        core = AppContext(store, NoisyClock() if noisy else SystemClock(), AgentRegistry())
        await serve_stdio(mcp_server(core, Caller(actor="user:ann"), "1.2.3"))


asyncio.run(main(*sys.argv[1:]))
"""


def command(folder: Path, *more: str, store: str | None = None) -> list[str]:
    """How to start a server on the store of a folder, or on another one."""
    script = folder / "serve.py"
    script.write_text(SCRIPT)
    return [sys.executable, str(script), store or url(folder), *more]


def url(folder: Path) -> str:
    """The store of a folder."""
    return f"sqlite:///{folder / 'remit.db'}"


def client(folder: Path, mode: str, store: str | None = None) -> Client:
    """A client with a server of its own."""
    program, *arguments = command(folder, store=store)
    return Client(
        StdioServerParameters(command=program, args=arguments, env=environment()), mode=mode
    )


class Pipe:
    """A server seen through its pipes: lines go in and come out as they are."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout

    async def send(self, *messages: dict[str, Any] | bytes) -> None:
        """Write messages, or raw lines."""
        for message in messages:
            self.stdin.write(
                (message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n"
            )
        await self.stdin.drain()

    async def receive(self) -> dict[str, Any]:
        """The next line, which must be a JSON-RPC answer."""
        message: dict[str, Any] = json.loads(await self.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        assert "result" in message or "error" in message
        return message

    async def rest(self) -> list[dict[str, Any]]:
        """All lines until the end; a last one that a kill cut short does not count."""
        return [
            json.loads(line)
            for line in (await self.stdout.read()).rpartition(b"\n")[0].splitlines()
        ]

    async def hello(self, version: str = "2025-11-25") -> dict[str, Any]:
        """The answer to the handshake of older clients."""
        await self.send(hello(version), {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return await self.receive()

    async def ends_well(self) -> None:
        """It ends by itself, with nothing to complain about."""
        assert self.process.stderr is not None
        complaints = await self.process.stderr.read()
        assert (await self.process.wait(), complaints) == (0, b"")


@asynccontextmanager
async def piped(folder: Path, *more: str, store: str | None = None) -> AsyncIterator[Pipe]:
    """A server on the store of a folder, or on another one, ended at the latest with the block."""
    process = await asyncio.create_subprocess_exec(
        *command(folder, *more, store=store),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        async with asyncio.timeout(patient(60)):
            yield Pipe(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def hello(version: str) -> dict[str, Any]:
    """The handshake of older clients."""
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def asking(number: int, tool: str, **fields: Any) -> dict[str, Any]:
    """A call of a tool, as older clients write it."""
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": tool, "arguments": fields},
    }
