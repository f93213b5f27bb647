"""Reads the parts of a request that a model sees."""

from typing import Any

from remit.domain.llm.messages import Request, ToolResult
from tests.agents.endpoint import Body
from tests.agents.stage import Gate, calls, says


def prefix(body: Body) -> list[object]:
    """The request before its tail."""
    return [body["tools"], *body["messages"][:-1]]


def current(request: Request) -> str:
    """The current terms in a request: its system prompt and the task block at its end."""
    return f"{request.system}\n{request.messages[-1].text}"


def looking(gate: Gate) -> Any:
    """The model looks around once, which takes until the gate is open."""
    answers: list[Any] = [None, says("Done.")]
    return lambda _: answers.pop(0) or gate.then(calls(("LS", {"path": "."})))


def told(request: Request) -> list[ToolResult]:
    """Every result that the model of a run was given."""
    return [
        part for message in request.messages for part in message.parts if type(part) is ToolResult
    ]
