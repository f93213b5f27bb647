"""The baseline: the same calls in plain asyncio code, without storage."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
from _common import PARENT_SYSTEM, WORKER_SYSTEM, note, parent_prompt
from bench.plain import Message, ask, new_session

DELEGATE = "delegate"


def tool(name: str, description: str, parameter: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


HAND_OUT = tool(DELEGATE, "Give a job to a worker.", "prompt")
READ_NOTE = tool("read_note", "Read one note.", "note_id")


Use = Callable[[list[str]], Awaitable[list[str]]]
"""The tools: functions from call arguments to a result."""


class State(NamedTuple):
    session: aiohttp.ClientSession
    cfg: dict[str, Any]


async def setup(cfg: dict[str, Any]) -> State:
    return State(new_session(), cfg)


async def run(state: State, n: int, k: int) -> str:
    async def hand_out(prompts: list[str]) -> list[str]:
        return await asyncio.gather(
            *(_agent(state, WORKER_SYSTEM, prompt, READ_NOTE, read) for prompt in prompts)
        )

    async def read(note_ids: list[str]) -> list[str]:
        return [note(note_id) for note_id in note_ids]

    return await _agent(state, PARENT_SYSTEM, parent_prompt(n, k), HAND_OUT, hand_out)


async def _agent(state: State, system: str, prompt: str, tool: dict[str, Any], use: Use) -> str:
    """Call the model and its tools until it makes no more calls."""
    messages: list[Message] = [
        {"role": "system", "content": system},
        {"role": "user", "content": prompt},
    ]
    body = {
        "model": state.cfg["model"],
        "messages": messages,
        "tools": [tool],
        "stream": state.cfg["stream"],
    }
    while True:
        message = await ask(state.session, state.cfg["base_url"], body)
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            return str(message["content"])
        (parameter,) = tool["function"]["parameters"]["required"]
        results = await use(
            [json.loads(call["function"]["arguments"])[parameter] for call in calls]
        )
        messages += (
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call, text in zip(calls, results, strict=True)
        )


async def teardown(state: State) -> None:
    await state.session.close()
