"""The answers of the Responses API: items that arrive piece by piece."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn

from remit.adapters.models.refusals.refusal import read_error, reports_failure
from remit.adapters.models.wires.http_stream import Http
from remit.adapters.models.wires.partial_answer import PartialAnswer, correct_stop, with_reason
from remit.adapters.models.wires.response import (
    Limits,
    PartialToolCall,
    Priced,
    argument_text,
    count_tokens,
    get_field,
    items_of,
    read_count,
    short_text,
    storable_json,
    text_of,
    tool_calls,
)
from remit.adapters.models.wires.stop_reasons import read_stop
from remit.domain.llm.failures import storable
from remit.domain.llm.messages import (
    Part,
    Request,
    Response,
    Stop,
    TextPart,
    Thinking,
    Tokens,
    ToolCall,
)

PROVIDER = "openai-responses"

_KEPT = ("type", "summary", "content", "encrypted_content")
"""The fields of a thought that are sent back: without storage, ids mean nothing."""
_STATUS = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    "invalid_prompt": 400,
    "invalid_request": 400,
    "unsupported_": 400,
}
_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "tool_call",
}


class ResponsesAnswer(PartialAnswer):
    """The part of an answer that has arrived."""

    __slots__ = ("_calls", "_end", "_items", "_pieces")

    def __init__(self, http: Http, limits: Limits) -> None:
        super().__init__(http, limits)
        self._items: dict[int, dict[str, Any]] = {}
        self._calls: set[int] = set()
        self._pieces: dict[int, list[str]] = {}
        self._end: dict[str, Any] | None = None

    def fold(self, frame: Any) -> None:
        """Read one event of the stream; unknown kinds are skipped."""
        kind = frame.get("type")
        if kind in _DELTAS:
            self._read_delta(_DELTAS[kind], frame)
        elif kind in self.READERS:
            self.READERS[kind](self, frame)
        elif frame.get("error"):
            self._read_failure(frame)
        elif kind is None and reports_failure(frame):
            self._fail(frame)

    def _read_failure(self, frame: Any) -> NoReturn:
        self._fail(frame.get("response") or frame)

    def whole(self, document: Any) -> None:
        """Read the answer of an endpoint that does not stream."""
        if document.get("error"):
            self._fail(document)
        if not isinstance(document.get("output"), list):
            raise TypeError("an answer has no output")
        for index, item in enumerate(document["output"]):
            self._begin_item(index, item)
            for kind, text in _texts(item):
                self._read_delta(kind, {"delta": text, "output_index": index})
        self._finish(document)

    def response(self, request: Request, sent: int, price: Priced | None) -> Response:
        """Return the complete answer; raise if it was cut off."""
        if self._end is None:
            raise self._cut_off()
        items = [self._items[index] for index in sorted(self._items)]
        calls = tool_calls(map(_partial_call, filter(_is_call, items)), request.messages)
        stop = correct_stop(self._stop(items), has_calls=bool(calls))
        parts = _parts(items, iter(calls))
        model = self._end.get("model")
        answer = self._respond(request, parts, stop, self._count_tokens(sent), model, price)
        return with_reason(answer, self._reason)

    def _stop(self, items: list[dict[str, Any]]) -> Stop:
        """Return why the answer ended, as the endpoint says."""
        for item in items:
            if any(_is(piece, "refusal") for piece in items_of(item, "content")):
                return "refusal"
        is_complete = get_field(self._end, "status") != "incomplete"
        return read_stop(
            self._reason, self._http.name, started=self.started, is_complete=is_complete
        )

    @property
    def _reason(self) -> str:
        """Why the answer is incomplete, or else its status."""
        reason = get_field(get_field(self._end, "incomplete_details"), "reason")
        return text_of(reason or get_field(self._end, "status"))

    def _count_tokens(self, sent: int) -> Tokens:
        """Return the tokens of the call, as reported or estimated."""
        usage = get_field(self._end, "usage")
        return count_tokens(
            read_count(usage, "input_tokens"),
            read_count(usage, "output_tokens"),
            read_count(get_field(usage, "input_tokens_details"), "cached_tokens"),
            sent,
            self._size,
        )

    def _read_added(self, frame: Any) -> None:
        self._begin_item(frame["output_index"], frame["item"])

    def _read_done(self, frame: Any) -> None:
        self._complete_item(frame["output_index"], frame["item"])

    def _read_end(self, frame: Any) -> None:
        self._finish(frame["response"])

    def _begin_item(self, index: int, item: dict[str, Any]) -> None:
        """Add a new item; raise if there are too many items or calls."""
        self._check_item_count(len(self._items) + 1, "items")
        self._items[index] = item
        if _is_call(item):
            name = text_of(item.get("name"))
            self._calls.add(index)
            self._check_call_count(len(self._calls), name)
            self._add(name)

    def _ensure_item(self, index: int, item: dict[str, Any]) -> None:
        """Add an item unless its beginning has come."""
        if index not in self._items:
            self._begin_item(index, item)

    def _complete_item(self, index: int, item: dict[str, Any]) -> None:
        """Keep a complete item; it repeats its earlier pieces."""
        self._ensure_item(index, item)
        self._items[index] = item
        self._pieces.pop(index, None)
        self._add(text_of(item.get("encrypted_content")))

    def _finish(self, response: dict[str, Any]) -> None:
        """Keep the end; its list of items replaces all that came in pieces."""
        output = items_of(response, "output")
        for index, item in enumerate(output):
            self._ensure_item(index, item)
        if len(output) >= len(self._items):
            self._items = dict(enumerate(output))
            self._pieces = {}
        for index, pieces in self._pieces.items():
            self._items[index] = _with_text(self._items[index], "".join(pieces))
        self._end = response

    def _fail(self, document: Any) -> NoReturn:
        """Raise the error of an error document."""
        if not document.get("error"):
            document = {"error": document}
        said = read_error(document)
        status = next((status for code, status in _STATUS.items() if code in said.kind), None)
        raise self._http.reported_failure(said, status, started=self.started)

    def _read_delta(self, kind: Any, frame: Any) -> None:
        """Read a piece of text, of a thought, or of the arguments of a call."""
        text = frame["delta"]
        self._add(text)
        index = frame.get("output_index")
        if kind != "thinking" and index in self._items:
            self._pieces.setdefault(index, []).append(text)

    def _add(self, text: Any) -> None:
        """Count a piece of the answer; an empty one does not start it."""
        has_started = self.started
        super()._add(text)
        self.started = has_started or bool(text)

    READERS: ClassVar[Mapping[Any, Callable[[Any, Any], None]]] = {
        "response.output_item.added": _read_added,
        "response.output_item.done": _read_done,
        "response.completed": _read_end,
        "response.incomplete": _read_end,
        "response.failed": _read_failure,
        "error": _read_failure,
    }
    """Reads each kind of event that is not a piece of text."""


def _parts(items: list[dict[str, Any]], calls: Iterator[ToolCall]) -> Iterator[Part]:
    """Yield the parts of an answer; `calls` are those of the items that are calls, in order."""
    for item in items:
        if _is_call(item):
            yield next(calls)
        elif _is(item, "reasoning"):
            yield _thinking(item)
        elif text := _joined_text(item):
            yield TextPart(storable(text))


def _is(item: Any, kind: str) -> bool:
    return bool(get_field(item, "type") == kind)


def _is_call(item: Any) -> bool:
    return _is(item, "function_call")


def _texts(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of an item, each with the kind of piece that it is."""
    if _is_call(item):
        yield "tool_call", _arguments(item)
    content_kind = "text"
    if _is(item, "reasoning"):
        content_kind = "thinking"
    for field, kind in (("content", content_kind), ("summary", "thinking")):
        for piece in items_of(item, field):
            text = piece.get("text") or piece.get("refusal")
            if isinstance(text, str):
                yield kind, text


def _joined_text(item: dict[str, Any]) -> str:
    """Return all texts of an item, joined."""
    return "".join(text for _, text in _texts(item))


def _with_text(item: dict[str, Any], text: str) -> dict[str, Any]:
    """Return an item from its pieces; the endpoint never reported it as complete."""
    if _is_call(item):
        return {**item, "arguments": text}
    return {**item, "content": [{"type": "output_text", "text": text}]}


def _arguments(item: dict[str, Any]) -> str:
    return argument_text(item.get("arguments") or "")


def _thinking(item: dict[str, Any]) -> Thinking:
    """Return a thought with the fields that are sent back."""
    kept = {name: item[name] for name in _KEPT if name in item}
    return Thinking(storable(_joined_text(item)), PROVIDER, storable_json(kept))


def _partial_call(item: dict[str, Any]) -> PartialToolCall:
    """Return a call that is complete in the form of one that is not."""
    call = PartialToolCall()
    call.call_id = short_text(item.get("call_id"))
    call.name = text_of(item.get("name"))
    call.raw = [_arguments(item)]
    return call
