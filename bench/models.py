"""The CPU time of a model call, compared with plain aiohttp code that makes the same streaming
calls.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from bench.plain import ask, new_session
from bench.service import service
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.domain.llm.messages import Message, Request, Tool, ToolResult, user

SYSTEM = "You read notes for somebody else. Say in one line what came of it."
PROMPT = "Job 0: read 2 notes"
TURNS = 3
"""Two notes and the answer."""
SCHEMA = {"type": "object", "properties": {"note_id": {"type": "string"}}, "required": ["note_id"]}
NOTE = "all is well"

Agent = Callable[[], Awaitable[str]]


def plain_agent(session: aiohttp.ClientSession, url: str) -> Agent:
    """The agent loop in plain code."""
    function = {"name": "read_note", "description": "Read one note.", "parameters": SCHEMA}

    async def agent() -> str:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": PROMPT},
        ]
        while True:
            body = {
                "model": "bench",
                "messages": messages,
                "tools": [{"type": "function", "function": function}],
                "stream": True,
            }
            message = await ask(session, url, body)
            messages.append(message)
            if not message.get("tool_calls"):
                return str(message["content"])
            for call in message["tool_calls"]:
                assert json.loads(call["function"]["arguments"])["note_id"]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": NOTE})

    return agent


def wire_agent(gateway: OpenAIChatGateway) -> Agent:
    """The same loop with remit's adapter."""
    tools = (Tool("read_note", "Read one note.", SCHEMA),)

    async def agent() -> str:
        messages: tuple[Message, ...] = (user(PROMPT),)
        while True:
            answer = await gateway.request(
                Request("bench", SYSTEM, messages, tools, agent="general")
            )
            if not answer.calls:
                return answer.text
            results = tuple(
                ToolResult(call.call_id, call.name, NOTE)
                for call in answer.calls
                if call.arguments["note_id"]
            )
            messages = (*messages, answer.message, Message("tool", results))

    return agent


async def cpu(agent: Agent, agents: int) -> float:
    """CPU seconds per call with concurrent agents."""
    started = time.process_time()
    answers = await asyncio.gather(*(agent() for _ in range(agents)))
    assert answers == ["job 0 is done"] * agents
    return (time.process_time() - started) / (agents * TURNS)


async def models(rounds: int, agents: int = 100) -> tuple[float, float, float]:
    """CPU seconds per call of the adapter and of plain code, and the median ratio, in turns."""
    with service() as model:
        async with new_session() as session:
            gateway = OpenAIChatGateway(base_url=model.url)
            ours, plain = wire_agent(gateway), plain_agent(session, model.url)
            for agent in (ours, plain):
                await cpu(agent, agents)
            results = [
                (await cpu(ours, agents), await cpu(plain, agents)) for _ in range(4 * rounds)
            ]
            await gateway.close()
    mine, other = (statistics.median(column) for column in zip(*results, strict=True))
    return mine, other, statistics.median(ours / plain for ours, plain in results)
