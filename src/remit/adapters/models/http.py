"""One POST whose answer streams back: connections, time limits, frames, and what a refusal means."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from errno import ECONNREFUSED
from json import JSONDecoder
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from remit.adapters.models.answer import Limits, bad
from remit.adapters.models.refusal import CutOff, Refusal, Told, told
from remit.domain.model import ModelFailed, excerpt
from remit.errors import invalid

MAX_REFUSAL = 65_536
GRACE_SECONDS = 0.2
BOM = b"\xef\xbb\xbf"
WIRE_OVERHEAD = 64
"""How many bytes a byte of an answer may cost on the wire: each token comes in a frame of some hundred."""

_decode = JSONDecoder().raw_decode


class Answer(Protocol):
    """Takes an answer apart as it comes."""

    started: bool

    def fold(self, frame: Any) -> None:
        """One frame of a stream."""
        ...

    def whole(self, document: Any) -> None:
        """The whole answer at once."""
        ...


class Http:
    """One address, over one session; the key is sent there and nowhere else."""

    def __init__(self, url: str, headers: Mapping[str, str], secrets: tuple[str, ...], limits: Limits) -> None:
        self._url = _address(url)
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise invalid("api_key", "holds a character that no header can", "the key alone, on one line")
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
        """Close what is open."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def post(self, body: "Body", answer: Answer, seconds: float | None) -> bool:
        """Send a body and fold what comes back; True if the stream said that it was complete."""
        watch = _Watch(self._limits, seconds)
        try:
            async with asyncio.timeout(None) as scope:
                watch.start(scope)
                try:
                    async with self._session.post(self._url, data=body, allow_redirects=False) as response:
                        if response.status != 200:
                            raise await self._refusal(response)
                        return await self._read(response, answer, watch)
                finally:
                    watch.stop()
        except TimeoutError as error:
            raise self._late(error, watch, answer.started) from error
        except (aiohttp.ClientError, OSError, EOFError) as error:
            raise self._lost(error, watch, answer.started) from error

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect_seconds)
            connector = aiohttp.TCPConnector(limit=0)
            self._opened = aiohttp.ClientSession(
                headers=self._headers, timeout=timeout, connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._opened

    async def _read(self, response: aiohttp.ClientResponse, answer: Answer, watch: "_Watch") -> bool:
        read = response.content.readany
        frames = _Frames(answer, self._limits.frame_bytes)
        left = self._limits.message_bytes * WIRE_OVERHEAD
        data = await self._first(response, watch)
        start = data[:1]
        if start in (b"{", b"["):
            return await self._whole(data, response, answer)
        if start == b"<" or "html" in response.headers.get("Content-Type", ""):
            raise ModelFailed("rejected_request", f"{self._place} answered with a web page, not as a model does: {self._excerpt(data)}")
        try:
            while data:
                left -= len(data)
                if left < 0:
                    raise bad(f"{self.name} sent more than {self._limits.message_bytes:,} bytes", started=answer.started)
                frames.feed(data)
                if frames.done:
                    await _finish(response)
                    break
                data = await read()
                watch.heard()
            frames.end()
        except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:
            raise bad(f"{self.name} sent a frame that makes no sense", started=answer.started) from error
        return frames.done

    async def _first(self, response: aiohttp.ClientResponse, watch: "_Watch") -> bytes:
        """The first bytes that say something.

        Blank lines may come before them to keep a connection open.
        """
        data = b"\n"
        while data and not data.removeprefix(BOM).lstrip():
            data = await response.content.readany()
            watch.heard()
        return data.removeprefix(BOM).lstrip()

    async def _whole(self, data: bytes, response: aiohttp.ClientResponse, answer: Answer) -> bool:
        body = data + await _rest(response, self._limits.message_bytes - len(data))
        if len(body) > self._limits.message_bytes:
            raise bad(f"{self.name} sent more than {self._limits.message_bytes:,} bytes")
        try:
            document = _decode(body.decode("utf-8", "replace").strip())[0]
        except (ValueError, RecursionError) as error:
            raise bad(f"{self.name} sent JSON that is cut short or makes no sense") from error
        try:
            answer.whole(document)
        except (TypeError, AttributeError, KeyError, ValueError, IndexError) as error:
            raise self._nonsense(document) from error
        return True

    def _nonsense(self, document: Any) -> ModelFailed:
        """What is wrong with a document that is not an answer: it may say so itself."""
        said = told(document)
        if said.message and said.message != str(document):
            return self.failure(500, said)
        shown = self._excerpt(str(document).encode())
        return bad(f"{self.name} sent JSON that is not an answer: {shown}")

    async def _refusal(self, response: aiohttp.ClientResponse) -> ModelFailed:
        body = await _rest(response, MAX_REFUSAL)
        if 300 <= response.status < 400:
            return ModelFailed("rejected_request", f"{self._place} answered {response.status}; a redirect is not followed, the key would go along")
        text = body.decode("utf-8", "replace")
        try:
            said = told(_decode(text.strip())[0])
        except (ValueError, RecursionError):
            said = Told("", text)
        return self.failure(response.status, said, retry_after(response.headers))

    def failure(self, status: int, said: Told, retry_after: float | None = None, *, started: bool = False) -> Refusal:
        """What a status and an error of the endpoint amount to."""
        shown = self._excerpt(said.message.encode("utf-8", "replace"))
        place = self._place if status in (404, 405) else self.name
        text = f"{place} answered {status}: {shown}" if shown else f"{place} answered {status}"
        return Refusal(status, said, text, retry_after=retry_after, started=started)

    @property
    def _place(self) -> str:
        """The address in full, for when it may be wrong; a query might hold a key."""
        return f"{self.name}{excerpt(self._url.path, self._secrets)}"

    def _late(self, error: TimeoutError, watch: "_Watch", started: bool) -> ModelFailed:
        if isinstance(error, aiohttp.ClientError):
            return ModelFailed("refused", f"{self.name} could not be reached within {self._limits.connect_seconds:g} s")
        if watch.over:
            return ModelFailed("timed_out", f"{self.name} was not done within the time allowed", started=started)
        if watch.silent:
            return ModelFailed("no_first_byte", f"{self.name} said nothing for {self._limits.first_byte_seconds:g} s")
        return ModelFailed("stalled", f"{self.name} stopped in the middle and said nothing for {self._limits.idle_seconds:g} s", started=started)

    def _lost(self, error: BaseException, watch: "_Watch", started: bool) -> ModelFailed:
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL | aiohttp.ServerDisconnectedError) and watch.silent:
            return ModelFailed("refused", f"{self.name} {_unreachable(error)}")
        return CutOff(f"the connection to {self.name} broke ({type(error).__name__})", started=started)

    def _excerpt(self, data: bytes) -> str:
        return excerpt(data[:MAX_REFUSAL].decode("utf-8", "replace"), self._secrets)


