"""What is the same in the answers of every wire: limits, arguments of tools, counts that can be true."""

from collections.abc import Callable, Iterable, Mapping
from json import JSONDecoder
from math import isfinite
from typing import Any, NamedTuple, NoReturn, cast

from remit.domain.message import Message, Stop, Tokens, ToolCall
from remit.domain.model import ModelFailed, storable

MAX_DEPTH = 32
WHOLE_SECONDS = 600.0
MAX_NAME = 128
MAX_COUNT = 10**9
BYTES_PER_TOKEN = 4
"""A rule of thumb for those who do not tell what they counted."""
THINK, THOUGHT = "<think>", "</think>"

Priced = Callable[[str, Tokens], float | None]


class Limits(NamedTuple):
    """How long to wait for an endpoint, and how much to take from it."""

    connect_seconds: float = 10.0
    first_byte_seconds: float = 120.0
    idle_seconds: float = 60.0
    total_seconds: float = 1800.0
    frame_bytes: int = 1_000_000
    message_bytes: int = 8_000_000
    tool_calls: int = 64

    def whole(self) -> "Limits":
        """The same for answers that come in one piece, whose first byte is also the last."""
        return self._replace(first_byte_seconds=max(self.first_byte_seconds, WHOLE_SECONDS))


DEFAULTS = Limits()


class Pieces:
    """A tool call that is still coming."""

    __slots__ = ("call_id", "name", "number", "raw")

    def __init__(self, number: int) -> None:
        self.number = number
        self.call_id = self.name = ""
        self.raw: list[str] = []


def tool_calls(pieces: Iterable[Pieces], history: tuple[Message, ...]) -> list[ToolCall]:
    """The calls of an answer, each under an id that no other call of the conversation has."""
    used = {part.call_id for message in history for part in message.parts if type(part) is ToolCall}
    calls: list[ToolCall] = []
    for number, piece in enumerate(pieces):
        call_id = piece.call_id or f"call_{len(history)}_{number}"
        if call_id in used:
            call_id = f"{call_id}_{len(history)}_{number}"
        used.add(call_id)
        calls.append(tool_call(call_id, piece.name, "".join(piece.raw)))
    return calls


def tool_call(call_id: str, name: str, raw: str) -> ToolCall:
    """A call of the model; what cannot be used is kept as it was written, with the reason.

    What can be used is kept by its value alone, as it is stored: a later run must send the very same text, or nothing of it is cached.
    """
    name = storable(name)
    if not 0 < len(name) <= MAX_NAME:
        return ToolCall(
            call_id, name[:MAX_NAME] or "unnamed", {}, storable(raw), f"The name of the tool is empty or longer than {MAX_NAME} characters."
        )
    try:
        arguments: Any = _decoded(raw) if raw and not raw.isspace() else {}
    except (ValueError, RecursionError) as error:
        return ToolCall(call_id, name, {}, storable(raw), f"The arguments are not JSON: {error}.")
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, {}, storable(raw), "The arguments are not a JSON object.")
    return ToolCall(call_id, name, cast("dict[str, Any]", arguments))


def _decoded(raw: str) -> Any:
    """The arguments of a call; some endpoints write JSON inside a JSON string."""
    value: Any = _ARGUMENTS.decode(raw)
    if isinstance(value, str) and value.startswith("{"):
        value = _ARGUMENTS.decode(value)
    return sound(value)


def without_thoughts(text: str) -> tuple[str, str]:
    """The thoughts at the start of a text, and the text after them.

    A server that does not tell thoughts apart leaves them in the text: `<think>…</think>`, or, if
    the template of the model has opened the thought, a last line `</think>` alone.
    """
    start = text.lstrip()
    if start.startswith(THINK):
        thought, _, said = start.removeprefix(THINK).partition(THOUGHT)
        return thought.strip(), said.lstrip()
    thought, closing, said = text.partition(f"\n{THOUGHT}\n")
    if closing and THINK not in thought and thought.count("```") % 2 == 0:
        return thought.strip(), said.lstrip()
    return "", text


def is_complete(raw: str) -> bool:
    """True if the arguments of a call are all there."""
    try:
        return isinstance(_ARGUMENTS.decode(raw), dict)
    except (ValueError, RecursionError):
        return False


def sound(value: Any, depth: int = 1) -> Any:
    """A JSON value that every store can keep; ValueError where it cannot be made one."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict | list) and depth > MAX_DEPTH:
        raise ValueError(f"they are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {storable(key): sound(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [sound(item, depth + 1) for item in cast("Any", value)]
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a number is not finite")
    return value


def counted(given: Any, *names: str) -> int | None:
    """The first count of that name which can be true."""
    if isinstance(given, Mapping):
        counts = cast("Mapping[str, Any]", given)
        for name in names:
            count = counts.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MAX_COUNT:
                return count
    return None


def inner(value: Any, name: str) -> Any:
    """A field of what should be an object."""
    return cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None


def tokens(sent: int | None, received: int | None, cached: int | None, body: int, answer: int) -> Tokens:
    """What was used; where the provider's word is missing or cannot be true, from the bytes that went and came."""
    estimated = sent is None or received is None or (answer > 0 and received == 0)
    if sent is None:
        sent = body // BYTES_PER_TOKEN + 1
    if received is None or (answer > 0 and received == 0):
        received = answer // BYTES_PER_TOKEN + 1 if answer else 0
    return Tokens(sent, received, min(cached or 0, sent), estimated)


def stopped(said: Stop, calls: bool) -> Stop:
    """Why an answer ended, made true: tools are asked for where there are calls, unless the answer was cut."""
    if calls:
        return said if said == "length" else "tool_calls"
    return "end" if said == "tool_calls" else said


def bad(text: str, *, started: bool = False) -> ModelFailed:
    """The failure of an answer that makes no sense."""
    return ModelFailed("bad_response", text, started=started)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_ARGUMENTS = JSONDecoder(parse_constant=_refuse)
