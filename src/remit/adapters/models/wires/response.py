"""The common part of the answers of every wire: limits, arguments of tools, and plausible
counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from json import JSONDecoder, JSONEncoder
from math import isfinite
from typing import Any, NamedTuple, NoReturn, cast

from remit.domain.llm.failures import ModelFailed, storable
from remit.domain.llm.harmony import without_channels
from remit.domain.llm.messages import Message, Tokens, ToolCall

MAX_DEPTH = 32
WHOLE_SECONDS = 600.0
MAX_NAME = 128
MAX_ID = 256
"""The maximum length of ids and model names that an endpoint sends."""
MAX_COUNT = 10**9
BYTES_PER_TOKEN = 4
"""An estimate for endpoints that do not report tokens."""
THINK, THOUGHT = "<think>", "</think>"

Priced = Callable[[str, Tokens], float | None]

_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Limits(NamedTuple):
    """The time limits of a call, and the size limits of its answer."""

    connect_seconds: float = 10.0
    first_byte_seconds: float = 120.0
    idle_seconds: float = 60.0
    total_seconds: float = 1800.0
    frame_bytes: int = 1_000_000
    message_bytes: int = 8_000_000
    tool_calls: int = 64

    def whole(self) -> "Limits":
        """Return the same limits for answers in one piece, whose first byte is also the last."""
        return self._replace(first_byte_seconds=max(self.first_byte_seconds, WHOLE_SECONDS))


DEFAULTS = Limits()


class PartialToolCall:
    """A tool call that is still coming."""

    __slots__ = ("call_id", "data", "name", "provider", "raw")

    def __init__(self) -> None:
        self.call_id = self.name = self.provider = ""
        self.raw: list[str] = []
        self.data: dict[str, Any] | None = None

    def identify(self, call_id: str, name: str) -> None:
        """Set the id and the name, unless an earlier piece had them."""
        self.call_id = self.call_id or call_id
        self.name = self.name or name


def tool_calls(pieces: Iterable[PartialToolCall], history: tuple[Message, ...]) -> list[ToolCall]:
    """Return the calls of an answer, each under an id that no other call of the conversation
    has.
    """
    used = {part.call_id for message in history for part in message.parts if type(part) is ToolCall}
    calls: list[ToolCall] = []
    for number, piece in enumerate(pieces):
        suffix = f"{len(history)}_{number}"
        call_id = piece.call_id or f"call_{suffix}"
        if call_id in used:
            call_id = f"{call_id}_{suffix}"
        used.add(call_id)
        call = tool_call(call_id, piece.name, "".join(piece.raw))
        calls.append(call._replace(provider=piece.provider, data=piece.data))
    return calls


def tool_call(call_id: str, name: str, raw: str) -> ToolCall:
    """Return a call of the model; if it cannot be used, its text is kept with the reason.

    Of a call that can be used only the value is kept, as it is stored: a later run must send the
    very same text, or nothing of it is cached.
    """
    name = _bare_name(storable(name))
    if not 0 < len(name) <= MAX_NAME:
        error = f"The name of the tool is empty or longer than {MAX_NAME} characters."
        return ToolCall(call_id, name[:MAX_NAME] or "unnamed", {}, storable(raw), error)
    try:
        arguments = _decode_arguments(raw)
    except (ValueError, RecursionError) as invalid:
        error = f"The arguments are not a JSON object: {invalid}."
        return ToolCall(call_id, name, {}, storable(raw), error)
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, {}, storable(raw), "The arguments are not a JSON object.")
    return ToolCall(call_id, name, cast("dict[str, Any]", arguments))


def sent_arguments(call: ToolCall) -> Mapping[str, Any]:
    """Return the arguments of a call as they are sent back to the model that made it."""
    if call.error:
        return {"invalid": call.raw}
    return call.arguments


def without_thoughts(text: str) -> tuple[str, str]:
    """Return the thoughts at the start of a text, and the text after them.

    Some servers leave thoughts in the text: `<think>…</think>`, or, if the template of the model
    opened the thought, only a last line `</think>`.
    """
    start = text.lstrip()
    if start.startswith(THINK):
        thought, _, said = start.removeprefix(THINK).partition(THOUGHT)
        return thought.strip(), said.lstrip()
    thought, closing, said = text.partition(f"\n{THOUGHT}\n")
    if closing and THINK not in thought and thought.count("```") % 2 == 0:
        return thought.strip(), said.lstrip()
    return without_channels(text)


def is_complete(raw: str) -> bool:
    """Return True if the arguments of a call are all there."""
    try:
        return isinstance(_ARGUMENTS.decode(raw), dict)
    except (ValueError, RecursionError):
        return False


def storable_json(value: Any, depth: int = 1) -> Any:
    """Return a JSON value that every store can keep; raise ValueError if that is impossible."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict | list):
        return _storable_items(cast("Any", value), depth)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a number is not finite")
    return value