def _unreachable(error: BaseException) -> str:
    """What is wrong with an address where no request was taken."""
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
            return f"cannot be connected to ({getattr(error, 'strerror', None) or error})"


class Body(aiohttp.BytesPayload):
    """What is sent, let go once it is: a thousand requests that wait for their answers must not hold theirs."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value, content_type="application/json")
        self.length = len(value)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write it, once."""
        await super().write_with_length(writer, content_length)
        self._value = b""


class _Frames:
    """Server-sent events, as endpoints write them: only `data` lines count."""

    __slots__ = ("_answer", "_broken", "_held", "_limit", "_size", "done")

    def __init__(self, answer: Answer, limit: int) -> None:
        self._answer, self._limit = answer, limit
        self._held: list[bytes] = []
        self._size = 0
        self._broken = ""
        self.done = False

    def feed(self, data: bytes) -> None:
        """Some bytes, cut anywhere."""
        cut = data.rfind(b"\n")
        if cut < 0:
            self._hold(data)
            return
        block, rest = data[:cut], data[cut + 1 :]
        if self._held:
            block = b"".join((*self._held, block))
            self._held, self._size = [], 0
        if rest:
            self._hold(rest)
        if len(block) > self._limit and any(len(line) > self._limit for line in block.split(b"\n")):
            raise self._too_long()
        fold = self._answer.fold
        for line in block.decode("utf-8", "replace").split("\n"):
            if line.startswith("data: {") and not self._broken:
                try:
                    frame, end = _decode(line, 6)
                except ValueError:
                    self._broken = line[6:]
                    continue
                if end != len(line) and not line[end:].isspace():
                    raise ValueError("more than one value in a frame")
                fold(frame)
            elif line or self._broken:
                self._other(line)

    def end(self) -> None:
        """There is no more."""
        if self._held and not self.done:
            self.feed(b"\n")
        if self._broken:
            raise ValueError("the last frame is cut short")

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        if self._size > self._limit:
            raise self._too_long()

    def _other(self, line: str) -> None:
        """Anything but a whole frame in its usual form; a value may be spread over several lines, up to an empty one."""
        if line.startswith("error: {"):  # llama.cpp names an error like this, and not as data
            line = f'data: {{"error": {line[7:]}}}'
        if line.startswith("data:"):
            value = line[5:].strip()
            if value == "[DONE]":
                self.done = True
            elif value:
                self._join(value)
        elif self._broken and not line.strip():
            raise ValueError("a frame is no JSON")

    def _join(self, value: str) -> None:
        text = f"{self._broken}\n{value}" if self._broken else value
        if len(text) > self._limit:
            raise self._too_long()
        try:
            frame, end = _decode(text)
        except ValueError:
            self._broken = text
            return
        if text[end:].strip():
            raise ValueError("more than one value in a frame")
        self._broken = ""
        self._answer.fold(frame)

    def _too_long(self) -> ModelFailed:
        return bad(f"a frame is longer than {self._limit:,} bytes", started=self._answer.started)


