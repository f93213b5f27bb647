"""The answers of chat completions: text, thoughts and calls, in the forms of many endpoints."""

from collections.abc import Iterator
from json import JSONEncoder
from typing import Any, NoReturn

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
    is_complete,
    items_of,
    read_count,
    short_text,
    storable_json,
    text_of,
    tool_calls,
    without_thoughts,
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
)

PROVIDER = "openai"
INLINE = "openai-inline"
"""The provider of thoughts that were part of the text of an answer; they are not sent back."""
EXTRA = "extra_content"
"""The field of a call with the signature that Gemini expects back."""
DETAILS = "reasoning_details"
"""The field of a message with the thoughts that OpenRouter expects back."""

_THOUGHT_FIELDS = ("reasoning_content", "reasoning")
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ChatAnswer(PartialAnswer):
    """The part of an answer that has arrived."""

    __slots__ = (
        "_at",
        "_calls",
        "_details",
        "_finish",
        "_has_refused",
        "_model",
        "_texts",
        "_thought",
        "_thoughts",
        "_usage",
    )

    def __init__(self, http: Http, limits: Limits) -> None:
        super().__init__(http, limits)
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought = ""
        self._details: list[dict[str, Any]] = []
        self._calls: list[PartialToolCall] = []
        self._at: dict[int | None, PartialToolCall] = {}
        self._finish = ""
        self._has_refused = False
        self._model: Any = None
        self._usage: Any = None

    def fold(self, frame: Any) -> None:
        """Read one frame of the stream."""
        if _is_error(frame):
            self._fail(frame)
        choices = frame.get("choices")
        if choices:
            self._read_choice(choices[0])
        self._usage = frame.get("usage") or self._usage
        self._model = self._model or frame.get("model")

    def whole(self, document: Any) -> None:
        """Read the answer of an endpoint that does not stream."""
        choices: Any = document.get("choices")
        if choices:
            choice = {**choices[0], "delta": choices[0].get("message")}
            document = {**document, "choices": [choice]}
        self.fold(document)

    def response(self, request: Request, sent: int, price: Priced | None) -> Response:
        """Return the complete answer; raise if it was cut off."""
        is_complete_text = self.complete and self.started
        if not self._finish and not is_complete_text:
            raise self._cut_off()
        stop = correct_stop(self._read_stop(), has_calls=bool(self._calls))
        used = self._count_tokens(sent)
        answer = self._respond(request, self._parts(request), stop, used, self._model, price)
        return with_reason(answer, self._finish)

    def _read_stop(self) -> Stop:
        """Return the stop reason; a limit before the first token means a full context."""
        if self._has_refused:
            return "refusal"
        stop = read_stop(self._finish, self._http.name, started=self.started)
        written = read_count(self._usage, "completion_tokens", "output_tokens")
        if stop == "length" and written == 0 and not self.started:
            return "context_full"
        return stop

    def _parts(self, request: Request) -> Iterator[Part]:
        """Yield the thoughts, the text and the calls of the answer."""
        if self._thoughts or self._details:
            thoughts = storable("".join(self._thoughts))
            yield Thinking(thoughts, PROVIDER, self._thought_data())
        if self._texts:
            yield from _text_parts("".join(self._texts))
        yield from tool_calls(_without_echoes(self._calls), request.messages)

    def _thought_data(self) -> dict[str, Any]:
        """Return the field that a thought is sent back in, with its value if that is no text."""
        if self._details:
            return {"field": DETAILS, DETAILS: storable_json(self._details)}
        return {"field": self._thought}

    def _count_tokens(self, sent: int) -> Tokens:
        """Return the tokens of the call, as reported or estimated."""
        usage = self._usage
        return count_tokens(
            read_count(usage, "prompt_tokens", "input_tokens"),
            read_count(usage, "completion_tokens", "output_tokens"),
            read_count(get_field(usage, "prompt_tokens_details"), "cached_tokens"),
            sent,
            self._size,
        )

    def _fail(self, frame: Any) -> NoReturn:
        """Raise the error of an error frame."""
        raise self._http.reported_failure(read_error(frame), started=self.started)

    def _read_choice(self, choice: Any) -> None:
        """Read the first choice of a frame."""
        if choice.get("error"):
            self._fail(choice)
        delta = choice.get("delta")
        if not delta and not self.started:
            delta = choice.get("message")  # some send a whole message as their only frame
        if delta:
            self._read_delta(delta)
        self._finish = text_of(choice.get("finish_reason")) or self._finish

    def _read_delta(self, delta: Any) -> None:
        """Read the text, the calls and the thoughts of a delta."""
        if content := delta.get("content"):
            self._add_text(content)
        if refusal := delta.get("refusal"):
            self._add_text(refusal)
            self._has_refused = True
        for call in items_of(delta, "tool_calls"):
            self._add_call(call)
        if legacy := delta.get("function_call"):
            self._add_call({"function": legacy})
        self._read_thought(delta)
        for detail in items_of(delta, DETAILS):
            self._add_detail(detail)

    def _add_text(self, content: Any) -> None:
        """Add a piece of text; some endpoints send a list of pieces."""
        if not isinstance(content, str):
            content = "".join(piece["text"] for piece in content if piece.get("type") == "text")
        self._add(content)
        self._texts.append(content)

    def _read_thought(self, delta: Any) -> None:
        """Read a piece of a thought, from the first field that has one."""
        for field in _THOUGHT_FIELDS:
            thought = delta.get(field)
            if thought and isinstance(thought, str):
                self._add(thought)
                self._thought = field
                self._thoughts.append(thought)
                return

    def _add_detail(self, detail: dict[str, Any]) -> None:
        """Add a thought as OpenRouter sends it, or a piece of the last one."""
        self._add(_encode(detail))
        nothing: dict[str, Any] = {}
        last = next(reversed(self._details), nothing)
        if _continues(last, detail):
            _extend_detail(last, detail)
        else:
            self._details.append(dict(detail))

    def _add_call(self, call: Any) -> None:
        """Add a piece of a tool call: its id, its name, or some of its arguments."""
        function = get_field(call, "function")
        name, given = get_field(function, "name"), get_field(function, "arguments")
        raw, call_id = argument_text(given), short_text(call.get("id"))
        pieces = self._find_call(call.get("index"), call_id, name, raw)
        pieces.identify(call_id, text_of(name))
        self._add(raw or name or "")
        if extra := call.get(EXTRA):
            self._add(_encode(extra))
            pieces.provider, pieces.data = PROVIDER, {EXTRA: storable_json(extra)}
        is_whole = not isinstance(given, str | None)
        if is_whole:
            pieces.raw.clear()
        pieces.raw.append(raw)

    def _find_call(self, index: Any, call_id: str, name: Any, raw: str) -> PartialToolCall:
        """Return the call that a delta belongs to: by its id, else by its index, else the last,
        unless a new one begins.

        Only a delta with a name begins one; `raw` is then the first piece of its arguments.
        """
        has_index = isinstance(index, int)
        place = index if has_index else None  # None stands for the last call
        found = self._at.get(place)
        if call_id and found is not None and found.call_id != call_id:
            found = self._call_with_id(call_id) or found
        if found is None or _is_another(found, call_id, name, raw, has_index=has_index):
            found = self._begin_call()
        self._at[place] = self._at[None] = found
        return found

    def _call_with_id(self, call_id: str) -> PartialToolCall | None:
        """Return the call with an id; None if there is none."""
        return next((call for call in self._calls if call.call_id == call_id), None)

    def _begin_call(self) -> PartialToolCall:
        """Add a new call; raise if there are too many."""
        names = (call.name for call in self._calls)
        self._check_call_count(len(self._calls) + 1, next(names, ""))
        call = PartialToolCall()
        self._calls.append(call)
        return call


