"""A plain aiohttp model call without checks, limits or retries."""

import json
from typing import Any

import aiohttp

Message = dict[str, Any]


def new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
    )


async def ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Message:
    """The answer message of the model at a base URL."""
    async with session.post(f"{url}/chat/completions", json=body) as reply:
        reply.raise_for_status()
        if not body["stream"]:
            found: Message = (await reply.json())["choices"][0]["message"]
            return found
        message: Message = {"role": "assistant", "content": None}
        async for line in reply.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    fold(message, choice["delta"])
        return message


def fold(message: Message, delta: dict[str, Any]) -> None:
    if delta.get("content"):
        message["content"] = (message["content"] or "") + delta["content"]
    for part in delta.get("tool_calls") or []:
        calls = message.setdefault("tool_calls", [])
        while len(calls) <= part["index"]:
            calls.append(
                {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
            )
        call = calls[part["index"]]
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += part["function"].get("name") or ""
        call["function"]["arguments"] += part["function"].get("arguments") or ""
