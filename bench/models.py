"""What a model call costs in CPU: the wire adapter against plain aiohttp code that makes the same streaming calls."""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.peers.model_server import TURNS
from remit.adapters.models.wire import WireGateway
from remit.domain.message import Message, Request, Tool, ToolResult, user

SYSTEM = "You are a worker. Read the notes you are told to read, then answer in one line."
PROMPT = "Read the notes."
SCHEMA = {"type": "object", "properties": {"note_id": {"type": "string"}}, "required": ["note_id"]}
NOTE = "all is well"

Agent = Callable[[], Awaitable[str]]


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """An endpoint in a process of its own; its base URL."""
    script = Path(__file__).parent / "peers" / "model_server.py"
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - nothing else runs yet
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def plain_agent(session: aiohttp.ClientSession, url: str) -> Agent:
    """The loop of an agent in plain aiohttp code: nothing checked, nothing limited."""
    function = {"name": "read_note", "description": "Read one note.", "parameters": SCHEMA}

    async def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
        body = {"model": "bench", "messages": messages, "tools": [{"type": "function", "function": function}], "stream": True}
        message: dict[str, Any] = {"role": "assistant", "content": None}
        async with session.post(f"{url}/chat/completions", json=body) as reply:
            reply.raise_for_status()
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        fold(message, choice["delta"])
        return message

    async def agent() -> str:
        messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
        while True:
            message = await ask(messages)
            messages.append(message)
            if not message.get("tool_calls"):
                return str(message["content"])
            for call in message["tool_calls"]:
                assert json.loads(call["function"]["arguments"])["note_id"]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": NOTE})

    return agent


def fold(message: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta.get("content"):
        message["content"] = (message["content"] or "") + delta["content"]
    for part in delta.get("tool_calls") or []:
        calls = message.setdefault("tool_calls", [])
        while len(calls) <= part["index"]:
            calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        call = calls[part["index"]]
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += part["function"].get("name") or ""
        call["function"]["arguments"] += part["function"].get("arguments") or ""


def wire_agent(gateway: WireGateway) -> Agent:
    """The same loop on the adapter."""
    tools = (Tool("read_note", "Read one note.", SCHEMA),)

    async def agent() -> str:
        messages: tuple[Message, ...] = (user(PROMPT),)
        while True:
            answer = await gateway.request(Request("bench", SYSTEM, messages, tools, agent="general"))
            if not answer.calls:
                return answer.text
            results = tuple(ToolResult(call.call_id, call.name, NOTE) for call in answer.calls if call.arguments["note_id"])
            messages = (*messages, answer.message, Message("tool", results))

    return agent


async def cpu(agent: Agent, agents: int) -> float:
    """CPU seconds a call with so many agents at once."""
    started = time.process_time()
    answers = await asyncio.gather(*(agent() for _ in range(agents)))
    assert answers == ["The notes are read."] * agents
    return (time.process_time() - started) / (agents * TURNS)


async def models(rounds: int, agents: int = 100) -> tuple[float, float, float]:
    """CPU seconds a call of the adapter and of plain code, and the median of their ratios, measured in turns."""
    async with server() as url, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)) as session:
        gateway = WireGateway(base_url=url)
        ours, plain = wire_agent(gateway), plain_agent(session, url)
        for agent in (ours, plain):
            await cpu(agent, agents)
        results = [(await cpu(ours, agents), await cpu(plain, agents)) for _ in range(4 * rounds)]
        await gateway.close()
    mine, other = (statistics.median(column) for column in zip(*results, strict=True))
    return mine, other, statistics.median(ours / plain for ours, plain in results)
