"""remit over HTTP: the same operations, results and errors as in the server's process."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import aiohttp
from yarl import URL

from remit.api.blocking import SyncRemit
from remit.api.closable import closed_error
from remit.api.methods import Operations
from remit.api.streaming import Streams
from remit.catalog import (
    FOR_EVERYONE,
    Operation,
    find_operation,
    refusal_in_envelope,
    stream_of,
)
from remit.domain.delegation.result_envelope import Envelope
from remit.domain.records.pick import in_order, omit, omit_none
from remit.domain.records.serialize import instant
from remit.domain.records.validate import parse
from remit.domain.task.event_position import check_position
from remit.errors import Conflict, RemitError, TimedOut, Unavailable, error_for, invalid
from remit.results import Readiness

Result = dict[str, Any]

IDLE_SECONDS = 4
"""How long an idle connection is kept. Uvicorn closes it after five seconds, which a call must not
run into.
"""
STREAMING = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=45)
"""A stream may be silent for up to four heartbeats of the server."""
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each attempt to reconnect to a server."""


class RemitClient(Operations, Streams):
    """A remit server: `async with RemitClient(url, token) as remit: await remit.task("…")`."""

    def __init__(self, url: str, token: str, *, timeout_seconds: float = 60) -> None:
        _check_address(url, token)
        self.url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._opened: aiohttp.ClientSession | None = None
        self._is_closed = False

    @classmethod
    def open_sync(cls, url: str, token: str, *, timeout_seconds: float = 60) -> SyncRemit:
        """Connect to a server for blocking calls: `with RemitClient.open_sync(url, token) as remit:
        …`.
        """
        return SyncRemit(lambda: cls(url, token, timeout_seconds=timeout_seconds))

    async def __aenter__(self) -> Self:
        """Open the HTTP session."""
        self._is_closed = False
        connector = aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS)
        self._opened = aiohttp.ClientSession(
            headers=self._headers, timeout=self._timeout, connector=connector
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the HTTP session."""
        session, self._opened, self._is_closed = self._session, None, True
        await session.close()

    def _require_open(self) -> None:
        _ = self._session

    async def call(self, operation: str, /, **fields: Any) -> Result:
        """Call an operation by name; return plain JSON."""
        self._require_open()
        found = find_operation(operation, FOR_EVERYONE)
        if found.stream is not None:
            return await self._last(operation, fields)
        method, target, body = _request(found, fields)
        with self._reporting_loss():
            async with self._session.request(
                method, self._url(target), data=body, headers=_JSON, allow_redirects=False
            ) as response:
                return await _result(response)

    async def ready(self) -> Readiness:
        """Check that the server and its store respond; return its workers and queues."""
        with self._reporting_loss():
            async with self._session.get(self._url("/readyz"), allow_redirects=False) as response:
                return Readiness.from_dict(await _result(response))

    async def _last(self, name: str, sent: Mapping[str, Any]) -> Result:
        """Return the last answer of a streamed call, which can outlast the request timeout."""
        answer: Result = {}
        async with aclosing(self.attend(name, **sent)) as items:
            async for item in items:
                answer = item.get("answer", answer)
        return answer

    async def attend(self, operation: str, /, **fields: Any) -> AsyncGenerator[Result, None]:
        """Call an operation that waits; yield items as plain JSON, as REST streams them.

        Leaving the loop or losing the connection ends the wait; it does not cancel the task.
        """
        self._require_open()
        found = find_operation(operation, FOR_EVERYONE)
        stream_of(found, FOR_EVERYONE)
        method, target, body = _request(found, fields)
        headers = _JSON | _STREAM
        settled: dict[int, Envelope] = {}
        with self._reporting_loss():
            asking = self._session.request(
                method,
                self._url(target),
                data=body,
                headers=headers,
                timeout=STREAMING,
                allow_redirects=False,
            )
            async with asking as response, aclosing(_blocks(response)) as blocks:
                async for block in blocks:
                    item: Result = json.loads(block["data"])
                    if item["type"] == "error":
                        raise _error(response.status, item)
                    yield _with_results(item, settled)
                    if item["type"] == "end":
                        return
        raise Unavailable(
            f"The server at {self.url} stopped.",
            hint="The task is kept; work continues when a worker runs. Get the result with:"
            " task_output",
        )

    async def follow(
        self, after: str | None = None, task_id: str | None = None
    ) -> AsyncGenerator[Result, None]:
        """Follow events like `events`; yield each as plain JSON.

        Reconnects after a lost connection without gaps or duplicates.
        """
        self._require_open()
        if after is not None:
            check_position(after)
        target = "/api/events" if task_id is None else f"/api/tasks/{_text(task_id)}/events"
        if after == "":
            target += "?after=0"
        stream = _Stream(self._session, self._url(target), after)
        tries = 0
        while True:
            try:
                async with aclosing(stream.listen()) as events:
                    async for event in events:
                        tries = 0
                        yield event
            except Unavailable:
                if not stream.may_retry(tries):
                    raise
            except (aiohttp.ClientError, OSError) as error:
                if not stream.may_retry(tries):
                    raise self._lost(error) from error
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise closed_error()
        if self._opened is None:
            raise Conflict(
                "This client is not open.",
                hint="Make its calls inside `async with RemitClient(url, token) as remit:`.",
            )
        return self._opened

    def _url(self, target: str) -> URL:
        return URL(self.url + target, encoded=True)

    @contextmanager
    def _reporting_loss(self) -> Generator[None, None, None]:
        """Raise the error of remit for a failed or broken connection."""
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> RemitError:
        """Return the error for a failed or broken connection."""
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL):
            return Unavailable(
                f"There is no remit server at {self.url}.",
                hint="Check the address, or start a server with: `remit serve`",
            )
        hint = "The call may have been carried out. Check before you repeat it."
        if isinstance(error, TimeoutError):
            return TimedOut(f"The server at {self.url} did not answer in time.", hint=hint)
        return Unavailable(f"The connection to {self.url} broke.", hint=hint)


_JSON = {"Content-Type": "application/json"}
_STREAM = {"Accept": "text/event-stream"}
_FIELD = re.compile(r"(?m)^([^:\n]+): (.*)$")
"""A field of server-sent events; a comment begins with a colon."""


def _check_address(url: str, token: str) -> None:
    """Refuse a URL or a token that cannot be sent."""
    if not url.lower().startswith(("http://", "https://")):
        raise invalid("url", f"is {url!r}", "an address that starts with http:// or https://")
    try:
        URL(url)
    except ValueError as error:
        raise invalid("url", f"is {url!r}: {error}", "the address of a server") from error
    if not token.isprintable():
        raise invalid("token", "has a line break or a control character", "one line of text")


def _request(operation: Operation, fields: Mapping[str, Any]) -> tuple[str, str, bytes | None]:
    """Return the method, target and body of a call; fields that are None are left out."""
    given = omit_none(fields)
    # Checked here too: a query cannot tell text from numbers, and a path cannot omit a field.
    with refusal_in_envelope(operation.name, given):
        read = parse(operation.input, given)
    in_path = re.findall(r"{(\w+)}", operation.path)
    path = operation.path.format(**{name: _text(getattr(read, name)) for name in in_path})
    rest = omit(given, in_path)
    if operation.method not in ("GET", "DELETE"):
        return operation.method, path, json.dumps(rest, ensure_ascii=False, default=_plain).encode()
    if rest:
        path += "?" + "&".join(f"{name}={_text(getattr(read, name))}" for name in rest)
    return operation.method, path, None


def _with_results(item: Result, settled: dict[int, Envelope]) -> Result:
    """Return an item of a stream with its results as envelopes, as in the server's process."""
    if item["type"] == "result":
        item["result"] = settled[item["index"]] = Envelope(item["result"], item["about"])
    elif "about" in item:
        item["answer"] = Envelope(item["answer"], item["about"])
    elif item["type"] == "end" and settled:
        item["answer"]["results"] = in_order(settled)
    return item


def _text(value: Any) -> str:
    """Return a value for a URL."""
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    return quote(text, safe="")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return instant(value)
    return dict(value)


async def _result(response: aiohttp.ClientResponse) -> Result:
    """Return the answer in a response; raise an error of the server."""
    answer = _object(await response.read())
    if response.status == 200 and answer is not None:
        return answer
    raise _error(response.status, answer)


def _object(body: bytes) -> Result | None:
    """Return the JSON object in a body, or None."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return cast("Result", value) if isinstance(value, dict) else None


def _error(status: int, answer: Result | None) -> RemitError:
    """Return the error that the server raised."""
    around = dict(answer or {})
    around.pop("type", None)
    error = around.pop("error", None)
    if not isinstance(error, dict):
        return Unavailable(
            f"Unexpected response (status {status}).",
            hint="Is this a remit server?",
        )
    told = cast("Result", error)
    made = error_for(told.get("code", ""), told.get("message", ""), told.get("details"))
    made.around = around
    return made


class _Stream:
    """Events from one URL over as many connections as needed."""

    def __init__(self, session: aiohttp.ClientSession, url: URL, after: str | None) -> None:
        self._session, self._url, self._last = session, url, after
        self.was_open = False

    def may_retry(self, tries: int) -> bool:
        """Return True if the server responded before and was not tried too often since."""
        return self.was_open and tries < len(PAUSES)

    async def listen(self) -> AsyncGenerator[Result, None]:
        """Yield events until the connection ends."""
        resume = {"Last-Event-ID": self._last} if self._last else {}
        async with self._session.get(
            self._url, headers=_STREAM | resume, timeout=STREAMING, allow_redirects=False
        ) as response:
            self.was_open = self.was_open or response.status == 200
            async with aclosing(_blocks(response)) as blocks:
                async for told in blocks:
                    self._last = told.get("id", self._last)
                    if "data" in told:
                        yield json.loads(told["data"])


async def _blocks(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, str], None]:
    """Yield the blocks of server-sent events as fields, without comments."""
    if response.status != 200:
        await _result(response)
    rest = b""
    async for chunk in response.content.iter_any():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for fields in filter(None, map(_fields_of, blocks)):
            yield fields


def _fields_of(block: bytes) -> dict[str, str]:
    """Return the fields of a block of server-sent events; a comment has none."""
    return dict(_FIELD.findall(block.decode()))
