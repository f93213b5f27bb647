"""Checks that every HTTP request must pass: host, origin, token and body."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from hmac import compare_digest
from typing import Any

from remit.domain.records.serialize import dumps
from remit.errors import Forbidden, RemitError, Unauthenticated, Unavailable, invalid

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAX_BODY = 1_000_000
"""The largest request body in bytes."""
CHALLENGE = (b"www-authenticate", b"Bearer")
RETRY_AFTER = (b"retry-after", b"1")

_LOOKED_AT = frozenset(
    {b"host", b"origin", b"authorization", b"content-type", b"content-length", b"transfer-encoding"}
)
_JSON = frozenset(
    {b"application/json", b"application/json;charset=utf-8", b'application/json;charset="utf-8"'}
)
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")


class Refused(Exception):
    """A refused request: its status, error and response headers."""

    def __init__(self, status: int, error: RemitError, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(status)
        self.status, self.error, self.headers = status, error, headers


class Guard:
    """Admits requests to a known host, without a foreign origin, with the token and a small JSON
    body.

    Adds security headers to every response. Requests that are still open when a stopping server
    gives up get an error.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str,
        hosts: Iterable[str],
        public: Iterable[str] = ("/healthz",),
        stopping: asyncio.Event | None = None,
    ) -> None:
        if not token:
            raise ValueError("The guard needs a token.")
        self._app, self._token, self._public = app, token.encode(), frozenset(public)
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._stopping = stopping

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        answer = _Protected(send)
        try:
            await self._serve(scope, receive, answer)
        except Refused as refused:
            await _refuse(refused, answer)
        except asyncio.CancelledError:
            if self._stopping is None or not self._stopping.is_set():
                raise
            if not answer.begun:
                error = Unavailable("The server is stopping.", hint="Try again when it is back.")
                await _refuse(Refused(503, error, RETRY_AFTER), answer)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = _headers(scope["headers"])
        self._admit(scope, headers)
        await self._app(scope, await _checked_body(scope["method"], headers, receive), send)

    def _admit(self, scope: Message, headers: dict[bytes, bytes]) -> None:
        """Refuse a request with a wrong host, a foreign origin or a wrong token."""
        self._check_host(headers.get(b"host", b"").lower())
        self._check_origin(headers.get(b"origin"), scope["scheme"].encode())
        if scope["path"] not in self._public:
            self._check_token(headers.get(b"authorization", b""))

    def _check_host(self, host: bytes) -> None:
        if host not in self._hosts:
            error = invalid(
                "Host", "is not an address of this server", "the host and port it was started with"
            )
            raise Refused(421, error)

    def _check_origin(self, origin: bytes | None, scheme: bytes) -> None:
        if origin is not None and not self._same_site(origin.lower(), scheme):
            error = Forbidden(
                "Pages from other sites may not call this server.",
                hint="Call it without an Origin header.",
            )
            raise Refused(403, error)

    def _check_token(self, authorization: bytes) -> None:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() == b"bearer" and compare_digest(token.strip(), self._token):
            return
        hint = "Send the header Authorization: Bearer <token>. Print it with: `remit token show`"
        error = Unauthenticated("The token is missing or wrong.", hint=hint)
        raise Refused(401, error, CHALLENGE)

    def _same_site(self, origin: bytes, scheme: bytes) -> bool:
        """Return True if a page of this server sent the request."""
        prefix = scheme + b"://"
        return origin.startswith(prefix) and origin.removeprefix(prefix) in self._hosts


def _headers(raw: Headers) -> dict[bytes, bytes]:
    """Return the headers to check; a header given twice becomes a value that matches nothing."""
    found: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in found:
            found[name] += b"," + value
        elif name in _LOOKED_AT:
            found[name] = value
    return found


async def _checked_body(method: str, headers: dict[bytes, bytes], receive: Receive) -> Receive:
    """Read the whole body here, so that no handler starts on a body that is refused."""
    length = headers.get(b"content-length", b"0")
    declared = length != b"0" or b"transfer-encoding" in headers
    if not declared and method not in _WITH_BODY:
        return receive
    typed = headers.get(b"content-type", b"").lower().replace(b" ", b"") in _JSON
    if declared and not typed:
        raise _not_json()
    if length.isdigit() and int(length[:20]) > MAX_BODY:
        raise _too_large()
    body = await _read(receive)
    if body and not typed:
        raise _not_json()
    return _replay(body, receive)


async def _read(receive: Receive) -> bytes:
    """Read a whole body; refuse one that is too large or ends too early."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        # A client that disconnects in the middle of a body gets no answer, and its request is not
        # carried out.
        if message["type"] == "http.disconnect":
            raise Refused(400, invalid("body", "ended too early", "all of it"))
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY:
            raise _too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that was read, and then what comes next."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if pending:
            return pending.pop()
        return await receive()

    return replay


class _Protected:
    """A response with security headers that knows whether it has started."""

    def __init__(self, send: Send) -> None:
        self._send, self.begun = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers: Headers = list(message.get("headers", ()))
            headers.append(_NOSNIFF)
            if all(name != b"cache-control" for name, _ in headers):
                headers.append(_NO_STORE)
            message["headers"] = headers
        await self._send(message)


def _not_json() -> Refused:
    return Refused(415, invalid("Content-Type", "is not supported", "application/json"))


def _too_large() -> Refused:
    return Refused(
        413, invalid("body", f"is larger than {MAX_BODY:,} bytes", f"at most {MAX_BODY:,} bytes")
    )


async def _refuse(refused: Refused, send: Send) -> None:
    """Answer a request that is refused."""
    body = dumps(refused.error.wire()).encode()
    headers: Headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *refused.headers,
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
