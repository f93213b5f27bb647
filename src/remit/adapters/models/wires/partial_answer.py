"""The part of an answer that has arrived: its size, its limits, and the response at its end."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from remit.adapters.models.refusals.refusal import CutOff, TooManyCalls
from remit.adapters.models.wires.http_stream import Http
from remit.adapters.models.wires.response import (
    Limits,
    Priced,
    bad,
    cost_of,
    short_text,
)
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import (
    Part,
    Request,
    Response,
    Stop,
    Tokens,
)


class PartialAnswer(ABC):
    """The common part of the answers of all wires.

    `complete` is True once the stream said that it was complete.
    """

    __slots__ = ("_http", "_limits", "_size", "complete", "started")

    def __init__(self, http: Http, limits: Limits) -> None:
        self._http, self._limits = http, limits
        self._size: int = 0
        self.started: bool = False
        self.complete: bool = False

    @abstractmethod
    def fold(self, frame: Any) -> None:
        """Read one frame of the stream."""

    @abstractmethod
    def whole(self, document: Any) -> None:
        """Read the answer of an endpoint that does not stream."""

    @abstractmethod
    def response(self, request: Request, sent: int, price: Priced | None) -> Response:
        """Return the complete answer to a request of `sent` bytes; raise if it was cut off."""

    def _add(self, text: Any) -> None:
        """Count a piece of the answer; raise if the answer becomes too long."""
        if type(text) is not str:
            raise TypeError("a piece of the answer is not text")
        self.started = True
        self._size += len(text)
        if self._size > self._limits.message_bytes:
            raise self._too_long()

    def _too_long(self) -> ModelFailed:
        most = self._limits.message_bytes
        return bad(f"{self._http.name} sent more than {most:,} bytes", started=True)

    def _check_call_count(self, count: int, name: str) -> None:
        """Raise if an answer has more tool calls than are allowed; `name` is that of one."""
        most = self._limits.tool_calls
        if count > most:
            raise TooManyCalls(self._http.name, most, name)

    def _check_item_count(self, count: int, noun: str) -> None:
        """Raise if an answer has many more items than tool calls are allowed."""
        most = 4 * self._limits.tool_calls
        if count > most:
            raise bad(f"{self._http.name} sent more than {most} {noun}", started=self.started)

    def _cut_off(self) -> CutOff:
        """Return the failure of an answer without an end."""
        what = "gave no answer"
        if self.started:
            what = "ended its answer in the middle"
        return CutOff(f"{self._http.name} {what}", started=self.started)

    def _respond(
        self,
        request: Request,
        parts: Iterable[Part],
        stop: Stop,
        used: Tokens,
        model: Any,
        price: Priced | None,
    ) -> Response:
        """Return the complete answer; `stop` and `model` are the values of the endpoint."""
        name = short_text(model) or request.model
        return Response(tuple(parts), stop, used, name, cost_of(price, name, used))


def correct_stop(said: Stop, *, has_calls: bool) -> Stop:
    """Return why an answer ended: with calls, because of them, unless the answer was cut."""
    if has_calls and said not in ("length", "context_full"):
        return "tool_calls"
    if said == "tool_calls" and not has_calls:
        return "end"
    return said


def with_reason(answer: Response, reason: str) -> Response:
    """Return an answer; a refusal with the reason of the endpoint."""
    if answer.stop != "refusal":
        return answer
    return answer._replace(reason=short_text(reason))
