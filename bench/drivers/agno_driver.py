"""agno without storage: a team whose leader delegates to its one member."""

from typing import Any

from _common import PARENT_SYSTEM, WORKER_SYSTEM, note, parent_prompt
from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from agno.team import Team

DELEGATE = "delegate_task_to_member"
PATIENCE_SECONDS = 120.0


async def read_note(note_id: str) -> str:
    """Read one note."""
    return note(note_id)


def setup(cfg: dict[str, Any]) -> Team:
    def model() -> OpenAILike:
        return OpenAILike(
            id=cfg["model"],
            base_url=cfg["base_url"],
            api_key=cfg["api_key"],
            timeout=PATIENCE_SECONDS,
            max_retries=0,
        )

    worker = Agent(
        id="worker",
        name="worker",
        model=model(),
        instructions=WORKER_SYSTEM,
        tools=[read_note],
        telemetry=False,
    )
    return Team(
        name="lead", model=model(), members=[worker], instructions=PARENT_SYSTEM, telemetry=False
    )


async def run(team: Team, n: int, k: int) -> str:
    return str((await team.arun(parent_prompt(n, k))).content)


def teardown(team: Team) -> None:
    """There is nothing to close."""
