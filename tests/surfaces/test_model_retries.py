"""What people read while the endpoint of a model fails: each retry with its reason, and the reason
again if the time limit comes first.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash.process import environment
from tests.modelserver import ModelServer, Say, Status
from tests.patience import patient
from tests.surfaces.shell import Shell, interruptible

FAILED = Status(500, {"error": {"message": "out of memory"}})
RETRIED = r"#1: http://\S+ answered 500: out of memory; trying again in \d\.\d s"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer("openai").running() as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path, durable_url: str, server: ModelServer) -> Shell:
    made = Shell(
        tmp_path,
        PYTHONPATH=environment()["PYTHONPATH"],
        REMIT_DATABASE_URL=durable_url,
        LLM_MODEL_ID="scripted",
        LLM_API_KEY="sk-test",
        LLM_BASE_URL=f"{server.url}/v1",
    )
    assert made.remit("init").code == 0
    return made


async def test_a_waiting_command_says_why_the_model_is_asked_again(
    shell: Shell, server: ModelServer
) -> None:
    server.replies = [FAILED, FAILED, Say(("Red.",))]
    ran = await asyncio.to_thread(shell.remit, "run", "Say red")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "Red.")
    assert [*map(int, re.findall(rf"{RETRIED} \(attempt (\d)\)\n", ran.err))] == [2, 3]


async def test_a_worker_logs_why_the_model_is_asked_again(
    shell: Shell, server: ModelServer
) -> None:
    server.replies = [FAILED, Say(("Red.",))]
    await asyncio.to_thread(shell.remit, "task", "create", "Say red", "--owner", "general")
    with interruptible():
        worker = shell.started("worker", "--log-format", "json")
    assert worker.stderr is not None
    try:
        while True:
            line = json.loads(await asyncio.to_thread(worker.stderr.readline))
            if "trying again" in line["message"]:
                break
    finally:
        worker.kill()
        await asyncio.to_thread(worker.communicate)
    assert re.fullmatch(rf"{RETRIED} \(attempt 2\)", line["message"])
    assert (line["level"], line["task"]) == ("warning", "1")


@pytest.mark.parametrize("seconds", [0.8, 3])
async def test_a_time_limit_names_the_last_failure_of_the_model(
    shell: Shell, server: ModelServer, seconds: float
) -> None:
    server.replies = [FAILED]
    limit = f"{patient(seconds):.1f}"
    ran = await asyncio.to_thread(shell.remit, "run", "Say red", "--timeout", limit)
    assert ran.code == 124
    assert ran.out.startswith("The time limit of ")
    assert "answered 500: out of memory" in ran.out
