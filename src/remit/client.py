"""remit over HTTP: the same operations, results and errors as in the process of the server."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

import aiohttp
from yarl import URL

from remit.catalog import FOR_EVERYONE, Operation, enveloped, method_of
from remit.domain.envelope import TaskResult
from remit.domain.shape import parse
from remit.domain.wire import instant
from remit.errors import (
    Conflict,
    Forbidden,
    Internal,
    InvalidParam,
    LimitExceeded,
    NotFound,
    RemitError,
    TimedOut,
    Unauthenticated,
    Unavailable,
    invalid,
)

Result = dict[str, Any]

IDLE_SECONDS = 4
"""How long an idle connection is kept; uvicorn closes them after five seconds, and a call must not meet that."""
STREAMING = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=45)
"""A stream may be silent for as long as four heartbeats of the server."""
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each new try to reach a server that was there."""

_KINDS: tuple[type[RemitError], ...] = (InvalidParam, NotFound, Conflict, Unauthenticated, Forbidden, LimitExceeded, Unavailable, TimedOut)
_BY_CODE = {kind.code: kind for kind in _KINDS}


class RemitClient:
    """A remit server; each operation is a method. Use it with `async with`."""

    def __init__(self, url: str, token: str, *, timeout_seconds: float = 60) -> None:
        self.url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._opened: aiohttp.ClientSession | None = None

    if TYPE_CHECKING:
        task: Callable[..., Awaitable[TaskResult]]
        Task: Callable[..., Awaitable[TaskResult]]
        task_output: Callable[..., Awaitable[TaskResult]]

        def __getattr__(self, name: str) -> Callable[..., Awaitable[Result]]: ...

    async def __aenter__(self) -> Self:
        """Open the one session that everything goes through."""
        connector = aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS)
        self._opened = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout, connector=connector)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        await self._session.close()

    async def call(self, name: str, sent: Mapping[str, Any] | None = None) -> Result:
        """Carry out an operation."""
        operation = FOR_EVERYONE.get(name)
        if operation is None:
            raise NotFound(f"There is no operation {name}.", details={"operation": name})
        if operation.stream is not None:
            return await self._last(name, sent or {})
        method, target, body = _request(operation, {field: value for field, value in (sent or {}).items() if value is not None})
        try:
            async with self._session.request(method, self._url(target), data=body, headers=_JSON, allow_redirects=False) as response:
                return await _result(response)
        except (aiohttp.ClientError, OSError) as error:
            raise self._lost(error) from error

    async def _last(self, name: str, sent: Mapping[str, Any]) -> Result:
        """The answer of an operation that may wait for longer than a request may take: a stream is alive as long as it is heard of."""
        answer: Result = {}
        async with aclosing(self.stream(name, **sent)) as items:
            async for item in items:
                answer = item.get("answer", answer)
        return answer

    async def stream(self, operation: str, /, **fields: Any) -> AsyncGenerator[Result, None]:
        """Carry out an operation that waits: what goes on meanwhile, each result as it comes, and last `end` with its answer.

        Who stops listening, or loses the connection, ends the wait and nothing else.
        """
        found = FOR_EVERYONE.get(operation)
        if found is None or found.stream is None:
            waiting = ", ".join(name for name, other in FOR_EVERYONE.items() if other.stream is not None)
            raise invalid("operation", f"is {operation}, which never waits", f"one of {waiting}")
        method, target, body = _request(found, {field: value for field, value in fields.items() if value is not None})
        headers = _JSON | _STREAM
        settled: dict[int, TaskResult] = {}
        try:
            asking = self._session.request(method, self._url(target), data=body, headers=headers, timeout=STREAMING, allow_redirects=False)
            async with asking as response, aclosing(_blocks(response)) as blocks:
                async for block in blocks:
                    item: Result = json.loads(block["data"])
                    if item["type"] == "error":
                        raise _error(response.status, item)
                    yield _with_results(item, settled)
                    if item["type"] == "end":
                        return
        except (aiohttp.ClientError, OSError) as error:
            raise self._lost(error) from error
        raise Unavailable(f"The server at {self.url} stopped.", hint="The work goes on when it is back: task_output tells what came of it.")

    async def stream_parallel(self, tasks: Sequence[Any], **values: Any) -> AsyncGenerator[Result, None]:
        """Hand out several pieces of work; each result as it comes, as `{index, task_id, result}`, the result a `TaskResult`."""
        async with aclosing(self.stream("task_parallel", tasks=list(tasks), **values)) as items:
            async for item in items:
                if item["type"] == "result":
                    yield item

    async def events(self, after: str | None = None, task_id: str | None = None) -> AsyncGenerator[Result, None]:
        """Events of all tasks, or of one, after a position ("" is the beginning); without one, from now on.

        A lost connection is taken up where it broke: no event is missed and none comes twice.
        """
        target = "/api/events" if task_id is None else f"/api/tasks/{_text(task_id)}/events"
        stream = _Stream(self._session, self._url(f"{target}?after=0" if after == "" else target), after)
        tries = 0
        while True:
            try:
                async with aclosing(stream.listen()) as events:
                    async for event in events:
                        tries = 0
                        yield event
            except Unavailable:
                if not stream.was_open or tries >= len(PAUSES):
                    raise
            except (aiohttp.ClientError, OSError) as error:
                if not stream.was_open or tries >= len(PAUSES):
                    raise self._lost(error) from error
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._opened is not None, "use the client with `async with`"
        return self._opened

    def _url(self, target: str) -> URL:
        return URL(self.url + target, encoded=True)

    def _lost(self, error: Exception) -> RemitError:
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL):
            return Unavailable(f"There is no remit server at {self.url}.", hint="Start one with `remit serve`, or correct REMIT_URL.")
        hint = "Whether the call was carried out is unknown; look before you repeat it."
        if isinstance(error, TimeoutError):
            return TimedOut(f"The server at {self.url} did not answer in time.", hint=hint)
        return Unavailable(f"The connection to {self.url} broke.", hint=hint)


