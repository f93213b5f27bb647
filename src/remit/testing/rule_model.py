"""A model that answers by rule, served on a local address."""

import inspect
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from remit.domain.llm.selection import TIERS
from remit.domain.records.pick import pick


class Asked(NamedTuple):
    """The request to a scripted model."""

    objective: str
    """The first instruction: the task of the model."""
    turn: int
    """The number of answers that the model has given in this conversation."""
    results: tuple[str, ...]
    """All tool results, oldest first."""
    text: str
    """All text of the request, from the role to the current state of the task."""
    tools: tuple[str, ...]
    """The tools that it may call; empty in the last turn, which is for a report."""
    request: Mapping[str, Any] = {}
    """The request as it was sent."""
    messages: tuple[tuple[str, str], ...] = ()
    """Role and text of each message, the system prompt first.

    The `<Task>` block is at the end of the last one.
    """


Call = tuple[str, Mapping[str, Any] | str]
"""A tool call: the name and the arguments; text is sent unchanged, even if it is not JSON."""
Answer = str | Sequence[Call]
"""A final message, or tool calls."""
Rule = Callable[[Asked], Answer | Awaitable[Answer]]


class ContextFull(Exception):
    """Raised by a rule whose model cannot read a request of this size."""


@asynccontextmanager
async def scripted_model(rule: Rule) -> AsyncGenerator[str, None]:
    """Serve a model that answers by rule on a local address within this block.

    Both tiers of this process and its children use it (`LLM_…`, `LIGHT_LLM_…`). If the rule raises,
    the model refuses the request: its task fails with that reason.
    """
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        try:
            reply = rule(_parse_request(await request.json()))
            if inspect.isawaitable(reply):
                reply = await reply
            return web.json_response(_answer(reply))
        except ContextFull as full:
            refusal = {"code": "context_length_exceeded", "message": str(full)}
        except Exception as error:  # noqa: BLE001 - every error of a rule is an answer of the model
            refusal = {"message": f"{type(error).__name__}: {error}"}
        return web.json_response({"error": refusal}, status=400)

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        with _environment(url):
            yield url
    finally:
        await runner.cleanup()


def _parse_request(body: Mapping[str, Any]) -> Asked:
    """Read a chat completion request."""
    sent: list[dict[str, Any]] = body["messages"]
    texts = [str(message["content"] or "") for message in sent]
    roles = [message["role"] for message in sent]
    return Asked(
        objective=_contents(sent, "user")[0],
        turn=roles.count("assistant"),
        results=_contents(sent, "tool"),
        text="\n".join(texts),
        request=body,
        messages=tuple(zip(roles, texts, strict=True)),
        tools=_offered_tools(body),
    )


def _contents(sent: list[dict[str, Any]], role: str) -> tuple[str, ...]:
    """Return the contents of all messages of a role."""
    return tuple(str(message["content"]) for message in sent if message["role"] == role)


def _offered_tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tools that may be called."""
    if body.get("tool_choice") == "none":
        return ()
    return tuple(tool["function"]["name"] for tool in body.get("tools", ()))


def _answer(reply: Answer) -> dict[str, Any]:
    """Return a chat completion with a final message or tool calls."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    if isinstance(reply, str):
        message["content"] = reply
    else:
        message["tool_calls"] = [_tool_call(number, call) for number, call in enumerate(reply)]
    finish = "tool_calls" if message["tool_calls"] else "stop"
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
    }


def _tool_call(number: int, call: Call) -> dict[str, Any]:
    """Return a tool call as a chat completion has it."""
    name, arguments = call
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": _arguments(arguments)},
    }


def _arguments(given: Mapping[str, Any] | str) -> str:
    """Return the arguments of a call as text."""
    if isinstance(given, str):
        return given
    return json.dumps(given)


@contextmanager
def _environment(url: str) -> Generator[None, None, None]:
    """Set the variables of both tiers to a local address within a block."""
    values = {"MODEL_ID": "scripted", "API_KEY": "none", "BASE_URL": url}
    ours = {
        f"{prefix}_{name}": value for prefix in TIERS.values() for name, value in values.items()
    }
    before = pick(os.environ, ours)
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
        os.environ.update(before)
