"""Serving: REST and MCP behind one front door in one process, and MCP on standard input and output."""

import asyncio
import gc
import ipaddress
import logging
import socket
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import uvicorn

from remit import __version__, config
from remit.app.task_log import FIELDS
from remit.bootstrap.api import operator
from remit.bootstrap.logs import start_logging, write_last_line
from remit.bootstrap.runner import open_runner
from remit.bootstrap.stop import Deadline, Stop
from remit.bootstrap.worker import GARBAGE, embedded_worker
from remit.bootstrap.workspace import check_calendar, open_workspace
from remit.catalog import VIA_MCP, Caller, Core
from remit.config import Settings
from remit.errors import Internal, RemitError, Unavailable, invalid
from remit.surfaces.guard import App, Guard, Message, Receive, Send
from remit.surfaces.stopping import write_line

GRACE_SECONDS = 5
INTERRUPTED = 130
log = logging.getLogger("remit.server")


def leaving(details: Mapping[str, Any]) -> Unavailable:
    """Why a wait in `remit mcp` ends when the process does."""
    hint = f"{_kept(details)}: task_output continues the work and returns the result."
    return Unavailable("This remit mcp process is stopping.", hint=hint, details=details)


def stopping(details: Mapping[str, Any]) -> Unavailable:
    """Why a wait at a server ends when the server does."""
    hint = f"{_kept(details)}, and workers continue: task_output returns the result when a server is back."
    return Unavailable("The server is stopping.", hint=hint, details=details)


def _kept(details: Mapping[str, Any]) -> str:
    """`Task 1 is kept`, for the tasks that a wait was about."""
    if "task_id" in details:
        return f"Task {details['task_id']} is kept"
    return f"Tasks {', '.join(details['task_ids'])} are kept"


def serve(settings: Settings, *, insecure: bool, worker: bool = True, detail: str = "normal") -> None:
    """Serve until told to stop, and work on tasks; only this machine can connect, unless somebody insists."""
    with _logging(settings, detail) as deadline:
        host = str(settings.get("host"))
        if not _loopback(host) and not insecure:
            raise invalid("host", f"is {host!r}, which other machines can reach without encryption", "127.0.0.1, or --insecure if you mean it")
        check_calendar(settings)
        listener = _bound(host, int(settings.get("port")))
        run(_serve(settings, host, listener, worker, deadline))


def serve_stdio(settings: Settings) -> None:
    """Speak MCP on standard input and output until it ends; where a server is named, in its name."""
    with Deadline() as deadline:
        asyncio.run(_relay_stdio(settings) if settings.get("url") else _serve_stdio(settings, deadline))


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


def serve_worker(settings: Settings, agents: Sequence[str] | None, detail: str = "normal") -> None:
    """Work on tasks until told to stop."""
    with _logging(settings, detail) as deadline:
        check_calendar(settings)
        run(_work(settings, agents, deadline))


@contextmanager
def _logging(settings: Settings, detail: str) -> Generator[Deadline]:
    """Log for the time of the block, which must stop in time; in JSON also why it ended, so that no other line is written."""
    as_json = settings.get("log_format") == "json"
    start_logging(settings.get("log_format"), detail)
    try:
        with Deadline(write_last_line if as_json else write_line) as deadline:
            yield deadline
    except KeyboardInterrupt:  # it came before signals were handled
        log.info("Stopped.")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if not as_json:
            raise
        _log_end(error)
        raise SystemExit(error.exit_code if isinstance(error, RemitError) else Internal.exit_code) from None


def _log_end(error: Exception) -> None:
    if isinstance(error, RemitError):
        log.error(error.message, extra={FIELDS: {"code": error.code} | ({"hint": error.hint} if error.hint else {})})
    else:
        log.critical("Ended by an unexpected error: %s", error, exc_info=error)


async def _work(settings: Settings, agents: Sequence[str] | None, deadline: Deadline) -> None:
    from remit.bootstrap.worker import options_of, work

    options = options_of(settings, agents, log_tasks=True)
    async with open_workspace(settings, to_write=True) as core, open_runner(core, settings) as runner:
        whom = ", ".join(options.agents or sorted(core.agents.ids()))
        runs = "1 run" if options.concurrency == 1 else f"{options.concurrency} runs"
        stop = "Ctrl-C to finish and exit, twice to quit now."

        def begin() -> None:
            log.info("Worker started: up to %s, agents %s. %s", runs, whom, stop)

        await work(core, runner, options, begin, deadline)


async def _serve(settings: Settings, host: str, listener: socket.socket, worker: bool, deadline: Deadline) -> None:
    port = int(listener.getsockname()[1])
    async with open_workspace(settings, to_write=True) as core, _worker(core, settings, stop := Stop(deadline), deadline, wanted=worker):
        stop.then(lambda: core.waits.end(stopping))
        from remit.surfaces.mcp import mcp_http, mcp_server

        caller = Caller(actor=operator())
        mcp = mcp_http(mcp_server(core, caller, __version__, settings.get("mcp_tools")))
        hosts = allowed_hosts(host, port) | _further(settings)
        app = Guard(_both(_rest(core, caller, stop.begun), mcp), token=config.token(settings), hosts=hosts, stopping=stop.begun)
        async with mcp.run():
            if not stop.begun.is_set():
                _log_start(f"http://{_shown(host)}:{port}")
            await _Server(app, stop.begun).serve(sockets=[listener])


def _log_start(address: str) -> None:
    log.info("Server started: REST at %s/api, MCP at %s/mcp. Ctrl-C to finish and exit, twice to quit now.", address, address)
    log.info("Print the token with: remit token show")


@asynccontextmanager
async def _worker(core: Core, settings: Settings, stop: Stop, deadline: Deadline, *, wanted: bool) -> AsyncGenerator[None, None]:
    if not wanted:
        yield
        return
    from remit.bootstrap.worker import options_of, working

    options = options_of(settings, log_tasks=True)
    async with open_runner(core, settings) as runner, working(core, runner, options, lambda _: stop.begin()) as worker:
        deadline.running = lambda: worker.running
        stop.then(worker.stop)
        yield


async def _serve_stdio(settings: Settings, deadline: Deadline) -> None:
    async with open_workspace(settings, to_write=True) as core, embedded_worker(core, settings, adopts_via=VIA_MCP) as worker:
        from remit.surfaces.mcp import mcp_server
        from remit.surfaces.mcp_stdio import serve_stdio as speak

        if worker is not None:
            deadline.running = lambda: worker.running

        def hand_over() -> None:
            deadline.begin()
            if worker is not None:
                worker.hand_over()
            core.waits.end(leaving)

        server = mcp_server(core, Caller(actor=operator()), __version__, settings.get("mcp_tools"))
        await speak(server, hand_over)
        deadline.begin()


async def _relay_stdio(settings: Settings) -> None:
    """Pass every call on to the server that is named."""
    from remit.client import RemitClient
    from remit.surfaces.mcp import mcp_relay
    from remit.surfaces.mcp_stdio import serve_stdio as speak

    async with RemitClient(settings.get("url"), config.token(settings)) as client:
        relay = mcp_relay(
            client.call,
            lambda name, fields: client.stream(name, **fields),
            __version__,
            settings.get("mcp_tools"),
        )
        await speak(relay)


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
        settings: dict[str, Any] = {"lifespan": "off", "log_config": None, "log_level": "warning", "access_log": False, "server_header": False}
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
