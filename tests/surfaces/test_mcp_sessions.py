"""Short sessions of MCP clients: ending one is not a crash, and the work goes on with the next."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from remit.bootstrap import open_core
from remit.domain.task.task import Task
from remit.store_queries.event_queries import EVENTS
from tests.crash.process import environment
from tests.modelserver import ModelServer, Reply, Say, Silent
from tests.patience import patient
from tests.surfaces.mcp_pipe import Pipe, asking

ENDS = ["term", "close", "close and kill", "int", "close and kill", "close"]
"""How sessions end, one after the other."""


class Gated(ModelServer):
    """A model that answers nobody until it is told to."""

    def __init__(self) -> None:
        super().__init__("openai")
        self.answers = False

    async def _choose(self, _body: dict[str, object]) -> Reply:
        return Say(("The end.",)) if self.answers else Silent()

    async def until_asked(self, count: int) -> None:
        """Wait until the model was asked so often."""
        while len(self.asked) < count:  # noqa: ASYNC110 - it rings no bell
            await asyncio.sleep(0.01)


@asynccontextmanager
async def session(folder: Path, url: str, model: str) -> AsyncIterator[Pipe]:
    """A real `remit mcp` process, as a client starts it."""
    clean = {
        name: value
        for name, value in environment().items()
        if not name.startswith(("REMIT_", "LLM_", "LIGHT_"))
    }
    env = clean | {
        "HOME": str(folder),
        "REMIT_DATABASE_URL": url,
        "LLM_MODEL_ID": "m",
        "LLM_BASE_URL": model,
        "LLM_API_KEY": "k",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "remit",
        "mcp",
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(patient(60)):
            pipe = Pipe(process)
            await pipe.hello()
            yield pipe
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def end(pipe: Pipe, how: str) -> None:
    """End a session as clients do."""
    if how in ("term", "int"):
        pipe.process.send_signal(signal.SIGTERM if how == "term" else signal.SIGINT)
    else:
        pipe.stdin.close()
    if how == "close and kill":
        await asyncio.sleep(patient(0.3))
        if pipe.process.returncode is None:
            pipe.process.kill()
    await pipe.process.wait()


async def loaded(url: str, task_id: str) -> Task:
    async with open_core(url) as core:
        return await core.service.load(task_id)


async def events(url: str, task_id: str) -> list[str]:
    async with open_core(url) as core:
        return [
            row.type
            for row in await core.store.select(
                EVENTS, {"stream": task_id, "after": 0, "limit": 1000}
            )
        ]


async def test_short_sessions_do_not_fail_a_long_task(durable_url: str, tmp_path: Path) -> None:
    async with Gated().running() as model:
        assert isinstance(model, Gated)
        for number, how in enumerate(ENDS, 1):
            async with session(tmp_path, durable_url, model.url) as pipe:
                if number == 1:
                    await pipe.send(
                        asking(1, "task", objective="Take long", wait=False, timeout_seconds=3600)
                    )
                    assert "result" in await pipe.receive()
                await model.until_asked(number)
                assert (await loaded(durable_url, "1")).run is not None
                await end(pipe, how)
            task = await loaded(durable_url, "1")
            assert (task.state.value, task.run, task.attempts) == (
                "pending",
                None,
                0,
            ), f"session {number}, ended by {how}"
        model.answers = True
        async with session(tmp_path, durable_url, model.url) as pipe:
            await pipe.send(asking(1, "task_output", task_id="1", wait_seconds=600))
            answer = (await pipe.receive())["result"]["structuredContent"]
            assert (answer["status"], answer["result"]) == ("completed", "The end.")
    happened = await events(durable_url, "1")
    assert (
        happened.count("RunReleased"),
        happened.count("RunLost"),
        happened.count("RunFailed"),
    ) == (len(ENDS), 0, 0)


async def test_a_process_for_each_call_brings_a_task_to_its_end(
    durable_url: str, tmp_path: Path
) -> None:
    async with Gated().running() as model:
        assert isinstance(model, Gated)
        async with session(tmp_path, durable_url, model.url) as pipe:
            await pipe.send(
                asking(1, "task", objective="Take long", wait=False, timeout_seconds=3600)
            )
            await pipe.receive()
            await end(pipe, "close")
        for number in range(1, 6):
            async with session(tmp_path, durable_url, model.url) as pipe:
                await pipe.send(asking(number, "task_output", task_id="1"))
                told = (await pipe.receive())["result"]["structuredContent"]
                assert told["status"] == "running"
                await end(pipe, "close and kill")
        model.answers = True
        async with session(tmp_path, durable_url, model.url) as pipe:
            await pipe.send(asking(1, "task_output", task_id="1", wait_seconds=600))
            assert (await pipe.receive())["result"]["structuredContent"]["status"] == "completed"
    task = await loaded(durable_url, "1")
    assert (task.state.value, task.attempts, "RunLost" in await events(durable_url, "1")) == (
        "done",
        0,
        False,
    )


async def test_a_waiting_call_returns_that_its_task_continues(
    durable_url: str, tmp_path: Path
) -> None:
    async with Gated().running() as model:
        assert isinstance(model, Gated)
        async with session(tmp_path, durable_url, model.url) as pipe:
            await pipe.send(asking(1, "task", objective="Take long", timeout_seconds=3600))
            await model.until_asked(1)
            pipe.stdin.close()
            answer = await pipe.receive()
            told = answer["result"]["structuredContent"]
            assert (told["error"]["code"], told["error"]["details"]) == (
                "UNAVAILABLE",
                {"task_id": "1"},
            )
            await pipe.process.wait()
        assert (await loaded(durable_url, "1")).attempts == 0


async def test_a_client_that_stays_takes_over_from_one_that_goes(
    durable_url: str, tmp_path: Path
) -> None:
    async with Gated().running() as model, session(tmp_path, durable_url, model.url) as stays:
        assert isinstance(model, Gated)
        async with session(tmp_path, durable_url, model.url) as goes:
            await goes.send(
                asking(1, "task", objective="Take long", wait=False, timeout_seconds=3600)
            )
            await goes.receive()
            await model.until_asked(1)
            os.kill(goes.process.pid, signal.SIGTERM)
            await goes.process.wait()
        await model.until_asked(2)
        await end(stays, "term")
    task = await loaded(durable_url, "1")
    assert (task.state.value, task.attempts) == ("pending", 0)


async def test_trees_of_others_are_left_alone(durable_url: str, tmp_path: Path) -> None:
    async with open_core(durable_url) as core:
        from remit.catalog import Caller, call

        await call(
            core,
            "create_task",
            {"title": "Of a script", "owner": "general"},
            Caller(actor="user:ann"),
        )
    async with Gated().running() as model, session(tmp_path, durable_url, model.url) as pipe:
        assert isinstance(model, Gated)
        model.answers = True
        await pipe.send(asking(1, "task", objective="Mine", timeout_seconds=3600))
        assert (await pipe.receive())["result"]["structuredContent"]["status"] == "completed"
        assert (await loaded(durable_url, "1")).state.value == "pending"
