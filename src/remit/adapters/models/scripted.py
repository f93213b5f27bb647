"""A model that says what it is told to: for tests."""

from collections.abc import Callable, Iterable

from remit.adapters.models.answer import Priced
from remit.domain.message import Delta, OnPart, Pause, Request, Response, TextPart, Tokens, ToolCall
from remit.domain.model import ModelFailed
from remit.domain.wire import dumps

Line = Response | ModelFailed | str
Script = Iterable[Line] | Callable[[Request], Line]


class ScriptedGateway:
    """Answers from a list, one after the other, or by a function; keeps what it was asked."""

    def __init__(self, script: Script, price: Priced | None = None) -> None:
        self._price = price
        self._next = script if callable(script) else _reader(script)
        self.requests: list[Request] = []

    async def request(self, request: Request, *, on_part: OnPart | None = None, pause: Pause | None = None) -> Response:  # noqa: ARG002 - it is asked once
        """The next line of the script."""
        self.requests.append(request)
        line = self._next(request)
        if isinstance(line, ModelFailed):
            raise line
        answer = says(line) if isinstance(line, str) else line
        if on_part:
            tell(answer, on_part)
        return answer

    def cost(self, model: str, tokens: Tokens) -> float | None:
        """What a call costs by the price that it was given."""
        return self._price(model, tokens) if self._price else None

    async def close(self) -> None:
        """Nothing to let go of."""


def says(text: str, *, model: str = "scripted") -> Response:
    """An answer in words."""
    return Response((TextPart(text),), "end", Tokens(10, len(text) // 4 + 1), model)


def calls(*wanted: ToolCall, text: str = "", model: str = "scripted") -> Response:
    """An answer that asks for tools."""
    return Response((*((TextPart(text),) if text else ()), *wanted), "tool_calls", Tokens(10, 10), model)


def tell(answer: Response, on_part: OnPart) -> None:
    """Give an answer that is there already in pieces, as a stream would."""
    for number, part in enumerate(answer.parts):
        if isinstance(part, TextPart):
            on_part(Delta("text", part.text))
        elif isinstance(part, ToolCall):
            on_part(Delta("tool_call", part.raw or dumps(part.arguments), number, part.call_id, part.name))


def _reader(script: Iterable[Line]) -> Callable[[Request], Line]:
    lines = iter(script)

    def read(_request: Request) -> Line:
        line = next(lines, None)
        assert line is not None, "the script has ended and the model was asked again"
        return line

    return read