_JSON = {"Content-Type": "application/json"}
_STREAM = {"Accept": "text/event-stream"}


def _request(operation: Operation, given: Mapping[str, Any]) -> tuple[str, str, bytes | None]:
    """The method, target and body of a call."""
    # Checked on this side as well: a query cannot tell text from numbers, and a path cannot leave a field out.
    with enveloped(operation.name, given):
        read = parse(operation.input, given)
    in_path = re.findall(r"{(\w+)}", operation.path)
    path = operation.path.format(**{name: _text(getattr(read, name)) for name in in_path})
    rest = {name: value for name, value in given.items() if name not in in_path}
    if operation.method not in ("GET", "DELETE"):
        return operation.method, path, json.dumps(rest, ensure_ascii=False, default=_plain).encode()
    query = "&".join(f"{name}={_text(getattr(read, name))}" for name in rest)
    return operation.method, f"{path}?{query}" if query else path, None


def _with_results(item: Result, settled: dict[int, TaskResult]) -> Result:
    """An item of a stream in which results are what they are in the process of the server."""
    if item["type"] == "result":
        item["result"] = settled[item["index"]] = TaskResult(item["result"], item["about"])
    elif "about" in item:
        item["answer"] = TaskResult(item["answer"], item["about"])
    elif item["type"] == "end" and settled:
        item["answer"]["results"] = [settled[index] for index in sorted(settled)]
    return item


def _text(value: Any) -> str:
    return quote(json.dumps(value) if isinstance(value, bool) else str(value), safe="")


def _plain(value: Any) -> Any:
    return instant(value) if isinstance(value, datetime) else dict(value)


async def _result(response: aiohttp.ClientResponse) -> Result:
    answer = _object(await response.read())
    if response.status == 200 and answer is not None:
        return answer
    raise _error(response.status, answer)


def _object(body: bytes) -> Result | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return cast("Result", value) if isinstance(value, dict) else None


def _error(status: int, answer: Result | None) -> RemitError:
    """The error that the server raised."""
    error = (answer or {}).get("error")
    if not isinstance(error, dict):
        return Unavailable(f"The server answered {status} and nothing that remit would say.", hint="Is it a remit server?")
    told = cast("Result", error)
    kind = _BY_CODE.get(told.get("code", ""), Internal)
    # Made without its own constructor: the message and the details are already what that would make of them.
    made = kind.__new__(kind)
    RemitError.__init__(made, told.get("message", ""), details=told.get("details"))
    made.around = {name: value for name, value in (answer or {}).items() if name not in ("type", "error")}
    return made


class _Stream:
    """Events of one address over as many connections as it takes."""

    def __init__(self, session: aiohttp.ClientSession, url: URL, after: str | None) -> None:
        self._session, self._url, self._last = session, url, after
        self.was_open = False

    async def listen(self) -> AsyncGenerator[Result, None]:
        """Events until the connection ends."""
        resume = {"Last-Event-ID": self._last} if self._last else {}
        async with self._session.get(self._url, headers=_STREAM | resume, timeout=STREAMING, allow_redirects=False) as response:
            self.was_open = self.was_open or response.status == 200
            async with aclosing(_blocks(response)) as blocks:
                async for told in blocks:
                    self._last = told.get("id", self._last)
                    if "data" in told:
                        yield json.loads(told["data"])


async def _blocks(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, str], None]:
    """The blocks of server-sent events, each as its fields; comments are left out."""
    if response.status != 200:
        await _result(response)
    rest = b""
    async for chunk in response.content.iter_any():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            told = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line and not line.startswith(":"))
            if told:
                yield told


for _operation in FOR_EVERYONE.values():
    setattr(RemitClient, _operation.name, method_of("RemitClient", _operation, RemitClient.call))