def read_count(given: Any, *names: str) -> int | None:
    """Return the first plausible count under one of these names."""
    if not isinstance(given, Mapping):
        return None
    counts = cast("Mapping[str, Any]", given)
    return next(filter(_is_count, map(counts.get, names)), None)


def get_field(value: Any, name: str) -> Any:
    """Return a field of a value that should be an object."""
    if not isinstance(value, Mapping):
        return None
    return cast("Mapping[str, Any]", value).get(name)


def items_of(value: Any, name: str) -> Sequence[Any]:
    """Return the items of a list field of an object; none if the field is not set."""
    return value.get(name) or ()


def argument_text(given: Any) -> str:
    """Return the arguments of a call as text: some endpoints send an object instead."""
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    return _encode(given)


def text_of(value: Any) -> str:
    """Return a value of an endpoint as text; empty if there is none."""
    return str(value or "")


def short_text(value: Any) -> str:
    """Return an id or a name of an endpoint as text that can be stored; empty if there is none."""
    return storable(text_of(value))[:MAX_ID]


def count_tokens(
    sent: int | None, received: int | None, cached: int | None, body: int, answer: int
) -> Tokens:
    """Return the tokens of a call; if the provider reported none, or none that can be true, they
    are estimated from the bytes sent and received.
    """
    is_implausible = received == 0 and answer > 0
    if is_implausible:
        received = None
    is_estimated = None in (sent, received)
    if sent is None:
        sent = body // BYTES_PER_TOKEN + 1
    if received is None:
        received = _estimate_received(answer)
    return Tokens(sent, received, min(cached or 0, sent), is_estimated)


def cost_of(price: Priced | None, model: str, used: Tokens) -> float | None:
    """Return the cost of a call in US dollars; None without a price."""
    if price is None:
        return None
    return price(model, used)


def bad(text: str, *, started: bool = False) -> ModelFailed:
    """Return the failure of an invalid answer."""
    return ModelFailed("bad_response", text, started=started)


def _bare_name(name: str) -> str:
    """Return the name of a tool without the blanks, the prefix and the special tokens that some
    models write around it; no tool has them in its name.
    """
    return name.partition("<|")[0].strip().removeprefix("functions.")


def _decode_arguments(raw: str) -> Any:
    """Return the arguments of a call; some endpoints write JSON inside a JSON string, or null."""
    if not raw.strip():
        return {}
    value: Any = _ARGUMENTS.decode(raw)
    if isinstance(value, str) and value.startswith("{"):
        value = _ARGUMENTS.decode(value)
    if value is None:
        return {}
    return storable_json(value)


def _storable_items(value: dict[Any, Any] | list[Any], depth: int) -> Any:
    """Return the items of an object or a list in a form that every store can keep."""
    if depth > MAX_DEPTH:
        raise ValueError(f"they are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [storable_json(item, depth + 1) for item in value]
    return {storable(key): storable_json(item, depth + 1) for key, item in value.items()}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT


def _estimate_received(answer: int) -> int:
    if not answer:
        return 0
    return answer // BYTES_PER_TOKEN + 1


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_ARGUMENTS = JSONDecoder(parse_constant=_refuse_constant)
