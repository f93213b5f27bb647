"""Servers: REST and MCP over HTTP in one process, and MCP on standard input and output."""

import asyncio
import gc
import ipaddress
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from remit import __version__, config
from remit.app.engine.task_log import FIELDS
from remit.bootstrap.embedded_worker import GARBAGE, embedded_worker
from remit.bootstrap.library import operator
from remit.bootstrap.logging_setup import start_logging, write_last_line
from remit.bootstrap.runner_selection import open_runner
from remit.bootstrap.signals import Deadline, Stop, handover_line
from remit.bootstrap.workspace import check_calendar, open_workspace
from remit.catalog import VIA_MCP, AppContext, Caller
from remit.config import Settings
from remit.errors import Internal, RemitError, Unavailable, invalid
from remit.surfaces.http.guard import App, Guard, Message, Receive, Send
from remit.surfaces.shutdown import stop_key, write_line
from remit.surfaces.text.last_line import stopped_line
from remit.surfaces.text.printed_commands import with_commands_in_line

GRACE_SECONDS = 5
INTERRUPTED = 130
log = logging.getLogger("remit.server")


def leaving(details: Mapping[str, Any]) -> Unavailable:
    """Return the error for waits in a `remit mcp` process that stops."""
    hint = f"{_kept(details)}: task_output continues the work and returns the result."
    return Unavailable("This remit mcp process is stopping.", hint=hint, details=details)


def stopping(details: Mapping[str, Any]) -> Unavailable:
    """Return the error for waits at a server that stops."""
    hint = (
        f"{_kept(details)}; work continues when a worker runs. Get the result from a server with:"
        " task_output"
    )
    return Unavailable("The server is stopping.", hint=hint, details=details)


def _kept(details: Mapping[str, Any]) -> str:
    """Return `Task 1 is kept` for the awaited tasks."""
    if "task_id" in details:
        return f"Task {details['task_id']} is kept"
    return f"Tasks {', '.join(details['task_ids'])} are kept"


def serve(
    settings: Settings, *, insecure: bool, worker: bool = True, detail: str = "normal"
) -> None:
    """Serve REST and MCP until stopped, and work on tasks.

    Only this machine can connect, unless `insecure` is True.
    """
    with _logging(settings, detail) as deadline:
        host = str(settings.get("host"))
        if not _loopback(host) and not insecure:
            raise invalid(
                "host",
                f"is {host!r}, which other machines can reach without encryption",
                "127.0.0.1, or --insecure to allow it",
            )
        check_calendar(settings)
        listener = _listen(host, int(settings.get("port")))
        run(_until_stopped(deadline, partial(_serve, settings, host, listener, worker)))


def serve_stdio(settings: Settings) -> None:
    """Serve MCP on standard input and output until the input ends.

    If a server is set, relay all calls to it.
    """
    with _logging(settings, "quiet") as deadline:
        if settings.get("url"):
            asyncio.run(_relay_stdio(settings))
        else:
            asyncio.run(_serve_stdio(settings, deadline))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, with uvloop if it is installed.

    Garbage collection is rarer: modules stay, and runs create almost no cyclic garbage.
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
    """Work on tasks until stopped."""
    with _logging(settings, detail) as deadline:
        check_calendar(settings)
        run(_until_stopped(deadline, partial(_work, settings, agents)))


@contextmanager
def _logging(settings: Settings, detail: str) -> Generator[Deadline]:
    """Log in this block, which has a deadline for stopping.

    With JSON, also log why it ended, so that every line is JSON.
    """
    as_json = settings.get("log_format") == "json"
    handler = start_logging(settings.get("log_format"), detail)
    try:
        with Deadline(write_last_line if as_json else write_line) as deadline:
            yield deadline
        if deadline.is_interrupted:
            raise SystemExit(INTERRUPTED)
    except KeyboardInterrupt:  # it came before signals were handled
        log.info("Stopped.")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if not as_json:
            raise
        raise SystemExit(_log_end(error)) from None
    finally:
        handler.flush()


def _log_end(error: Exception) -> int:
    """Log why the process ends; return its exit code."""
    if not isinstance(error, RemitError):
        log.critical("Stopped by an unexpected error: %s", error, exc_info=error)
        return Internal.exit_code
    fields = {"code": error.code}
    if error.hint:
        fields["hint"] = with_commands_in_line(error.hint)
    log.error(error.message, extra={FIELDS: fields})
    return error.exit_code


async def _until_stopped(
    deadline: Deadline, main: Callable[[Stop], Coroutine[Any, Any, str]]
) -> None:
    """Run a process that stops at signals, and log its last line."""
    stop = Stop(deadline)
    line = stopped_line()
    try:
        line = await main(stop)
    except asyncio.CancelledError:  # it was told to stop while it started
        if not stop.begun.is_set():
            raise
    log.info(line)


async def _work(settings: Settings, agents: Sequence[str] | None, stop: Stop) -> str:
    """Work on tasks until stopped; return the last line."""
    from remit.bootstrap.embedded_worker import options_of, work

    options = options_of(settings, agents, log_tasks=True)
    async with (
        open_workspace(settings, to_write=True) as core,
        open_runner(core, settings) as runner,
    ):
        whom = ", ".join(options.agents or sorted(core.agents.ids()))
        runs = "1 run" if options.concurrency == 1 else f"{options.concurrency} runs"
        how = f"{stop_key()} to stop and hand over running tasks, twice to quit now."

        def begin() -> None:
            log.info("Worker started: up to %s, agents %s. %s", runs, whom, how)

        handed_over = await work(core, runner, options, begin, stop)
        return await handover_line(core, handed_over)


