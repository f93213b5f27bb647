"""The answers of Anthropic messages: blocks that arrive piece by piece."""

from collections.abc import Callable, Iterator, Mapping
from json import JSONEncoder
from typing import Any, ClassVar, NoReturn

from remit.adapters.models.refusals.refusal import read_error, reports_failure
from remit.adapters.models.wires.http_stream import Http
from remit.adapters.models.wires.partial_answer import PartialAnswer, correct_stop, with_reason
from remit.adapters.models.wires.response import (
    Limits,
    PartialToolCall,
    Priced,
    count_tokens,
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
    TextPart,
    Thinking,
    Tokens,
)

PROVIDER = "anthropic"

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
_TEXTS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
}
"""The field with the text of each kind of piece."""
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class _Block:
    """A block of which more may come."""

    __slots__ = ("pieces", "start", "texts")

    def __init__(self, start: dict[str, Any], pieces: PartialToolCall) -> None:
        self.start, self.pieces = start, pieces
        self.texts: list[str] = []

    @property
    def kind(self) -> Any:
        """The type of the block, as the endpoint names it."""
        return self.start["type"]

    @property
    def text(self) -> str:
        """The text that has arrived, in a form that can be stored."""
        return storable("".join(self.texts))

    def thought(self) -> Thinking:
        """Return the block as a thought, with everything that is sent back."""
        data = storable_json(self.start)
        if self.kind == "thinking":
            data = {**data, "thinking": self.text}
        return Thinking(self.text, PROVIDER, data)


class AnthropicAnswer(PartialAnswer):
    """The part of an answer that has arrived."""

    __slots__ = (
        "_blocks",
        "_calls",
        "_input",
        "_model",
        "_output",
        "_stop",
        "_stopped",
    )

    def __init__(self, http: Http, limits: Limits) -> None:
        super().__init__(http, limits)
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._stop = self._model = ""
        self._stopped = False
        self._input: Any = None
        self._output: int | None = None

    def fold(self, frame: Any) -> None:
        """Read one event of the stream; unknown kinds are skipped."""
        kind = frame.get("type")
        read = self.READERS.get(kind)
        if read is not None:
            read(self, frame)
        elif kind is None and reports_failure(frame):
            self._fail(frame)

    def whole(self, document: Any) -> None:
        """Read the answer of an endpoint that does not stream."""
        if document.get("type") == "error":
            self.fold(document)
        self.fold({"type": "message_start", "message": document})
        for index, block in enumerate(document["content"]):
            self._begin_block(index, block)
        self.fold({"type": "message_delta", "delta": document, "usage": document.get("usage")})
        self._stopped = True

    def response(self, request: Request, sent: int, price: Priced | None) -> Response:
        """Return the complete answer; raise if it was cut off."""
        if not self._stop and not self._stopped:
            raise self._cut_off()
        said = read_stop(self._stop, self._http.name, started=self.started)
        stop = correct_stop(said, has_calls=self._calls > 0)
        used = self._count_tokens(sent)
        answer = self._respond(request, self._parts(request), stop, used, self._model, price)
        return with_reason(answer, self._stop)

    def _parts(self, request: Request) -> Iterator[Part]:
        """Yield the parts of the answer in the order of their blocks."""
        blocks = self._blocks.values()
        called = [block.pieces for block in blocks if block.kind == "tool_use"]
        calls = iter(tool_calls(called, request.messages))
        for block in blocks:
            if block.kind == "text":
                yield TextPart(block.text)
            elif block.kind == "tool_use":
                yield next(calls)
            elif block.kind in ("thinking", "redacted_thinking"):
                yield block.thought()

    def _count_tokens(self, sent: int) -> Tokens:
        """Return the tokens of the call; Anthropic counts cached input separately, here it is part
        of the input.
        """
        total = read_count(self._input, "input_tokens")
        read = read_count(self._input, "cache_read_input_tokens") or 0
        written = read_count(self._input, "cache_creation_input_tokens") or 0
        if total is not None:
            total += read + written
        return count_tokens(total, self._output, read, sent, self._size)

    def _fail(self, frame: Any) -> NoReturn:
        """Raise the error of an error frame."""
        said = read_error(frame)
        statuses = map(_STATUS.get, said.kind.split())
        status = next(filter(None, statuses), None)
        raise self._http.reported_failure(said, status, started=self.started)

    def _start_message(self, frame: Any) -> None:
        """Keep the model, and the counts of the input."""
        message = frame["message"]
        self._model, self._input = message.get("model"), message.get("usage")

    def _end_message(self, frame: Any) -> None:
        """Keep why the message ends, and the count of the output."""
        self._stop = text_of(frame["delta"].get("stop_reason"))
        self._input = self._input or frame.get("usage")
        self._output = read_count(frame.get("usage"), "output_tokens")

    def _note_end(self, _frame: Any) -> None:
        self._stopped = True

    def _start_block(self, frame: Any) -> None:
        self._begin_block(frame["index"], frame["content_block"])

    def _continue_block(self, frame: Any) -> None:
        self._read_delta(self._blocks[frame["index"]], frame["delta"])

    def _begin_block(self, index: int, start: dict[str, Any]) -> None:
        """Add a new block with the content that it starts with."""
        pieces = PartialToolCall()
        if start["type"] == "tool_use":
            self._begin_call(pieces, start)
        self._check_item_count(len(self._blocks) + 1, "blocks")
        block = self._blocks[index] = _Block(dict(start), pieces)
        for kind, field in _TEXTS.items():
            if start.get(field):
                self._read_delta(block, {"type": kind, field: start[field]})
        if start.get("input"):
            whole = _encode(start["input"])
            self._read_delta(block, {"type": "input_json_delta", "partial_json": whole})

    def _begin_call(self, pieces: PartialToolCall, start: dict[str, Any]) -> None:
        """Set the id and the name of a new call; raise if there are too many."""
        self._calls += 1
        pieces.identify(short_text(start.get("id")), text_of(start.get("name")))
        self._check_call_count(self._calls, pieces.name)
        self._add(pieces.name)

    def _read_delta(self, block: _Block, delta: dict[str, Any]) -> None:
        """Read a piece of a block; unknown kinds are skipped."""
        kind = delta.get("type")
        if kind in _TEXTS:
            self._add(delta[_TEXTS[kind]])
            block.texts.append(delta[_TEXTS[kind]])
        elif kind == "input_json_delta":
            self._add(delta["partial_json"])
            block.pieces.raw.append(delta["partial_json"])
        elif kind == "signature_delta":
            block.start["signature"] = block.start.get("signature", "") + delta["signature"]
            self._add(delta["signature"])

    READERS: ClassVar[Mapping[Any, Callable[[Any, Any], None]]] = {
        "message_start": _start_message,
        "content_block_start": _start_block,
        "content_block_delta": _continue_block,
        "message_delta": _end_message,
        "message_stop": _note_end,
        "error": _fail,
    }
    """Reads each kind of event."""