def _continues(last: dict[str, Any], detail: dict[str, Any]) -> bool:
    """Return True if a detail continues the previous one; encrypted ones come in one piece."""
    is_same = all(last.get(name) == detail.get(name) for name in ("type", "index"))
    return is_same and "data" not in detail and isinstance(detail.get("index"), int)


def _extend_detail(last: dict[str, Any], detail: dict[str, Any]) -> None:
    """Add the next piece of a thought: its texts are joined, its other fields replaced."""
    for name, value in detail.items():
        if name in ("text", "summary"):
            last[name] = text_of(last.get(name)) + text_of(value)
        elif value is not None:
            last[name] = value


def _is_another(
    pieces: PartialToolCall, call_id: str, name: Any, raw: str, *, has_index: bool
) -> bool:
    """Return True if a delta with a name does not go on with a call.

    Some endpoints give every call the same index, or none, and some the same id.
    """
    if not name:
        return False
    if pieces.name not in ("", name):
        return True
    if call_id and pieces.call_id not in ("", call_id):
        return True
    if call_id:
        return raw[:1] in ("", "{") and is_complete("".join(pieces.raw))
    return bool(pieces.name) and (not has_index or is_complete("".join(pieces.raw)))


def _without_echoes(calls: list[PartialToolCall]) -> Iterator[PartialToolCall]:
    """Yield the calls, without those that only repeat the name and the id of the one before.

    Some endpoints send both again with every piece, also with an empty one at the end.
    """
    before = PartialToolCall()
    for call in calls:
        is_same = (call.name, call.call_id) == (before.name, before.call_id)
        is_echo = is_same and any(before.raw) and not any(call.raw)
        if not is_echo:
            yield call
            before = call


def _is_error(frame: Any) -> bool:
    """Return True if a frame reports an error in one of the usual shapes."""
    failed = read_count(frame.get("base_resp"), "status_code")  # MiniMax, with status 200
    if failed or frame.get("error") or frame.get("object") == "error":
        return True
    return not frame.get("choices") and _is_error_document(frame)


def _is_error_document(frame: Any) -> bool:
    """Return True if a frame without an answer has the code or the message of an error."""
    has_failed = reports_failure(frame)
    if has_failed is not None:
        return has_failed
    if "choices" in frame:
        return False
    return isinstance(frame.get("message"), str | list) or isinstance(
        frame.get("detail"), str | list
    )


def _text_parts(text: str) -> Iterator[Part]:
    """Yield the text of an answer, without the thoughts that some servers leave in it."""
    thought, said = without_thoughts(text)
    if thought:
        yield Thinking(storable(thought), INLINE, {})
    if said or not thought:
        yield TextPart(storable(said))
