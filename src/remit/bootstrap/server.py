"""Serving: REST and MCP behind one front door in one process, and MCP on standard input and output."""

import asyncio
import gc
import ipaddress
import socket
import sys
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from remit import __version__, config
from remit.bootstrap.api import operator
from remit.bootstrap.runner import open_runner
from remit.bootstrap.stop import Stop
from remit.bootstrap.worker import GARBAGE, embedded_worker
from remit.bootstrap.workspace import check_calendar, open_workspace
from remit.catalog import Caller, Core
from remit.config import Settings
from remit.errors import Unavailable, invalid
from remit.surfaces.guard import App, Guard, Message, Receive, Send

GRACE_SECONDS = 5
STOPPING = partial(Unavailable, "The server is stopping.", hint="The work goes on: task_output tells what came of it when a server is back.")


def serve(settings: Settings, *, insecure: bool, worker: bool = True) -> None:
    """Serve until told to stop, and work on tasks; only this machine can connect, unless somebody insists."""
    host = str(settings.get("host"))
    if not _loopback(host) and not insecure:
        raise invalid("host", f"is {host!r}, which other machines can reach without encryption", "127.0.0.1, or --insecure if you mean it")
    check_calendar(settings)
    listener = _bound(host, int(settings.get("port")))
    run(_serve(settings, host, listener, worker))


def serve_stdio(settings: Settings) -> None:
    """Speak MCP on standard input and output until it ends; where a server is named, in its name."""
    asyncio.run(_relay_stdio(settings) if settings.get("url") else _serve_stdio(settings))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on the faster event loop where there is one.

    Modules stay, and what a run makes is mostly gone without a search: who serves for long need not look so often, nor at all of it.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE)
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def serve_worker(settings: Settings, agents: Sequence[str] | None) -> None:
    """Work on tasks until told to stop."""
    check_calendar(settings)
    run(_work(settings, agents))


async def _work(settings: Settings, agents: Sequence[str] | None) -> None:
    from remit.bootstrap.worker import options_of, work

    options = options_of(settings, agents)
    async with open_workspace(settings) as core, open_runner(core, settings) as runner:
        whom = ", ".join(options.agents or sorted(core.agents.ids()))
        told = f"remit works for {whom}, {options.concurrency} runs at once; Ctrl-C hands over, twice stops at once."
        await work(core, runner, options, lambda: print(told, file=sys.stderr, flush=True))


async def _serve(settings: Settings, host: str, listener: socket.socket, worker: bool) -> None:
    port = int(listener.getsockname()[1])
    async with open_workspace(settings) as core, _worker(core, settings, stop := Stop(), wanted=worker):
        stop.then(lambda: core.waits.end(STOPPING))
        from remit.surfaces.mcp import mcp_http, mcp_server

        caller = Caller(actor=operator())
        mcp = mcp_http(mcp_server(core, caller, __version__))
        hosts = allowed_hosts(host, port) | _further(settings)
        app = Guard(_both(_rest(core, caller, stop.begun), mcp), token=config.token(settings), hosts=hosts, stopping=stop.begun)
        async with mcp.run():
            print(f"remit serves REST at http://{_shown(host)}:{port}/api and MCP at http://{_shown(host)}:{port}/mcp", file=sys.stderr)
            print("`remit token show` prints the token; Ctrl-C stops.", file=sys.stderr, flush=True)
            await _Server(app, stop.begun).serve(sockets=[listener])


@asynccontextmanager
async def _worker(core: Core, settings: Settings, stop: Stop, *, wanted: bool) -> AsyncGenerator[None, None]:
    if not wanted:
        yield
        return
    from remit.bootstrap.worker import options_of, working

    async with open_runner(core, settings) as runner, working(core, runner, options_of(settings), lambda _: stop.begin()) as worker:
        stop.then(worker.stop)
        yield


async def _serve_stdio(settings: Settings) -> None:
    async with open_workspace(settings) as core, embedded_worker(core, settings):
        from remit.surfaces.mcp import mcp_server
        from remit.surfaces.mcp_stdio import serve_stdio as speak

        await speak(mcp_server(core, Caller(actor=operator()), __version__))


async def _relay_stdio(settings: Settings) -> None:
    """Pass every call on to the server that is named."""
    from remit.client import RemitClient
    from remit.surfaces.mcp import mcp_relay
    from remit.surfaces.mcp_stdio import serve_stdio as speak

    async with RemitClient(settings.get("url"), config.token(settings)) as client:
        await speak(mcp_relay(client.call, lambda name, fields: client.stream(name, **fields), __version__))


def _rest(core: Core, caller: Caller, stopping: asyncio.Event) -> App:
    from remit.surfaces.rest import rest_app

    return cast("App", rest_app(core, caller=caller, stopping=stopping))


def _both(rest: App, mcp: Any) -> App:
    """REST, and MCP below /mcp."""

    async def route(scope: Message, receive: Receive, send: Send) -> None:
        at_mcp = scope["path"] == "/mcp" or scope["path"].startswith("/mcp/")
        await (mcp if at_mcp else rest)(scope, receive, send)

    return route


class _Server(uvicorn.Server):
    """A server that stops when it is told to, and leaves signals to whoever tells it."""

    def __init__(self, app: App, stopping: asyncio.Event) -> None:
        settings: dict[str, Any] = {"lifespan": "off", "log_level": "warning", "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(cast("Any", app), timeout_graceful_shutdown=GRACE_SECONDS, **settings))
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Nothing: whoever runs it listens to them."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop; asked ten times a second."""
        return self._stopping.is_set() or await super().on_tick(counter)


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """What a request may name as its host: the address served, and this machine's own names."""
    names = {_shown(host), "127.0.0.1", "localhost", "[::1]"} if _loopback(host) else {_shown(host)}
    return frozenset({f"{name}:{port}" for name in names} | (names if port in (80, 443) else set()))


def _further(settings: Settings) -> frozenset[str]:
    return frozenset(name.strip() for name in str(settings.get("hosts") or "").split(",") if name.strip())


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket, or a clear word why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # whoever reads the address may come at once
    except OSError as error:
        raise Unavailable(f"Port {port} on {host} cannot be used: {error.strerror or error}.", hint="Name another with --port.") from error
    return listener
