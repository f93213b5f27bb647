"""HTTP for tests: requests straight into the app, and a real server where the wire matters."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import uvicorn

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.bootstrap import open_store
from remit.bootstrap.server import stopping
from remit.catalog import AppContext, Caller, call
from remit.ports import Store
from remit.surfaces.http.guard import App, Guard, Message
from remit.surfaces.http.rest import rest_app
from tests.patience import patient
from tests.people import ANN

TOKEN = "a-token-for-tests-0123456789-abcdefghijklmn"
HOST = "127.0.0.1:8420"
CALLER = Caller(actor=ANN)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read as strict JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, whose shape is checked on the way."""
        assert self.headers["content-type"] == "application/json"
        error = self.json["error"]
        assert self.json.keys() in (
            {"error"},
            {"status", "data", "text", "stats", "context", "error"},
        )
        assert error.keys() <= {"code", "message", "details"}
        assert error["message"]
        return str(error["code"])


async def send(
    app: App,
    method: str,
    target: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    chunks: Iterable[bytes] = (),
) -> Answer:
    """One request, with exactly these headers and the body in these pieces."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    path, _, query = target.partition("?")
    scope: Message = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
    }
    pieces = list(chunks) or [b""]
    incoming: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    incoming[-1]["more_body"] = False
    outgoing: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def collect(message: Message) -> None:
        outgoing.append(dict(message))

    await app(scope, receive, collect)
    start, *parts = outgoing
    named = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], named, b"".join(part.get("body", b"") for part in parts))


class Silent:
    """A store that answers everything with the same error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _: str) -> Any:
        """Whatever is asked."""
        raise self._error


class House:
    """REST on a store, behind its front door."""

    def __init__(
        self,
        store: Store,
        host: str = HOST,
        heartbeat: float = 15.0,
        agents: AgentRegistry | None = None,
    ) -> None:
        self.core = AppContext(store, SystemClock(), agents or AgentRegistry())
        self.store, self.host = store, host
        self.stopping = asyncio.Event()
        self.rest = rest_app(self.core, caller=CALLER, stopping=self.stopping, heartbeat=heartbeat)
        self.door = Guard(cast("App", self.rest), token=TOKEN, hosts=frozenset({host}))

    async def ask(
        self, method: str, target: str, body: Any = None, raw: bytes | None = None, **headers: str
    ) -> Answer:
        """A request as a good caller sends it; `raw` is a body that is no JSON of ours."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        typed = (
            {"Content-Type": "application/json", "Content-Length": str(len(content))}
            if content
            else {}
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await send(
            self.door, method, target, {"Host": self.host, **BEARER, **typed, **named}, [content]
        )

    async def call(self, name: str, **fields: Any) -> dict[str, Any]:
        """The catalogue itself."""
        return await call(self.core, name, fields, CALLER)

    async def create(self, title: str = "Write the report", **fields: Any) -> str:
        """The id of a new task."""
        return str((await self.call("create_task", title=title, **fields))["task_id"])


@asynccontextmanager
async def house(url: str = "memory:", **options: Any) -> AsyncIterator[House]:
    """A house on the store that a URL names."""
    async with open_store(url) as store:
        yield House(store, **options)


class Site(House):
    """A house that really listens."""

    url: str
    server: "Server"

    def halt(self) -> None:
        """Let nobody wait any longer."""
        self.stopping.set()
        self.core.waits.end(stopping)

    async def stop(self) -> None:
        """Stop as `remit serve` does, and wait for the end."""
        self.server.leaving.set()
        await self.server.ended.wait()


class Server(uvicorn.Server):
    """Says when it is ready, and ends streams before it waits for them."""

    def __init__(self, app: App, stop: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                cast("Any", app),
                lifespan="off",
                log_level="error",
                access_log=False,
                timeout_graceful_shutdown=round(patient(60)),
            )
        )
        self.ready, self.leaving, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._stop = stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell whoever waits."""
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait to be told, instead of looking ten times a second."""
        await self.on_tick(0)
        await self.leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and waits, then connections."""
        self._stop()
        await super().shutdown(sockets)
        self.ended.set()


@asynccontextmanager
async def site(store: Store, port: int = 0, heartbeat: float = 15.0) -> AsyncIterator[Site]:
    """A real server on a port of its own."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        found = Site(store, host, heartbeat)
        found.url, found.server = f"http://{host}", Server(found.door, found.halt)
        async with asyncio.TaskGroup() as group:
            group.create_task(found.server.serve(sockets=[listener]))
            await found.server.ready.wait()
            try:
                yield found
            finally:
                found.server.leaving.set()
