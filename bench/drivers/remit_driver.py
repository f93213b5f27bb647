"""remit: the lead's model delegates the jobs with `Task`, and every step is stored in SQLite before
the next one.
"""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from _common import PARENT_SYSTEM, WORKER_SYSTEM, note, parent_prompt

from remit.adapters.tools.functions import repeatable
from remit.bootstrap.library import Remit

DELEGATE = "Task"
LEAD = "lead"
PATIENCE_SECONDS = 600
AGENT = "---\nname: {name}\ndescription: {description}\ntools: {tools}\n---\n{prompt}\n"


class State(NamedTuple):
    remit: Remit
    opened: AsyncExitStack


@repeatable
async def read_note(note_id: str) -> str:
    """Read one note."""
    return note(note_id)


async def setup(cfg: dict[str, Any]) -> State:
    """A workspace in the data folder, with its worker in this process.

    It immediately continues the tasks of a killed process.
    """
    folder = Path(cfg["data_dir"])
    os.environ.update(_settings(cfg))
    _write(folder, "worker", "Reads notes.", "read_note", WORKER_SYSTEM)
    _write(folder, LEAD, "Hands out jobs.", "Task(worker), read_note", PARENT_SYSTEM)
    opened = AsyncExitStack()
    return State(await opened.enter_async_context(Remit.open(folder, tools=[read_note])), opened)


async def run(state: State, n: int, k: int) -> str:
    made = await state.remit.create_task(
        title="Hand out the jobs",
        instructions=parent_prompt(n, k),
        owner=LEAD,
        limits={"max_children": n},
        # The lead may pass on a tool that it is not offered itself.
        tools={"allow": ["Task", "read_note"], "offer": ["Task"]},
    )
    return await _result(state, made.task_id)


async def resume(state: State) -> str:
    """The result of the newest job, which may have ended already."""
    found = [task.id for task in (await state.remit.list_tasks(owner=LEAD, limit=1)).tasks]
    if not found:
        found = [task.id for task in (await state.remit.list_history()).tasks if task.owner == LEAD]
    return await _result(state, found[0])


async def teardown(state: State) -> None:
    await state.opened.aclose()


async def _result(state: State, task_id: str) -> str:
    output = await state.remit.task_output(task_id=task_id, wait_seconds=PATIENCE_SECONDS)
    assert output.status == "completed", output
    return str(output.text)


def _settings(cfg: dict[str, Any]) -> dict[str, str]:
    """Settings: the model, and limits for a large fan-out.

    By default a model can make 64 tool calls at once, and a process has 8 concurrent runs.
    """
    return {
        "LLM_MODEL_ID": cfg["model"],
        "LLM_BASE_URL": cfg["base_url"],
        "LLM_API_KEY": cfg["api_key"],
        "LLM_STREAM": str(bool(cfg["stream"])).lower(),
        "REMIT_TOOL_CALLS": "5000",
        "REMIT_CONCURRENCY": str(cfg["max_n"] + 8),
    }


def _write(folder: Path, name: str, description: str, tools: str, prompt: str) -> None:
    agents = folder / ".remit" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / f"{name}.md").write_text(
        AGENT.format(name=name, description=description, tools=tools, prompt=prompt)
    )
