"""pydantic-ai without storage: a tool of the lead runs a worker."""

from typing import Any

from _common import PARENT_SYSTEM, WORKER_SYSTEM, note, parent_prompt
from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

DELEGATE = "delegate"
PATIENCE_SECONDS = 120.0
UNLIMITED = UsageLimits(request_limit=None)

Lead = Agent[None, str]


def setup(cfg: dict[str, Any]) -> Lead:
    client = AsyncOpenAI(
        base_url=cfg["base_url"], api_key=cfg["api_key"], timeout=PATIENCE_SECONDS, max_retries=0
    )
    model = OpenAIChatModel(cfg["model"], provider=OpenAIProvider(openai_client=client))
    worker = Agent(model, system_prompt=WORKER_SYSTEM)
    lead = Agent(model, system_prompt=PARENT_SYSTEM)

    @worker.tool_plain
    async def read_note(note_id: str) -> str:
        """Read one note."""
        return note(note_id)

    @lead.tool_plain
    async def delegate(prompt: str) -> str:
        """Run a worker for a job."""
        return (await worker.run(prompt, usage_limits=UNLIMITED)).output

    return lead


async def run(lead: Lead, n: int, k: int) -> str:
    return (await lead.run(parent_prompt(n, k), usage_limits=UNLIMITED)).output


def teardown(lead: Lead) -> None:
    """There is nothing to close."""
