"""A model that answers by rule, at an address of this machine."""

import inspect
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from remit.domain.choice import TIERS


class Asked(NamedTuple):
    """What a scripted model is asked."""

    objective: str
    """The first thing that it was told: what it has to do."""
    turn: int
    """How often it has answered in this conversation."""
    results: tuple[str, ...]
    """Everything that tools have answered, oldest first."""
    text: str
    """Everything that it was told, from its role to how the task stands now."""
    tools: tuple[str, ...]
    """What it may call: nothing in its last turn, which is for a report."""
    request: Mapping[str, Any] = {}
    """The request as it was sent."""
    messages: tuple[tuple[str, str], ...] = ()
    """Role and text of each message, the system prompt first; the `<Task>` block is at the end of the last one."""


Call = tuple[str, Mapping[str, Any] | str]
"""A call of a tool: its name, and its arguments; text is sent as it is, also if it is not JSON."""
Answer = str | Sequence[Call]
"""A last message, or calls of tools."""
Rule = Callable[[Asked], Answer | Awaitable[Answer]]


class ContextFull(Exception):
    """Raised by a rule whose model cannot read a request of this size."""


@asynccontextmanager
async def scripted_model(rule: Rule) -> AsyncGenerator[str, None]:
    """A model that answers by rule, at a local address, for the time of the block.

    Both tiers of this process and of those that it starts mean it meanwhile (`LLM_…`, `LIGHT_LLM_…`). A rule that raises is a model
    that refuses the request: its task fails, and says why.
    """
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        try:
            said = rule(_asked(await request.json()))
            return web.json_response(_answer(await said if inspect.isawaitable(said) else said))
        except ContextFull as full:
            refusal = {"code": "context_length_exceeded", "message": str(full)}
            return web.json_response({"error": refusal}, status=400)
        except Exception as error:  # noqa: BLE001 - whatever somebody's rule does is an answer of the model
            return web.json_response({"error": {"message": f"{type(error).__name__}: {error}"}}, status=400)

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


def _asked(body: Mapping[str, Any]) -> Asked:
    said: list[dict[str, Any]] = body["messages"]
    by_role = {role: [str(message["content"]) for message in said if message["role"] == role] for role in ("user", "tool", "assistant")}
    return Asked(
        objective=by_role["user"][0],
        turn=len(by_role["assistant"]),
        results=tuple(by_role["tool"]),
        text="\n".join(str(message["content"] or "") for message in said),
        request=body,
        messages=tuple((message["role"], str(message["content"] or "")) for message in said),
        tools=tuple(tool["function"]["name"] for tool in body.get("tools", ()) if body.get("tool_choice") != "none"),
    )


def _answer(said: Answer) -> dict[str, Any]:
    calls: Sequence[Call] = () if isinstance(said, str) else said
    message = {
        "role": "assistant",
        "content": said if isinstance(said, str) else None,
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": _arguments(arguments)}}
            for number, (name, arguments) in enumerate(calls)
        ],
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 10}
    return {"model": "scripted", "choices": [{"message": message, "finish_reason": "tool_calls" if calls else "stop"}], "usage": usage}


def _arguments(given: Mapping[str, Any] | str) -> str:
    return given if isinstance(given, str) else json.dumps(given)


@contextmanager
def _environment(url: str) -> Generator[None, None, None]:
    values = {"MODEL_ID": "scripted", "API_KEY": "none", "BASE_URL": url}
    ours = {f"{prefix}_{name}": value for prefix in TIERS.values() for name, value in values.items()}
    before = {name: os.environ[name] for name in ours if name in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
        os.environ.update(before)
