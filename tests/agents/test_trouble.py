"""The reported state of model endpoints: paused endpoints, the model that answered, and its
usage.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.models.registry import ModelRegistry
from remit.adapters.models.wires.endpoint import FAILURES_TO_OPEN, TimeSource
from remit.app.reading.views import worker_view
from remit.domain.llm.selection import Choices, ModelChoice
from remit.domain.task.task import State
from tests.agents.stage import Stage, stage
from tests.modelserver import ModelServer, Say, Status
from tests.patience import patient

FAST = TimeSource(now=time.monotonic, sleep=lambda _: asyncio.sleep(0))


@asynccontextmanager
async def opened_desk(url: str) -> AsyncIterator[ModelRegistry]:
    desk = ModelRegistry(
        Choices({"main": ModelChoice("m", url, prices=(100.0, 200.0, None))}, {}), ticks=FAST
    )
    try:
        yield desk
    finally:
        await desk.close()


async def trouble(at: Stage) -> list[dict[str, Any]]:
    """The model problems that the worker reports, once there are any."""
    async with asyncio.timeout(patient(30)):
        # Its worker beats when it does.
        while not (models := json.loads((await at.team.core.store.workers())[0].models or "[]")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert worker_view((await at.team.core.store.workers())[0], alive=True)["models"] == models
    return list(models)


async def test_a_circuit_that_opens_is_seen_with_the_worker(any_url: str, tmp_path: Path) -> None:
    async with (
        ModelServer("openai").running() as server,
        opened_desk(server.url) as desk,
        stage(any_url, tmp_path, [], workers=0) as at,
    ):
        server.replies = [Status(500, "out of order")]
        assert desk.trouble() == []
        await at.hire(desk, heartbeat_seconds=patient(1))
        tasks = [await at.create(limits={"max_attempts": 1}) for _ in range(FAILURES_TO_OPEN)]
        rested = [
            await at.team.until(task_id, lambda task: task.counts.runs == 1 and task.run is None)
            for task_id in tasks
        ]
        assert {(task.state, task.attempts) for task in rested} <= {
            (State.FAILED, 1),
            (State.PENDING, 0),
        }, "who was turned away comes back"
        (opened,) = [model for model in await trouble(at) if model["agent"] is None]
        assert (opened["endpoint"], opened["circuit"]) == (server.url, "open")
        assert opened["failures"] >= FAILURES_TO_OPEN
        assert opened["last"] == f"{server.url} answered 500: out of order"


async def test_a_circuit_that_opens_for_one_agent_is_reported_and_blocks_no_other(
    any_url: str, tmp_path: Path
) -> None:
    async with (
        ModelServer("openai").running() as server,
        opened_desk(server.url) as desk,
        stage(any_url, tmp_path, [], workers=0) as at,
    ):
        server.replies = [Status(400, "no such thing")]
        await at.hire(desk, heartbeat_seconds=patient(1))
        for _ in range(FAILURES_TO_OPEN):
            assert (await at.run(owner="general")).state is State.FAILED
        said = f"{server.url} answered 400: no such thing"
        assert await trouble(at) == [
            {
                "endpoint": server.url,
                "agent": "general",
                "circuit": "open",
                "failures": FAILURES_TO_OPEN,
                "last": said,
            }
        ]
        server.replies = [Say(("Fine.",))]
        assert (await at.run(owner="plan")).final_message == "Fine."
        held = await at.team.until(
            await at.create(owner="general"),
            lambda task: task.counts.runs == 1 and task.run is None,
        )
        assert (held.state, held.attempts, len(server.asked)) == (
            State.PENDING,
            0,
            FAILURES_TO_OPEN + 1,
        ), "it was not even asked"


async def test_the_model_that_answered_is_recorded_with_its_use_and_cost(
    any_url: str, tmp_path: Path
) -> None:
    async with (
        ModelServer("openai").running() as server,
        opened_desk(server.url) as desk,
        stage(any_url, tmp_path, [], workers=0) as at,
    ):
        server.replies = [Say((), (("a", "LS", ('{"path": "."}',)),)), Say(("Fine.",))]
        await at.hire(desk)
        found = await at.call("task", objective="Look")
        assert (
            server.asked[0].body["model"],
            found["data"]["model_used"],
            found["stats"]["model"],
        ) == ("m", "main (really)", "main (really)")
        assert (found["stats"]["tokens"], found["stats"]["tool_calls"]) == (300, 1)
        task = await at.team.task("1")
        assert (task.usage.requests, task.usage.input_tokens, task.usage.output_tokens) == (
            2,
            240,
            60,
        )
        assert task.usage.cost == pytest.approx(2 * (120 * 100 + 30 * 200) / 1e6)
        said = [message for message in await at.transcript("1") if message["role"] == "assistant"]
        assert [
            (message["model"], message["input"], message["output"], message["cached"])
            for message in said
        ] == [("really", 120, 30, 20)] * 2
