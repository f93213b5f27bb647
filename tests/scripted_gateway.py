"""A model with scripted answers, for tests."""

from collections.abc import Callable, Iterable

from remit.adapters.models.wires.response import Priced, cost_of
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import (
    Part,
    Pause,
    Request,
    Response,
    TextPart,
    Tokens,
    ToolCall,
)

Line = Response | ModelFailed | str
Script = Iterable[Line] | Callable[[Request], Line]


class ScriptedGateway:
    """Answers from a list, one after the other, or by a function; keeps its requests."""

    def __init__(self, script: Script, price: Priced | None = None) -> None:
        self._price = price
        self._next = _reader(script)
        self.requests: list[Request] = []

    async def request(
        self,
        request: Request,
        *,
        pause: Pause | None = None,
    ) -> Response:
        """Return the next line of the script."""
        self.requests.append(request)
        answer = self._next(request)
        if isinstance(answer, ModelFailed):
            raise answer
        if isinstance(answer, str):
            answer = says(answer)
        return answer

    def cost(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost of a call by the price that was given."""
        return cost_of(self._price, model, tokens)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def says(text: str, *, model: str = "scripted") -> Response:
    """Return an answer in words."""
    return Response((TextPart(text),), "end", Tokens(10, len(text) // 4 + 1), model)


def calls(*wanted: ToolCall, text: str = "", model: str = "scripted") -> Response:
    """Return an answer that asks for tools."""
    parts: list[Part] = list(wanted)
    if text:
        parts.insert(0, TextPart(text))
    return Response(tuple(parts), "tool_calls", Tokens(10, 10), model)


def _reader(script: Script) -> Callable[[Request], Line]:
    """Return the function that gives the next line of a script."""
    if callable(script):
        return script
    lines = iter(script)

    def read(_request: Request) -> Line:
        line = next(lines, None)
        assert line is not None, "the model was called after the end of its script"
        return line

    return read
