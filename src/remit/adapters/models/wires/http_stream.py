"""One POST with a streamed answer: connections, time limits, frames and refusals."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from errno import ECONNREFUSED
from json import JSONDecoder
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from remit.adapters.models.refusals.refusal import (
    UNNAMED,
    CutOff,
    ErrorDocument,
    Refusal,
    as_json,
    named_status,
    read_error,
    read_error_text,
    reports_failure,
)
from remit.adapters.models.wires.event_frames import Answer, EventFrames
from remit.adapters.models.wires.response import Limits, bad
from remit.adapters.models.wires.silence_watch import SilenceWatch
from remit.domain.llm.failures import ModelFailed, excerpt
from remit.errors import invalid

MAX_REFUSAL = 65_536
GRACE_SECONDS = 0.2
BOM = b"\xef\xbb\xbf"
WIRE_OVERHEAD = 64
"""The maximum ratio of bytes on the wire to bytes of the answer: each token comes in a frame of
some hundred bytes.
"""

_NOT_CONNECTED = (
    aiohttp.ClientConnectorError,
    aiohttp.InvalidURL,
    aiohttp.ServerDisconnectedError,
)
_decode = JSONDecoder().raw_decode


class Http:
    """One address, over one session; the key is sent there and nowhere else."""

    def __init__(
        self, url: str, headers: Mapping[str, str], secrets: tuple[str, ...], limits: Limits
    ) -> None:
        self._url = _address(url)
        values = "".join(headers.values())
        if not values.isascii() or not values.isprintable():
            raise invalid(
                "api_key",
                "contains a character that is not allowed in a header",
                "the key alone, on one line",
            )
        self.name = str(self._url.origin())
        self._headers = {
            **headers,
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
        }
        self._secrets, self._limits = secrets, limits
        self._opened: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Http({self.name})"

    async def close(self) -> None:
        """Close the session."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def post(self, body: "Body", answer: Answer, seconds: float) -> bool:
        """Send a body and fold the response; return True if the stream said that it was
        complete.
        """
        watch = SilenceWatch(self._limits, seconds)
        try:
            async with asyncio.timeout(None) as scope:
                watch.start(scope)
                try:
                    async with self._session.post(
                        self._url, data=body, allow_redirects=False
                    ) as response:
                        if response.status != 200:
                            raise await self._refusal(response)
                        return await self._read(response, answer, watch)
                finally:
                    watch.stop()
        except TimeoutError as error:
            raise self._timeout_failure(error, watch, answer.started) from error
        except (aiohttp.ClientError, OSError, EOFError) as error:
            raise self._connection_failure(error, watch, answer.started) from error

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect_seconds)
            connector = aiohttp.TCPConnector(limit=0)
            self._opened = aiohttp.ClientSession(
                headers=self._headers,
                timeout=timeout,
                connector=connector,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._opened

    async def _read(
        self, response: aiohttp.ClientResponse, answer: Answer, watch: SilenceWatch
    ) -> bool:
        """Read an answer, as a stream or in one piece; True if it said that it was complete."""
        data = await self._first(response, watch)
        start = data[:1]
        if start in (b"{", b"["):
            return await self._whole(data, response, answer)
        if start == b"<" or "html" in response.headers.get("Content-Type", ""):
            raise ModelFailed(
                "rejected_request",
                f"{self._place} answered with a web page instead of a model response:"
                f" {self._excerpt(data)}",
            )
        frames = EventFrames(answer, self._limits.frame_bytes)
        try:
            await self._read_stream(data, response, frames, answer, watch)
        except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:
            raise bad(f"{self.name} sent an invalid frame", started=answer.started) from error
        return frames.done

    async def _read_stream(
        self,
        data: bytes,
        response: aiohttp.ClientResponse,
        frames: EventFrames,
        answer: Answer,
        watch: SilenceWatch,
    ) -> None:
        """Feed a stream to frames, from its first bytes to its end."""
        read = response.content.readany
        left = self._limits.message_bytes * WIRE_OVERHEAD
        while data:
            left -= len(data)
            if left < 0:
                raise self._too_long(started=answer.started)
            frames.feed(data)
            if frames.done:
                await _finish(response)
                break
            data = await read()
            watch.note_activity()
        frames.end()

    def _too_long(self, *, started: bool = False) -> ModelFailed:
        most = self._limits.message_bytes
        return bad(f"{self.name} sent more than {most:,} bytes", started=started)

    async def _first(self, response: aiohttp.ClientResponse, watch: SilenceWatch) -> bytes:
        """Return the first bytes that say something.

        Blank lines may come before them to keep a connection open.
        """
        data = b"\n"
        while data and not data.removeprefix(BOM).lstrip():
            data = await response.content.readany()
            watch.note_activity()
        return data.removeprefix(BOM).lstrip()

    async def _whole(self, data: bytes, response: aiohttp.ClientResponse, answer: Answer) -> bool:
        """Read an answer that came in one piece."""
        body = data + await _rest(response, self._limits.message_bytes - len(data))
        if len(body) > self._limits.message_bytes:
            raise self._too_long()
        try:
            document = _decode(body.decode("utf-8", "replace").strip())[0]
        except (ValueError, RecursionError) as error:
            raise bad(f"{self.name} sent invalid or incomplete JSON") from error
        try:
            answer.whole(document)
        except (TypeError, AttributeError, KeyError, ValueError, IndexError) as error:
            raise self._invalid_answer(document) from error
        return True

    def _invalid_answer(self, document: Any) -> ModelFailed:
        """Return the failure of a document that is not an answer, with the error that it may
        name.
        """
        said, text = read_error(document), as_json(document)
        says_more = said.message and said.message != text
        if says_more or reports_failure(document):
            return self.reported_failure(said)
        shown = self._excerpt(text.encode("utf-8", "replace"))
        return bad(f"{self.name} sent JSON that is not an answer: {shown}")

    async def _refusal(self, response: aiohttp.ClientResponse) -> ModelFailed:
        """Return the failure of an answer with another status than 200."""
        body = await _rest(response, MAX_REFUSAL)
        if 300 <= response.status < 400:
            return ModelFailed(
                "rejected_request",
                f"{self._place} answered {response.status}; redirects are not followed, because"
                " the new address would receive the key",
            )
        said = read_error_text(body.decode("utf-8", "replace"))
        words = f"answered {response.status}"
        wait = retry_after(response.headers)
        return self._failure(response.status, said, words, retry_after=wait)

    def reported_failure(
        self, said: ErrorDocument, status: int | None = None, *, started: bool = False
    ) -> Refusal:
        """Return the refusal for an error inside an answer with status 200.

        `status` is the HTTP status that its name stands for.
        """
        code = named_status(said)
        words = "reported an error"
        if code:
            words = f"reported error {code}"
        return self._failure(status or code or UNNAMED, said, words, started=started)

    def _failure(
        self,
        status: int,
        said: ErrorDocument,
        words: str,
        *,
        retry_after: float | None = None,
        started: bool = False,
    ) -> Refusal:
        """Return a refusal with a text that people can read."""
        text = f"{self.name} {words}"
        if status in (404, 405):
            text = f"{self._place} {words}"
        if shown := self._excerpt(said.message.encode("utf-8", "replace")):
            text = f"{text}: {shown}"
        return Refusal(status, said, text, retry_after=retry_after, started=started)

    @property
    def _place(self) -> str:
        """The full address, for errors about it; without the query, which may contain a key."""
        return f"{self.name}{excerpt(self._url.path, self._secrets)}"

    def _timeout_failure(
        self, error: TimeoutError, watch: SilenceWatch, started: bool
    ) -> ModelFailed:
        """Return the failure of a call that took too long to connect, to answer or to go on."""
        if isinstance(error, aiohttp.ClientError):
            seconds = self._limits.connect_seconds
            return ModelFailed("refused", f"{self.name} could not be reached within {seconds:g} s")
        if watch.over:
            text = f"{self.name} did not finish within the time allowed"
            return ModelFailed("timed_out", text, started=started)
        if watch.silent:
            seconds = self._limits.first_byte_seconds
            return ModelFailed("no_first_byte", f"{self.name} sent nothing for {seconds:g} s")
        seconds = self._limits.idle_seconds
        text = f"{self.name} stopped in the middle and sent nothing for {seconds:g} s"
        return ModelFailed("stalled", text, started=started)

    def _connection_failure(
        self, error: BaseException, watch: SilenceWatch, started: bool
    ) -> ModelFailed:
        """Return the failure of a call whose connection was refused or broke."""
        if watch.silent and isinstance(error, _NOT_CONNECTED):
            return ModelFailed("refused", f"{self.name} {_unreachable(error)}")
        text = f"the connection to {self.name} broke ({type(error).__name__})"
        return CutOff(text, started=started)

    def _excerpt(self, data: bytes) -> str:
        """Return the start of a body as text, without secrets."""
        return excerpt(data[:MAX_REFUSAL].decode("utf-8", "replace"), self._secrets)


def _unreachable(error: BaseException) -> str:
    """Return why an address did not accept a request."""
    match error:
        case aiohttp.InvalidURL():
            return "is not a valid address"
        case aiohttp.ServerDisconnectedError():
            return "closed the connection without an answer"
        case aiohttp.ClientConnectorDNSError():
            return "has a host name that cannot be resolved"
        case aiohttp.ClientConnectorCertificateError():
            return f"has a certificate that is not trusted: {error.certificate_error}"
        case aiohttp.ClientConnectorError() if error.os_error.errno == ECONNREFUSED:
            return "refused the connection"
        case _:
            return f"cannot be reached ({getattr(error, 'strerror', None) or error})"


class Body(aiohttp.BytesPayload):
    """A request body that is released once sent: a thousand requests that wait for answers must not
    keep theirs in memory.
    """

    def __init__(self, value: bytes) -> None:
        super().__init__(value, content_type="application/json")
        self.length = len(value)

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Write it, once."""
        await super().write_with_length(writer, content_length)
        self._value = b""


def _address(url: str) -> URL:
    """Return the address of an endpoint; raise if it is not a valid URL for one."""
    try:
        address = URL(url)
    except ValueError:
        address = URL()
    is_http = address.scheme in ("http", "https")
    if not is_http or not address.host or address.user or address.password:
        raise invalid(
            "base_url",
            "is not a valid model URL",
            "http:// or https:// and a host, without user and password",
        )
    return address


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait; a date is compared with the endpoint's own clock."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) / unit
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        wait = until - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return max(0.0, wait.total_seconds())


async def _finish(response: aiohttp.ClientResponse) -> None:
    """Wait a moment for the end of a stream that is complete, so that its connection can be used
    again.
    """
    if not response.content.is_eof():
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await _rest(response, MAX_REFUSAL)


async def _rest(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the rest of a body, at most one chunk past the limit."""
    pieces: list[bytes] = []
    while limit >= 0 and (data := await response.content.readany()):
        pieces.append(data)
        limit -= len(data)
    return b"".join(pieces)