class _Watch:
    """Ends a call that hears nothing for too long, with one timer for all of it."""

    __slots__ = ("_end", "_last", "_limits", "_loop", "_scope", "_timer", "over", "silent")

    def __init__(self, limits: Limits, seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._last = self._loop.time()
        self._end = self._last + (limits.total_seconds if seconds is None else min(seconds, limits.total_seconds))
        self._timer: asyncio.TimerHandle | None = None
        self._scope: asyncio.Timeout | None = None
        self.silent = True
        self.over = False

    def start(self, scope: asyncio.Timeout) -> None:
        """Begin to watch over what runs in a scope."""
        self._scope = scope
        self._timer = self._loop.call_at(self._due(), self._look)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def heard(self) -> None:
        """The endpoint has said something."""
        now = self._loop.time()
        if self.silent:
            self.silent = False
            # From now on the shorter limit holds: the timer, set for the longer one, must not come too late.
            if self._timer is not None and self._limits.idle_seconds < self._limits.first_byte_seconds:
                self._timer.cancel()
                self._last = now
                self._timer = self._loop.call_at(self._due(), self._look)
        self._last = now

    def _due(self) -> float:
        return min(self._last + (self._limits.first_byte_seconds if self.silent else self._limits.idle_seconds), self._end)

    def _look(self) -> None:
        now, due = self._loop.time(), self._due()
        if now < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        self.over = now >= self._end
        assert self._scope is not None
        self._scope.reschedule(now)


def _address(url: str) -> URL:
    try:
        address = URL(url)
    except ValueError:
        address = URL()
    if address.scheme not in ("http", "https") or not address.host or address.user or address.password:
        raise invalid("base_url", "is no address that a model can be asked at", "http:// or https://, a host, and no user or password in it")
    return address


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait; a date is read against the endpoint's own clock."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) / unit
    try:
        wait = parsedate_to_datetime(headers.get("retry-after", "")) - parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, wait.total_seconds())
    except (ValueError, TypeError):
        return None


async def _finish(response: aiohttp.ClientResponse) -> None:
    """Wait a moment for the end of a stream that is complete, so that its connection can be used again."""
    if not response.content.is_eof():
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await _rest(response, MAX_REFUSAL)


async def _rest(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """What is left of a body, one chunk past the limit at most."""
    pieces: list[bytes] = []
    while limit >= 0 and (data := await response.content.readany()):
        pieces.append(data)
        limit -= len(data)
    return b"".join(pieces)
