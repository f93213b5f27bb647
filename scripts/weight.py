"""Count the tokens that models read before they start, and fail if there are too many.

Run it with `python -m scripts.weight`. A token is counted as four characters of JSON. For agents,
this is the first request of a task with a one-sentence objective, including the system prompt and
the tools. For MCP, it is the names, descriptions and input schemas of the tools of a profile.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

from aiohttp import web
from mcp import Client

from remit import Remit
from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.bootstrap import open_store
from remit.catalog import PROFILES, AppContext, Caller
from remit.surfaces.mcp.server import mcp_server

Body = dict[str, Any]

BRIEF = "Say in which file the kiln is fired."
CHARACTERS = 4
"""The number of characters of JSON per token."""


class Bound(NamedTuple):
    """A limit; the bytes are those of a whole answer to tools/list."""

    tools: int
    tokens: int
    size: int | None = None


AGENTS = {
    "explore": Bound(12, 2_000),
    "plan": Bound(12, 2_000),
    "general": Bound(12, 2_000),
    "build": Bound(30, 7_000),
}
MCP = {
    "core": Bound(12, 3_500, 60_000),
    "standard": Bound(24, 7_000, 60_000),
    "all": Bound(64, 9_000, 80_000),
}


class Weight(NamedTuple):
    """The measured size."""

    tools: int
    tokens: int
    size: int

    def within(self, bound: Bound) -> bool:
        """Whether this is within a limit."""
        is_small = bound.size is None or self.size < bound.size
        return self.tools <= bound.tools and self.tokens <= bound.tokens and is_small


def tokens(*values: Any) -> int:
    """The number of tokens of values as JSON."""
    characters = sum(len(json.dumps(value, ensure_ascii=False)) for value in values)
    return -(-characters // CHARACTERS)


@asynccontextmanager
async def model(asked: list[Body]) -> AsyncGenerator[dict[str, str], None]:
    """Start a model that ends every task and keeps its requests; yield its environment."""

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        said = {"message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}
        return web.json_response({"model": "counted", "choices": [said]})

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        values = {"MODEL_ID": "counted", "API_KEY": "none", "BASE_URL": url}
        both = ("LLM", "LIGHT_LLM")
        yield {f"{tier}_{name}": value for tier in both for name, value in values.items()}
    finally:
        await runner.cleanup()


async def first_requests(agents: Iterable[str], folder: Path) -> dict[str, Body]:
    """The body of the first request of each agent, as its endpoint receives it."""
    found: dict[str, Body] = {}
    asked: list[Body] = []
    async with model(asked) as environment:
        with patch.dict("os.environ", environment):
            async with Remit.open(folder, f"sqlite:///{folder / 'remit.db'}") as remit:
                for agent in agents:
                    before = len(asked)
                    await remit.task(BRIEF, subagent_type=agent)
                    found[agent] = asked[before]
    return found


def weight_of_request(body: Body) -> Weight:
    """The size of a request to a model."""
    messages, tools = body["messages"], body.get("tools", [])
    return Weight(len(tools), tokens(messages, tools), len(json.dumps(body)))


async def weight_of_profile(profile: str) -> Weight:
    """The size of a profile, as an MCP client reads it."""
    async with open_store("memory:") as store:
        core = AppContext(store, SystemClock(), AgentRegistry())
        server = mcp_server(core, Caller(actor="user:weight"), "0", profile)
        async with Client(server) as client:
            listed = await client.list_tools()
    told = [
        {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.input_schema,
        }
        for tool in listed.tools
    ]
    size = len(listed.model_dump_json(by_alias=True, exclude_unset=True))
    return Weight(len(told), tokens(told), size)


async def weigh() -> dict[str, tuple[Weight, Bound]]:
    """All sizes with their limits."""
    with TemporaryDirectory() as folder:
        requests = await first_requests(AGENTS, Path(folder))
    agents = {f"agent {name}": (weight_of_request(requests[name]), AGENTS[name]) for name in AGENTS}
    profiles = {f"mcp {name}": (await weight_of_profile(name), MCP[name]) for name in PROFILES}
    return agents | profiles


def main() -> int:
    """Print the table; return 1 if a limit is exceeded."""
    found = asyncio.run(weigh())
    print(f"{'':<16}{'tools':>14}{'tokens':>18}{'bytes':>20}")
    for name, (weight, bound) in found.items():
        size = f"{weight.size:,}" + (f" < {bound.size:,}" if bound.size else "")
        tools, counted = (
            f"{weight.tools} of {bound.tools}",
            f"{weight.tokens:,} of {bound.tokens:,}",
        )
        print(f"{name:<16}{tools:>14}{counted:>18}{size:>20}")
    heavy = [name for name, (weight, bound) in found.items() if not weight.within(bound)]
    for name in heavy:
        print(f"{name} is heavier than its bound in scripts/weight.py", file=sys.stderr)
    return 1 if heavy else 0


if __name__ == "__main__":
    sys.exit(main())