async def _serve(
    settings: Settings, host: str, listener: socket.socket, worker: bool, stop: Stop
) -> str:
    """Serve REST and MCP on a listening socket until stopped; return the last line."""
    async with open_workspace(settings, to_write=True) as core:
        async with _worker(core, settings, stop, wanted=worker) as handed_over:
            await _serve_workspace(core, settings, host, listener, stop, has_worker=worker)
        return await handover_line(core, handed_over())


async def _serve_workspace(
    core: AppContext,
    settings: Settings,
    host: str,
    listener: socket.socket,
    stop: Stop,
    *,
    has_worker: bool,
) -> None:
    """Serve an open workspace on a listening socket until stopped."""
    from remit.surfaces.mcp.server import mcp_http, mcp_server

    port = int(listener.getsockname()[1])
    core.how_to_start_worker = "Start one on the server's machine with: `remit worker`"
    stop.then(lambda: core.waits.end(stopping))
    caller = Caller(actor=operator())
    mcp = mcp_http(mcp_server(core, caller, __version__, settings.get("mcp_tools")))
    hosts = allowed_hosts(host, port) | _extra_hosts(settings)
    app = Guard(
        _combine(_rest(core, caller, stop.begun), mcp),
        token=config.token(settings),
        hosts=hosts,
        stopping=stop.begun,
    )
    async with mcp.run():
        address = f"http://{_shown(host)}:{port}"
        stop.announce(lambda: _log_start(address, has_worker=has_worker))
        await _Server(app, stop.begun).serve(sockets=[listener])


def _log_start(address: str, *, has_worker: bool) -> None:
    """Log the address of the server, and how to stop it."""
    what = "stop and hand over running tasks" if has_worker else "stop"
    stop = f"{stop_key()} to {what}, twice to quit now."
    log.info("Server started: REST at %s/api, MCP at %s/mcp. %s", address, address, stop)
    log.info("Print the token with: `remit token show`")


@asynccontextmanager
async def _worker(
    core: AppContext, settings: Settings, stop: Stop, *, wanted: bool
) -> AsyncGenerator[Callable[[], frozenset[str]], None]:
    """Work on tasks in this block, if a worker is wanted.

    Yield a function that returns the tasks that were handed over.
    """
    if not wanted:
        yield frozenset
        return
    from remit.bootstrap.embedded_worker import options_of, working

    options = options_of(settings, log_tasks=True)
    async with (
        open_runner(core, settings) as runner,
        working(core, runner, options, lambda _: stop.begin()) as worker,
    ):
        stop.deadline.running = lambda: worker.running
        stop.then(worker.stop)
        yield lambda: worker.handed_over


async def _serve_stdio(settings: Settings, deadline: Deadline) -> None:
    """Serve MCP for the workspace, and work on the tasks of the client."""
    async with (
        open_workspace(settings, to_write=True) as core,
        embedded_worker(core, settings, adopts_via=VIA_MCP) as worker,
    ):
        from remit.surfaces.mcp.server import mcp_server
        from remit.surfaces.mcp.stdio import serve_stdio as speak

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
    """Relay every call to the configured server."""
    from remit.client import RemitClient
    from remit.surfaces.mcp.server import mcp_relay
    from remit.surfaces.mcp.stdio import serve_stdio as speak

    async with RemitClient(settings.get("url"), config.server_token(settings)) as client:
        relay = mcp_relay(
            lambda name, fields: client.call(name, **fields),
            lambda name, fields: client.attend(name, **fields),
            __version__,
            settings.get("mcp_tools"),
        )
        await speak(relay)


def _rest(core: AppContext, caller: Caller, stopping: asyncio.Event) -> App:
    """Return the application that serves REST."""
    from remit.surfaces.http.rest import rest_app

    return cast("App", rest_app(core, caller=caller, stopping=stopping))


def _combine(rest: App, mcp: Any) -> App:
    """Return an app with REST, and MCP below /mcp."""

    async def route(scope: Message, receive: Receive, send: Send) -> None:
        if f"{scope['path']}/".startswith("/mcp/"):
            await mcp(scope, receive, send)
        else:
            await rest(scope, receive, send)

    return route


class _Server(uvicorn.Server):
    """A server that stops when the event is set, and does not handle signals."""

    def __init__(self, app: App, stopping: asyncio.Event) -> None:
        settings: dict[str, Any] = {
            "lifespan": "off",
            "log_config": None,
            "log_level": "warning",
            "access_log": False,
            "server_header": False,
        }
        super().__init__(
            uvicorn.Config(cast("Any", app), timeout_graceful_shutdown=GRACE_SECONDS, **settings)
        )
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing: the caller handles signals."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Return True to stop; called ten times a second."""
        return self._stopping.is_set() or await super().on_tick(counter)


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """Return the valid Host headers: the served address, and this machine's own names."""
    names = {_shown(host)}
    if _loopback(host):
        names |= {"127.0.0.1", "localhost", "[::1]"}
    found = {f"{name}:{port}" for name in names}
    if port in (80, 443):
        found |= names
    return frozenset(found)


def _extra_hosts(settings: Settings) -> frozenset[str]:
    """Return the additional host names from the settings."""
    names = str(settings.get("hosts") or "").split(",")
    return frozenset(filter(None, map(str.strip, names)))


def _loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(host: str) -> str:
    """Return an address for a URL."""
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise Unavailable if the port cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # clients can connect before the server accepts
    except OSError as error:
        raise Unavailable(
            f"Cannot use port {port} on {host}: {error.strerror or error}.",
            hint="Choose another with --port.",
        ) from error
    return listener
