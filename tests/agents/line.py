"""A line to an OpenAI-compatible endpoint on this machine: what a scripted model is asked and
answers goes over it.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.domain.llm.messages import Request, Response, TextPart, ToolCall
from tests.agents.endpoint import Body, RuledServer
from tests.modelserver import Reply, Say, Status

PIECE = 200_000
FINISH = {"length": "length", "refusal": "content_filter"}


class Line:
    """Carries requests to an endpoint that is as strict as those of others are, and answers
    back.
    """

    def __init__(self) -> None:
        self.server = RuledServer(self._answer)
        self._said: dict[str, Response] = {}
        self._numbers = count(1)
        self._gateway: OpenAIChatGateway | None = None

    async def carry(self, request: Request, answer: Response) -> Response:
        """An answer as it arrives; what no endpoint tells is added to it."""
        assert self._gateway is not None
        name = f"m{next(self._numbers)}"
        self._said[name] = answer
        heard = await self._gateway.request(request._replace(model=name))
        stop = answer.stop if answer.stop == "context_full" else heard.stop
        return heard._replace(stop=stop, tokens=answer.tokens, model=answer.model, cost=answer.cost)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Line"]:
        """The line while it is there."""
        async with self.server.running():
            self._gateway = OpenAIChatGateway(
                "none", f"{self.server.url}/v1", endpoint=Endpoint("script", concurrent=1000)
            )
            try:
                yield self
            finally:
                await self._gateway.close()

    async def _answer(self, body: Body) -> Reply:
        wrong = objection(body)
        return (
            Status(400, {"error": {"message": wrong}})
            if wrong
            else said(self._said.pop(body["model"]))
        )


def said(answer: Response) -> Say:
    """An answer as an endpoint gives it."""
    text = "".join(part.text for part in answer.parts if isinstance(part, TextPart))
    pieces = tuple(text[at : at + PIECE] for at in range(0, len(text), PIECE))
    made = [part for part in answer.parts if isinstance(part, ToolCall)]
    calls = tuple(
        (part.call_id, part.name, (part.raw or json.dumps(part.arguments),)) for part in made
    )
    return Say(
        pieces,
        calls,
        (answer.tokens.input, answer.tokens.output, answer.tokens.cached),
        FINISH.get(answer.stop, ""),
    )


def objection(body: Body) -> str:
    """The problem that an endpoint would find in a request; empty if there is none."""
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"a result of {message['tool_call_id']}, which was not called"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"no result of {', '.join(open_calls)}"
        elif message["role"] == "assistant":
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
            if not open_calls and not message["content"]:
                return "an answer of nothing"
        elif not message["content"]:
            return f"nothing said by {message['role']}"
    names: list[Any] = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if wrong := [name for name in names if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)]:
        return f"tools called {', '.join(wrong)}"
    return (
        f"no result of {', '.join(open_calls)}"
        if open_calls
        else ""
        if len(names) == len(set(names))
        else "a tool that is there twice"
    )
